// The token embedding: a row of the table for every token, and back.
#pragma once

#include <cstdint>
#include <span>

#include "octet/quantize.hpp"
#include "octet/tensor.hpp"

namespace octet::train {

// h[t,:] = table[tokens[t],:]. table [V, D], h [T, D], f32. Throws where a token is not in the vocabulary.
void embed(std::span<const std::int32_t> tokens, ConstTensorView table, TensorView h, const Execution& on);

// table_gradient[tokens[t],:] += dh[t,:], tokens in order: each thread takes some features of all tokens.
void embed_backward(std::span<const std::int32_t> tokens, ConstTensorView dh, TensorView table_gradient,
                    const Execution& on);

}  // namespace octet::train
