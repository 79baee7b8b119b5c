// mxfp8 on tensor cores that know no block scales: an e4m3 value times a power of two is a bf16 value, and bf16 is
// multiplied exactly. Results past bf16's range become infinite, results under 2^-133 round.
//
// Elements are decoded four at a time from a 32-bit word, as the pair of bytes 1 and 3 and the pair of bytes 0 and 2:
// so each lies at the high end of a half and needs no shuffling of bytes. Of 16 elements of the reduction the pairs of
// the odd bytes go first, then those of the even ones; a product may add in any order as long as both operands agree.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace octet::cuda {

using Bf16Pair = std::uint32_t;

__device__ __forceinline__ Bf16Pair multiply_pairs(Bf16Pair a, Bf16Pair b) {
    const __nv_bfloat162 product =
        __hmul2(reinterpret_cast<const __nv_bfloat162&>(a), reinterpret_cast<const __nv_bfloat162&>(b));
    return reinterpret_cast<const Bf16Pair&>(product);
}

constexpr Bf16Pair nan_pair = 0x7FC0'7FC0;

// 2^(b - 127), twice: the bits of b are bf16's exponent, but for 2^-127, which is subnormal. 255 is NaN.
__device__ __forceinline__ Bf16Pair mx_factor(std::uint32_t exponent) {
    return exponent == 255 ? nan_pair : max(exponent * 0x0080'0080u, 0x0040'0040u);
}

// Not zero where one of the word's elements is NaN (all ones but for the sign). NaN elements are decoded as 480: their
// factor has to be NaN. That makes their neighbours NaN too, which no product can tell: it adds all of them up.
__device__ __forceinline__ std::uint32_t nan_elements(std::uint32_t word) {
    return ((word & 0x7F7F'7F7Fu) + 0x0101'0101u) & 0x8080'8080u;
}

// Elements 1 and 3 of a word times the factor; 0 and 2 of a word moved up by 8 bits.
__device__ __forceinline__ Bf16Pair decode_pair(std::uint32_t word, Bf16Pair factor) {
    // Sign, exponent and mantissa in bf16's places read as the value times 2^-120 (subnormals too).
    const Bf16Pair bits = (word & 0x8000'8000u) | (word >> 4 & 0x07F0'07F0u);
    return multiply_pairs(multiply_pairs(bits, 0x7B80'7B80u), factor);
}

}  // namespace octet::cuda
