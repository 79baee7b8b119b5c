// Rows of floats, sixteen at a time, with the widest vectors that the machine has.
//
// A kernel is an always-inline function of 16-wide operations; vectorized() compiles it for several instruction sets
// and calls the best one. Sums go by lane in a fixed order, so every instruction set gives the same bits.
#pragma once

#include <cstdint>
#include <cstring>

#define OCTET_INLINE [[gnu::always_inline]] inline

namespace octet::train {

using F32x16 = float __attribute__((vector_size(64)));
using I32x16 = std::int32_t __attribute__((vector_size(64)));
using U32x16 = std::uint32_t __attribute__((vector_size(64)));
using U16x16 = std::uint16_t __attribute__((vector_size(32)));

constexpr std::int64_t lanes = 16;

// std::bit_cast is a call in builds without optimization, and a call passes such vectors one way in code for AVX-512
// and another way in code for the baseline.
OCTET_INLINE U32x16 as_bits(F32x16 x) { return __builtin_bit_cast(U32x16, x); }
OCTET_INLINE F32x16 as_floats(U32x16 x) { return __builtin_bit_cast(F32x16, x); }

OCTET_INLINE F32x16 spread(float x) { return F32x16{} + x; }

OCTET_INLINE F32x16 load(const float* from) {
    F32x16 x;
    std::memcpy(&x, from, sizeof(x));
    return x;
}
OCTET_INLINE F32x16 load(const std::uint16_t* from) {  // bf16
    U16x16 codes;
    std::memcpy(&codes, from, sizeof(codes));
    return as_floats(__builtin_convertvector(codes, U32x16) << 16);
}
OCTET_INLINE void store(float* to, F32x16 x) { std::memcpy(to, &x, sizeof(x)); }
OCTET_INLINE void store(std::uint16_t* to, F32x16 x) {  // to nearest even; NaN stays NaN
    const U32x16 bits = as_bits(x);
    const U32x16 rounded = (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16, quiet = bits >> 16 | 0x40u;
    const U16x16 codes = __builtin_convertvector((bits & 0x7FFFFFFFu) > 0x7F800000u ? quiet : rounded, U16x16);
    std::memcpy(to, &codes, sizeof(codes));
}

// The first `count` of 16; the others are `rest`.
template <class T>
OCTET_INLINE F32x16 load_some(const T* from, std::int64_t count, float rest) {
    T some[lanes] = {};
    std::memcpy(some, from, static_cast<std::size_t>(count) * sizeof(T));
    F32x16 x = load(some);
    for (std::int64_t lane = count; lane < lanes; ++lane) x[lane] = rest;
    return x;
}
template <class T>
OCTET_INLINE void store_some(T* to, std::int64_t count, F32x16 x) {
    T some[lanes];
    store(some, x);
    std::memcpy(to, some, static_cast<std::size_t>(count) * sizeof(T));
}

// f(i, load, store) for every 16 of [0, count). load(pointer) and store(pointer, x) take elements i .. i + 15 of a row,
// or those of them that there are: a missing element loads as 0.
template <class F>
OCTET_INLINE void each16(std::int64_t count, F&& f) {
    std::int64_t i = 0;
    for (; i + lanes <= count; i += lanes)
        f(
            i, [i] [[gnu::always_inline]] (const auto* row) { return load(row + i); },
            [i] [[gnu::always_inline]] (auto* row, F32x16 x) { store(row + i, x); });
    if (i == count) return;
    const std::int64_t left = count - i;
    f(
        i, [i, left] [[gnu::always_inline]] (const auto* row) { return load_some(row + i, left, 0.0f); },
        [i, left] [[gnu::always_inline]] (auto* row, F32x16 x) { store_some(row + i, left, x); });
}

OCTET_INLINE F32x16 swapped(F32x16 x, std::int32_t distance) {  // lane i gets lane i ^ distance
    constexpr I32x16 lane{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return __builtin_shuffle(x, lane ^ distance);
}

OCTET_INLINE float sum(F32x16 x) {
    x += swapped(x, 8);
    x += swapped(x, 4);
    x += swapped(x, 2);
    x += swapped(x, 1);
    return x[0];
}

OCTET_INLINE F32x16 larger(F32x16 a, F32x16 b) { return a > b ? a : b; }

OCTET_INLINE float largest(F32x16 x) {
    x = larger(x, swapped(x, 8));
    x = larger(x, swapped(x, 4));
    x = larger(x, swapped(x, 2));
    x = larger(x, swapped(x, 1));
    return x[0];
}

// The first `count` lanes of x; the others are `rest`.
OCTET_INLINE F32x16 first_lanes(F32x16 x, std::int64_t count, float rest) {
    constexpr I32x16 lane{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return lane < static_cast<std::int32_t>(count) ? x : spread(rest);
}

// e^x to within 2 units in the last place for -87 <= x <= 88, held at the ends beyond; NaN gives NaN.
OCTET_INLINE F32x16 exponential(F32x16 x) {
    constexpr float log2e = 1.44269504f, ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
    constexpr float to_integer = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
    x = x > 88.0f ? spread(88.0f) : x;
    x = x < -87.0f ? spread(-87.0f) : x;
    const F32x16 shifted = x * log2e + to_integer;
    const F32x16 n = shifted - to_integer;
    const U32x16 exponent = as_bits(shifted) + 127u;
    const F32x16 r = (x - n * ln2_high) - n * ln2_low;
    F32x16 p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return p * as_floats(exponent << 23);
}

namespace detail {

enum class Vectors : std::uint8_t { baseline, avx2, avx512 };

inline Vectors widest_vectors() {
#if defined(__x86_64__)
    static const Vectors widest = [] {
        __builtin_cpu_init();
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
            return Vectors::avx512;
        return __builtin_cpu_supports("avx2") ? Vectors::avx2 : Vectors::baseline;
    }();
    return widest;
#else
    return Vectors::baseline;
#endif
}

#if defined(__x86_64__)
template <class Body>
[[gnu::noinline, gnu::target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")]] void on_avx512(
    const Body& body) {
    body();
}
template <class Body>
[[gnu::noinline, gnu::target("avx2")]] void on_avx2(const Body& body) {
    body();
}
#endif

}  // namespace detail

// body is a lambda marked [[gnu::always_inline]] that calls always-inline kernels with its captures.
template <class Body>
void vectorized(const Body& body) {
#if defined(__x86_64__)
    if (detail::widest_vectors() == detail::Vectors::avx512) return detail::on_avx512(body);
    if (detail::widest_vectors() == detail::Vectors::avx2) return detail::on_avx2(body);
#endif
    body();
}

}  // namespace octet::train
