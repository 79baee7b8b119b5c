// The operations that every backend implements, by name: what declares them, tabulates them or checks them goes through
// these lists. A backend's function has the type of the public one, and its arguments have been checked.
#pragma once

#include "octet/activation.hpp"
#include "octet/permute.hpp"
#include "octet/quantize.hpp"

// clang-format off
#define OCTET_QUANTIZE_OPERATIONS(each)                                                                 \
    each(quantize_rows) each(quantize_columns) each(quantize_columns_dual)                              \
    each(quantize_pair) each(quantize_transposed) each(quantize_weights)                                \
    each(dequantize_rows) each(dequantize_columns) each(dequantize_transposed) each(dequantize_weights) \
    each(pad_groups) each(unpad_groups)                                                                 \
    each(swizzle_scales) each(unswizzle_scales)                                                         \
    each(swizzle_group_scales) each(unswizzle_group_scales)

#define OCTET_TOKEN_OPERATIONS(each)                                        \
    each(permute_tokens) each(combine_tokens) each(combine_tokens_backward) \
    each(swiglu) each(swiglu_backward)                                      \
    each(swiglu_quantize) each(swiglu_backward_quantize)
// clang-format on

#define OCTET_DECLARE_OPERATION(name) decltype(octet::name) name;  // NOLINT(bugprone-macro-parentheses): a declaration
