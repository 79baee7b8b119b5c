#include "cpu/product_rows.hpp"

#include <bit>
#include <cstring>

#include "cpu/simd.hpp"

namespace octet::cpu {
namespace {

// Branch-free, so that compilers vectorize it: every case is computed and the right one selected.
template <class Codec>
[[gnu::always_inline]] inline float decode_code(std::uint8_t code) {
    constexpr int mantissa = Codec::mantissa_bits;
    constexpr float smallest_normal = detail::pow2(1 - Codec::bias);
    const std::uint32_t magnitude = code & 0x7Fu;
    const std::uint32_t bits = (magnitude << (23 - mantissa)) + (static_cast<std::uint32_t>(127 - Codec::bias) << 23);
    // A subnormal is read as if it had the leading 1 of the smallest normal number, which is then taken away.
    const bool subnormal = magnitude < (1u << mantissa);
    const float with_one = std::bit_cast<float>(bits + (subnormal ? 1u << 23 : 0u));
    float value = with_one - (subnormal ? smallest_normal : 0.0f);
    if constexpr (Codec::nan_code == E5M2::nan_code && mantissa == E5M2::mantissa_bits) {
        value = magnitude == 0x7Cu ? std::bit_cast<float>(0x7F800000u) : value;
        value = magnitude > 0x7Cu ? std::bit_cast<float>(0x7FC00000u) : value;
    } else if constexpr (Codec::has_negative_zero) {
        value = magnitude == 0x7Fu ? std::bit_cast<float>(0x7FC00000u) : value;
    }
    const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x80u) << 24;
    float result = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | sign);
    if constexpr (!Codec::has_negative_zero) result = code == 0x80u ? std::bit_cast<float>(0x7FC00000u) : result;
    return result;
}

template <class Codec>
[[gnu::always_inline]] inline void decode_run(const std::uint8_t* in, std::int64_t count, float multiplier,
                                              float* out) {
    for (std::int64_t i = 0; i < count; ++i) out[i] = decode_code<Codec>(in[i]) * multiplier;
}

template <class Codec>
[[gnu::always_inline]] inline void decode_fp8(const void* codes, std::int64_t count, std::int64_t block,
                                              const float* multipliers, float* out) {
    constexpr std::int64_t mx_block = 32;
    const auto* in = static_cast<const std::uint8_t*>(codes);
    std::int64_t done = 0;
    if (block == mx_block)  // a length the compiler knows: no loop over what is left of a vector
        for (; done + mx_block <= count; done += mx_block)
            decode_run<Codec>(in + done, mx_block, *multipliers++, out + done);
    for (; done < count; done += block)
        decode_run<Codec>(in + done, block < count - done ? block : count - done, *multipliers++, out + done);
}

[[gnu::always_inline]] inline void decode_bf16(const void* codes, std::int64_t count, float* out) {
    const auto* in = static_cast<const std::uint16_t*>(codes);
    for (std::int64_t i = 0; i < count; ++i) out[i] = BF16::decode(in[i]);
}

[[gnu::always_inline]] inline void copy_f32(const void* values, std::int64_t count, float* out) {
    std::memcpy(out, values, static_cast<std::size_t>(count) * sizeof(float));
}

[[gnu::always_inline]] inline std::uint16_t round_bf16(float x) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t rounded = (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
    const std::uint32_t quiet = bits >> 16 | 0x40u;
    return static_cast<std::uint16_t>((bits & 0x7FFFFFFFu) > 0x7F800000u ? quiet : rounded);
}

[[gnu::always_inline]] inline float value_of(std::uint16_t bf16) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bf16) << 16);
}

template <class Put>
[[gnu::always_inline]] inline void finish(const float* sums, std::int64_t count, float left, const float* right,
                                          Put put) {
    if (right == nullptr) {
        for (std::int64_t j = 0; j < count; ++j) put(j, sums[j] * left);
    } else {
        for (std::int64_t j = 0; j < count; ++j) put(j, sums[j] * left * right[j]);
    }
}

// One set of kernels per instruction set: the bodies above are inlined into functions compiled for it.
#define OCTET_PRODUCT_ROWS(set, attribute)                                                                            \
    namespace set {                                                                                                   \
    attribute void decode_e4m3(const void* in, std::int64_t count, std::int64_t block, const float* by, float* out) { \
        decode_fp8<E4M3>(in, count, block, by, out);                                                                  \
    }                                                                                                                 \
    attribute void decode_e4m3fnuz(const void* in, std::int64_t count, std::int64_t block, const float* by,           \
                                   float* out) {                                                                      \
        decode_fp8<E4M3Fnuz>(in, count, block, by, out);                                                              \
    }                                                                                                                 \
    attribute void decode_e5m2(const void* in, std::int64_t count, std::int64_t block, const float* by, float* out) { \
        decode_fp8<E5M2>(in, count, block, by, out);                                                                  \
    }                                                                                                                 \
    attribute void decode_half(const void* in, std::int64_t count, std::int64_t, const float*, float* out) {          \
        decode_bf16(in, count, out);                                                                                  \
    }                                                                                                                 \
    attribute void decode_single(const void* in, std::int64_t count, std::int64_t, const float*, float* out) {        \
        copy_f32(in, count, out);                                                                                     \
    }                                                                                                                 \
    attribute void finish_f32(const float* sums, std::int64_t count, float left, const float* right, float* out) {    \
        finish(sums, count, left, right, [out](std::int64_t j, float v) { out[j] = v; });                             \
    }                                                                                                                 \
    attribute void finish_bf16(const float* sums, std::int64_t count, float left, const float* right,                 \
                               std::uint16_t* out) {                                                                  \
        finish(sums, count, left, right, [out](std::int64_t j, float v) { out[j] = round_bf16(v); });                 \
    }                                                                                                                 \
    attribute void finish_add(const float* sums, std::int64_t count, float left, const float* right, float* out) {    \
        finish(sums, count, left, right, [out](std::int64_t j, float v) { out[j] += v; });                            \
    }                                                                                                                 \
    attribute void finish_add_bf16(const float* sums, std::int64_t count, float left, const float* right,             \
                                   std::uint16_t* out) {                                                              \
        finish(sums, count, left, right,                                                                              \
               [out](std::int64_t j, float v) { out[j] = round_bf16(value_of(out[j]) + value_of(round_bf16(v))); });  \
    }                                                                                                                 \
    constexpr ProductRows kernels{{decode_single, decode_half, decode_e4m3, decode_e4m3fnuz, decode_e5m2},            \
                                  finish_f32,                                                                         \
                                  finish_bf16,                                                                        \
                                  finish_add,                                                                         \
                                  finish_add_bf16};                                                                   \
    }

OCTET_PRODUCT_ROWS(baseline, )
#if defined(__x86_64__)
OCTET_PRODUCT_ROWS(avx2, [[gnu::target("avx2")]])
OCTET_PRODUCT_ROWS(avx512, [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")]])
#endif
#undef OCTET_PRODUCT_ROWS

}  // namespace

const ProductRows& product_rows() {
#if defined(__x86_64__)
    return choose(&baseline::kernels, &avx2::kernels, &avx512::kernels);
#else
    return baseline::kernels;
#endif
}

}  // namespace octet::cpu
