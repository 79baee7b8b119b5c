#include "cpu/row_kernels.hpp"

#include "cpu/simd.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/row_kernels.cpp"
#include "hwy/foreach_target.h"
//
#include "cpu/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace octet::cpu::HWY_NAMESPACE {
namespace {

constexpr std::int64_t pair = 2 * lanes;  // elements of one load
constexpr std::int64_t step = 4 * lanes;  // elements of one store of bytes

HWY_INLINE VU16 abs_bits(VU16 x) { return hn::And(x, hn::Set(U16(), 0x7FFF)); }
HWY_INLINE VU32 abs_bits(VU32 x) { return hn::And(x, set(0x7FFFFFFFu)); }

// The largest magnitudes of count elements, spread over lanes, as f32 bits. Magnitudes are compared as integers, which
// orders them as numbers do and puts NaN on top.
HWY_INLINE VU32 spread_amax(Bf16Input, const std::uint16_t* x, std::int64_t count) {
    VU16 m0 = hn::Zero(U16()), m1 = m0, m2 = m0, m3 = m0;
    std::int64_t i = 0;
    for (; i + 4 * pair <= count; i += 4 * pair) {
        m0 = hn::Max(m0, abs_bits(hn::LoadU(U16(), x + i)));
        m1 = hn::Max(m1, abs_bits(hn::LoadU(U16(), x + i + pair)));
        m2 = hn::Max(m2, abs_bits(hn::LoadU(U16(), x + i + 2 * pair)));
        m3 = hn::Max(m3, abs_bits(hn::LoadU(U16(), x + i + 3 * pair)));
    }
    for (; i + pair <= count; i += pair) m0 = hn::Max(m0, abs_bits(hn::LoadU(U16(), x + i)));
    if (i < count) {
        HWY_ALIGN std::uint16_t tail[pair] = {};
        std::memcpy(tail, x + i, static_cast<std::size_t>(count - i) * sizeof(*x));
        m1 = hn::Max(m1, abs_bits(hn::Load(U16(), tail)));
    }
    const VU32 m = hn::BitCast(U32(), hn::Max(hn::Max(m0, m1), hn::Max(m2, m3)));
    return hn::Max(hn::ShiftLeft<16>(m), hn::And(m, set(0xFFFF0000u)));
}

HWY_INLINE VU32 spread_amax(F32Input, const std::uint32_t* x, std::int64_t count) {
    VU32 m0 = hn::Zero(U32()), m1 = m0;
    std::int64_t i = 0;
    for (; i + pair <= count; i += pair) {
        m0 = hn::Max(m0, abs_bits(hn::LoadU(U32(), x + i)));
        m1 = hn::Max(m1, abs_bits(hn::LoadU(U32(), x + i + lanes)));
    }
    if (i < count) {
        HWY_ALIGN std::uint32_t tail[pair] = {};
        std::memcpy(tail, x + i, static_cast<std::size_t>(count - i) * sizeof(*x));
        m0 = hn::Max(m0, abs_bits(hn::Load(U32(), tail)));
        m1 = hn::Max(m1, abs_bits(hn::Load(U32(), tail + lanes)));
    }
    return hn::Max(m0, m1);
}

// Maxima of as many whole blocks as there are lanes. A transpose turns maxima across lanes into maxima across vectors;
// of bf16 the two in a lane are told apart only after it.
template <int block_shift>
HWY_INLINE VU32 amax_of_blocks(Bf16Input, const std::uint16_t* x) {
    constexpr std::int64_t block = std::int64_t{1} << block_shift;
    VU32 spread[lanes];
    for (std::int64_t b = 0; b < lanes; ++b) {
        VU16 m = hn::LoadU(U16(), x + b * block);
        m = abs_bits(m);
        for (std::int64_t i = pair; i < block; i += pair) m = hn::Max(m, abs_bits(hn::LoadU(U16(), x + b * block + i)));
        spread[b] = hn::BitCast(U32(), m);
    }
    transpose(spread);
    VU16 m = hn::BitCast(U16(), spread[0]);
    for (std::int64_t b = 1; b < lanes; ++b) m = hn::Max(m, hn::BitCast(U16(), spread[b]));
    const VU32 both = hn::BitCast(U32(), m);
    return hn::Max(hn::ShiftLeft<16>(both), hn::And(both, set(0xFFFF0000u)));
}

template <int block_shift>
HWY_INLINE VU32 amax_of_blocks(F32Input, const std::uint32_t* x) {
    constexpr std::int64_t block = std::int64_t{1} << block_shift;
    VU32 spread[lanes];
    for (std::int64_t b = 0; b < lanes; ++b) {
        spread[b] = abs_bits(hn::LoadU(U32(), x + b * block));
        for (std::int64_t i = lanes; i < block; i += lanes)
            spread[b] = hn::Max(spread[b], abs_bits(hn::LoadU(U32(), x + b * block + i)));
    }
    transpose(spread);
    for (std::int64_t b = 1; b < lanes; ++b) spread[0] = hn::Max(spread[0], spread[b]);
    return spread[0];
}

template <class Input, int block_shift>
HWY_INLINE void amax_of_row(const typename Input::Element* x, std::int64_t count, std::uint32_t* amax) {
    constexpr std::int64_t block = std::int64_t{1} << block_shift;
    std::int64_t i = 0;
    for (; i + lanes * block <= count; i += lanes * block)
        hn::StoreU(amax_of_blocks<block_shift>(Input(), x + i), U32(), amax + (i >> block_shift));
    for (; i < count; i += block) {
        const std::int64_t some = count - i < block ? count - i : block;
        amax[i >> block_shift] = hn::GetLane(hn::MaxOfLanes(U32(), spread_amax(Input(), x + i, some)));
    }
}

template <class Input>
void block_amax(const void* from, std::int64_t count, int block_shift, std::uint32_t* amax) {
    const auto* x = static_cast<const typename Input::Element*>(from);
    if (block_shift == 5) return amax_of_row<Input, 5>(x, count, amax);
    if (block_shift == 7) return amax_of_row<Input, 7>(x, count, amax);
    amax[0] = hn::GetLane(hn::MaxOfLanes(U32(), spread_amax(Input(), x, count)));
}

template <class Input, class Codec, Values values>
HWY_INLINE VU8 cast_step(const typename Input::Element* x, VF32 multiplier0, VF32 multiplier1) {
    VF32 a, b, c, d;
    Input::load(x, a, b);
    Input::load(x + pair, c, d);
    return Input::pack(encode<Codec, values>(hn::Mul(a, multiplier0)), encode<Codec, values>(hn::Mul(b, multiplier0)),
                       encode<Codec, values>(hn::Mul(c, multiplier1)), encode<Codec, values>(hn::Mul(d, multiplier1)));
}

template <class Input, class Codec, Values values>
HWY_NOINLINE void cast_steps(bool stream, const typename Input::Element* x, std::int64_t count, int block_shift,
                             const float* multiplier, std::uint8_t* out) {
    std::int64_t i = 0;
    for (; i + step <= count; i += step) {
        const VU8 codes = cast_step<Input, Codec, values>(x + i, hn::Set(F32(), multiplier[i >> block_shift]),
                                                          hn::Set(F32(), multiplier[(i + pair) >> block_shift]));
        if (stream) {
            hn::Stream(codes, U8(), out + i);
        } else {
            hn::StoreU(codes, U8(), out + i);
        }
    }
    if (i < count) {
        HWY_ALIGN typename Input::Element tail[step] = {};
        HWY_ALIGN std::uint8_t codes[step];
        std::memcpy(tail, x + i, static_cast<std::size_t>(count - i) * sizeof(*x));
        const std::int64_t second = i + pair < count ? i + pair : i;  // the tail may not reach a second block
        hn::Store(cast_step<Input, Codec, values>(tail, hn::Set(F32(), multiplier[i >> block_shift]),
                                                  hn::Set(F32(), multiplier[second >> block_shift])),
                  U8(), codes);
        std::memcpy(out + i, codes, static_cast<std::size_t>(count - i));
    }
}

template <class Input, class Codec>
void cast(const void* from, std::int64_t count, int block_shift, const float* multiplier, bool in_range, bool stream,
          std::uint8_t* out) {
    const auto* x = static_cast<const typename Input::Element*>(from);
    const bool aligned = reinterpret_cast<std::uintptr_t>(out) % sizeof(VU8) == 0;
    const bool past_caches = stream && aligned;
    if (in_range)
        return cast_steps<Input, Codec, Values::in_range>(past_caches, x, count, block_shift, multiplier, out);
    cast_steps<Input, Codec, Values::any>(past_caches, x, count, block_shift, multiplier, out);
}

// The opposite way goes one vector of f32 at a time: bytes are widened in order.
HWY_INLINE void store_rounded(Bf16Input, VF32 value, std::uint16_t* x) {
    const hn::Rebind<std::uint16_t, U32> half;
    hn::StoreU(hn::TruncateTo(half, round_to_bf16(value)), half, x);
}
HWY_INLINE void store_rounded(F32Input, VF32 value, std::uint32_t* x) { hn::StoreU(bits_of(value), U32(), x); }

template <class Input, class Codec>
void decode_row(const std::uint8_t* q, std::int64_t count, int block_shift, const float* inverse, void* to) {
    auto* x = static_cast<typename Input::Element*>(to);
    const hn::Rebind<std::uint8_t, U32> quarter;
    std::int64_t i = 0;
    for (; i + lanes <= count; i += lanes) {
        const VF32 value = decode<Codec>(hn::PromoteTo(U32(), hn::LoadU(quarter, q + i)));
        store_rounded(Input(), hn::Mul(value, hn::Set(F32(), inverse[i >> block_shift])), x + i);
    }
    if (i < count) {
        HWY_ALIGN std::uint8_t codes[lanes] = {};
        HWY_ALIGN typename Input::Element tail[lanes];
        std::memcpy(codes, q + i, static_cast<std::size_t>(count - i));
        const VF32 value = decode<Codec>(hn::PromoteTo(U32(), hn::Load(quarter, codes)));
        store_rounded(Input(), hn::Mul(value, hn::Set(F32(), inverse[i >> block_shift])), tail);
        std::memcpy(x + i, tail, static_cast<std::size_t>(count - i) * sizeof(*x));
    }
}

template <class Input, class Codec>
constexpr RowKernels entry() {
    return {block_amax<Input>, cast<Input, Codec>, decode_row<Input, Codec>};
}

}  // namespace

extern const KernelTable<RowKernels> row_table;
const KernelTable<RowKernels> row_table = {
    {{entry<Bf16Input, E4M3>(), entry<Bf16Input, E4M3Fnuz>(), entry<Bf16Input, E5M2>()},
     {entry<F32Input, E4M3>(), entry<F32Input, E4M3Fnuz>(), entry<F32Input, E5M2>()}}};

}  // namespace octet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "cpu/simd_targets.hpp"

namespace octet::cpu {

const RowKernels& row_kernels(Format input, Format data) { return OCTET_CHOOSE(row_table).of(input, data); }

}  // namespace octet::cpu
#endif
