// The quantizers of include/octet/quantize.hpp on CUDA: arguments already checked, device pointers, asynchronous on
// Execution::stream, nothing read back by the host, capturable in a graph.
#pragma once

#include "octet/quantize.hpp"

namespace octet::cuda {

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

// Workspace that a call of the operations above needs at most; 0 groups for those without them. Without a workspace the
// calls allocate from the stream's memory pool.
//   tokens: rows of x, features: columns of x (of both, for the dual form), groups: of tokens
std::size_t token_workspace_bytes(std::int64_t tokens, std::int64_t features, std::int64_t groups);
std::size_t weight_workspace_bytes(std::int64_t experts, std::int64_t n, std::int64_t k);

}  // namespace octet::cuda
