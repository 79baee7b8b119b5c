// Tokens to the experts' order and back. docs/numerics.md explains every bit.
//
// T tokens go to top_k experts each: slot t * top_k + j is token t's j-th choice. A row is a slot's place after sorting
// by expert. Where a slot has no row, or a row no slot (any index outside the other's range, -1 say), the token was
// dropped there: its row is zero, and it adds nothing.
#pragma once

#include <span>

#include "octet/quantize.hpp"

namespace octet {

// Both lists on the tensors' device, and each the other's inverse.
struct TokenOrder {
    std::int64_t tokens = 0, top_k = 0;
    std::int64_t rows = 0;                      // tokens * top_k where none was dropped
    const std::int32_t* row_of_slot = nullptr;  // [T * top_k]
    const std::int32_t* slot_of_row = nullptr;  // [rows]
    Device device{};
    std::int64_t slots() const { return tokens * top_k; }
};

// rows[m] = tokens[slot_of_row[m] / top_k], zero where that is no slot. Any format. Its gradient is combine_tokens
// without weights.
void permute_tokens(const TokenOrder& order, ConstTensorView tokens, TensorView rows, const Execution& on = {});

// y[t] = the sum over token t's slots, in their order, of weight * row, then each addend [T, D] in turn; an fma a term
// from zero, in f32, rounded once at the end. weights [T * top_k] by slot may be null: 1. At most 3 addends. All are
// bf16 or f32, each as it likes.
void combine_tokens(const TokenOrder& order, ConstTensorView rows, const float* weights,
                    std::span<const ConstTensorView> addends, TensorView y, const Execution& on = {});

// drows[m] = weight * dy[t], zero where the row has no slot; and the gradient of each slot's weight, the dot product of
// dy[t] and its row (0 where the slot has none), summed in the order of docs/numerics.md. dy, rows and drows are of one
// format. weight_gradients [T * top_k] may be null, and so may rows then.
void combine_tokens_backward(const TokenOrder& order, ConstTensorView dy, ConstTensorView rows, const float* weights,
                             TensorView drows, float* weight_gradients, const Execution& on = {});

}  // namespace octet
