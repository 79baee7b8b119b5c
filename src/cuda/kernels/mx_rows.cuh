// Decodes rows of mxfp8 to rows of bf16, in the order along the reduction that tile/mx_decode.cuh says.
#pragma once

#include "cuda/tile/mx_decode.cuh"

namespace octet::cuda {

constexpr int mx_rows_threads = 256, mx_rows_each = 4;  // units of a pair of threads
constexpr int mx_lookers = 128;  // the first blocks, each with its part of the other operand's exponents

struct MxRows {
    const std::uint8_t* data;       // [rows, columns] e4m3, columns a multiple of 16
    const std::uint8_t* exponents;  // [rows, ceil(columns / 32)] e8m0
    std::uint8_t* decoded;          // [rows, columns] bf16
    std::int64_t units;             // of 16 elements, of all rows
    int row_units;
    const std::uint8_t* other;  // the other operand's exponents, to be looked through
    std::int64_t other_bytes;
    std::uint32_t* large;  // [mx_lookers]: not zero where one of them takes two factors; null: do not look
};

// Not zero where a byte is over 134 (tile/mx_decode.cuh).
__device__ __forceinline__ std::uint32_t large_exponents(std::uint32_t four) {
    return ((four & 0x7F7F'7F7Fu) + (0x7F - (largest_single - 0x80)) * 0x0101'0101u) & four & 0x8080'8080u;
}

// A block's part of the look through them; small beside the pass, and done in its shadow.
__device__ inline void look_for_large(const MxRows& rows) {
    std::uint32_t found = 0;
    const std::int64_t stride = static_cast<std::int64_t>(mx_lookers) * blockDim.x;
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const bool aligned = reinterpret_cast<std::uintptr_t>(rows.other) % 16 == 0;
    const std::int64_t units = aligned ? rows.other_bytes / 16 : 0;
    for (std::int64_t i = first; i < units; i += stride) {
        const uint4 unit = __ldg(reinterpret_cast<const uint4*>(rows.other) + i);
        found |= large_exponents(unit.x) | large_exponents(unit.y) | large_exponents(unit.z) | large_exponents(unit.w);
    }
    for (std::int64_t i = units * 16 + first; i < rows.other_bytes; i += stride)
        found |= large_exponents(__ldg(rows.other + i));
    const int any = __syncthreads_or(found != 0);
    if (threadIdx.x == 0) rows.large[blockIdx.x] = any;
}

// Two threads a unit, both of which read it: one decodes the odd bytes, the other the even ones, and a warp then writes
// 512 bytes in one piece.
static __global__ void __launch_bounds__(mx_rows_threads) decode_mx_rows(const __grid_constant__ MxRows rows) {
    if (rows.large != nullptr && blockIdx.x < mx_lookers) look_for_large(rows);
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
        const bool nan = ((nan_elements(word.x) | nan_elements(word.y) | nan_elements(word.z) | nan_elements(word.w)) &
                          nan_bits) != 0;
        const Bf16Pair factor = nan ? nan_pair : mx_factor(exponents[i]);
        const std::uint32_t elements = even != 0 ? even_elements : odd_elements;
        const auto values = [&](std::uint32_t four) { return mx_value(mx_bits(four, elements), factor); };
        reinterpret_cast<uint4*>(rows.decoded)[2 * unit + even] = {values(word.x), values(word.y), values(word.z),
                                                                   values(word.w)};
    }
}

}  // namespace octet::cuda
