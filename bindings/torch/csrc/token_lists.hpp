// What tokens.cpp and experts.cpp read by its address: numbers beside the tokens, and the lists of their order.
#pragma once

#include "octet/permute.hpp"
#include "tensors.hpp"

namespace octet::torch_binding {

// `count` f32 numbers, contiguous, on the device of `beside`; null where there are none.
float* floats_of(const char* what, const std::optional<Tensor>& values, std::int64_t count, const Tensor& beside);

TokenOrder order_of(const Tensor& slot_of_row, const Tensor& row_of_slot, std::int64_t top_k);

}  // namespace octet::torch_binding
