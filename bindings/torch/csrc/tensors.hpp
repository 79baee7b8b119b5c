// torch's tensors as Octet's views, and what a call needs besides: memory for its outputs, the stream, the workspace.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <array>
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
using Shape = std::vector<std::int64_t>;

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

// 8-bit elements as uint8 and back: what autograd keeps is bytes to it, not numbers that could have a gradient.
Tensor as_bytes(const Tensor& tensor);
TensorView view_of_bytes(const Tensor& tensor, Format format);

QuantizeOptions options_of(const std::string& scaling, const std::string& format, const std::string& scale_rounding,
                           const std::string& mx_mode);

// Quantized elements in torch's memory. mx has no inverse: it is a tensor of no elements.
struct QuantizedTensors {
    Tensor data, scale, inverse;
    Scaling scaling = Scaling::rowwise;
    bool has_scale = true, has_inverse = true;

    QuantizedView view() const;
    Operand operand() const { return {view(), scaling}; }
    const Tensor& product_scale() const { return scaling == Scaling::mx ? scale : inverse; }
};

// Which of `scale` and `inverse` are made: products read one of them.
enum class Scales { both, of_products };
QuantizedTensors rows_like(const Tensor& x, const QuantizeOptions& options, Scales scales);
QuantizedTensors columns_like(const Tensor& x, std::int64_t tokens, std::int64_t features, std::int64_t groups,
                              std::int64_t alignment, const QuantizeOptions& options, Scales scales);
QuantizedTensors weights_like(const Tensor& w, std::int64_t rows, std::int64_t reduction,
                              const QuantizeOptions& options, Scales scales);

// An operand that a quantizer made earlier.
Operand operand_of(const char* what, const Tensor& data, const std::optional<Tensor>& scale, Scaling scaling);

// The device's current stream, made the current device while this lives, and a workspace from torch's allocator.
class Call {
public:
    explicit Call(const Tensor& tensor, std::size_t workspace_bytes = 0);
    const Execution& on() const { return on_; }

private:
    std::optional<::torch::stable::accelerator::DeviceGuard> guard_;
    std::optional<Tensor> workspace_;
    Execution on_{};
};

}  // namespace octet::torch_binding
