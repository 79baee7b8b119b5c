// The two inner loops around a CPU product: a row of codes to f32, and a row of f32 sums to the output.
// Compiled for several widths of vectors; the widest that the machine has is used.
#pragma once

#include <cstdint>

#include "octet/format.hpp"
#include "octet/product.hpp"

namespace octet::cpu {

struct ProductRows {
    // out[i] = multipliers[i / block] * value of codes[i], in one rounding; exact where the multiplier is a power of
    // two. Plain formats have no multipliers.
    using Decode = void (*)(const void* codes, std::int64_t count, std::int64_t block, const float* multipliers,
                            float* out);
    Decode decode[5];  // by Format: f32, bf16, e4m3, e4m3fnuz, e5m2

    // out[j] = (sums[j] * left) * right[j], rounded once to the output's format, or added to it. right may be null: 1.
    void (*finish_f32)(const float* sums, std::int64_t count, float left, const float* right, float* out);
    void (*finish_bf16)(const float* sums, std::int64_t count, float left, const float* right, std::uint16_t* out);
    void (*finish_add)(const float* sums, std::int64_t count, float left, const float* right, float* out);
    void (*finish_add_bf16)(const float* sums, std::int64_t count, float left, const float* right, std::uint16_t* out);

    Decode decode_of(Format format) const { return decode[static_cast<int>(format)]; }
};

const ProductRows& product_rows();

}  // namespace octet::cpu
