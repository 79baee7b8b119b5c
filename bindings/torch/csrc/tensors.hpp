// torch's tensors as Octet's views, and what a call needs besides: memory for its outputs, the stream, the workspace.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "octet/groups.hpp"
#include "octet/linear.hpp"
#include "octet/product.hpp"
#include "octet/quantize.hpp"

namespace octet::torch_binding {

using ::torch::stable::Tensor;

// The sizes of a tensor's axes, or their strides. In place: a call makes dozens of them.
class Shape {
public:
    Shape(std::initializer_list<std::int64_t> sizes) : rank_(sizes.size()) {
        std::copy(sizes.begin(), sizes.end(), sizes_.begin());
    }
    std::size_t size() const { return rank_; }
    std::int64_t operator[](std::size_t axis) const { return sizes_[axis]; }
    std::int64_t& operator[](std::size_t axis) { return sizes_[axis]; }
    const std::int64_t* data() const { return sizes_.data(); }
    const std::int64_t* begin() const { return data(); }
    const std::int64_t* end() const { return data() + rank_; }

private:
    std::array<std::int64_t, Extents::max_rank> sizes_{};
    std::size_t rank_;
};

// torch gives a tensor of no elements no memory; Octet's checks read a null pointer as a tensor that is missing.
void* address_of(const Tensor& tensor);
Device device_of(const Tensor& tensor);
Format format_of(const char* what, const Tensor& tensor);  // throws for a dtype that Octet does not have
TensorView view_of(const char* what, const Tensor& tensor);
Groups groups_of(const Tensor& ends);  // [G] int32, contiguous

// Elements that are not set, except on the CPU where `zeroed` asks for it: what an operation leaves as it is (rows that
// no group owns, columns past the last group) is then the same from run to run. On a GPU that would cost a pass.
enum class Contents { unset, zeroed };
Tensor allocate(const Tensor& like, Format format, const Shape& shape, Contents contents = Contents::unset);
// The same with strides of the caller's choice.
Tensor allocate_strided(const Tensor& like, Format format, const Shape& shape, const Shape& strides, Contents contents);

// The same elements, with a last axis that steps by 1 and rows that do not overlap: a copy only where they are not so.
Tensor with_dense_rows(const Tensor& tensor);

// 8-bit elements as uint8: what autograd keeps is bytes to it, not numbers that could have a gradient.
Tensor allocate_bytes(const Tensor& like, const Shape& shape, const Shape& strides, Contents contents);
Tensor allocate_bytes(const Tensor& like, std::int64_t count);
TensorView view_of_bytes(const Tensor& tensor, Format format);

QuantizeOptions options_of(const std::string& scaling, const std::string& format, const std::string& scale_rounding,
                           const std::string& mx_mode);

// What a quantizer writes: the shapes of the data and of a scale. Blockwise scales of tokens lie as a GPU's products
// read them: those of one block of the reduction beside each other.
struct QuantizedShape {
    QuantizeOptions options;
    Shape data, scale, scale_strides;
    std::int64_t pitch = 0;  // elements from row to row of the data; 0: they follow each other

    Shape data_strides() const;
    std::size_t data_bytes() const;  // with what is between the rows
    Format scale_format() const { return options.scaling == Scaling::mx ? Format::e8m0 : Format::f32; }
};
QuantizedShape rows_shape(const QuantizeOptions& options, std::int64_t tokens, std::int64_t features, Device device);
QuantizedShape columns_shape(const QuantizeOptions& options, std::int64_t tokens, std::int64_t features,
                             std::int64_t groups, std::int64_t alignment, Device device);
QuantizedShape weights_shape(const QuantizeOptions& options, std::int64_t experts, std::int64_t rows,
                             std::int64_t reduction);

// Quantized elements in tensors of their own. mx has no inverse: it is a tensor of no elements.
struct QuantizedTensors {
    Tensor data, scale, inverse;
    bool has_inverse;

    QuantizedTensors(const Tensor& like, const QuantizedShape& shape, Contents contents = Contents::unset);
    QuantizedView view() const;
};

// Data and the scale that products read, at two addresses: `inverse`, or `scale` for mx.
QuantizedView view_at(const QuantizedShape& shape, void* data, void* scale, Device device);

// An operand that a quantizer made earlier.
Operand operand_of(const char* what, const Tensor& data, const std::optional<Tensor>& scale, Scaling scaling);

// The device's current stream, and the device made the current one while this lives. `memory`, on a multiple of 256
// bytes, comes from torch's allocator and goes back with this: what is launched on the stream by then may still use it.
class Call {
public:
    explicit Call(const Tensor& tensor, std::size_t memory_bytes = 0);
    const Execution& on() const { return on_; }
    // The next `bytes` of the memory.
    void* take(std::size_t bytes);
    // The next `bytes` as a quantizer's workspace; it stays the workspace of later calls.
    void take_workspace(std::size_t bytes);

private:
    std::optional<::torch::stable::accelerator::DeviceGuard> guard_;
    std::optional<Tensor> memory_;
    std::byte* next_ = nullptr;
    Execution on_{};
};

constexpr std::size_t memory_alignment = 256;
constexpr std::size_t aligned(std::size_t bytes) {
    return (bytes + memory_alignment - 1) / memory_alignment * memory_alignment;
}
// What take() of a shape's data and scale needs.
std::size_t bytes_of(const QuantizedShape& shape);
QuantizedView take(Call& call, const QuantizedShape& shape, Device device);

}  // namespace octet::torch_binding
