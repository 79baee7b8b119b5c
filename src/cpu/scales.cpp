#include "cpu/scales.hpp"

#include <cstring>

#include "octet/scale.hpp"

namespace octet::cpu {
namespace {

using octet::detail::f32_bits;
using octet::detail::f32_from_bits;

constexpr std::uint32_t infinity_bits = 0x7F800000u;

// mx_scale_of and mx_multiplier of octet/scale.hpp without a branch, so that the compiler makes vectors of them.
template <class Codec, MxMode mode>
void make_mx(const std::uint32_t* amax, std::int64_t count, float* multiplier, std::uint8_t* codes) {
    constexpr std::uint32_t below_one = 0x7FFFFFu;  // added, it carries into the exponent unless the mantissa is zero
    for (std::int64_t i = 0; i < count; ++i) {
        const std::uint32_t bits = amax[i];
        std::uint32_t code;
        if constexpr (mode == MxMode::rceil) {
            const std::uint32_t scaled = f32_bits(f32_from_bits(bits) * (1.0f / Codec::max));
            code = scaled <= 0x00400000u ? 0 : (scaled + below_one) >> 23;  // 2^-127 is a subnormal of f32
        } else {
            constexpr std::uint32_t half = 1u << (22 - Codec::mantissa_bits);
            const std::uint32_t up = mode == MxMode::ceil ? below_one : mode == MxMode::even ? half : 0;
            const std::uint32_t exponent = (bits + up) >> 23;
            code = exponent < Codec::max_exponent ? 0 : exponent - Codec::max_exponent;
        }
        const std::uint32_t inverse = code == 254 ? 0x00400000u : (254 - code) << 23;
        const bool finite = bits < infinity_bits;
        multiplier[i] = f32_from_bits(finite ? inverse : 0x7FC00000u);
        codes[i] = static_cast<std::uint8_t>(finite ? code : E8M0::nan_code);
    }
}

template <class Codec>
void make_mx(MxMode mode, const std::uint32_t* amax, std::int64_t count, float* multiplier, std::uint8_t* codes) {
    switch (mode) {
        case MxMode::rceil: return make_mx<Codec, MxMode::rceil>(amax, count, multiplier, codes);
        case MxMode::floor: return make_mx<Codec, MxMode::floor>(amax, count, multiplier, codes);
        case MxMode::ceil: return make_mx<Codec, MxMode::ceil>(amax, count, multiplier, codes);
        case MxMode::even: return make_mx<Codec, MxMode::even>(amax, count, multiplier, codes);
    }
}

}  // namespace

bool make_scales(const QuantizeOptions& options, const std::uint32_t* amax, std::int64_t count, float* multiplier,
                 std::uint8_t* codes) {
    std::uint32_t largest = 0;
    for (std::int64_t i = 0; i < count; ++i) largest = largest > amax[i] ? largest : amax[i];
    if (options.scaling == Scaling::mx) {
        with_fp8(options.format,
                 [&](auto codec) { make_mx<decltype(codec)>(options.mx_mode, amax, count, multiplier, codes); });
    } else {
        const float max = max_of(options.format);
        for (std::int64_t i = 0; i < count; ++i)
            multiplier[i] = scale_of(f32_from_bits(amax[i]), max, options.scale_rounding);
    }
    // These two take the power of two below the maximum, whatever its mantissa: what is above the format's largest
    // value saturates.
    const bool saturates =
        options.scaling == Scaling::mx && (options.mx_mode == MxMode::floor || options.mx_mode == MxMode::even);
    return largest < infinity_bits && !saturates;
}

ScalePlane::ScalePlane(const QuantizedView& out, int axis_i, int axis_j, int fixed, std::int64_t index,
                       std::int64_t first_j) {
    if (!out.scale.null()) {
        step_i = axis_i >= 0 ? out.scale.stride(axis_i) : 0;
        step_j = axis_j >= 0 ? out.scale.stride(axis_j) : 0;
        const std::int64_t start = (fixed >= 0 ? index * out.scale.stride(fixed) : 0) + first_j * step_j;
        scale_bytes = bytes_of(out.scale.format);
        scale = static_cast<std::byte*>(out.scale.data) + start * scale_bytes;
    }
    if (!out.inverse.null()) {
        inverse_step_i = axis_i >= 0 ? out.inverse.stride(axis_i) : 0;
        inverse_step_j = axis_j >= 0 ? out.inverse.stride(axis_j) : 0;
        inverse = static_cast<float*>(out.inverse.data) + (fixed >= 0 ? index * out.inverse.stride(fixed) : 0) +
                  first_j * inverse_step_j;
    }
}

ScalePlane ScalePlane::from_i(std::int64_t i) const {
    ScalePlane moved = *this;
    if (scale) moved.scale += i * step_i * scale_bytes;
    if (inverse) moved.inverse += i * inverse_step_i;
    return moved;
}

void ScalePlane::write_along_i(std::int64_t i, std::int64_t j, std::int64_t count, Scaling scaling,
                               const float* multiplier, const std::uint8_t* codes) const {
    if (scaling == Scaling::mx) {
        for (std::int64_t n = 0; n < count; ++n) write(i + n, j, codes[n]);
    } else {
        for (std::int64_t n = 0; n < count; ++n) write(i + n, j, multiplier[n]);
    }
}

void ScalePlane::write_along_j(std::int64_t i, std::int64_t j, std::int64_t count, Scaling scaling,
                               const float* multiplier, const std::uint8_t* codes) const {
    if (scaling == Scaling::mx && step_j == 1) {
        std::memcpy(scale + i * step_i + j, codes, static_cast<std::size_t>(count));
    } else if (scaling == Scaling::mx) {
        for (std::int64_t n = 0; n < count; ++n) write(i, j + n, codes[n]);
    } else {
        for (std::int64_t n = 0; n < count; ++n) write(i, j + n, multiplier[n]);
    }
}

}  // namespace octet::cpu
