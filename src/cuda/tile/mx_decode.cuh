// mxfp8 on tensor cores that know no block scales: an e4m3 value times a power of two is a bf16 value, so a slot of
// 8-bit rows becomes a slot of bf16 rows in shared memory, exactly.
#pragma once

#include <cuda_bf16.h>

#include "cuda/ptx/arch.cuh"

namespace octet::cuda {

// The multipliers of one block of 32. The bits of an e4m3 value, moved to their places in a bf16, read as the value
// times 2^-120 (subnormals too), so the block's 2^(b-127) becomes 2^(b-7). From b = 135 on that is no bf16 value and
// takes two factors.
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
    unsigned halves[2] = {__byte_perm(bytes, 0, 0x1404),
                          __byte_perm(bytes, 0, 0x3424)};  // each byte in the high end of a half
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
__device__ __forceinline__ unsigned nan_bytes(unsigned bytes) {
    return ((bytes & 0x7F7F7F7Fu) + 0x01010101u) & 0x80808080u;
}

// One block of 32 of a row of 64: 32 bytes in the copy engine's 64-byte swizzle become 64 bytes in its 128-byte
// swizzle. Loading and decoding are apart so that a thread can have all its loads under way at once.
struct MxBlock {
    int row, block;  // block: 0 or 1
    uint4 bytes[2];

    __device__ __forceinline__ void load(const std::uint8_t* raw) {
#pragma unroll
        for (int i = 0; i < 2; ++i)
            bytes[i] = *reinterpret_cast<const uint4*>(raw + row * 64 + (((2 * block + i) ^ (row / 2 % 4)) << 4));
    }

    // A whole warp calls it; exponent: the block's scale byte.
    __device__ __forceinline__ void decode(std::uint8_t* decoded, unsigned exponent) const {
        const bool large = __any_sync(~0u, MxScale::is_large(exponent));
        const MxScale scale(exponent);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const uint2 v[4] = {decode_four(bytes[i].x, scale, large), decode_four(bytes[i].y, scale, large),
                                decode_four(bytes[i].z, scale, large), decode_four(bytes[i].w, scale, large)};
            *unit(decoded, 2 * i) = {v[0].x, v[0].y, v[1].x, v[1].y};
            *unit(decoded, 2 * i + 1) = {v[2].x, v[2].y, v[3].x, v[3].y};
        }
    }

    __device__ __forceinline__ unsigned nans() const {
        return nan_bytes(bytes[0].x) | nan_bytes(bytes[0].y) | nan_bytes(bytes[0].z) | nan_bytes(bytes[0].w) |
               nan_bytes(bytes[1].x) | nan_bytes(bytes[1].y) | nan_bytes(bytes[1].z) | nan_bytes(bytes[1].w);
    }

    // After decode(), where there are any: NaN elements were decoded as numbers.
    __device__ __forceinline__ static void mend_nans(const std::uint8_t* raw, std::uint8_t* decoded, int row,
                                                     int block) {
#pragma unroll 1
        for (int element = 32 * block; element < 32 * block + 32; ++element) {
            const std::uint8_t byte = raw[row * 64 + ((element / 16 ^ (row / 2 % 4)) << 4) + element % 16];
            if ((byte & 0x7F) != 0x7F) continue;
            *reinterpret_cast<std::uint16_t*>(decoded + row * 128 + ((element / 8 ^ (row % 8)) << 4) +
                                              element % 8 * 2) = 0x7FC0;
        }
    }

private:
    // 16 bytes, eight values, of this block.
    __device__ __forceinline__ uint4* unit(std::uint8_t* decoded, int index) const {
        return reinterpret_cast<uint4*>(decoded + row * 128 + (((4 * block + index) ^ (row % 8)) << 4));
    }
};

}  // namespace octet::cuda
