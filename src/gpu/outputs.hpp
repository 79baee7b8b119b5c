// Where kernels read and write: pointers with strides in elements, all 64-bit.
#pragma once

#include "gpu/scale.hpp"
#include "gpu/simt.hpp"

namespace octet::gpu {

// Scales of one orientation. A scale's place has three indices: the expert or group, the feature or row, and the block
// along the reduction; an axis that a layout does not have steps by 0.
struct ScaleOut {
    float* scale = nullptr;    // multipliers, or
    float* inverse = nullptr;  // their reciprocals; either may be null
    u8* mx = nullptr;          // e8m0 codes
    i64 scale_stride[3] = {0, 0, 0};
    i64 inverse_stride[3] = {0, 0, 0};
};

OCTET_GPU i64 place(const i64 (&stride)[3], i64 outer, i64 middle, i64 inner) {
    return outer * stride[0] + middle * stride[1] + inner * stride[2];
}

template <class Thread>
OCTET_GPU void store_scale(Thread& t, const ScaleOut& out, float scale, i64 outer, i64 middle, i64 inner) {
    if (out.scale) t.store(out.scale + place(out.scale_stride, outer, middle, inner), scale);
    if (out.inverse) t.store(out.inverse + place(out.inverse_stride, outer, middle, inner), 1.0f / scale);
}

template <class Thread>
OCTET_GPU void store_mx_scale(Thread& t, const ScaleOut& out, u8 code, i64 outer, i64 middle, i64 inner) {
    t.store(out.mx + place(out.scale_stride, outer, middle, inner), code);
}

// How a scale follows from a magnitude, whatever the scaling.
struct ScaleRule {
    ScaleRounding rounding = ScaleRounding::power_of_two;
    MxMode mx_mode = MxMode::rceil;
};

// From the f32 bits of a largest magnitude to the multiplier.
template <class Codec, bool mx>
OCTET_GPU float multiplier_of(u32 amax, const ScaleRule& rule) {
    if constexpr (mx)
        return mx_multiplier_of(mx_scale_of_bits<Codec>(amax, rule.mx_mode));
    else
        return scale_of_bits<Codec>(amax, rule.rounding);
}

// The same, writing the scale where `wanted`.
template <class Codec, bool mx, class Thread>
OCTET_GPU float make_scale(Thread& t, u32 amax, const ScaleRule& rule, const ScaleOut& out, bool wanted, i64 outer,
                           i64 middle, i64 inner) {
    if constexpr (mx) {
        const u8 code = mx_scale_of_bits<Codec>(amax, rule.mx_mode);
        if (wanted) store_mx_scale(t, out, code, outer, middle, inner);
        return mx_multiplier_of(code);
    } else {
        const float scale = scale_of_bits<Codec>(amax, rule.rounding);
        if (wanted) store_scale(t, out, scale, outer, middle, inner);
        return scale;
    }
}

}  // namespace octet::gpu
