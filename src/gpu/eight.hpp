// Eight neighbouring elements of a row, as they were read, and the largest magnitudes of such eights.
//
// Magnitudes are kept as integers: the bits of |x| order as the numbers do, with NaN above infinity, so that one
// integer maximum folds them and a NaN stays. bf16 magnitudes stay packed, two to a word, and until the last maximum
// their sign bits mean nothing: an instruction takes the maximum of magnitudes and leaves some sign (plain_magnitude).
#pragma once

#include "gpu/simt.hpp"

namespace octet::gpu {

using namespace octet::simt;

struct Bf16In {
    using Element = u16;
    static constexpr int words = 4;   // of eight elements
    static constexpr int pieces = 1;  // 16-byte loads of eight elements
};
struct F32In {
    using Element = u32;
    static constexpr int words = 8;
    static constexpr int pieces = 2;
};

template <class In>
struct Eight {
    u32 word[In::words];

    OCTET_GPU float operator[](int i) const {
        if constexpr (In::words == 4) {
            return std::bit_cast<float>(i & 1 ? word[i >> 1] & 0xFFFF0000u : word[i >> 1] << 16);
        } else {
            return std::bit_cast<float>(word[i]);
        }
    }
};

template <class In, class Thread, class... Hint>  // Hint: Reuse, or nothing
OCTET_GPU Eight<In> load_eight(Thread& t, const typename In::Element* from, Hint... hint) {
    Eight<In> x;
    OCTET_UNROLL
    for (int piece = 0; piece < In::pieces; ++piece) {
        const Vec16 v = t.load16(from + piece * (8 / In::pieces), hint...);
        OCTET_UNROLL
        for (int i = 0; i < 4; ++i) x.word[piece * 4 + i] = v.word[i];
    }
    return x;
}

// The first `count` of eight elements, one by one; the others are zero.
template <class In, class Thread>
OCTET_GPU_RARE Eight<In> load_some(Thread& t, const typename In::Element* from, i32 count) {
    Eight<In> x;
    OCTET_UNROLL
    for (int i = 0; i < In::words; ++i) x.word[i] = 0;
    OCTET_UNROLL
    for (int i = 0; i < 8; ++i) {
        if (i >= count) continue;
        if constexpr (In::words == 4) {
            x.word[i >> 1] |= static_cast<u32>(t.load(from + i)) << (i & 1 ? 16 : 0);
        } else {
            x.word[i] = t.load(from + i);
        }
    }
    return x;
}

template <class In>
OCTET_GPU Eight<In> zero_eight() {
    Eight<In> x;
    OCTET_UNROLL
    for (int i = 0; i < In::words; ++i) x.word[i] = 0;
    return x;
}

// The first `count` of eight elements; the others become zero.
template <class In>
OCTET_GPU Eight<In> first_of(const Eight<In>& x, i32 count) {
    Eight<In> kept = zero_eight<In>();
    OCTET_UNROLL
    for (int i = 0; i < 8; ++i) {
        if (i >= count) continue;
        if constexpr (In::words == 4)
            kept.word[i >> 1] |= x.word[i >> 1] & (i & 1 ? 0xFFFF0000u : 0x0000FFFFu);
        else
            kept.word[i] = x.word[i];
    }
    return kept;
}

// Element-wise largest magnitudes of some eights.
template <class In>
struct Magnitudes {
    u32 word[In::words];
};

template <class In, class Thread>
OCTET_GPU u32 magnitude_max(Thread& t, u32 a, u32 b) {
    if constexpr (In::words == 4)
        return t.max_magnitude_bf16x2(a, b);
    else
        return a > b ? a : b;
}

template <class In>
OCTET_GPU u32 magnitude_of(u32 word) {
    return In::words == 4 ? word : word & 0x7FFFFFFFu;
}
// A word of magnitudes whose maxima are done.
template <class In>
OCTET_GPU u32 plain_magnitude(u32 word) {
    return In::words == 4 ? word & 0x7FFF7FFFu : word;
}

template <class In>
OCTET_GPU Magnitudes<In> magnitudes_of(const Eight<In>& x) {
    Magnitudes<In> m;
    OCTET_UNROLL
    for (int i = 0; i < In::words; ++i) m.word[i] = magnitude_of<In>(x.word[i]);
    return m;
}

template <class In, class Thread>
OCTET_GPU void fold(Thread& t, Magnitudes<In>& into, const Magnitudes<In>& m) {
    OCTET_UNROLL
    for (int i = 0; i < In::words; ++i) into.word[i] = magnitude_max<In>(t, into.word[i], m.word[i]);
}

// All eight folded into one word, still packed for bf16.
template <class In, class Thread>
OCTET_GPU u32 fold_across(Thread& t, const Magnitudes<In>& m) {
    u32 word = m.word[0];
    OCTET_UNROLL
    for (int i = 1; i < In::words; ++i) word = magnitude_max<In>(t, word, m.word[i]);
    return word;
}

// A folded word as the f32 bits of its largest magnitude.
template <class In>
OCTET_GPU u32 f32_bits_of(u32 word) {
    if constexpr (In::words == 4) {
        const u32 low = word << 16 & 0x7FFFFFFFu, high = word & 0x7FFF0000u;
        return low > high ? low : high;
    } else {
        return word;
    }
}

// A folded word's maximum over `lanes` neighbouring threads (a power of two, at most 32), in each of them.
template <class In, int lanes, class Thread>
OCTET_GPU u32 fold_lanes(Thread& t, u32 word) {
    OCTET_UNROLL
    for (int mask = 1; mask < lanes; mask *= 2) word = magnitude_max<In>(t, word, t.shuffle_xor(word, mask));
    return word;
}

// The largest magnitudes of two rows, each folded over a thread's eight elements, over `lanes` neighbours: as f32
// bits, in each of them.
template <class In, int lanes, class Thread>
OCTET_GPU void peaks_of_two(Thread& t, u32 a, u32 b, u32 (&peaks)[2]) {
    if constexpr (In::words == 4) {  // both in one word
        const u32 both = fold_lanes<In, lanes>(
            t, magnitude_max<In>(t, t.permute_bytes(a, b, 0x5410u), t.permute_bytes(a, b, 0x7632u)));
        peaks[0] = both << 16 & 0x7FFFFFFFu;
        peaks[1] = both & 0x7FFF0000u;
    } else {
        peaks[0] = fold_lanes<In, lanes>(t, a);
        peaks[1] = fold_lanes<In, lanes>(t, b);
    }
}

// Words of maxima, folded over `lanes` neighbours, of whom each keeps a part, first in its array: the later half of
// what is left if its number has bit 1, then bit 2, and so on. The other half it gives away.
template <class In, int lanes, u32 words, class Thread>
OCTET_GPU void deal_words(Thread& t, u32 (&word)[words]) {
    OCTET_UNROLL
    for (int mask = 1; mask < lanes; mask *= 2) {
        const int kept = static_cast<int>(words) / 2 / mask;
        const bool later = t.thread() & mask;
        OCTET_UNROLL
        for (int i = 0; i < kept; ++i) {
            const u32 given = t.shuffle_xor(later ? word[i] : word[kept + i], mask);
            word[i] = magnitude_max<In>(t, later ? word[kept + i] : word[i], given);
        }
    }
}

// The largest magnitudes of eight rows, each folded over a thread's eight elements, over `lanes` neighbours: those of
// rows 4 (l % 2) + 2 (l / 2) and the next in lane l of every four, as f32 bits.
template <class In, int lanes, class Thread>
OCTET_GPU void peaks_of_eight(Thread& t, const u32 (&rows)[8], u32 (&peaks)[2]) {
    constexpr int packed = In::words == 4 ? 2 : 1;  // rows a word
    u32 word[static_cast<u32>(8 / packed)];
    OCTET_UNROLL
    for (int i = 0; i < 8 / packed; ++i)
        word[i] = packed == 1 ? rows[i]
                              : magnitude_max<In>(t, t.permute_bytes(rows[2 * i], rows[2 * i + 1], 0x5410u),
                                                  t.permute_bytes(rows[2 * i], rows[2 * i + 1], 0x7632u));
    deal_words<In, 4>(t, word);
    OCTET_UNROLL
    for (int i = 0; i < 2 / packed; ++i) OCTET_UNROLL
    for (int mask = 4; mask < lanes; mask *= 2) word[i] = magnitude_max<In>(t, word[i], t.shuffle_xor(word[i], mask));
    peaks[0] = packed == 1 ? word[0] : word[0] << 16 & 0x7FFFFFFFu;
    peaks[1] = packed == 1 ? word[1] : word[0] & 0x7FFF0000u;
}

// Eight elements times one multiplier, to 8 bits.
template <class Codec, class In, class Thread>
OCTET_GPU Vec8 encode_eight(Thread& t, const Eight<In>& x, float scale) {
    Vec8 out;
    OCTET_UNROLL
    for (int half = 0; half < 2; ++half)
        out.word[half] = t.template encode4<Codec>(x[half * 4] * scale, x[half * 4 + 1] * scale,
                                                   x[half * 4 + 2] * scale, x[half * 4 + 3] * scale);
    return out;
}

// All bits of the first `count` bytes of a word.
OCTET_GPU u32 first_bytes(i32 count) {
    const i32 gone = count < 4 ? 4 - count : 0;
    return count > 0 ? 0xFFFFFFFFu >> (8 * gone) : 0u;
}
// The first `count` bytes of a Vec8 or Vec16; the others become zero.
template <class Vec>
OCTET_GPU Vec first_bytes(Vec v, i32 count) {
    OCTET_UNROLL
    for (int w = 0; w < static_cast<int>(sizeof(Vec) / 4); ++w) v.word[w] &= first_bytes(count - 4 * w);
    return v;
}

// The first `count` of sixteen bytes, one by one.
template <class Thread>
OCTET_GPU_RARE void store_sixteen_by_bytes(Thread& t, u8* to, Vec16 v, i32 count) {
    for (int b = 0; b < 16 && b < count; ++b) {
        const u32 word = b < 8 ? (b < 4 ? v.word[0] : v.word[1]) : (b < 12 ? v.word[2] : v.word[3]);
        t.store(to + b, static_cast<u8>(word >> (8 * (b & 3))));
    }
}

// Eight bytes to `to`: at once where it is aligned and all are wanted, else the first `count` one by one.
template <class Thread>
OCTET_GPU void store_eight(Thread& t, u8* to, const Vec8& v, i32 count) {
    if (count >= 8 && (reinterpret_cast<u64>(to) & 7u) == 0) {
        t.store8(to, v);
        return;
    }
    OCTET_UNROLL
    for (int i = 0; i < 8; ++i)
        if (i < count) t.store(to + i, static_cast<u8>(v.word[i >> 2] >> (8 * (i & 3))));
}

}  // namespace octet::gpu
