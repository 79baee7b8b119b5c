// The arithmetic of SwiGLU, rounding by rounding: reference, CPU and GPU compute it from this one text and give the
// same bits. A product that is followed by a sum is either an explicit fma or goes through `product`, so that no
// compiler decides. `Math` brings the three operations that compilers treat differently:
//
//     fma(a, b, c)     a * b + c, rounded once
//     product(a, b)    a * b, rounded, never joined with a sum that follows
//     reciprocal(x)    1 / x, rounded to nearest, for x from 1 to 2^126
#pragma once

#include <bit>
#include <cstdint>

#if defined(__CUDACC__) || defined(__HIPCC__)
#define OCTET_RULE __device__ __forceinline__
#else
#define OCTET_RULE [[gnu::always_inline]] inline
#endif

namespace octet::swiglu_rule {

// e^x to about 1 unit in the last place: x = n ln2 + r, a polynomial in r, and n into the exponent. Beyond +-87, where
// the result would leave the normal numbers, it stays what it is there. NaN too becomes a number, so that either bound
// is one instruction: whoever multiplies with x brings it back.
template <class Math>
OCTET_RULE float exponential(const Math& math, float x) {
    constexpr float log2e = 1.44269504f, ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
    constexpr float to_integer = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
    x = x < 87.0f ? x : 87.0f;
    x = x > -87.0f ? x : -87.0f;
    const float shifted = math.fma(x, log2e, to_integer);
    const float n = shifted - to_integer;
    const float r = math.fma(n, -ln2_low, math.fma(n, -ln2_high, x));
    float p = 1.39336521e-3f;
    p = math.fma(p, r, 8.36318173e-3f);
    p = math.fma(p, r, 4.16664667e-2f);
    p = math.fma(p, r, 1.66665763e-1f);
    p = math.fma(p, r, 0.5f);
    p = math.fma(p, r, 1.0f);
    p = math.fma(p, r, 1.0f);
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(p) + (std::bit_cast<std::uint32_t>(shifted) << 23));
}

template <class Math>
OCTET_RULE float sigmoid(const Math& math, float x) {
    return math.reciprocal(1.0f + exponential(math, -x));
}

// weight * silu(gate) * up
template <class Math>
OCTET_RULE float forward(const Math& math, float gate, float up, float weight) {
    return weight * (gate * sigmoid(math, gate) * up);
}

struct Slopes {
    float gate, up;
    float weight;  // this element's term of the weight's gradient
};

// ds: the gradient of forward's result.
template <class Math>
OCTET_RULE Slopes backward(const Math& math, float gate, float up, float weight, float ds) {
    const float sig = sigmoid(math, gate), silu = gate * sig, scaled = ds * weight;
    return {scaled * up * (sig * math.fma(gate, 1.0f - sig, 1.0f)), scaled * silu, math.product(ds, silu * up)};
}

// ---- sums along a row. Terms are added in a fixed tree: pieces of 256 neighbours (what 32 threads of a GPU hold,
// eight each) are folded pairwise, neighbours first; piece i is added to lane i % 8; the lanes are folded pairwise. A
// short last piece is filled up with zeros.
inline constexpr int piece = 256, lanes = 8;

OCTET_RULE float fold_eight(const float* v) {
    return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
}

#if !defined(__CUDACC__) && !defined(__HIPCC__)

// On a CPU.
struct HostMath {
    [[gnu::always_inline]] static float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
    [[gnu::always_inline]] static float product(float a, float b) { return a * b; }  // -ffp-contract=off
    [[gnu::always_inline]] static float reciprocal(float x) { return 1.0f / x; }
};

// The sum of one piece of 256 terms.
[[gnu::always_inline]] inline float fold_piece(const float* terms) {
    float sums[piece / 8];
    for (int i = 0; i < piece / 8; ++i) sums[i] = fold_eight(terms + 8 * i);
    for (int count = piece / 16; count > 0; count /= 2)
        for (int i = 0; i < count; ++i) sums[i] = sums[2 * i] + sums[2 * i + 1];
    return sums[0];
}

#endif

}  // namespace octet::swiglu_rule
