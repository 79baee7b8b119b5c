// The op table: one row per operation, one column per backend. A null entry is an operation the backend does not have.
#pragma once

#include "octet/activation.hpp"
#include "octet/permute.hpp"

namespace octet {

struct OpTable {
    const char* backend;
    decltype(&octet::quantize_rows) quantize_rows;
    decltype(&octet::quantize_columns) quantize_columns;
    decltype(&octet::quantize_columns_dual) quantize_columns_dual;
    decltype(&octet::quantize_pair) quantize_pair;
    decltype(&octet::quantize_transposed) quantize_transposed;
    decltype(&octet::quantize_weights) quantize_weights;
    decltype(&octet::dequantize_rows) dequantize_rows;
    decltype(&octet::dequantize_columns) dequantize_columns;
    decltype(&octet::dequantize_transposed) dequantize_transposed;
    decltype(&octet::dequantize_weights) dequantize_weights;
    decltype(&octet::pad_groups) pad_groups;
    decltype(&octet::unpad_groups) unpad_groups;
    decltype(&octet::swizzle_scales) swizzle_scales;
    decltype(&octet::unswizzle_scales) unswizzle_scales;
    decltype(&octet::swizzle_group_scales) swizzle_group_scales;
    decltype(&octet::unswizzle_group_scales) unswizzle_group_scales;
    decltype(&octet::permute_tokens) permute_tokens;
    decltype(&octet::combine_tokens) combine_tokens;
    decltype(&octet::combine_tokens_backward) combine_tokens_backward;
    decltype(&octet::swiglu) swiglu;
    decltype(&octet::swiglu_backward) swiglu_backward;
    decltype(&octet::swiglu_quantize) swiglu_quantize;
    decltype(&octet::swiglu_backward_quantize) swiglu_backward_quantize;
};

// The column for tensors on `device` under `on`. Throws where the backend is not in this build or cannot reach the
// device.
const OpTable& op_table(const Execution& on, Device device);

}  // namespace octet
