// The inner loops down columns: maxima of every column, and cast with transpose.
#pragma once

#include <cstdint>

#include "octet/format.hpp"

namespace octet::cpu {

// A transposing cast of a matrix x[rows, columns].
struct TransposedCast {
    const void* x = nullptr;  // bf16 or f32, columns contiguous
    std::int64_t pitch = 0;   // elements from one row to the next
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    std::int64_t zero_rows = 0;  // rows of zeros after the last that can be read: they spare the last rows a detour
    static constexpr std::int64_t most_zero_rows = 63;

    // The multiplier of element (r, c) is multiplier[(r >> block_shift) * multiplier_pitch + c]. Readable up to
    // `columns` rounded up to multiplier_slack.
    const float* multiplier = nullptr;
    std::int64_t multiplier_pitch = 0;
    int block_shift = 0;
    static constexpr std::int64_t multiplier_slack = 64;

    std::uint8_t* out = nullptr;  // [columns, out_rows], rows contiguous; from `rows` to `out_rows` it is zeros
    std::int64_t out_pitch = 0;
    std::int64_t out_rows = 0;

    bool in_range = true;  // what make_scales said of the multipliers
    bool stream = false;   // write past the caches
};

// For one input format (bf16 or f32) and one 8-bit format.
struct ColumnKernels {
    // amax[c] = max(amax[c], |x[r, c]|) over all rows, as bits of the input format; NaN above everything. With `copy`,
    // x is also copied there, rows `columns` apart: a second visit then finds it dense in the caches.
    void (*column_amax)(const void* x, std::int64_t pitch, std::int64_t rows, std::int64_t columns, void* amax,
                        void* copy);
    void (*cast_transposed)(const TransposedCast& cast);
};

const ColumnKernels& column_kernels(Format input, Format data);

}  // namespace octet::cpu
