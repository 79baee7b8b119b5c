// Host memory, aligned for the widest vector loads there are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "octet/tensor.hpp"

namespace octet {

class Buffer {
public:
    static constexpr std::size_t alignment = 64;

    Buffer() = default;
    explicit Buffer(std::size_t bytes);  // contents are not set; throws Error(out_of_memory) with the size
    ~Buffer();
    Buffer(Buffer&& other) noexcept;
    Buffer& operator=(Buffer&& other) noexcept;
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    void* data() { return data_; }
    const void* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }
    template <class T>
    T* as() {
        return static_cast<T*>(data_);
    }
    template <class T>
    const T* as() const {
        return static_cast<const T*>(data_);
    }

private:
    void* data_ = nullptr;
    std::size_t bytes_ = 0;
};

// A host tensor that owns its elements.
class Tensor {
public:
    Tensor() = default;
    Tensor(Format format, Extents extents);  // contiguous

    TensorView view() { return {buffer_.data(), format_, extents_}; }
    ConstTensorView view() const { return {buffer_.data(), format_, extents_}; }
    operator TensorView() { return view(); }
    operator ConstTensorView() const { return view(); }
    Format format() const { return format_; }
    const Extents& extents() const { return extents_; }
    std::int64_t elements() const { return extents_.elements(); }
    std::size_t bytes() const { return buffer_.bytes(); }
    template <class T>
    T* as() {
        return buffer_.as<T>();
    }
    template <class T>
    const T* as() const {
        return buffer_.as<T>();
    }

private:
    Format format_ = Format::f32;
    Extents extents_{};
    Buffer buffer_{};
};

}  // namespace octet
