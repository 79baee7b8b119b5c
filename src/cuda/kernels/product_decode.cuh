// mxfp8: the left operand is decoded on its way from shared memory to the tensor cores, which take it from registers.
#pragma once

#include "cuda/kernels/product_storage.cuh"
#include "cuda/ptx/warp.cuh"
#include "cuda/tile/mx_decode.cuh"

namespace octet::cuda {

// A lane's way through the left rows of its warpgroup: rows lane/4 and lane/4 + 8 of its warp's 16.
template <class Config>
struct LeftDecoder {
    std::uint32_t rows;          // where the lane's row of 64 bytes starts in a slot, swizzled
    int first_row;               // of the lane, in the tile
    std::uint32_t exponents[2];  // of the lane's two rows: four blocks, two of them of the next slot
    std::uint32_t words[2][4];   // [block][16 of the reduction, row]

    __device__ explicit LeftDecoder(int half) {
        const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32 % 4);
        const int row = half * 64 + warp * 16 + lane % 16;
        rows = static_cast<std::uint32_t>(row * 64 + ((lane / 16 ^ (row / 2 % 4)) << 4));
        first_row = half * 64 + warp * 16 + lane / 4;
    }

    // The exponents come with every other slot.
    __device__ __forceinline__ void read_exponents(const std::uint32_t (&slot)[Config::left_tile], int round) {
        const bool fresh = round % 2 == 0;
        exponents[0] = fresh ? slot[first_row] : exponents[0] >> 16;
        exponents[1] = fresh ? slot[first_row + 8] : exponents[1] >> 16;
    }

    // Where the slot's second block is somebody else's and was made zero: any exponent does that is a number.
    __device__ __forceinline__ void keep_first() {
        exponents[0] &= 255;
        exponents[1] &= 255;
    }

    // Both blocks of the slot, undecoded.
    __device__ __forceinline__ void read_rows(const std::uint8_t* slot) {
        ptx::load_matrices(ptx::shared_address(slot) + rows, words[0]);
        ptx::load_matrices((ptx::shared_address(slot) + rows) ^ 32, words[1]);
    }

    // One of the slot's two blocks, as the tensor cores' operand of two instructions: 16 of the reduction each.
    template <int block>
    __device__ __forceinline__ void decode(std::uint32_t (&operand)[8]) const {
#pragma unroll
        for (int row = 0; row < 2; ++row) {
            const std::uint32_t here[2] = {words[block][row], words[block][2 + row]};
            const bool nan = (nan_elements(here[0]) | nan_elements(here[1])) != 0;
            const Bf16Pair factor = nan ? nan_pair : mx_factor(exponents[row] >> (8 * block) & 255);
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                operand[4 * i + row] = decode_pair(here[i], factor);
                operand[4 * i + 2 + row] = decode_pair(here[i] << 8, factor);
            }
        }
    }
};

}  // namespace octet::cuda
