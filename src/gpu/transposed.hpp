// Quantizes tokens that are contiguous already: x[N, M] -> data[N, P], per group of tokens, with one scale a group and
// row, or one for each 128 or 32 tokens.
//
// Bytes: x once, data once; a group of more than 8192 tokens (bf16) is read a second time, from the cache. Bound by
// memory. A block of 8 units takes 8 rows of one group: a row a unit where the group fits in a unit's registers, else the
// rows one after another with all threads.
#pragma once

#include "gpu/eight.hpp"
#include "gpu/outputs.hpp"
#include "gpu/plan.hpp"
#include "octet/recipe.hpp"

namespace octet::gpu {

struct TransposedParams {
    const void* x;   // [features, tokens]
    i64 x_stride;
    i64 features;
    u8* data;        // [features, P]
    i64 data_stride;
    ScaleOut scale;  // [groups, features, blocks]
    ScaleRule rule;
    i64 groups;
    i32 aligned;     // every row of x starts on 16 bytes
    Plan plan;
};

template <class In_, class Codec_, Scaling scaling>
struct TransposedKernel {
    using In = In_;
    using Codec = Codec_;
    using Params = TransposedParams;
    static constexpr int threads = 256;
    static constexpr int blocks_per_core = In::words == 4 ? 5 : 3;
    static constexpr int units = threads / unit;
    static constexpr int vectors = 4;
    static constexpr bool mx = scaling == Scaling::mx;
    static constexpr int block = static_cast<int>(block_of(scaling));  // 0: the group

    struct Shared {
        u32 amax[2][units];
    };

    struct Segment {  // one feature's tokens of one group
        i64 group, feature;
        const typename In::Element* x;
        u8* data;
        i64 first_block;
        i32 rows, padded_rows;
        bool aligned;
    };

    template <class Thread>
    OCTET_GPU static void run(Thread& t, const Params& p, Shared& s) {
        const i64 group = t.block() % p.groups;
        const i64 feature0 = static_cast<i64>(t.block() / p.groups) * units;
        const Group* range = p.plan.group + group;
        Segment a;
        a.group = group;
        const i64 begin = t.load(&range->begin), padded_begin = t.load(&range->padded_begin);
        a.rows = t.load(&range->rows);
        a.padded_rows = t.load(&range->padded_rows);
        a.first_block = block == 0 ? 0 : padded_begin / (block == 0 ? 1 : block);
        a.aligned = p.aligned && begin * static_cast<i64>(sizeof(typename In::Element)) % 16 == 0;
        const auto point = [&](i64 feature) {
            a.feature = feature;
            a.x = static_cast<const typename In::Element*>(p.x) + feature * p.x_stride + begin;
            a.data = p.data + feature * p.data_stride + padded_begin;
        };
        const int me = t.thread() % unit;
        if constexpr (block != 0) {
            point(feature0 + t.thread() / unit);
            if (a.feature < p.features) blocks_of(t, p, a, me);
        } else if (a.padded_rows <= unit * vectors * 8) {
            point(feature0 + t.thread() / unit);
            if (a.feature < p.features) whole<unit>(t, p, s, a, me, 0);
        } else {
            for (int i = 0; i < units; ++i) {
                point(feature0 + i);
                if (a.feature >= p.features) break;
                if (a.padded_rows <= threads * vectors * 8) whole<threads>(t, p, s, a, t.thread(), i % 2);
                else twice(t, p, s, a, t.thread(), i % 2);
            }
        }
    }

private:
    template <class Thread>
    OCTET_GPU static Eight<In> load(Thread& t, const Segment& a, i32 token) {
        if (token + 8 <= a.rows && a.aligned) return load_eight<In, Reuse::stream>(t, a.x + token);
        if (token < a.rows) return load_some<In>(t, a.x + token, a.rows - token);
        return zero_eight<In>();
    }

    // Tokens past the group's are zero bytes, whatever zero times the scale is.
    template <class Thread>
    OCTET_GPU static void store(Thread& t, const Segment& a, i32 token, const Eight<In>& x, float scale) {
        if (token >= a.padded_rows) return;
        Vec8 v = encode_eight<Codec>(t, x, scale);
        const i32 real = a.rows - token;
        if (real < 8) {
            OCTET_UNROLL
            for (int w = 0; w < 2; ++w) {
                const i32 bytes = real - 4 * w;
                v.word[w] = bytes >= 4 ? v.word[w] : bytes <= 0 ? 0u : v.word[w] & (0xFFFFFFFFu >> (32 - 8 * bytes));
            }
        }
        store_eight(t, a.data + token, v, a.padded_rows - token);
    }

    template <class Thread>
    OCTET_GPU static void blocks_of(Thread& t, const Params& p, const Segment& a, int me) {
        for (i32 start = 0; start < a.padded_rows; start += unit * vectors * 8) {
            Eight<In> x[vectors];
            OCTET_UNROLL
            for (int j = 0; j < vectors; ++j) x[j] = load(t, a, start + (me + j * unit) * 8);
            OCTET_UNROLL
            for (int j = 0; j < vectors; ++j) {
                const i32 token = start + (me + j * unit) * 8;
                const u32 peak = fold_lanes<In, block / 8>(t, fold_across(t, magnitudes_of(x[j])));
                const bool first = token < a.padded_rows && me % (block / 8) == 0;
                const float scale = make_scale<Codec, mx>(t, f32_bits_of<In>(peak), p.rule, p.scale, first, a.group,
                                                          a.feature, a.first_block + token / block);
                store(t, a, token, x[j], scale);
            }
        }
    }

    // The segment in the registers of `team` threads.
    template <int team, class Thread>
    OCTET_GPU static void whole(Thread& t, const Params& p, Shared& s, const Segment& a, int me, int turn) {
        Eight<In> x[vectors];
        OCTET_UNROLL
        for (int j = 0; j < vectors; ++j) x[j] = load(t, a, (me + j * team) * 8);
        u32 peak = 0;
        OCTET_UNROLL
        for (int j = 0; j < vectors; ++j) peak = magnitude_max<In>(t, peak, fold_across(t, magnitudes_of(x[j])));
        const float scale = scale_of<team>(t, p, s, a, me, turn, peak);
        OCTET_UNROLL
        for (int j = 0; j < vectors; ++j) store(t, a, (me + j * team) * 8, x[j], scale);
    }

    template <class Thread>
    OCTET_GPU static void twice(Thread& t, const Params& p, Shared& s, const Segment& a, int me, int turn) {
        u32 peak = 0;
        for (i32 start = me * 8; start < a.rows; start += threads * vectors * 8) {
            Eight<In> x[vectors];
            OCTET_UNROLL
            for (int j = 0; j < vectors; ++j) x[j] = load(t, a, start + j * threads * 8);
            OCTET_UNROLL
            for (int j = 0; j < vectors; ++j) peak = magnitude_max<In>(t, peak, fold_across(t, magnitudes_of(x[j])));
        }
        const float scale = scale_of<threads>(t, p, s, a, me, turn, peak);
        for (i32 start = me * 8; start < a.padded_rows; start += threads * vectors * 8) {
            Eight<In> x[vectors];
            OCTET_UNROLL
            for (int j = 0; j < vectors; ++j) x[j] = load(t, a, start + j * threads * 8);
            OCTET_UNROLL
            for (int j = 0; j < vectors; ++j) store(t, a, start + j * threads * 8, x[j], scale);
        }
    }

    // Turns alternate between two rows of shared memory, so that one barrier a segment is enough.
    template <int team, class Thread>
    OCTET_GPU static float scale_of(Thread& t, const Params& p, Shared& s, const Segment& a, int me, int turn, u32 peak) {
        peak = fold_lanes<In, unit>(t, peak);
        if constexpr (team > unit) {
            if (me % unit == 0) t.store_shared(&s.amax[turn][me / unit], peak);
            t.barrier();
            OCTET_UNROLL
            for (int u = 0; u < units; ++u) peak = magnitude_max<In>(t, peak, t.load_shared(&s.amax[turn][u]));
        }
        return make_scale<Codec, false>(t, f32_bits_of<In>(peak), p.rule, p.scale, me == 0, a.group, a.feature, 0);
    }
};

}  // namespace octet::gpu
