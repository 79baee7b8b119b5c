// The operators of torch.ops.octet; library.cpp has their schemas. Every one is its Octet namesake on torch's memory.
#pragma once

#include <tuple>

#include "tensors.hpp"

namespace octet::torch_binding {

using Text = std::string;
using Two = std::tuple<Tensor, Tensor>;
using Three = std::tuple<Tensor, Tensor, Tensor>;
using Four = std::tuple<Tensor, Tensor, Tensor, Tensor>;
using Six = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;
using Seven = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

// Quantizers: data, scale and inverse of each output.
Three quantize_rows(Tensor x, Text scaling, Text format, Text scale_rounding, Text mx_mode);
Three quantize_columns(Tensor x, Tensor ends, std::int64_t alignment, Text scaling, Text format, Text scale_rounding,
                       Text mx_mode);
Six quantize_columns_dual(Tensor x0, Tensor x1, Tensor ends, std::int64_t alignment, Text scaling, Text format,
                          Text scale_rounding, Text mx_mode);
Six quantize_pair(Tensor x, Tensor ends, std::int64_t alignment, Text scaling, Text format, Text scale_rounding,
                  Text mx_mode);
Three quantize_transposed(Tensor x, Tensor ends, std::int64_t alignment, Text scaling, Text format, Text scale_rounding,
                          Text mx_mode);
Six quantize_weights(Tensor w, Text scaling, Text format, Text scale_rounding, Text mx_mode);
Three quantize_weights_along(Tensor w, Text orientation, Text scaling, Text format, Text scale_rounding, Text mx_mode);

// `scale` is the multiplier that was applied, e8m0 for mx.
Tensor dequantize_rows(Tensor data, Tensor scale, Text scaling, Text out);
Tensor dequantize_columns(Tensor data, Tensor scale, Tensor ends, std::int64_t alignment, std::int64_t tokens,
                          Text scaling, Text out);
Tensor dequantize_transposed(Tensor data, Tensor scale, Tensor ends, std::int64_t alignment, std::int64_t tokens,
                             Text scaling, Text out);
Tensor dequantize_weights(Tensor data, Tensor scale, Text orientation, Text scaling, Text out);

// Layouts.
Two pad_groups(Tensor x, Tensor ends, std::int64_t alignment);
Tensor unpad_groups(Tensor padded, Tensor ends, std::int64_t alignment, std::int64_t tokens);
Tensor swizzle_scales(Tensor scale);
Tensor unswizzle_scales(Tensor blocked, std::int64_t rows, std::int64_t columns);
Tensor swizzle_group_scales(Tensor scale, Tensor ends);
Tensor unswizzle_group_scales(Tensor blocked, Tensor ends, std::int64_t rows, std::int64_t columns);

// SwiGLU of gate_up [M, 2H] with a weight a row (f32, or none), and with the quantization of its result. Gradients of
// the weights come last; a tensor of no elements where there were none.
Tensor swiglu(Tensor gate_up, std::optional<Tensor> weights);
Two swiglu_backward(Tensor gate_up, std::optional<Tensor> weights, Tensor ds);
Six swiglu_quantize(Tensor gate_up, std::optional<Tensor> weights, Tensor ends, std::int64_t alignment, Text scaling,
                    Text format, Text scale_rounding, Text mx_mode);
Seven swiglu_backward_quantize(Tensor gate_up, std::optional<Tensor> weights, Tensor ds, Tensor ends,
                               std::int64_t alignment, Text scaling, Text format, Text scale_rounding, Text mx_mode);

// Tokens to the experts' order and back. Slot t * top_k + j is token t's j-th choice; the two lists are int32.
Tensor permute_tokens(Tensor tokens, Tensor slot_of_row, Tensor row_of_slot, std::int64_t top_k);
Tensor combine_tokens(Tensor rows, std::optional<Tensor> weights, Tensor slot_of_row, Tensor row_of_slot,
                      std::int64_t top_k, std::optional<Tensor> addend);
Two combine_tokens_backward(Tensor dy, Tensor rows, std::optional<Tensor> weights, Tensor slot_of_row,
                            Tensor row_of_slot, std::int64_t top_k);

// Products: an operand is plain (no scale) or 8-bit data with the scale that products read.
Tensor grouped_forward(Tensor a, std::optional<Tensor> a_scale, Tensor w, std::optional<Tensor> w_scale, Tensor ends,
                       Text scaling, Text accumulation, Text out);
Tensor grouped_dgrad(Tensor dy, std::optional<Tensor> dy_scale, Tensor w, std::optional<Tensor> w_scale, Tensor ends,
                     Text scaling, Text accumulation, Text out);
Tensor grouped_wgrad(Tensor dy, std::optional<Tensor> dy_scale, Tensor a, std::optional<Tensor> a_scale, Tensor ends,
                     std::int64_t alignment, Text scaling, Text accumulation, Text out);

// A training step of one expert product: y = a . b, group by group. b [E, K, N] in either layout. The weights may have
// been cast before (cached); the cast of the input gradient passes through, for autograd to keep. So may the rows of a,
// and its columns, which pass through too. `kept` is what the weight gradient needs of a.
Three grouped_mm(Tensor a, Tensor b, Tensor ends, Text recipe, Text out, bool keep, std::optional<Tensor> cast,
                 std::optional<Tensor> cast_scale, std::optional<Tensor> dgrad_cast,
                 std::optional<Tensor> dgrad_cast_scale, std::optional<Tensor> rows, std::optional<Tensor> rows_scale,
                 std::optional<Tensor> columns, std::optional<Tensor> columns_scale);
// The same for callers who see to the gradients themselves. The weights may be cast in two visits (octet/quantize.hpp):
// the last result is then what the second one, in backward, needs of the first; nothing where there is but one.
using ThreeAndVisit = std::tuple<Tensor, Tensor, Tensor, std::optional<Tensor>>;
ThreeAndVisit grouped_mm_no_grad(Tensor a, Tensor b, Tensor ends, Text recipe, Text out, bool keep,
                                 std::optional<Tensor> cast, std::optional<Tensor> cast_scale,
                                 std::optional<Tensor> rows, std::optional<Tensor> rows_scale);
Two grouped_mm_backward(Tensor dy, Tensor b, Tensor ends, Text recipe, Tensor kept, std::optional<Tensor> kept_scale,
                        bool wants_a, bool wants_b, Text a_format, std::optional<Tensor> cast,
                        std::optional<Tensor> cast_scale, std::optional<Tensor> visit);
// The same, the gradient of a added to da: `rest` is what is still to be added to it, nothing where the product did it.
Two grouped_mm_backward_onto(Tensor dy, Tensor b, Tensor ends, Text recipe, Tensor kept,
                             std::optional<Tensor> kept_scale, Tensor da, bool wants_b, std::optional<Tensor> cast,
                             std::optional<Tensor> cast_scale, std::optional<Tensor> visit);
// Two products that share a, which is cast and kept once: the gate and up projections of an expert.
Four grouped_mm_dual(Tensor a, Tensor b0, Tensor b1, Tensor ends, Text recipe, Text out, bool keep);
// grouped_mm_no_grad, and the casts of a for other products: its rows (nothing where this one is in bf16), and what is
// kept.
using FiveAndVisit = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, std::optional<Tensor>>;
FiveAndVisit grouped_mm_share(Tensor a, Tensor b, Tensor ends, Text recipe, Text out, std::optional<Tensor> cast,
                              std::optional<Tensor> cast_scale);
// Those casts alone, the rows whatever the product is in: their shapes are then known before the call.
Four cast_tokens_both(Tensor a, Tensor ends, Text recipe);
// The weights of a product, cast for forward and for the input gradient: data and scale of each.
Four cast_weights(Tensor b, Text recipe);

// SwiGLU experts from x to their result: gate_up [E, 2H, D] and down [E, D, H] are parameters. x [M, D] lies in the
// experts' order and `weights` are the rows'; or, with the two lists of permute_tokens, x [T, D] does not, `weights`
// are the slots', and the result is each token's sum and the addend. Then what backward reads: gate_up's result, and x
// and the activation along tokens in 8 bits, nothing where the recipe makes weight gradients of plain tensors.
Six experts(Tensor x, Tensor gate_up, Tensor down, Tensor ends, std::optional<Tensor> weights, Text recipe, bool keep,
            std::optional<Tensor> slot_of_row, std::optional<Tensor> row_of_slot, std::int64_t top_k,
            std::optional<Tensor> addend);
// kept_x is x itself where nothing was kept of it.
Four experts_backward(Tensor dy, Tensor gate_up, Tensor down, Tensor ends, std::optional<Tensor> weights, Text recipe,
                      Tensor hidden, Tensor kept_x, std::optional<Tensor> kept_x_scale, Tensor kept_s,
                      Tensor kept_s_scale, bool wants_x, bool wants_weights, std::optional<Tensor> slot_of_row,
                      std::optional<Tensor> row_of_slot, std::int64_t top_k);

}  // namespace octet::torch_binding
