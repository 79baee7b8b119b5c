// The scale rules: from the largest magnitude of the elements that share a scale to that scale.
#pragma once

#include "octet/format.hpp"
#include "octet/recipe.hpp"

namespace octet {

// Folds |x| into a running maximum. Magnitudes are compared as integers, which orders them as numbers do and puts NaN
// above infinity: one NaN makes the maximum NaN, and it stays.
constexpr float fold_amax(float amax, float x) {
    const std::uint32_t a = detail::f32_abs_bits(amax), b = detail::f32_abs_bits(x);
    return detail::f32_from_bits(a > b ? a : b);
}

// rowwise and blockwise: the multiplier that brings amax to the format's largest value. An amax below 1e-12 counts
// as that, so that zeros have a scale too. amax = infinity gives 0, NaN gives NaN.
constexpr float scale_of(float amax, float format_max, ScaleRounding rounding) {
    if (detail::is_nan(amax)) return detail::f32_from_bits(0x7FC00000u);
    const double magnitude = static_cast<double>(amax) > 1e-12 ? static_cast<double>(amax) : 1e-12;
    const float scale = static_cast<float>(static_cast<double>(format_max) / magnitude);
    if (rounding == ScaleRounding::exact) return scale;
    return detail::f32_from_bits(detail::f32_bits(scale) & 0xFF800000u);  // clears the mantissa: rounds down
}

// mx: the byte b of the scale 2^(b - 127) of a block. Any NaN or infinity in it gives 255 (NaN).
template <class Codec>
constexpr std::uint8_t mx_scale_of(float amax, MxMode mode) {
    const std::uint32_t bits = detail::f32_abs_bits(amax);
    if (bits >= 0x7F800000u) return E8M0::nan_code;
    if (mode == MxMode::rceil) return E8M0::encode_up(amax * (1.0f / Codec::max));
    const std::uint32_t rounded = mode == MxMode::even ? bits + (1u << (22 - Codec::mantissa_bits)) : bits;
    int exponent = static_cast<int>(rounded >> 23);
    if (mode == MxMode::ceil && (rounded & 0x7FFFFFu) != 0) ++exponent;
    const int code = exponent - Codec::max_exponent;
    return static_cast<std::uint8_t>(code < 0 ? 0 : code);
}

// mx: the multiplier that a block with scale byte b is brought into range with, 2^(127 - b).
constexpr float mx_multiplier(std::uint8_t code) {
    return code == E8M0::nan_code ? detail::f32_from_bits(0x7FC00000u) : detail::pow2(127 - static_cast<int>(code));
}

}  // namespace octet
