// The scale rules of octet/scale.hpp in the arithmetic a GPU is fast at: no f64, and no division for powers of two.
// tests/gpu/scale_test.cpp holds them equal to octet::scale_of for every bf16 and for f32 around every boundary.
#pragma once

#include "gpu/simt.hpp"
#include "octet/scale.hpp"

namespace octet::gpu {

using namespace octet::simt;

// `amax` is the f32 bits of a magnitude; NaN is above infinity.
template <class Codec>
OCTET_GPU float scale_of_bits(u32 amax, ScaleRounding rounding) {
    // f32(1e-12) rounds to below 1e-12, and no f32 lies between them: at most this means at most 1e-12.
    constexpr u32 floor_bits = std::bit_cast<u32>(1e-12f);
    constexpr u32 max_bits = std::bit_cast<u32>(Codec::max);
    if (amax > 0x7F800000u) return std::bit_cast<float>(0x7FC00000u);
    if (rounding == ScaleRounding::power_of_two) {
        if (amax == 0x7F800000u) return 0.0f;
        const u32 a = amax > floor_bits ? amax : floor_bits;
        // max / a lies in [1, 2) times a power of two: the quotient of the exponents, less one where a's mantissa is
        // the larger. (1e-12 itself: the same power of two as its f32 neighbour gives.)
        const u32 borrow = (a & 0x7FFFFFu) > (max_bits & 0x7FFFFFu) ? 1u : 0u;
        const u32 exponent = (max_bits >> 23) + 127u - (a >> 23) - borrow;
        return std::bit_cast<float>(exponent << 23);
    }
    // f64 division rounded to f32 is f32 division: 53 bits are more than twice 24 plus one.
    constexpr float largest = static_cast<float>(static_cast<double>(Codec::max) / 1e-12);
    return amax > floor_bits ? Codec::max / std::bit_cast<float>(amax) : largest;
}

}  // namespace octet::gpu
