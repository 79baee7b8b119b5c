// mxfp8 on tensor cores that know no block scales: an e4m3 value times a power of two is a bf16 value, so a slot of 8-bit rows
// becomes a slot of bf16 rows in shared memory, exactly.
#pragma once

#include <cuda_bf16.h>

#include "cuda/ptx/arch.cuh"

namespace octet::cuda {

// The multipliers of one block of 32. The bits of an e4m3 value, moved to their places in a bf16, read as the value times 2^-120
// (subnormals too), so the block's 2^(b-127) becomes 2^(b-7). From b = 135 on that is no bf16 value and takes two factors.
struct MxScale {
    __nv_bfloat162 first, second;

    __device__ static bool is_large(unsigned exponent) { return exponent > 134; }
    __device__ explicit MxScale(unsigned exponent) {
        const unsigned bits = exponent == 255 ? 0x7FC0u : is_large(exponent) ? 0x7B80u : (exponent + 120) << 7;
        const unsigned rest = is_large(exponent) ? exponent << 7 : 0x3F80u;  // 2^(b-127), or 1
        first = pair(bits);
        second = pair(rest);
    }
    __device__ static __nv_bfloat162 pair(unsigned bits) {
        const unsigned both = bits | bits << 16;
        return reinterpret_cast<const __nv_bfloat162&>(both);
    }
};

// Four e4m3 to four bf16. `large`: some lane of the warp needs the second factor.
__device__ __forceinline__ uint2 decode_four(unsigned bytes, const MxScale& scale, bool large) {
    unsigned halves[2] = {__byte_perm(bytes, 0, 0x1404), __byte_perm(bytes, 0, 0x3424)};  // each byte in the high end of a half
#pragma unroll
    for (unsigned& half : halves) {
        half = (half & 0x80008000u) | ((half >> 4) & 0x07F007F0u);
        __nv_bfloat162 value = __hmul2(reinterpret_cast<const __nv_bfloat162&>(half), scale.first);
        if (large) value = __hmul2(value, scale.second);
        half = reinterpret_cast<const unsigned&>(value);
    }
    return {halves[0], halves[1]};
}

// The top bit of every byte that is NaN (all ones but for the sign).
__device__ __forceinline__ unsigned nan_bytes(unsigned bytes) { return ((bytes & 0x7F7F7F7Fu) + 0x01010101u) & 0x80808080u; }

// One block of 32 of a row of 64: 32 bytes in the copy engine's 64-byte swizzle to 64 bytes in its 128-byte swizzle.
// raw and decoded: first row of the operand; block: 0 or 1; exponent: the block's scale byte. A whole warp calls it.
__device__ __forceinline__ void decode_block(const std::uint8_t* raw, std::uint8_t* decoded, int row, int block, unsigned exponent) {
    const bool large = __any_sync(~0u, MxScale::is_large(exponent));
    const MxScale scale(exponent);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int unit = 2 * block + i;
        const uint4 bytes = *reinterpret_cast<const uint4*>(raw + row * 64 + ((unit ^ (row / 2 % 4)) << 4));
        const unsigned words[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
        uint2 values[4];
#pragma unroll
        for (int word = 0; word < 4; ++word) values[word] = decode_four(words[word], scale, large);
        if (nan_bytes(words[0]) | nan_bytes(words[1]) | nan_bytes(words[2]) | nan_bytes(words[3])) {
#pragma unroll
            for (int word = 0; word < 4; ++word) {
                const unsigned nans = nan_bytes(words[word]);
                if (nans & 0x00000080u) values[word].x |= 0x00007FC0u;
                if (nans & 0x00008000u) values[word].x |= 0x7FC00000u;
                if (nans & 0x00800000u) values[word].y |= 0x00007FC0u;
                if (nans & 0x80000000u) values[word].y |= 0x7FC00000u;
            }
        }
        std::uint8_t* line = decoded + row * 128;
        *reinterpret_cast<uint4*>(line + (((2 * unit) ^ (row % 8)) << 4)) = {values[0].x, values[0].y, values[1].x, values[1].y};
        *reinterpret_cast<uint4*>(line + (((2 * unit + 1) ^ (row % 8)) << 4)) = {values[2].x, values[2].y, values[3].x, values[3].y};
    }
}

}  // namespace octet::cuda
