// The scale rules of octet/scale.hpp in the arithmetic a GPU is fast at: no f64, and no division for powers of two.
// tests/gpu/scale_test.cpp holds them equal to octet::scale_of for every bf16 and for f32 around every boundary.
#pragma once

#include "gpu/simt.hpp"
#include "octet/scale.hpp"

namespace octet::gpu {

using namespace octet::simt;

// The exponent of the scale, a power of two, of a magnitude that is a number.
template <class Codec>
OCTET_GPU constexpr u32 scale_exponent(u32 amax) {
    // f32(1e-12) rounds to below 1e-12, and no f32 lies between them: at most this means at most 1e-12.
    constexpr u32 floor_bits = std::bit_cast<u32>(1e-12f);
    constexpr u32 max_bits = std::bit_cast<u32>(Codec::max);
    const u32 a = amax > floor_bits ? amax : floor_bits;
    // max / a lies in [1, 2) times a power of two: the quotient of the exponents, less one where a's mantissa is
    // the larger. (1e-12 itself: the same power of two as its f32 neighbour gives.)
    const u32 borrow = (a & 0x7FFFFFu) > (max_bits & 0x7FFFFFu) ? 1u : 0u;
    return (max_bits >> 23) + 127u - (a >> 23) - borrow;
}

// `amax` is the f32 bits of a magnitude; NaN is above infinity.
template <class Codec>
OCTET_GPU float scale_of_bits(u32 amax, ScaleRounding rounding) {
    float scale;
    if (rounding == ScaleRounding::power_of_two) {
        scale = std::bit_cast<float>(scale_exponent<Codec>(amax) << 23);
    } else {
        constexpr u32 floor_bits = std::bit_cast<u32>(1e-12f);
        // f64 division rounded to f32 is f32 division: 53 bits are more than twice 24 plus one.
        constexpr float largest = static_cast<float>(static_cast<double>(Codec::max) / 1e-12);
        scale = quotient(Codec::max, std::bit_cast<float>(amax));
        scale = amax > floor_bits ? scale : largest;
    }
    scale = amax == 0x7F800000u ? 0.0f : scale;
    return amax > 0x7F800000u ? std::bit_cast<float>(0x7FC00000u) : scale;
}

// mx_scale_of without branches: every mode adds something to the magnitude's bits and takes the exponent.
template <class Codec>
OCTET_GPU u8 mx_scale_of_bits(u32 amax, MxMode mode) {
    const bool divides = mode == MxMode::rceil;
    const u32 added = divides || mode == MxMode::ceil ? 0x7FFFFFu
                      : mode == MxMode::even          ? 1u << (22 - Codec::mantissa_bits)
                                                      : 0u;
    const u32 bits = std::bit_cast<u32>(std::bit_cast<float>(amax) * (divides ? 1.0f / Codec::max : 1.0f));
    const i32 code = static_cast<i32>((bits + added) >> 23) - (divides ? 0 : Codec::max_exponent);
    const bool tiny = code < 0 || (divides && bits <= 0x00400000u);  // at most 2^-127
    return static_cast<u8>(amax >= 0x7F800000u ? i32{E8M0::nan_code} : tiny ? 0 : code);
}

// mx_multiplier likewise.
OCTET_GPU float mx_multiplier_of(u8 code) {
    const u32 bits = code == 254 ? 0x00400000u : static_cast<u32>(254 - code) << 23;
    return std::bit_cast<float>(code == E8M0::nan_code ? 0x7FC00000u : bits);
}

}  // namespace octet::gpu
