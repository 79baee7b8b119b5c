// Stands in for the SIMD quantizers until each has its own file.
#include "cpu/quantize.hpp"

#include "reference/quantize.hpp"

namespace octet::cpu {

void quantize_rows(ConstTensorView x, const QuantizeOptions& options, QuantizedView out, const Execution& on) {
    reference::quantize_rows(x, options, out, on);
}
void quantize_columns(ConstTensorView x, Groups groups, std::int64_t alignment, const QuantizeOptions& options,
                      QuantizedView out, const Execution& on) {
    reference::quantize_columns(x, groups, alignment, options, out, on);
}
void quantize_columns_dual(ConstTensorView x0, ConstTensorView x1, Groups groups, std::int64_t alignment,
                           const QuantizeOptions& options, QuantizedView out0, QuantizedView out1,
                           const Execution& on) {
    reference::quantize_columns_dual(x0, x1, groups, alignment, options, out0, out1, on);
}
void quantize_pair(ConstTensorView x, Groups groups, std::int64_t alignment, const QuantizeOptions& options,
                   QuantizedView rows, QuantizedView columns, const Execution& on) {
    reference::quantize_pair(x, groups, alignment, options, rows, columns, on);
}
void quantize_transposed(ConstTensorView x, Groups groups, std::int64_t alignment, const QuantizeOptions& options,
                         QuantizedView out, const Execution& on) {
    reference::quantize_transposed(x, groups, alignment, options, out, on);
}
void quantize_weights(ConstTensorView w, const QuantizeOptions& options, QuantizedView along_k, QuantizedView along_n,
                      const Execution& on) {
    reference::quantize_weights(w, options, along_k, along_n, on);
}
void dequantize_rows(ConstQuantizedView q, const QuantizeOptions& options, TensorView x, const Execution& on) {
    reference::dequantize_rows(q, options, x, on);
}
void dequantize_columns(ConstQuantizedView q, Groups groups, std::int64_t alignment, const QuantizeOptions& options,
                        TensorView x, const Execution& on) {
    reference::dequantize_columns(q, groups, alignment, options, x, on);
}
void dequantize_transposed(ConstQuantizedView q, Groups groups, std::int64_t alignment,
                           const QuantizeOptions& options, TensorView x, const Execution& on) {
    reference::dequantize_transposed(q, groups, alignment, options, x, on);
}
void dequantize_weights(ConstQuantizedView q, WeightOrientation orientation, const QuantizeOptions& options,
                        TensorView w, const Execution& on) {
    reference::dequantize_weights(q, orientation, options, w, on);
}
void pad_groups(ConstTensorView x, Groups groups, std::int64_t alignment, TensorView padded,
                std::int32_t* padded_ends, const Execution& on) {
    reference::pad_groups(x, groups, alignment, padded, padded_ends, on);
}
void unpad_groups(ConstTensorView padded, Groups groups, std::int64_t alignment, TensorView x, const Execution& on) {
    reference::unpad_groups(padded, groups, alignment, x, on);
}
void swizzle_scales(ConstTensorView scale, TensorView blocked, const Execution& on) {
    reference::swizzle_scales(scale, blocked, on);
}
void unswizzle_scales(ConstTensorView blocked, TensorView scale, const Execution& on) {
    reference::unswizzle_scales(blocked, scale, on);
}
void swizzle_group_scales(ConstTensorView scale, Groups groups, TensorView blocked, const Execution& on) {
    reference::swizzle_group_scales(scale, groups, blocked, on);
}
void unswizzle_group_scales(ConstTensorView blocked, Groups groups, TensorView scale, const Execution& on) {
    reference::unswizzle_group_scales(blocked, groups, scale, on);
}

}  // namespace octet::cpu
