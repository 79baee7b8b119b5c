// What all kernels share, compiled once a target: loads, 8-bit converts, transposes.
//
// A kernel works on pairs of f32 vectors of `lanes` lanes each. Two vectors of lanes are one 64-byte line of bf16 on
// AVX-512; they are taken apart into even and odd elements, which costs a shift and a mask and no shuffle.
#if defined(OCTET_CPU_SIMD_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTET_CPU_SIMD_INL
#undef OCTET_CPU_SIMD_INL
#else
#define OCTET_CPU_SIMD_INL
#endif

#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "octet/format.hpp"

HWY_BEFORE_NAMESPACE();
namespace octet::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using F32 = hn::ScalableTag<float>;
using U32 = hn::ScalableTag<std::uint32_t>;
using I32 = hn::ScalableTag<std::int32_t>;
using U16 = hn::ScalableTag<std::uint16_t>;
using U8 = hn::ScalableTag<std::uint8_t>;
using VF32 = hn::Vec<F32>;
using VU32 = hn::Vec<U32>;
using VU16 = hn::Vec<U16>;
using VU8 = hn::Vec<U8>;

constexpr std::int64_t lanes = static_cast<std::int64_t>(hn::MaxLanes(U32()));

HWY_INLINE VU32 bits_of(VF32 x) { return hn::BitCast(U32(), x); }
HWY_INLINE VF32 float_of(VU32 x) { return hn::BitCast(F32(), x); }
HWY_INLINE VU32 set(std::uint32_t x) { return hn::Set(U32(), x); }

// Bit by bit: `yes` where the mask has a one. Highway's own is one by bytes or lanes on some targets.
HWY_INLINE VU32 select_bits(VU32 mask, VU32 yes, VU32 no) {
#if HWY_TARGET == HWY_AVX3
    return VU32{_mm512_ternarylogic_epi32(mask.raw, yes.raw, no.raw, 0xCA)};
#else
    return hn::Or(hn::And(mask, yes), hn::AndNot(mask, no));
#endif
}

// 2 * lanes consecutive elements as two f32 vectors. Lane i of vector v is element place(v, i).
struct Bf16Input {
    using Element = std::uint16_t;
    static constexpr std::int64_t place(std::int64_t v, std::int64_t i) { return 2 * i + v; }
    static HWY_INLINE void load(const Element* x, VF32& first, VF32& second) {
        const VU32 both = hn::BitCast(U32(), hn::LoadU(U16(), x));
        first = float_of(hn::ShiftLeft<16>(both));
        second = float_of(hn::And(both, set(0xFFFF0000u)));
    }
    // f32 values that belong to the elements, in the same order.
    static HWY_INLINE void load_beside(const float* x, VF32& first, VF32& second) {
        const VF32 low = hn::LoadU(F32(), x), high = hn::LoadU(F32(), x + lanes);
        first = hn::ConcatEven(F32(), high, low);
        second = hn::ConcatOdd(F32(), high, low);
    }
    // 4 * lanes codes, each in the low byte of its lane below bits that do not count, to bytes in the elements' order.
    static HWY_INLINE VU8 pack(VU32 first0, VU32 second0, VU32 first1, VU32 second1) {
        const VU32 low = select_bits(set(0xFF), first0, hn::ShiftLeft<8>(second0));
        const VU32 high = select_bits(set(0xFF), first1, hn::ShiftLeft<8>(second1));
        return hn::BitCast(U8(), hn::ConcatEven(U16(), hn::BitCast(U16(), high), hn::BitCast(U16(), low)));
    }
};

struct F32Input {
    using Element = std::uint32_t;
    static constexpr std::int64_t place(std::int64_t v, std::int64_t i) { return v * lanes + i; }
    static HWY_INLINE void load(const Element* x, VF32& first, VF32& second) {
        first = float_of(hn::LoadU(U32(), x));
        second = float_of(hn::LoadU(U32(), x + lanes));
    }
    static HWY_INLINE void load_beside(const float* x, VF32& first, VF32& second) {
        first = hn::LoadU(F32(), x);
        second = hn::LoadU(F32(), x + lanes);
    }
    static HWY_INLINE VU8 pack(VU32 first0, VU32 second0, VU32 first1, VU32 second1) {
        const VU16 low = hn::ConcatEven(U16(), hn::BitCast(U16(), second0), hn::BitCast(U16(), first0));
        const VU16 high = hn::ConcatEven(U16(), hn::BitCast(U16(), second1), hn::BitCast(U16(), first1));
        return hn::ConcatEven(U8(), hn::BitCast(U8(), high), hn::BitCast(U8(), low));
    }
};

// What a cast may take for granted.
enum class Values {
    in_range,  // finite, and at most what still rounds to the format's largest value
    any,       // NaN stays NaN, the rest saturates
};

// The code of y in the low byte of each lane, rounded to nearest even; the bits above do not count.
//
// Adding 2^(23 - mantissa bits) times the power of two below |y| to |y| leaves just the format's mantissa bits at the
// end of the sum, rounded by the addition itself. Where |y| is below the smallest normal number, the power of two of
// that one takes its place, which is how subnormals are rounded. The sum then ends in k, the significand (8 to 16 with
// 3 mantissa bits, less for subnormals), and the code is k plus the exponent's distance from the smallest. That
// distance needs an offset, which is already in the number added, as even multiples of its last place.
template <class Codec>
HWY_INLINE VU32 encode_in_range(VF32 y) {
    constexpr int shift = 23 - Codec::mantissa_bits;
    constexpr std::uint32_t smallest_exponent = 128 - Codec::bias;  // f32's field for it
    constexpr std::uint32_t offset = (0u - (smallest_exponent << Codec::mantissa_bits)) & 0x7Fu;
    static_assert(offset % 2 == 0, "an odd multiple would turn the rounding of halves around");
    const VU32 bits = bits_of(y);
    const VU32 magnitude = hn::And(bits, set(0x7FFFFFFFu));
    const VF32 at_least = hn::Max(float_of(magnitude), hn::Set(F32(), octet::detail::pow2(1 - Codec::bias)));
    const VU32 exponent = hn::And(bits_of(at_least), set(0x7F800000u));
    const VF32 rounder = float_of(hn::Add(exponent, set((static_cast<std::uint32_t>(shift) << 23) + offset)));
    const VU32 rounded = bits_of(hn::Add(float_of(magnitude), rounder));
    const VU32 code = hn::Add(rounded, hn::ShiftRight<shift>(exponent));
    VU32 sign = hn::ShiftRight<24>(bits);
    // Without -0, the sign stays only where adding 0x7F to the code reaches bit 7, which is where it is not 0.
    if constexpr (!Codec::has_negative_zero) sign = hn::And(sign, hn::Add(hn::And(code, set(0x7F)), set(0x7F)));
    return select_bits(set(0x80), sign, code);
}

template <class Codec>
HWY_INLINE VU32 encode_any(VF32 y) {
    const VU32 bits = bits_of(y);
    const VU32 magnitude = hn::And(bits, set(0x7FFFFFFFu));
    const VU32 clamped = hn::Min(magnitude, set(octet::detail::f32_bits(Codec::max)));
    const VU32 code = encode_in_range<Codec>(float_of(select_bits(set(0x80000000u), bits, clamped)));
    const auto is_nan = hn::Gt(hn::BitCast(I32(), magnitude), hn::Set(I32(), 0x7F800000));
    return hn::BitCast(U32(), hn::IfThenElse(is_nan, hn::Set(I32(), Codec::nan_code), hn::BitCast(I32(), code)));
}

template <class Codec, Values values>
HWY_INLINE VU32 encode(VF32 y) {
    if constexpr (values == Values::in_range) {
        return encode_in_range<Codec>(y);
    } else {
        return encode_any<Codec>(y);
    }
}

// The codes of four elements, the first lowest, into one lane.
HWY_INLINE VU32 pack_four(VU32 a, VU32 b, VU32 c, VU32 d) {
    const VU32 low = select_bits(set(0xFF), a, hn::ShiftLeft<8>(b));
    const VU32 high = select_bits(set(0xFF), c, hn::ShiftLeft<8>(d));
    return select_bits(set(0xFFFF), low, hn::ShiftLeft<16>(high));
}

// The value of the code in each lane, NaN and infinity included.
template <class Codec>
HWY_INLINE VF32 decode(VU32 code) {
    constexpr int shift = 23 - Codec::mantissa_bits;
    constexpr std::uint32_t rebias = static_cast<std::uint32_t>(127 - Codec::bias) << 23;
    constexpr float rounder = octet::detail::pow2(24 - Codec::bias - Codec::mantissa_bits);

    const VU32 magnitude = hn::And(code, set(0x7F));
    const VU32 normal = hn::Add(hn::ShiftLeft<shift>(magnitude), set(rebias));
    const VF32 subnormal =
        hn::Sub(float_of(hn::Or(magnitude, set(octet::detail::f32_bits(rounder)))), hn::Set(F32(), rounder));
    const hn::Vec<I32> compared = hn::BitCast(I32(), magnitude);
    const auto is_subnormal = hn::Lt(compared, hn::Set(I32(), 1 << Codec::mantissa_bits));
    VU32 bits =
        hn::BitCast(U32(), hn::IfThenElse(is_subnormal, hn::BitCast(I32(), subnormal), hn::BitCast(I32(), normal)));
    bits = hn::Or(bits, hn::ShiftLeft<24>(hn::And(code, set(0x80))));
    const auto put_where = [&](auto mask, std::uint32_t value) HWY_ATTR {
        bits = hn::BitCast(U32(),
                           hn::IfThenElse(mask, hn::BitCast(I32(), hn::Or(set(value), hn::And(bits, set(0x80000000u)))),
                                          hn::BitCast(I32(), bits)));
    };
    if constexpr (Codec::nan_code == 0x80) {
        put_where(hn::Eq(hn::BitCast(I32(), code), hn::Set(I32(), 0x80)), 0x7FC00000u);
    } else {
        constexpr bool has_infinity = Codec::mantissa_bits == 2;
        if constexpr (has_infinity) put_where(hn::Eq(compared, hn::Set(I32(), 0x7C)), 0x7F800000u);
        put_where(hn::Gt(compared, hn::Set(I32(), has_infinity ? 0x7C : 0x7E)), 0x7FC00000u);
    }
    return float_of(bits);
}

// f32 to bf16 in the low half of each lane, to nearest even; NaN stays NaN.
HWY_INLINE VU32 round_to_bf16(VF32 x) {
    const VU32 bits = bits_of(x);
    const VU32 odd = hn::And(hn::ShiftRight<16>(bits), set(1));
    const VU32 rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, set(0x7FFF)), odd));
    const VU32 quiet = hn::Or(hn::ShiftRight<16>(bits), set(0x40));
    const auto is_nan = hn::Gt(hn::BitCast(I32(), hn::And(bits, set(0x7FFFFFFFu))), hn::Set(I32(), 0x7F800000));
    return hn::BitCast(U32(), hn::IfThenElse(is_nan, hn::BitCast(I32(), quiet), hn::BitCast(I32(), rounded)));
}

// Transposes a square of u32: lane j of row i becomes lane i of row j.
HWY_INLINE void transpose(VU32 (&rows)[lanes]) {
    using U64 = hn::ScalableTag<std::uint64_t>;
    // Squares of 4 within the 128-bit blocks.
    for (std::int64_t i = 0; i < lanes; i += 4) {
        const VU32 a = hn::InterleaveLower(U32(), rows[i], rows[i + 1]);
        const VU32 b = hn::InterleaveUpper(U32(), rows[i], rows[i + 1]);
        const VU32 c = hn::InterleaveLower(U32(), rows[i + 2], rows[i + 3]);
        const VU32 d = hn::InterleaveUpper(U32(), rows[i + 2], rows[i + 3]);
        const auto a64 = hn::BitCast(U64(), a), b64 = hn::BitCast(U64(), b);
        const auto c64 = hn::BitCast(U64(), c), d64 = hn::BitCast(U64(), d);
        rows[i] = hn::BitCast(U32(), hn::InterleaveLower(U64(), a64, c64));
        rows[i + 1] = hn::BitCast(U32(), hn::InterleaveUpper(U64(), a64, c64));
        rows[i + 2] = hn::BitCast(U32(), hn::InterleaveLower(U64(), b64, d64));
        rows[i + 3] = hn::BitCast(U32(), hn::InterleaveUpper(U64(), b64, d64));
    }
    // Then the blocks among each other.
#if HWY_TARGET == HWY_AVX3
    for (std::int64_t i = 0; i < 4; ++i) {
        const __m512i a = rows[i].raw, b = rows[i + 4].raw, c = rows[i + 8].raw, d = rows[i + 12].raw;
        const __m512i ab_low = _mm512_shuffle_i32x4(a, b, 0x44), ab_high = _mm512_shuffle_i32x4(a, b, 0xEE);
        const __m512i cd_low = _mm512_shuffle_i32x4(c, d, 0x44), cd_high = _mm512_shuffle_i32x4(c, d, 0xEE);
        rows[i] = VU32{_mm512_shuffle_i32x4(ab_low, cd_low, 0x88)};
        rows[i + 4] = VU32{_mm512_shuffle_i32x4(ab_low, cd_low, 0xDD)};
        rows[i + 8] = VU32{_mm512_shuffle_i32x4(ab_high, cd_high, 0x88)};
        rows[i + 12] = VU32{_mm512_shuffle_i32x4(ab_high, cd_high, 0xDD)};
    }
#elif HWY_TARGET == HWY_AVX2
    for (std::int64_t i = 0; i < 4; ++i) {
        const VU32 a = rows[i], b = rows[i + 4];
        rows[i] = hn::ConcatLowerLower(U32(), b, a);
        rows[i + 4] = hn::ConcatUpperUpper(U32(), b, a);
    }
#else
    static_assert(lanes == 4, "this target needs its own exchange of blocks");
#endif
}

}  // namespace octet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // the include guard that foreach_target toggles
