#include "cpu/scales.hpp"

#include "octet/scale.hpp"

namespace octet::cpu {
namespace {

constexpr std::uint32_t infinity_bits = 0x7F800000u;

template <class Codec, MxMode mode>
void make_mx(const std::uint32_t* amax, std::int64_t count, float* multiplier, std::uint8_t* codes) {
    for (std::int64_t i = 0; i < count; ++i) {
        codes[i] = mx_scale_of<Codec>(octet::detail::f32_from_bits(amax[i]), mode);
        multiplier[i] = mx_multiplier(codes[i]);
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
            multiplier[i] = scale_of(octet::detail::f32_from_bits(amax[i]), max, options.scale_rounding);
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
    if (scaling == Scaling::mx) {
        for (std::int64_t n = 0; n < count; ++n) write(i, j + n, codes[n]);
    } else {
        for (std::int64_t n = 0; n < count; ++n) write(i, j + n, multiplier[n]);
    }
}

}  // namespace octet::cpu
