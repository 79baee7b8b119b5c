// mxfp8 on tensor cores that know no block scales: an e4m3 value times a power of two is a bf16 value, and bf16 is
// multiplied exactly. Results past bf16's range become infinite, results under 2^-133 round.
//
// Elements are decoded four at a time from a 32-bit word, as the pair of bytes 1 and 3 and the pair of bytes 0 and 2.
// Of 16 elements of the reduction the pairs of the odd bytes go first, then those of the even ones; a product may add
// in any order as long as both operands agree.
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

// The high bit of a byte is set where that element is NaN (all ones but for the sign); the others are anything. NaN
// elements are decoded as 480: their factor has to be NaN. That makes their neighbours NaN too, which no product can
// tell: it adds all of them up.
constexpr std::uint32_t nan_bits = 0x8080'8080;
__device__ __forceinline__ std::uint32_t nan_elements(std::uint32_t word) {
    return (word & 0x7F7F'7F7Fu) + 0x0101'0101u;
}

__device__ __forceinline__ std::uint32_t byte_of(std::uint32_t word, int byte) {
    return __byte_perm(word, 0, 0x4440 + byte);
}

// Elements 1 and 3 of a word, or 0 and 2, with sign, exponent and mantissa in bf16's places: the values times 2^-120,
// subnormals too.
constexpr std::uint32_t odd_elements = 0xB391, even_elements = 0xA280;  // each byte under eight copies of its sign
__device__ __forceinline__ Bf16Pair mx_bits(std::uint32_t word, std::uint32_t elements) {
    std::uint32_t spread;
    asm("prmt.b32 %0, %1, 0, %2;" : "=r"(spread) : "r"(word), "r"(elements));
    return spread << 4 & 0x87F0'87F0u;
}

// Those bits times 2^120 and mx_factor.
__device__ __forceinline__ Bf16Pair mx_value(Bf16Pair bits, Bf16Pair factor) {
    return multiply_pairs(multiply_pairs(bits, 0x7B80'7B80u), factor);
}

// Up to here one factor, 2^(b - 7), takes the bits to the value.
constexpr std::uint32_t largest_single = 134;
__device__ __forceinline__ Bf16Pair mx_single_factor(std::uint32_t exponent) {
    return exponent * 0x0080'0080u + 120 * 0x0080'0080u;
}

}  // namespace octet::cuda
