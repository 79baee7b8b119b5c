// The inner loops over contiguous elements: maxima of blocks, cast to 8 bits, and back.
//
// A block is 2^block_shift elements; whole_row makes the row one block. Elements past `count` are neither read nor
// written. Blocks are 32 or 128 elements or whole rows: no vector pair ever straddles two.
#pragma once

#include <cstdint>

#include "octet/format.hpp"

namespace octet::cpu {

inline constexpr int whole_row = 62;

// For one input format (bf16 or f32) and one 8-bit format.
struct RowKernels {
    // amax[b]: the largest magnitude of block b, as the bits of an f32; above 0x7F800000 where there is a NaN.
    void (*block_amax)(const void* x, std::int64_t count, int block_shift, std::uint32_t* amax);
    // out[i] = cast(x[i] * multiplier[i >> block_shift]). `in_range` is what make_scales said of the
    // multipliers; `stream` writes past the caches.
    void (*cast)(const void* x, std::int64_t count, int block_shift, const float* multiplier, bool in_range,
                 bool stream, std::uint8_t* out);
    // x[i] = value(q[i]) * inverse[i >> block_shift], rounded to x's format.
    void (*decode)(const std::uint8_t* q, std::int64_t count, int block_shift, const float* inverse, void* x);
};

const RowKernels& row_kernels(Format input, Format data);

}  // namespace octet::cpu
