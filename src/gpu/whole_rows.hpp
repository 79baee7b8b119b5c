// Quantizes tokens that are contiguous already, x[N, M] -> data[N, P], with one scale a group and row, where groups are
// short and rows fit shared memory.
//
// Bytes: x once, data once. Bound by memory. A block takes two rows, whose scales are neighbours, or one that is as
// long as two, and sends for them before anything is known of the groups: these are looked up while rows come, so that
// there is no plan. Half of its threads take either row: teams of eight a group each; a long one, if there is any, all
// of them together.
#pragma once

#include "gpu/transposed.hpp"

namespace octet::gpu {

template <class Codec_, int block_rows_>
struct WholeRowsKernel {
    using In = Bf16In;
    using Codec = Codec_;
    using Params = TransposedParams;
    static constexpr int block_rows = block_rows_;
    static_assert(block_rows == 1 || block_rows == 2);
    static constexpr int threads = 512, mates = threads / block_rows;  // of a row
    static constexpr int blocks_per_core = 3;
    static constexpr int units = threads / unit, mate_units = mates / unit;
    static constexpr int team = 8;
    static constexpr int most_eights = 4224 / block_rows;  // of a row
    static constexpr i64 most_tokens = most_eights * 8;    // likewise
    static constexpr i64 most_groups = 128 * block_rows, most_alignment = 512;
    static constexpr i32 most_rows = 1024;  // of a group that is not long

    struct Range {  // of a group's tokens, in x and in the data
        u32 begin, padded_begin;
        i32 rows, padded_rows;
    };
    struct LongRange {
        Range range;
        u32 group;
    };
    struct Shared {
        Vec16 x[static_cast<u32>(block_rows)][static_cast<u32>(most_eights)];
        Range range[static_cast<u32>(most_groups)];
        LongRange long_range[static_cast<u32>(most_tokens / most_rows)];
        alignas(16) u32 sums[static_cast<u32>(units)];
        alignas(16) u32 amax[2][static_cast<u32>(block_rows)][static_cast<u32>(mate_units)];
        u32 peak[static_cast<u32>(block_rows)][static_cast<u32>(most_groups)];
    };

    template <class Thread>
    OCTET_GPU static void run(Thread& t, const Params& p, Shared& s) {
        const u32 me = static_cast<u32>(t.thread()), groups = static_cast<u32>(p.groups);
        i32 begin = 0, end = 0;  // of the thread's group
        if (me < groups) {
            if (me > 0) begin = t.load(p.ends + me - 1);
            end = t.load(p.ends + me);
        }
        const i64 row0 = static_cast<i64>(t.block()) * block_rows, row = row0 + row_of(t);
        const bool mine = row < p.features;
        fetch(t, p, s, row, mine);
        const u32 long_groups = find_groups(t, p, s, begin, end);
        t.template await_copies<0>();
        t.barrier();
        u8* data = p.data + row * p.data_stride;
        constexpr u32 beside = unit / team;
        if (mine) {
            OCTET_ROLLED
            for (u32 first = me % mates / unit * beside; first < groups; first += mate_units * beside)
                cast_short(t, p, s, data, first + me % unit / team, groups);
        }
        OCTET_ROLLED
        for (u32 i = 0; i < long_groups; ++i) cast_long(t, p, s, data, i, mine);
        t.barrier();
        // Neighbouring threads write those of a group, which are neighbours.
        const u32 g = me / block_rows, r = me % block_rows;
        if (g < groups && row0 + r < p.features)
            make_scale<Codec, false>(t, t.load_shared(&s.peak[r][g]), p.rule, p.scale, true, g, row0 + r, 0);
    }

private:
    // Of the block's rows, the thread's.
    template <class Thread>
    OCTET_GPU static int row_of(Thread& t) {
        return t.thread() / mates;
    }

    template <class Thread>
    OCTET_GPU static void fetch(Thread& t, const Params& p, Shared& s, i64 row, bool mine) {
        const int mate = t.thread() % mates;
        const i32 left = mine ? static_cast<i32>(p.rows) / 8 - mate : 0;  // eights
        const auto* from = static_cast<const Vec16*>(p.x) + row * (p.x_stride / 8) + mate;
        OCTET_UNROLL
        for (int j = 0; j < most_eights; j += mates)
            if (j + mates <= most_eights || j + mate < most_eights)
                t.copy_async(&s.x[row_of(t)][j + mate], from + j, j < left);
        t.commit_copies();
    }

    // What a group adds to the sum of those before it: tokens with padding, whether it is long, and whether its
    // offsets are out of order.
    static constexpr u32 one_long = 1u << 18, one_odd = 1u << (25 - block_rows);
    static_assert(most_tokens + most_groups * most_alignment < one_long);
    static_assert(most_tokens / most_rows * one_long < one_odd && most_groups * one_odd <= i64{1} << 31);
    OCTET_GPU static u32 share_of(const Params& p, i32 rows) {
        return static_cast<u32>(p.tiling.padded(rows, true)) + (rows > most_rows ? one_long : 0u);
    }

    // Puts the thread's group, [begin, end) if offsets are in order, where its team finds it, or all do. Returns the
    // number of long ones.
    template <class Thread>
    OCTET_GPU static u32 find_groups(Thread& t, const Params& p, Shared& s, i32 begin, i32 end) {
        const u32 me = static_cast<u32>(t.thread()), groups = static_cast<u32>(p.groups);
        const bool has_groups = me / unit * unit < groups;  // the thread's unit
        i32 rows = end - begin;
        u32 before = 0, sum = 0;
        if (has_groups) {
            sum = begin < 0 || begin > end || end > p.rows ? one_odd : share_of(p, rows);
            OCTET_UNROLL
            for (u32 mask = 1; mask < unit; mask *= 2) {
                const u32 other = t.shuffle_xor(sum, static_cast<int>(mask));
                if (me & mask) before += other;
                sum += other;
            }
        }
        if (me % unit == 0) t.store_shared(&s.sums[me / unit], sum);
        t.barrier();
        sum = 0;
        OCTET_UNROLL
        for (u32 u = 0; u < units; ++u) sum += t.load_shared(&s.sums[u]);
        if (!has_groups && sum < one_odd) return sum / one_long;
        OCTET_ROLLED
        for (u32 u = 0; u < me / unit; ++u) before += t.load_shared(&s.sums[u]);
        if (sum >= one_odd) {
            u32 last = 0;
            sum = 0;
            OCTET_ROLLED
            for (u32 g = 0; g < groups; ++g) {
                const u32 from = last;
                last = larger(from, end_of(t, p, g));
                if (g == me) {
                    begin = static_cast<i32>(from);
                    rows = static_cast<i32>(last - from);
                    before = sum;
                }
                sum += share_of(p, static_cast<i32>(last - from));
            }
        }
        if (me < groups) {
            Range range{static_cast<u32>(begin), before % one_long, rows, p.tiling.padded(rows, true)};
            if (rows > most_rows) {
                t.store_shared(&s.long_range[before / one_long], LongRange{range, me});
                range = {0, 0, 0, 0};  // for a team
            }
            t.store_shared(&s.range[me], range);
        }
        return sum / one_long;
    }

    // Whether a group is whole eights of its row.
    OCTET_GPU static bool in_eights(const Range& range) {
        return (range.begin | static_cast<u32>(range.rows)) % 8 == 0;
    }
    template <class Thread>
    OCTET_GPU static Eight<In> eight_at(Thread& t, const Vec16* from) {
        const Vec16 v = t.load_shared(from);
        return {{v.word[0], v.word[1], v.word[2], v.word[3]}};
    }
    // The first `count` of eight tokens, wherever they begin.
    template <class Thread>
    OCTET_GPU_RARE static Eight<In> some_at(Thread& t, const Vec16* x, u32 token, i32 count) {
        const u16* from = reinterpret_cast<const u16*>(x) + token;
        Eight<In> some = zero_eight<In>();
        OCTET_UNROLL
        for (int i = 0; i < 8; ++i)
            if (i < count) some.word[i >> 1] |= static_cast<u32>(t.load_shared(from + i)) << (i & 1 ? 16 : 0);
        return some;
    }

    template <class Thread>
    OCTET_GPU static void cast_short(Thread& t, const Params& p, Shared& s, u8* data, u32 g, u32 groups) {
        Range range{0, 0, 0, 0};
        if (g < groups) range = t.load_shared(&s.range[g]);
        const i32 first = t.thread() % team * 8;
        const u32 peak = f32_bits_of<In>(fold_lanes<In, team>(t, find_peak<team * 8>(t, s, range, first)));
        if (first == 0 && g < groups) t.store_shared(&s.peak[row_of(t)][g], peak);
        cast<team * 16>(t, p, s, data, range, 2 * first, peak);
    }

    template <class Thread>
    OCTET_GPU static void cast_long(Thread& t, const Params& p, Shared& s, u8* data, u32 i, bool mine) {
        const int mate = t.thread() % mates;
        const Range range = t.load_shared(&s.long_range[i].range);
        u32 peak = f32_bits_of<In>(fold_lanes<In, unit>(t, find_peak<mates * 8>(t, s, range, mate * 8)));
        u32(&amax)[static_cast<u32>(mate_units)] = s.amax[i % 2][row_of(t)];
        if (t.thread() % unit == 0) t.store_shared(&amax[mate / unit], peak);
        t.barrier();
        OCTET_UNROLL
        for (int u = 0; u < mate_units; ++u) peak = larger(peak, t.load_shared(&amax[u]));
        if (mate == 0) t.store_shared(&s.peak[row_of(t)][t.load_shared(&s.long_range[i].group)], peak);
        if (mine) cast<mates * 16>(t, p, s, data, range, mate * 16, peak);
    }

    // Of a group's eights from `first` on, so many tokens apart.
    template <i32 apart, class Thread>
    OCTET_GPU static u32 find_peak(Thread& t, Shared& s, const Range& range, i32 first) {
        Magnitudes<In> m{};
        i32 left = range.rows - first;
        if (in_eights(range)) {
            const Vec16* from = &s.x[row_of(t)][left > 0 ? (range.begin + static_cast<u32>(first)) / 8 : 0];
            OCTET_ROLLED
            for (; left > 0; left -= apart, from += apart / 8) fold(t, m, magnitudes_of(eight_at(t, from)));
        } else {
            OCTET_ROLLED
            for (u32 token = range.begin + static_cast<u32>(first); left > 0; left -= apart, token += apart)
                fold(t, m, magnitudes_of(some_at(t, s.x[row_of(t)], token, left)));
        }
        return fold_across(t, m);
    }
    // Writes the group's tokens from `first` on, 16 at a time, so many apart. Tokens past the group's are zero bytes,
    // whatever zero times the scale is.
    template <i32 apart, class Thread>
    OCTET_GPU static void cast(Thread& t, const Params& p, Shared& s, u8* data, const Range& range, i32 first,
                               u32 peak) {
        const float scale = scale_of_bits<Codec>(peak, p.rule.rounding);
        i32 left = range.rows - first, room = range.padded_rows - first;
        u8* to = data + range.padded_begin + first;
        if (in_eights(range)) {
            const Vec16* from = &s.x[row_of(t)][left > 0 ? (range.begin + static_cast<u32>(first)) / 8 : 0];
            OCTET_ROLLED
            for (; left > 0; left -= apart, room -= apart, from += apart / 8, to += apart) {
                const Vec8 a = encode_eight<Codec>(t, eight_at(t, from), scale);
                Vec8 b{{0, 0}};
                if (left > 8) b = encode_eight<Codec>(t, eight_at(t, from + 1), scale);
                t.template store16<Reuse::last>(to, Vec16{{a.word[0], a.word[1], b.word[0], b.word[1]}});
            }
        } else {
            OCTET_ROLLED
            for (u32 token = range.begin + static_cast<u32>(first); left > 0;
                 left -= apart, room -= apart, token += apart, to += apart) {
                const Vec8 a = encode_eight<Codec>(t, some_at(t, s.x[row_of(t)], token, left), scale),
                           b = encode_eight<Codec>(t, some_at(t, s.x[row_of(t)], token + 8, left - 8), scale);
                t.template store16<Reuse::last>(to,
                                                first_bytes(Vec16{{a.word[0], a.word[1], b.word[0], b.word[1]}}, left));
            }
        }
        OCTET_ROLLED
        for (; room > 0; room -= apart, to += apart) t.template store16<Reuse::last>(to, Vec16{{0, 0, 0, 0}});
    }
};

}  // namespace octet::gpu
