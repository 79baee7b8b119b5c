// Decodes rows of mxfp8 to rows of bf16, in the order along the reduction that tile/mx_decode.cuh says.
#pragma once

#include "cuda/tile/mx_decode.cuh"

namespace octet::cuda {

struct MxRows {
    const std::uint8_t* data;       // [rows, columns] e4m3, columns a multiple of 16
    const std::uint8_t* exponents;  // [rows, ceil(columns / 32)] e8m0
    std::uint8_t* decoded;          // [rows, columns] bf16
    std::int64_t units;             // of 16 elements, of all rows
    int row_units;
};

constexpr int mx_rows_threads = 256, mx_rows_each = 4;  // units of a pair of threads

// Two threads a unit, both of which read it: one decodes the odd bytes, the other the even ones, and a warp then writes
// 512 bytes in one piece.
static __global__ void __launch_bounds__(mx_rows_threads) decode_mx_rows(const __grid_constant__ MxRows rows) {
    const int even = static_cast<int>(threadIdx.x % 2);
    const std::int64_t first =
        static_cast<std::int64_t>(blockIdx.x) * (mx_rows_threads / 2 * mx_rows_each) + threadIdx.x / 2;
    uint4 bytes[mx_rows_each];
    std::uint32_t exponents[mx_rows_each];
#pragma unroll
    for (int i = 0; i < mx_rows_each; ++i) {
        const std::int64_t unit = first + i * (mx_rows_threads / 2);
        if (unit >= rows.units) break;
        const std::int64_t row = rows.row_units % 2 == 0 ? 0 : unit / rows.row_units;  // odd: half a block at the end
        bytes[i] = __ldcs(reinterpret_cast<const uint4*>(rows.data) + unit);
        exponents[i] = __ldg(rows.exponents + (unit + row) / 2);
    }
#pragma unroll
    for (int i = 0; i < mx_rows_each; ++i) {
        const std::int64_t unit = first + i * (mx_rows_threads / 2);
        if (unit >= rows.units) break;
        const uint4 word = bytes[i];
        const bool nan =
            (nan_elements(word.x) | nan_elements(word.y) | nan_elements(word.z) | nan_elements(word.w)) != 0;
        const Bf16Pair factor = nan ? nan_pair : mx_factor(exponents[i]);
        const int shift = 8 * even;
        const uint4 values = {decode_pair(word.x << shift, factor), decode_pair(word.y << shift, factor),
                              decode_pair(word.z << shift, factor), decode_pair(word.w << shift, factor)};
        reinterpret_cast<uint4*>(rows.decoded)[2 * unit + even] = values;
    }
}

}  // namespace octet::cuda
