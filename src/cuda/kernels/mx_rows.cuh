// Decodes rows of mxfp8 to rows of bf16, in the order along the reduction that tile/mx_decode.cuh says.
#pragma once

#include "cuda/tile/mx_decode.cuh"

namespace octet::cuda {

constexpr int mx_rows_threads = 256, mx_rows_each = 4;  // units of a pair of threads
constexpr int mx_lookers = 128;  // the first blocks, each with its part of the other operand's exponents

// A look through the exponents of the operand that is not decoded here.
struct MxLook {
    const std::uint8_t* exponents = nullptr;  // [rows, blocks] e8m0
    std::int64_t rows = 0;
    int blocks = 0;
    std::uint32_t* large = nullptr;   // [mx_lookers]: not zero where one of them takes two factors; null: do not look
    std::uint32_t* packed = nullptr;  // [rows, ceil(blocks / 4)]: copied to there, by words; null: they are not
};

struct MxRows {
    const std::uint8_t* data;       // [rows, columns] e4m3, columns a multiple of 16
    const std::uint8_t* exponents;  // [rows, ceil(columns / 32)] e8m0
    std::uint8_t* decoded;          // [rows, columns] bf16
    std::int64_t units;             // of 16 elements, of all rows
    int row_units;
    int pitch_units, decoded_pitch_units;  // from row to row of the data, and of the decoded
    MxLook look;
};

// Not zero where a byte is over 134 (tile/mx_decode.cuh).
__device__ __forceinline__ std::uint32_t large_exponents(std::uint32_t four) {
    return ((four & 0x7F7F'7F7Fu) + (0x7F - (largest_single - 0x80)) * 0x0101'0101u) & four & 0x8080'8080u;
}

// A block's part of it; small beside the pass, and done in its shadow.
__device__ inline void look_for_large(const MxLook& look) {
    std::uint32_t found = 0;
    const std::int64_t stride = static_cast<std::int64_t>(mx_lookers) * blockDim.x;
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (look.packed != nullptr) {
        const int row_words = (look.blocks + 3) / 4;
        for (std::int64_t i = first; i < look.rows * row_words; i += stride) {
            const std::int64_t row = i / row_words;
            const int block = static_cast<int>(i - row * row_words) * 4;
            std::uint32_t word = 0;
#pragma unroll
            for (int j = 0; j < 4; ++j)
                if (block + j < look.blocks)
                    word |= std::uint32_t{__ldg(look.exponents + row * look.blocks + block + j)} << (8 * j);
            look.packed[i] = word;
            found |= large_exponents(word);
        }
    } else {
        const std::int64_t bytes = look.rows * look.blocks;
        const bool aligned = reinterpret_cast<std::uintptr_t>(look.exponents) % 16 == 0;
        const std::int64_t units = aligned ? bytes / 16 : 0;
        for (std::int64_t i = first; i < units; i += stride) {
            const uint4 unit = __ldg(reinterpret_cast<const uint4*>(look.exponents) + i);
            found |=
                large_exponents(unit.x) | large_exponents(unit.y) | large_exponents(unit.z) | large_exponents(unit.w);
        }
        for (std::int64_t i = units * 16 + first; i < bytes; i += stride)
            found |= large_exponents(__ldg(look.exponents + i));
    }
    const int any = __syncthreads_or(found != 0);
    if (threadIdx.x == 0) look.large[blockIdx.x] = any;
}

// Of a unit; 0 where rows follow each other in whole blocks, and nobody asks.
__device__ __forceinline__ std::int64_t row_of(const MxRows& rows, std::int64_t unit) {
    const bool plain = rows.row_units % 4 == 0 && rows.pitch_units == rows.row_units;  // decoded rows are whole fours
    return plain ? 0 : unit / rows.row_units;
}

// Two threads a unit, both of which read it: one decodes the odd bytes, the other the even ones, and a warp then writes
// 512 bytes in one piece.
static __global__ void __launch_bounds__(mx_rows_threads) decode_mx_rows(const __grid_constant__ MxRows rows) {
    if (rows.look.large != nullptr && blockIdx.x < mx_lookers) look_for_large(rows.look);
    const int even = static_cast<int>(threadIdx.x % 2);
    const std::int64_t first =
        static_cast<std::int64_t>(blockIdx.x) * (mx_rows_threads / 2 * mx_rows_each) + threadIdx.x / 2;
    uint4 bytes[mx_rows_each];
    std::uint32_t exponents[mx_rows_each];
#pragma unroll
    for (int i = 0; i < mx_rows_each; ++i) {
        const std::int64_t unit = first + i * (mx_rows_threads / 2);
        if (unit >= rows.units) break;
        const std::int64_t row = row_of(rows, unit);
        bytes[i] = __ldcs(reinterpret_cast<const uint4*>(rows.data) + unit + row * (rows.pitch_units - rows.row_units));
        exponents[i] = __ldg(rows.exponents + (unit + (rows.row_units % 2 == 0 ? 0 : row)) / 2);
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
        const std::int64_t to = unit + row_of(rows, unit) * (rows.decoded_pitch_units - rows.row_units);
        reinterpret_cast<uint4*>(rows.decoded)[2 * to + even] = {values(word.x), values(word.y), values(word.z),
                                                                 values(word.w)};
    }
}

}  // namespace octet::cuda
