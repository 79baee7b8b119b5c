// SwiGLU with the router's weight, forward and backward, alone and with the quantization that follows.
// docs/numerics.md explains every bit.
#pragma once

#include "octet/quantize.hpp"

namespace octet {

// s[m,h] = weight[m] * silu(g) * u with g = gate_up[m, h] and u = gate_up[m, H + h]. weights [M] may be null: 1; they
// lie on the tensors' device. bf16 or f32, both of one format.
void swiglu(ConstTensorView gate_up, const float* weights, TensorView s, const Execution& on = {});

// dgate_up [M, 2H] from ds [M, H], and the weights' gradients [M], which may be null.
void swiglu_backward(ConstTensorView gate_up, const float* weights, ConstTensorView ds, TensorView dgate_up,
                     float* weight_gradients, const Execution& on = {});

// What quantize_rows, and quantize_columns where columns have a data pointer, would make of s, which is not written: it
// is rounded to gate_up's format and quantized in registers. Groups and alignment count for the columns alone.
void swiglu_quantize(ConstTensorView gate_up, const float* weights, Groups groups, std::int64_t alignment,
                     const QuantizeOptions& options, QuantizedView rows, QuantizedView columns,
                     const Execution& on = {});

// The same of dgate_up, a row of 2H elements.
void swiglu_backward_quantize(ConstTensorView gate_up, const float* weights, ConstTensorView ds, Groups groups,
                              std::int64_t alignment, const QuantizeOptions& options, QuantizedView rows,
                              QuantizedView columns, float* weight_gradients, const Execution& on = {});

// The workspace that the calls above need at most on a device, for s or dgate_up of this many features; 0 on the CPU.
std::size_t swiglu_workspace_bytes(Device device, Format format, std::int64_t tokens, std::int64_t features,
                                   std::int64_t groups);

}  // namespace octet
