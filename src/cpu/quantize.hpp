// The CPU backend: the quantizers in SIMD (Highway), on all cores, bit-identical with octet::reference.
// Arguments are those of include/octet/quantize.hpp, already checked.
#pragma once

#include "octet/quantize.hpp"

namespace octet::cpu {

void quantize_rows(ConstTensorView x, const QuantizeOptions& options, QuantizedView out, const Execution& on);
void quantize_columns(ConstTensorView x, Groups groups, std::int64_t alignment, const QuantizeOptions& options,
                      QuantizedView out, const Execution& on);
void quantize_columns_dual(ConstTensorView x0, ConstTensorView x1, Groups groups, std::int64_t alignment,
                           const QuantizeOptions& options, QuantizedView out0, QuantizedView out1, const Execution& on);
void quantize_pair(ConstTensorView x, Groups groups, std::int64_t alignment, const QuantizeOptions& options,
                   QuantizedView rows, QuantizedView columns, const Execution& on);
void quantize_transposed(ConstTensorView x, Groups groups, std::int64_t alignment, const QuantizeOptions& options,
                         QuantizedView out, const Execution& on);
void quantize_weights(ConstTensorView w, const QuantizeOptions& options, QuantizedView along_k, QuantizedView along_n,
                      const Execution& on);

void dequantize_rows(ConstQuantizedView q, const QuantizeOptions& options, TensorView x, const Execution& on);
void dequantize_columns(ConstQuantizedView q, Groups groups, std::int64_t alignment, const QuantizeOptions& options,
                        TensorView x, const Execution& on);
void dequantize_transposed(ConstQuantizedView q, Groups groups, std::int64_t alignment, const QuantizeOptions& options,
                           TensorView x, const Execution& on);
void dequantize_weights(ConstQuantizedView q, WeightOrientation orientation, const QuantizeOptions& options,
                        TensorView w, const Execution& on);

void pad_groups(ConstTensorView x, Groups groups, std::int64_t alignment, TensorView padded, std::int32_t* padded_ends,
                const Execution& on);
void unpad_groups(ConstTensorView padded, Groups groups, std::int64_t alignment, TensorView x, const Execution& on);

void swizzle_scales(ConstTensorView scale, TensorView blocked, const Execution& on);
void unswizzle_scales(ConstTensorView blocked, TensorView scale, const Execution& on);
void swizzle_group_scales(ConstTensorView scale, Groups groups, TensorView blocked, const Execution& on);
void unswizzle_group_scales(ConstTensorView blocked, Groups groups, TensorView scale, const Execution& on);

}  // namespace octet::cpu
