// mxfp8: the left operand is decoded on its way from shared memory to the tensor cores, which take it from registers.
#pragma once

#include "cuda/kernels/mx_rows.cuh"
#include "cuda/kernels/product_storage.cuh"
#include "cuda/ptx/warp.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/tile/mx_decode.cuh"

namespace octet::cuda {

// A warp's look at what the pass over the right operand (mx_rows.cuh) has found in the left one's exponents.
__device__ __forceinline__ bool no_large_exponents(const std::uint32_t* large) {
    const uint4 four = reinterpret_cast<const uint4*>(large)[threadIdx.x % 32];
    static_assert(mx_lookers == 4 * 32);
    return !__any_sync(~0u, (four.x | four.y | four.z | four.w) != 0);
}

// A lane's way through the left rows of its warpgroup: rows lane/4 and lane/4 + 8 of its warp's 16.
template <class Config>
struct LeftDecoder {
    std::uint32_t rows[2];           // where the lane's rows of the slot's two blocks start, swizzled
    int exponent_place;              // of the lane's two rows
    std::uint32_t exponents[2];      // of the lane's two rows: four blocks, two of them of the next slot
    std::uint32_t words[2][4];       // [block][16 of the reduction, row]
    std::uint32_t nan_rows[2] = {};  // of the tile so far

    __device__ explicit LeftDecoder(int half) {
        const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32 % 4);
        const int row = half * 64 + warp * 16 + lane % 16;
        rows[0] = static_cast<std::uint32_t>(row * 64 + ((lane / 16 ^ (row / 2 % 4)) << 4));
        rows[1] = rows[0] ^ 32;
        exponent_place = left_place(half * 64 + warp * 16 + lane / 4);
    }

    // The exponents come with every other slot.
    __device__ __forceinline__ void read_exponents(const std::uint32_t (&slot)[Config::left_tile], int round) {
        if (round % 2 == 0) {
            const uint2 two = *reinterpret_cast<const uint2*>(slot + exponent_place);
            exponents[0] = two.x;
            exponents[1] = two.y;
        } else {
            exponents[0] >>= 16;
            exponents[1] >>= 16;
        }
    }

    // Where the slot's second block is somebody else's and was made zero: any exponent does that is a number.
    __device__ __forceinline__ void keep_first() {
        exponents[0] &= 255;
        exponents[1] &= 255;
    }

    // Both blocks of the slot, undecoded.
    __device__ __forceinline__ void read_rows(const std::uint8_t* slot) {
        ptx::load_matrices(ptx::shared_address(slot) + rows[0], words[0]);
        ptx::load_matrices(ptx::shared_address(slot) + rows[1], words[1]);
    }

    // 16 rows x 32 of the reduction, before the multiplication: what can be made while the products of the block before
    // still read their operand.
    struct Block {
        Bf16Pair bits[8], factors[2];
    };
    // `single`: no exponent is over 134. NaN elements are then left to the end of the tile: one makes its whole row
    // NaN.
    template <int block, bool single>
    __device__ __forceinline__ Block take() {
        Block taken;
#pragma unroll
        for (int row = 0; row < 2; ++row) {
            const std::uint32_t here[2] = {words[block][row], words[block][2 + row]};
            const std::uint32_t exponent = byte_of(exponents[row], block);
            const std::uint32_t nan = nan_elements(here[0]) | nan_elements(here[1]);
            if constexpr (single) {
                nan_rows[row] |= nan;
                taken.factors[row] = mx_single_factor(exponent);
            } else {
                taken.factors[row] = (nan & nan_bits) != 0 ? nan_pair : mx_factor(exponent);
            }
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                taken.bits[4 * i + row] = mx_bits(here[i], odd_elements);
                taken.bits[4 * i + 2 + row] = mx_bits(here[i], even_elements);
            }
        }
        ptx::wgmma_hold(taken.bits);
        ptx::wgmma_hold(taken.factors);
        return taken;
    }

    // As the tensor cores' operand of two instructions: 16 of the reduction each.
    template <bool single>
    __device__ __forceinline__ static void decode(const Block& taken, std::uint32_t (&operand)[8]) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const Bf16Pair factor = taken.factors[i % 2];
            operand[i] = single ? multiply_pairs(taken.bits[i], factor) : mx_value(taken.bits[i], factor);
        }
    }

    // Whether one of the lane's two rows has a NaN element: four lanes have a row.
    __device__ __forceinline__ bool row_is_nan(int row) const {
        const unsigned lanes = __ballot_sync(~0u, (nan_rows[row] & nan_bits) != 0);
        return (lanes >> (threadIdx.x % 32 / 4 * 4) & 15) != 0;
    }
};

}  // namespace octet::cuda
