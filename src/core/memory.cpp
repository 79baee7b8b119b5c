#include "octet/memory.hpp"

#include <cstdlib>
#include <new>
#include <utility>

#include "octet/error.hpp"

namespace octet {

Buffer::Buffer(std::size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    data_ = ::operator new (bytes, std::align_val_t{alignment}, std::nothrow);
    if (data_ == nullptr) fail(Status::out_of_memory, "could not allocate ", bytes, " bytes of host memory");
}

Buffer::~Buffer() { ::operator delete (data_, std::align_val_t{alignment}); }

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

Tensor::Tensor(Format format, Extents extents)
    : format_(format),
      extents_(extents),
      buffer_(static_cast<std::size_t>(extents.elements()) * static_cast<std::size_t>(bytes_of(format))) {
    require(extents.contiguous(), "an owning tensor is contiguous; shape ", to_string(extents),
            " was given with strides");
}

}  // namespace octet
