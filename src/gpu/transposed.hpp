// Quantizes tokens that are contiguous already: x[N, M] -> data[N, P], per group of tokens, with one scale a group and
// row, or one for each 128 or 32 tokens.
//
// Bytes: x once, data once; of a group of more than 32768 tokens (bf16), those past them are read a second time, from
// the cache. Bound by memory. A block takes some rows of one group. Teams of 16 to 256 threads share a row, as
// many as its tokens need, so that short groups and long ones keep as many loads in flight; a team's next rows are on
// their way to shared memory while it casts these.
#pragma once

#include "gpu/eight.hpp"
#include "gpu/outputs.hpp"
#include "gpu/plan.hpp"
#include "octet/recipe.hpp"

namespace octet::gpu {

struct TransposedParams : PlanParams {  // rows: tokens
    const void* x;                      // [features, tokens]
    i64 x_stride;
    i64 features;
    i32 features_a_block;
    u32 before_plan;  // blocks that look their group up themselves, while the plan is made
    u8* data;         // [features, P]
    i64 data_stride;
    ScaleOut scale;  // [groups, features, blocks]
    ScaleRule rule;
    i32 aligned;  // every row of x starts on 16 bytes
};

// vectors: eights a thread holds. planned: a kernel before this one worked the groups out; else each block does.
template <class In_, class Codec_, Scaling scaling, int vectors, bool planned = true>
struct TransposedKernel {
    using In = In_;
    using Codec = Codec_;
    using Params = TransposedParams;
    static constexpr int threads = 256;
    static constexpr int blocks_per_core = In::words == 8 ? 2 : vectors == 8 ? 3 : planned ? 5 : 4;
    static constexpr int units = threads / unit;
    static constexpr bool mx = scaling == Scaling::mx;
    static constexpr int block = static_cast<int>(block_of(scaling));  // 0: the group
    static constexpr int most_features = 64;                           // of a block

    // As much as registers hold, each thread's for itself alone: the next rows on their way, or, of the longest rows,
    // the tokens that registers do not hold.
    static constexpr bool ahead = planned && block == 0 && In::words == 4, holds_more = ahead && vectors == 8;
    struct Shared {
        u32 amax[2][units];
        u32 sums[units];
        u32 peak[static_cast<u32>(block == 0 ? most_features : 1)];
        alignas(16) Vec16 more[static_cast<u32>(ahead ? vectors : 1)][static_cast<u32>(ahead ? threads : 1)];
    };

    struct Segment {  // one feature's tokens of one group
        i64 group, feature;
        const typename In::Element* x;
        u8* data;
        i64 first_block;
        u32 begin, padded_begin;  // of the group's tokens, in x and in the data
        i32 rows, padded_rows;
        bool aligned;
    };

    template <class Thread>
    OCTET_GPU static void run(Thread& t, const Params& p, Shared& s) {
        take_rows(t, p, s);
        if (planned && t.block() == 0) t.await_earlier();  // which did not, and is not to end before the plan
    }

private:
    template <class Thread>
    OCTET_GPU static void take_rows(Thread& t, const Params& p, Shared& s) {
        const u32 groups = static_cast<u32>(p.groups), group = t.block() % groups;
        const i64 feature0 = static_cast<i64>(t.block() / groups) * p.features_a_block;
        Segment a;
        a.group = group;
        if (planned && (block != 0 || t.block() >= p.before_plan)) {
            t.await_earlier();
            const Group* range = p.plan.group + group;
            a.begin = static_cast<u32>(t.load_made(&range->begin));
            a.padded_begin = static_cast<u32>(t.load_made(&range->padded_begin));
            a.rows = t.load_made(&range->rows);
            a.padded_rows = t.load_made(&range->padded_rows);
        } else {
            if (!planned) ask_ahead<threads, In>(t, p.x, p.x_stride, p.features, p.rows, t.block());
            const Span span = planned ? look_up(t, p, group, s) : find_span(t, p, group, s);
            a.begin = span.position;
            a.padded_begin = span.padded_begin;
            a.rows = span.rows;
            a.padded_rows = p.tiling.padded(span.rows, true);
        }
        a.first_block = block == 0 ? 0 : a.padded_begin / (block == 0 ? 1 : block);
        a.aligned = p.aligned && a.begin * sizeof(typename In::Element) % 16 == 0;
        const auto point = [&](i64 feature) {
            a.feature = feature;
            a.x = static_cast<const typename In::Element*>(p.x) + feature * p.x_stride + a.begin;
            a.data = p.data + feature * p.data_stride + a.padded_begin;
        };
        const i64 end = feature0 + p.features_a_block < p.features ? feature0 + p.features_a_block : p.features;
        const i32 eights = (a.padded_rows + 7) / 8;
        // Whole eights may be read where they stay within the tensor; what is past the group is masked.
        const bool whole = a.aligned && a.begin + static_cast<i64>(a.rows + 7) / 8 * 8 <= p.rows;
        if constexpr (block == 0) {
            const u64 starts = reinterpret_cast<u64>(p.data) | static_cast<u64>(p.data_stride) | a.padded_begin;
            if (whole && starts % 8 == 0 && a.padded_rows % 8 == 0) {
                share_out(t, p, s, a, eights, feature0, end);
                t.barrier();
                // Together: one by one they would be as many requests as the data.
                const i64 feature = feature0 + t.thread();
                if (feature < end)
                    make_scale<Codec, false>(t, t.load_shared(&s.peak[t.thread()]), p.rule, p.scale, true, a.group,
                                             feature, 0);
                return;
            }
        }
        if constexpr (block != 0) {
            if (whole && eights <= vectors * unit) return share<unit, true>(t, p, s, a, point, feature0, end);
            if (whole) return share<threads, true>(t, p, s, a, point, feature0, end);
        }
        if (eights <= vectors * unit)
            share<unit, false>(t, p, s, a, point, feature0, end);
        else
            share<threads, false>(t, p, s, a, point, feature0, end);
    }

    template <class Thread>
    OCTET_GPU_RARE static Span look_up(Thread& t, const Params& p, u32 group, Shared& s) {
        return find_span(t, p, group, s);
    }
    template <class Thread>
    OCTET_GPU static Span find_span(Thread& t, const Params& p, u32 group, Shared& s) {
        return place_span<threads>(t, p, group, ask_span(t, p, group), s.sums);
    }

    // Short groups' kernel has teams that take several rows at a time, the other one more widths.
    template <class Thread>
    OCTET_GPU static void share_out(Thread& t, const Params& p, Shared& s, const Segment& a, i32 eights, i64 feature0,
                                    i64 end) {
        if constexpr (vectors == 4) {
            if (eights <= 16) return share_wide<16, 4>(t, p, s, a, feature0, end);
            if (eights <= 2 * 16) return share_wide<16, 2>(t, p, s, a, feature0, end);
        }
        if (eights <= vectors * 16) return share_wide<16, 1>(t, p, s, a, feature0, end);
        if (eights <= vectors * unit) return share_wide<unit, 1>(t, p, s, a, feature0, end);
        if constexpr (vectors == 8) {
            if (eights <= vectors * 2 * unit) return share_wide<2 * unit, 1>(t, p, s, a, feature0, end);
            if (eights <= vectors * 4 * unit) return share_wide<4 * unit, 1>(t, p, s, a, feature0, end);
        }
        share_wide<threads, 1>(t, p, s, a, feature0, end);
    }

    template <bool whole, class Thread>
    OCTET_GPU static Eight<In> load(Thread& t, const Segment& a, i32 token, bool mine) {
        if constexpr (whole)
            return mine && token < a.rows ? load_eight<In>(t, a.x + token) : zero_eight<In>();
        else
            return mine && token < a.rows ? load_some<In>(t, a.x + token, a.rows - token) : zero_eight<In>();
    }

    // Zeros what a whole eight has past the group's end. Apart from the load, so that many loads can be on their way.
    template <bool whole>
    OCTET_GPU static void mask([[maybe_unused]] const Segment& a, [[maybe_unused]] i32 token,
                               [[maybe_unused]] Eight<In>& x) {
        if constexpr (whole) {
            if (token + 8 <= a.rows || token >= a.rows) return;
            OCTET_UNROLL
            for (int i = 0; i < 8; ++i) {
                if (token + i < a.rows) continue;
                if constexpr (In::words == 4) {
                    x.word[i >> 1] &= i & 1 ? 0xFFFFu : 0xFFFF0000u;
                } else {
                    x.word[i] = 0;
                }
            }
        }
    }

    template <bool whole, class Thread>
    OCTET_GPU static Eight<In> load_masked(Thread& t, const Segment& a, i32 token, bool mine) {
        Eight<In> x = load<whole>(t, a, token, mine);
        mask<whole>(a, token, x);
        return x;
    }

    // Tokens past the group's are zero bytes, whatever zero times the scale is.
    template <class Thread>
    OCTET_GPU static void store(Thread& t, const Segment& a, i32 token, const Eight<In>& x, float scale) {
        if (token >= a.padded_rows) return;
        Vec8 v = encode_eight<Codec>(t, x, scale);
        if (a.rows - token < 8) v = first_bytes(v, static_cast<i32>(t.keep(static_cast<u32>(a.rows - token))));
        store_eight(t, a.data + token, v, a.padded_rows - token);
    }

    // Each team of `team` threads takes a feature at a time, `vectors` eights of it in a thread's registers.
    template <int team, bool whole, class Thread, class Point>
    OCTET_GPU static void share(Thread& t, const Params& p, Shared& s, Segment& a, const Point& point, i64 feature0,
                                i64 end) {
        const int me = t.thread() % team;
        int turn = 0;
        for (i64 round = feature0; round < end; round += threads / team, turn ^= 1) {
            const i64 feature = round + t.thread() / team;
            const bool mine = feature < end;
            point(feature);
            Eight<In> x[static_cast<u32>(vectors)];
            OCTET_UNROLL
            for (int j = 0; j < vectors; ++j) x[j] = load<whole>(t, a, (me + j * team) * 8, mine);
            OCTET_UNROLL
            for (int j = 0; j < vectors; ++j) mask<whole>(a, (me + j * team) * 8, x[j]);
            const i32 held = vectors * team * 8;  // tokens
            if constexpr (block != 0) {
                OCTET_UNROLL
                for (int j = 0; j < vectors; ++j) cast_blocks(t, p, a, (me + j * team) * 8, me, x[j], mine);
                for (i32 start = held; start < a.padded_rows; start += team * 8) {
                    const i32 token = start + me * 8;
                    cast_blocks(t, p, a, token, me, load_masked<whole>(t, a, token, mine), mine);
                }
            } else {
                const float scale = scale_of_row<team, whole>(t, p, s, a, mine, me, turn, x);
                if (!mine) continue;
                OCTET_UNROLL
                for (int j = 0; j < vectors; ++j) store(t, a, (me + j * team) * 8, x[j], scale);
                for (i32 token = held + me * 8; token < a.padded_rows; token += team * 8)
                    store(t, a, token, load_masked<whole>(t, a, token, true), scale);
            }
        }
    }

    // The same for one scale a group and row, where eights are whole, and written at once; a team may take several
    // features at a time.
    template <int team, int rows, class Thread>
    OCTET_GPU static void share_wide(Thread& t, const Params& p, Shared& s, const Segment& a, i64 feature0, i64 end) {
        constexpr int steps = vectors / rows;
        const int me = t.thread() % team;
        const bool ragged = a.rows % 8 != 0;
        const auto token_of = [&](int j) { return (me + j * team) * 8; };
        constexpr i32 held = steps * team * 8, reread = holds_more ? 2 * held : held;
        // Only the widest team's rows can be longer. The next tokens wait in shared memory; what is past those is read
        // twice.
        const bool more = team == threads && holds_more && a.padded_rows > held;
        const bool waits = ahead && !(team == threads && a.padded_rows > held);  // a row is there before its turn
        constexpr int at_once = threads / team * rows;
        const i64 first = feature0 + t.thread() / team * rows;
        const auto* from = static_cast<const typename In::Element*>(p.x) + first * p.x_stride + a.begin;
        u8* to = p.data + first * p.data_stride + a.padded_begin;
        i32 left = static_cast<i32>(end - first);  // rows from the team's next one on
        const auto fetch_ahead = [&]([[maybe_unused]] const typename In::Element* row, [[maybe_unused]] i32 count) {
            if constexpr (ahead) {
                OCTET_UNROLL
                for (int i = 0; i < vectors; ++i)
                    t.copy_async(&s.more[i][t.thread()], row + i / steps * p.x_stride + token_of(i % steps),
                                 i / steps < count && token_of(i % steps) < a.rows);
                t.commit_copies();
            }
        };
        if (waits) fetch_ahead(from, left);
        const i32 count = static_cast<i32>(end - feature0);
        for (i32 done = 0, turn = 0; done < count; done += at_once, turn ^= 1) {
            const i32 mine = left < rows ? left : rows;  // rows, or none
            Eight<In> x[static_cast<u32>(vectors)];
            // The tokens from `start` on that the team's registers hold.
            const auto load_from = [&](i32 start) {
                OCTET_UNROLL
                for (int i = 0; i < vectors; ++i) {
                    x[i] = zero_eight<In>();
                    if (i / steps < mine && start + token_of(i % steps) < a.rows)
                        x[i] = load_eight<In>(t, from + i / steps * p.x_stride + start + token_of(i % steps));
                }
                if (ragged) {
                    OCTET_UNROLL
                    for (int i = 0; i < vectors; ++i) mask<true>(a, start + token_of(i % steps), x[i]);
                }
            };
            [[maybe_unused]] Magnitudes<In> others{};
            if constexpr (team == threads) {
                if (more) fetch_more(t, s, from, mine > 0 ? a.rows : 0);
                OCTET_ROLLED
                for (i32 start = reread; start < a.rows; start += held) {
                    load_from(start);
                    OCTET_UNROLL
                    for (int i = 0; i < vectors; ++i) fold(t, others, magnitudes_of(x[i]));
                }
            }
            if (waits) {
                t.template await_copies<0>();
                OCTET_UNROLL
                for (int i = 0; i < vectors; ++i) {
                    x[i] = landed(t, s, i);
                    if (ragged) mask<true>(a, token_of(i % steps), x[i]);
                }
            } else {
                load_from(0);
            }
            if (waits && done + at_once < count) fetch_ahead(from + at_once * p.x_stride, left - at_once);
            if constexpr (team == threads) {
                if (more) {
                    t.template await_copies<0>();
                    OCTET_UNROLL
                    for (int i = 0; i < vectors; ++i) fold(t, others, magnitudes_of(take_more(t, s, a, i)));
                }
            }

            u32 peak[static_cast<u32>(rows)];
            OCTET_UNROLL
            for (int r = 0; r < rows; ++r) {
                Magnitudes<In> m = magnitudes_of(x[r * steps]);
                OCTET_UNROLL
                for (int j = 1; j < steps; ++j) fold(t, m, magnitudes_of(x[r * steps + j]));
                if constexpr (team == threads) fold(t, m, others);
                peak[r] = fold_across(t, m);
            }
            constexpr int lanes = team < unit ? team : unit;
            if constexpr (rows == 1) {
                peak[0] = f32_bits_of<In>(fold_lanes<In, lanes>(t, peak[0]));
            } else {
                OCTET_UNROLL
                for (int r = 0; r < rows; r += 2) {
                    u32 two[2];
                    peaks_of_two<In, lanes>(t, peak[r], peak[r + 1], two);
                    peak[r] = two[0];
                    peak[r + 1] = two[1];
                }
            }
            if constexpr (rows == 1) peak[0] = fold_mates<team>(t, s, turn, peak[0]);

            // The r-th thread of a team tells the maximum of its r-th row.
            u32 chosen = peak[0];
            OCTET_UNROLL
            for (int r = 1; r < rows; ++r) chosen = me == r ? peak[r] : chosen;
            if (me < mine) t.store_shared(&s.peak[end - left + me - feature0], chosen);
            float scale[static_cast<u32>(rows)];
            OCTET_UNROLL
            for (int r = 0; r < rows; ++r) scale[r] = scale_of_bits<Codec>(peak[r], p.rule.rounding);
            const auto store_from = [&](i32 start) {
                OCTET_UNROLL
                for (int i = 0; i < vectors; ++i) {
                    if (i / steps < mine)
                        store_wide(t, a, to + i / steps * p.data_stride, start + token_of(i % steps), x[i],
                                   scale[i / steps], ragged);
                }
            };
            store_from(0);
            if constexpr (team == threads) {
                if (more) {
                    OCTET_UNROLL
                    for (int i = 0; i < vectors; ++i) x[i] = take_more(t, s, a, i);
                    store_from(held);
                }
                OCTET_ROLLED
                for (i32 start = reread; start < a.padded_rows; start += held) {
                    load_from(start);
                    store_from(start);
                }
            }
            from += at_once * p.x_stride;
            to += at_once * p.data_stride;
            left -= at_once;
        }
    }

    // The tokens of a row that follow those in registers, of a team that is the block.
    template <class Thread>
    OCTET_GPU static i32 more_of(Thread& t, int i) {
        return ((vectors + i) * threads + t.thread()) * 8;
    }
    template <class Thread>
    OCTET_GPU static void fetch_more(Thread& t, Shared& s, const typename In::Element* from, i32 rows) {
        if constexpr (holds_more) {
            OCTET_UNROLL
            for (int i = 0; i < vectors; ++i)
                t.copy_async(&s.more[i][t.thread()], from + more_of(t, i), more_of(t, i) < rows);
            t.commit_copies();
        }
    }
    template <class Thread>
    OCTET_GPU static Eight<In> take_more(Thread& t, Shared& s, const Segment& a, int i) {
        Eight<In> x = landed(t, s, i);
        mask<true>(a, more_of(t, i), x);
        return x;
    }
    template <class Thread>
    OCTET_GPU static Eight<In> landed([[maybe_unused]] Thread& t, [[maybe_unused]] Shared& s, [[maybe_unused]] int i) {
        if constexpr (ahead) {
            const Vec16 v = t.load_shared(&s.more[i][t.thread()]);
            return {{v.word[0], v.word[1], v.word[2], v.word[3]}};
        } else {
            return zero_eight<In>();
        }
    }

    // Tokens past the group's are zero bytes, whatever zero times the scale is.
    template <class Thread>
    OCTET_GPU static void store_wide(Thread& t, const Segment& a, u8* to, i32 token, const Eight<In>& x, float scale,
                                     bool ragged) {
        if (token >= a.padded_rows) return;
        Vec8 v = encode_eight<Codec>(t, x, scale);
        if (token >= a.rows) v = Vec8{{0, 0}};
        // Masks for all steps would be worked out, and spilled, by every block that needs none.
        if (ragged) v = first_bytes(v, static_cast<i32>(t.keep(static_cast<u32>(a.rows - token))));
        t.store8(to + token, v);
    }

    template <class Thread>
    OCTET_GPU static void cast_blocks(Thread& t, const Params& p, const Segment& a, i32 token, int me,
                                      const Eight<In>& x, bool mine) {
        const u32 peak = fold_lanes<In, block / 8>(t, fold_across(t, magnitudes_of(x)));
        const bool first = mine && token < a.padded_rows && me % (block / 8) == 0;
        const float scale = make_scale<Codec, mx>(t, f32_bits_of<In>(peak), p.rule, p.scale, first, a.group, a.feature,
                                                  a.first_block + token / block);
        if (mine) store(t, a, token, x, scale);
    }

    template <int team, bool whole, class Thread>
    OCTET_GPU static float scale_of_row(Thread& t, const Params& p, Shared& s, const Segment& a, bool mine, int me,
                                        int turn, const Eight<In> (&x)[static_cast<u32>(vectors)]) {
        Magnitudes<In> m = magnitudes_of(x[0]);
        OCTET_UNROLL
        for (int j = 1; j < vectors; ++j) fold(t, m, magnitudes_of(x[j]));
        for (i32 token = (vectors * team + me) * 8; mine && token < a.rows; token += team * 8)
            fold(t, m, magnitudes_of(load_masked<whole>(t, a, token, true)));
        const u32 peak = fold_mates<team>(t, s, turn, f32_bits_of<In>(fold_lanes<In, unit>(t, fold_across(t, m))));
        return make_scale<Codec, false>(t, peak, p.rule, p.scale, me == 0 && mine, a.group, a.feature, 0);
    }

    // The largest of what the units of a team give. Turns alternate between two halves of shared memory, so that one
    // barrier a round is enough.
    template <int team, class Thread>
    OCTET_GPU static u32 fold_mates(Thread& t, Shared& s, int turn, u32 peak) {
        if constexpr (team > unit) {
            constexpr int mates = team / unit;
            const int here = t.thread() / unit;
            if (t.thread() % unit == 0) t.store_shared(&s.amax[turn][here], peak);
            t.barrier();
            OCTET_UNROLL
            for (int u = 0; u < mates; ++u) {
                const u32 other = t.load_shared(&s.amax[turn][here / mates * mates + u]);
                peak = other > peak ? other : peak;
            }
        }
        return peak;
    }
};

}  // namespace octet::gpu
