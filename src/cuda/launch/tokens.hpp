// The permutation and SwiGLU of octet/permute.hpp and octet/activation.hpp on CUDA: arguments already checked, device
// pointers, asynchronous on Execution::stream, capturable in a graph.
#pragma once

#include "octet/activation.hpp"
#include "octet/permute.hpp"

namespace octet::cuda {

void permute_tokens(const TokenOrder& order, ConstTensorView tokens, TensorView rows, const Execution& on);
void combine_tokens(const TokenOrder& order, ConstTensorView rows, const float* weights,
                    std::span<const ConstTensorView> addends, TensorView y, const Execution& on);
void combine_tokens_backward(const TokenOrder& order, ConstTensorView dy, ConstTensorView rows, const float* weights,
                             TensorView drows, float* weight_gradients, const Execution& on);

void swiglu(ConstTensorView gate_up, const float* weights, TensorView s, const Execution& on);
void swiglu_backward(ConstTensorView gate_up, const float* weights, ConstTensorView ds, TensorView dgate_up,
                     float* weight_gradients, const Execution& on);
void swiglu_quantize(ConstTensorView gate_up, const float* weights, Groups groups, std::int64_t alignment,
                     const QuantizeOptions& options, QuantizedView rows, QuantizedView columns, const Execution& on);
void swiglu_backward_quantize(ConstTensorView gate_up, const float* weights, ConstTensorView ds, Groups groups,
                              std::int64_t alignment, const QuantizeOptions& options, QuantizedView rows,
                              QuantizedView columns, float* weight_gradients, const Execution& on);

std::size_t swiglu_workspace_bytes(Format format, std::int64_t tokens, std::int64_t features, std::int64_t groups);

}  // namespace octet::cuda
