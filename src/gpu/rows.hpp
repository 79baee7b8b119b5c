// Quantizes rows along their own axis: x[M, K] -> data[M, K], with one scale a row, or one for each 128 or 32 elements.
//
// Bytes: x once, data once, scales once. Bound by memory: the row stays in registers between the maximum and the cast,
// `vectors` 16-byte loads (bf16) a thread are in flight at once, and a team of one or more 32-thread units shares a
// row.
#pragma once

#include "gpu/eight.hpp"
#include "gpu/outputs.hpp"
#include "octet/recipe.hpp"

namespace octet::gpu {

struct RowsParams {
    const void* x;   // [E, M, K], K contiguous; E = 1 for activations
    u8* data;        // [E, M, K], K contiguous
    ScaleOut scale;  // [E, M, blocks]
    ScaleRule rule;
    i64 rows;        // of one expert
    i64 total_rows;  // of all experts
    i32 columns;
    i64 x_stride[2];  // expert, row
    i64 data_stride[2];
    i32 team;     // threads a row: a multiple of 32 that divides the block's 256
    i32 aligned;  // every row of x starts on 16 bytes
};

template <class In_, class Codec_, Scaling scaling, int vectors>
struct RowsKernel {
    using In = In_;
    using Codec = Codec_;
    using Params = RowsParams;
    static constexpr int threads = 256;
    static constexpr int blocks_per_core = In::words * vectors <= 16                                          ? 5
                                           : In::words * vectors <= (scaling == Scaling::blockwise ? 20 : 32) ? 4
                                           : In::words * vectors <= 32                                        ? 3
                                                                                                              : 2;
    static constexpr bool mx = scaling == Scaling::mx;
    static constexpr int block = static_cast<int>(block_of(scaling));  // 0: the row

    struct Shared {
        u32 amax[threads / unit];
    };

    template <class Thread>
    OCTET_GPU static void run(Thread& t, const Params& p, Shared& s) {
        const int rows_here = threads / p.team;
        const i64 row = static_cast<i64>(t.block()) * rows_here + t.thread() / p.team;
        const bool mine = row < p.total_rows;
        const i64 expert = p.total_rows == p.rows ? 0 : (mine ? row / p.rows : 0);
        const i64 local = row - expert * p.rows;
        const auto* x = static_cast<const typename In::Element*>(p.x) + expert * p.x_stride[0] + local * p.x_stride[1];
        u8* data = p.data + expert * p.data_stride[0] + local * p.data_stride[1];
        const int me = t.thread() % p.team;
        const i32 reach = mine ? p.columns : 0;  // a thread without a row reads nothing, and meets every barrier

        if constexpr (block != 0) {
            // Blocks are local to a few lanes, so a row of any length is walked once.
            for (i32 start = 0; start < p.columns; start += p.team * 8 * vectors) {
                Eight<In> v[static_cast<u32>(vectors)];
                OCTET_UNROLL
                for (int j = 0; j < vectors; ++j) v[j] = load(t, p, x, column_of(p, start, me, j), reach);
                OCTET_UNROLL
                for (int j = 0; j < vectors; ++j) {
                    const i32 column = column_of(p, start, me, j);
                    const u32 peak = fold_lanes<In, block / 8>(t, fold_across(t, magnitudes_of(v[j])));
                    const bool first = column < reach && me % (block / 8) == 0;
                    const float scale = make_scale<Codec, mx>(t, f32_bits_of<In>(peak), p.rule, p.scale, first, expert,
                                                              local, column / block);
                    if (column < reach)
                        store_eight(t, data + column, encode_eight<Codec>(t, v[j], scale), reach - column);
                }
            }
        } else if (p.columns <= p.team * 8 * vectors) {
            Eight<In> v[static_cast<u32>(vectors)];
            OCTET_UNROLL
            for (int j = 0; j < vectors; ++j) v[j] = load(t, p, x, column_of(p, 0, me, j), reach);
            u32 peak = fold_across(t, magnitudes_of(v[0]));
            OCTET_UNROLL
            for (int j = 1; j < vectors; ++j) peak = magnitude_max<In>(t, peak, fold_across(t, magnitudes_of(v[j])));
            const float scale = scale_of_row(t, p, s, peak, mine && me == 0, expert, local);
            OCTET_UNROLL
            for (int j = 0; j < vectors; ++j) {
                const i32 column = column_of(p, 0, me, j);
                if (column < reach) store_eight(t, data + column, encode_eight<Codec>(t, v[j], scale), reach - column);
            }
        } else {
            // Longer than the team's registers: a second visit, which the caches serve.
            u32 peak = 0;
            for (i32 column = me * 8; column < reach; column += p.team * 8)
                peak = magnitude_max<In>(t, peak, fold_across(t, magnitudes_of(load(t, p, x, column, reach))));
            const float scale = scale_of_row(t, p, s, peak, mine && me == 0, expert, local);
            for (i32 column = me * 8; column < reach; column += p.team * 8)
                store_eight(t, data + column, encode_eight<Codec>(t, load(t, p, x, column, reach), scale),
                            reach - column);
        }
    }

private:
    OCTET_GPU static i32 column_of(const Params& p, i32 start, int me, int j) { return start + (me + j * p.team) * 8; }

    template <class Thread>
    OCTET_GPU static Eight<In> load(Thread& t, const Params& p, const typename In::Element* x, i32 column, i32 reach) {
        if (column + 8 <= reach && p.aligned) return load_eight<In, Reuse::stream>(t, x + column);
        if (column < reach) return load_some<In>(t, x + column, reach - column);
        return zero_eight<In>();
    }

    template <class Thread>
    OCTET_GPU static float scale_of_row(Thread& t, const Params& p, Shared& s, u32 peak, bool wanted, i64 expert,
                                        i64 local) {
        peak = fold_lanes<In, unit>(t, peak);
        if (p.team > unit) {
            const int mine = t.thread() / unit, first = mine - mine % (p.team / unit);
            if (t.thread() % unit == 0) t.store_shared(&s.amax[mine], peak);
            t.barrier();
            for (int i = 0; i < p.team / unit; ++i)
                peak = magnitude_max<In>(t, peak, t.load_shared(&s.amax[first + i]));
        }
        return make_scale<Codec, false>(t, f32_bits_of<In>(peak), p.rule, p.scale, wanted, expert, local, 0);
    }
};

}  // namespace octet::gpu
