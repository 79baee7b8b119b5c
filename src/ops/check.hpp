// Checks of arguments, shared by all operations. Each throws Error(invalid_argument) with the values and what to do.
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "octet/error.hpp"
#include "octet/quantize.hpp"

namespace octet::check {

inline constexpr std::int64_t any_size = -1;

// Non-null, of one of the formats, of the given shape (any_size where it is free), last axis stepping by 1, rows apart
// by at least their length, aligned to its element, and small enough that byte offsets fit in 64 bits.
void dense(std::string_view what, const ConstTensorView& view, std::initializer_list<Format> formats,
           std::initializer_list<std::int64_t> shape);

// As dense, but any strides under which no two elements share a place.
void strided(std::string_view what, const ConstTensorView& view, std::initializer_list<Format> formats,
             std::initializer_list<std::int64_t> shape);

// Every axis named must have at least one element.
void not_empty(std::string_view what, const ConstTensorView& view, std::initializer_list<int> axes);

// Offsets that do not decrease and end within `tokens`. On a GPU only what the host knows is checked.
void groups(const Groups& groups, std::int64_t tokens, Device device);

// A power of nothing in particular, but positive, a multiple of the scaling's block, and small enough that the padded
// token axis can be counted. Returns that axis's bound.
std::int64_t padded_tokens(std::int64_t tokens, std::int64_t group_count, std::int64_t alignment, std::int64_t block);

void options(const QuantizeOptions& options);

// All on one device.
void same_device(std::string_view what, Device expected, std::string_view other, Device given);

// Outputs must not share memory with inputs or with each other. Only whole, contiguous tensors are compared: views of
// interleaved parts of one buffer are the caller's business.
struct Named {
    std::string_view what;
    ConstTensorView view;
};
Named offsets(const Groups& groups);
void disjoint(const std::vector<Named>& inputs, const std::vector<Named>& outputs);

}  // namespace octet::check
