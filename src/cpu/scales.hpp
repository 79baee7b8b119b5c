// From maxima to scales, many at a time, and to where the caller wants them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "octet/quantize.hpp"

namespace octet::cpu {

// multiplier[i] from the maximum amax[i] (bits of an f32) by the rule of the options; codes[i] too for mx (else codes
// is not used). Returns whether every element times its multiplier is in range: finite, and no more than what
// rounds to the format's largest value.
bool make_scales(const QuantizeOptions& options, const std::uint32_t* amax, std::int64_t count, float* multiplier,
                 std::uint8_t* codes);

// Two axes of a quantized tensor's scales: the scale (i, j) goes to scale + i * step_i + j * step_j, and its reciprocal
// to `inverse` alike.
struct ScalePlane {
    std::byte* scale = nullptr;  // f32, or e8m0 for mx
    std::int64_t scale_bytes = 0;
    std::int64_t step_i = 0, step_j = 0;
    float* inverse = nullptr;
    std::int64_t inverse_step_i = 0, inverse_step_j = 0;

    // The axes i and j of out's scales, -1 for none, with the axis `fixed` at `index`. j starts at `first_j`.
    ScalePlane() = default;
    ScalePlane(const QuantizedView& out, int axis_i, int axis_j, int fixed = -1, std::int64_t index = 0,
               std::int64_t first_j = 0);

    // The same scales counted from i on.
    ScalePlane from_i(std::int64_t i) const;

    void write(std::int64_t i, std::int64_t j, float multiplier) const {
        if (scale) reinterpret_cast<float*>(scale)[i * step_i + j * step_j] = multiplier;
        if (inverse) inverse[i * inverse_step_i + j * inverse_step_j] = 1.0f / multiplier;
    }
    void write(std::int64_t i, std::int64_t j, std::uint8_t code) const {
        reinterpret_cast<std::uint8_t*>(scale)[i * step_i + j * step_j] = code;
    }
    // Scales i .. i + count of one j, as make_scales gives them.
    void write_along_i(std::int64_t i, std::int64_t j, std::int64_t count, Scaling scaling, const float* multiplier,
                       const std::uint8_t* codes) const;
    // Scales j .. j + count of one i.
    void write_along_j(std::int64_t i, std::int64_t j, std::int64_t count, Scaling scaling, const float* multiplier,
                       const std::uint8_t* codes) const;
};

}  // namespace octet::cpu
