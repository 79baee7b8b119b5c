// Formats: how one element is stored, and the exact conversions between f32 and each format.
//
// Everything here is constexpr and integer-only, so that the same definition serves the scalar reference, the tests
// and, compiled by nvcc or clang, device code on machines without 8-bit convert instructions.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace octet {

enum class Format : std::uint8_t { f32, bf16, e4m3, e4m3fnuz, e5m2, e8m0 };

std::string_view name(Format format);
Format parse_format(std::string_view text);  // throws Error naming the known formats

constexpr int bytes_of(Format format) { return format == Format::f32 ? 4 : format == Format::bf16 ? 2 : 1; }

// The three 8-bit element formats: those a quantizer may write.
constexpr bool is_fp8(Format format) {
    return format == Format::e4m3 || format == Format::e4m3fnuz || format == Format::e5m2;
}

namespace detail {

constexpr std::uint32_t f32_bits(float x) { return std::bit_cast<std::uint32_t>(x); }
constexpr float f32_from_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }
constexpr std::uint32_t f32_abs_bits(float x) { return f32_bits(x) & 0x7FFFFFFFu; }
constexpr bool is_nan(float x) { return f32_abs_bits(x) > 0x7F800000u; }

// 2^exponent for any exponent that f32 can hold, subnormals included.
constexpr float pow2(int exponent) {
    if (exponent > 127) return f32_from_bits(0x7F800000u);
    if (exponent >= -126) return f32_from_bits(static_cast<std::uint32_t>(exponent + 127) << 23);
    if (exponent >= -149) return f32_from_bits(1u << (exponent + 149));
    return 0.0f;
}

}  // namespace detail

// An 8-bit float: 1 sign bit, then exponent, then mantissa. Overflow saturates; rounding is to nearest even;
// subnormals are kept. `Traits` says what differs between formats.
template <class Traits>
struct Float8 {
    static constexpr int exponent_bits = Traits::exponent_bits;
    static constexpr int mantissa_bits = Traits::mantissa_bits;
    static constexpr int bias = Traits::bias;
    static constexpr float max = Traits::max;
    static constexpr int max_exponent = Traits::max_exponent;  // floor(log2(max))
    static constexpr std::uint8_t nan_code = Traits::nan_code;
    static constexpr bool has_negative_zero = Traits::has_negative_zero;

    static constexpr std::uint8_t encode(float x) {
        if (detail::is_nan(x)) return nan_code;
        const std::uint32_t magnitude = detail::f32_abs_bits(x);
        std::uint32_t code = encode_magnitude(magnitude);
        const bool negative = detail::f32_bits(x) >> 31;
        if (negative && (code != 0 || has_negative_zero)) code |= 0x80u;
        return static_cast<std::uint8_t>(code);
    }

    static constexpr float decode(std::uint8_t code) {
        if (Traits::is_nan(code)) return detail::f32_from_bits(0x7FC00000u);
        const std::uint32_t field = (code & 0x7Fu) >> mantissa_bits;
        const std::uint32_t mantissa = code & ((1u << mantissa_bits) - 1);
        float magnitude;
        if (Traits::is_infinity(code)) {
            magnitude = detail::f32_from_bits(0x7F800000u);
        } else if (field == 0) {
            magnitude = static_cast<float>(mantissa) * detail::pow2(1 - bias - mantissa_bits);
        } else {
            const std::uint32_t exponent = field + 127u - bias;
            magnitude = detail::f32_from_bits(exponent << 23 | mantissa << (23 - mantissa_bits));
        }
        return code & 0x80u ? -magnitude : magnitude;
    }

    static constexpr bool is_nan(std::uint8_t code) { return Traits::is_nan(code); }

private:
    static constexpr std::uint32_t max_code = Traits::max_code;
    static constexpr int min_normal_exponent = 1 - bias;

    static constexpr std::uint32_t encode_magnitude(std::uint32_t magnitude) {
        if (magnitude >= detail::f32_bits(max)) return max_code;
        const int exponent = static_cast<int>(magnitude >> 23) - 127;
        // Below the smallest normal number every binade loses one more mantissa bit.
        const int lost = exponent < min_normal_exponent ? min_normal_exponent - exponent : 0;
        const int shift = 23 - mantissa_bits + lost;
        if (shift > 24) return 0;  // less than half of the smallest subnormal
        const std::uint32_t significand = (magnitude & 0x7FFFFFu) | 0x800000u;
        const std::uint32_t kept = significand >> shift;
        const std::uint32_t rest = significand & ((1u << shift) - 1);
        const std::uint32_t half = 1u << (shift - 1);
        const std::uint32_t rounded = kept + (rest > half || (rest == half && (kept & 1u)) ? 1u : 0u);
        if (lost > 0) return rounded;
        // The significand's leading 1 adds itself to the exponent field, and so does a carry out of rounding.
        return (static_cast<std::uint32_t>(exponent - min_normal_exponent) << mantissa_bits) + rounded;
    }
};

struct E4M3Traits {  // OCP "fn": no infinity, one NaN a sign
    static constexpr int exponent_bits = 4, mantissa_bits = 3, bias = 7, max_exponent = 8;
    static constexpr float max = 448.0f;
    static constexpr std::uint8_t max_code = 0x7E, nan_code = 0x7F;
    static constexpr bool has_negative_zero = true;
    static constexpr bool is_nan(std::uint8_t code) { return (code & 0x7Fu) == 0x7Fu; }
    static constexpr bool is_infinity(std::uint8_t) { return false; }
};

struct E4M3FnuzTraits {  // AMD gfx942: no infinity, no -0, the code of -0 is the only NaN
    static constexpr int exponent_bits = 4, mantissa_bits = 3, bias = 8, max_exponent = 7;
    static constexpr float max = 240.0f;
    static constexpr std::uint8_t max_code = 0x7F, nan_code = 0x80;
    static constexpr bool has_negative_zero = false;
    static constexpr bool is_nan(std::uint8_t code) { return code == 0x80u; }
    static constexpr bool is_infinity(std::uint8_t) { return false; }
};

struct E5M2Traits {  // IEEE-like: infinity and NaNs, though encode saturates and never makes an infinity
    static constexpr int exponent_bits = 5, mantissa_bits = 2, bias = 15, max_exponent = 15;
    static constexpr float max = 57344.0f;
    static constexpr std::uint8_t max_code = 0x7B, nan_code = 0x7F;
    static constexpr bool has_negative_zero = true;
    static constexpr bool is_nan(std::uint8_t code) { return (code & 0x7Fu) > 0x7Cu; }
    static constexpr bool is_infinity(std::uint8_t code) { return (code & 0x7Fu) == 0x7Cu; }
};

using E4M3 = Float8<E4M3Traits>;
using E4M3Fnuz = Float8<E4M3FnuzTraits>;
using E5M2 = Float8<E5M2Traits>;

// MX scales: a power of two, 2^(code - 127); 255 is NaN.
struct E8M0 {
    static constexpr std::uint8_t nan_code = 255;
    static constexpr float decode(std::uint8_t code) {
        return code == nan_code ? detail::f32_from_bits(0x7FC00000u) : detail::pow2(static_cast<int>(code) - 127);
    }
    // The code of the smallest power of two that is not below x; x is not negative.
    static constexpr std::uint8_t encode_up(float x) {
        const std::uint32_t bits = detail::f32_bits(x);
        if (bits >= 0x7F800000u) return nan_code;
        if (bits <= 0x00400000u) return 0;  // at most 2^-127, which f32 holds as a subnormal
        const std::uint32_t up = (bits >> 23) + ((bits & 0x7FFFFFu) != 0 ? 1u : 0u);
        return static_cast<std::uint8_t>(up > 254u ? 254u : up);
    }
};

struct BF16 {
    static constexpr std::uint16_t encode(float x) {
        const std::uint32_t bits = detail::f32_bits(x);
        if (detail::is_nan(x)) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
        return static_cast<std::uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
    }
    static constexpr float decode(std::uint16_t code) {
        return detail::f32_from_bits(static_cast<std::uint32_t>(code) << 16);
    }
};

// Calls f with the codec of an 8-bit element format: with_fp8(format, [&](auto codec) { codec.encode(x); })
template <class F>
constexpr auto with_fp8(Format format, F&& f) {
    switch (format) {
        case Format::e4m3fnuz: return f(E4M3Fnuz{});
        case Format::e5m2: return f(E5M2{});
        default: return f(E4M3{});
    }
}

constexpr float max_of(Format format) {
    return with_fp8(format, [](auto codec) { return codec.max; });
}

}  // namespace octet
