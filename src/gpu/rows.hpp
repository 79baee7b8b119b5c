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
    i32 team;     // threads a row: a multiple of 32 that divides the block's
    i32 aligned;  // every row of x starts on 16 bytes
    Reuse reuse;  // of x
};

template <class In_, class Codec_, Scaling scaling, int vectors, int threads_ = 256>
struct RowsKernel {
    using In = In_;
    using Codec = Codec_;
    using Params = RowsParams;
    static constexpr int threads = threads_;
    static constexpr int blocks_per_core = In::words * vectors <= 16                                        ? 5
                                           : In::words * vectors <= (scaling == Scaling::rowwise ? 32 : 20) ? 4
                                           : In::words * vectors <= 32                                      ? 3
                                                                                                            : 2;
    static constexpr int held = vectors;
    static constexpr bool mx = scaling == Scaling::mx;
    static constexpr int block = static_cast<int>(block_of(scaling));  // 0: the row

    struct Shared {
        u32 amax[static_cast<u32>(threads / unit)];
    };

    template <class Thread>
    OCTET_GPU static void run(Thread& t, const Params& p, Shared& s) {
        cast(t, p, s, t.block());
    }

    // What block `number` does.
    template <class Thread>
    OCTET_GPU static void cast(Thread& t, const Params& p, Shared& s, u32 number) {
        const int team_bits = 5 + (p.team > 32) + (p.team > 64) + (p.team > 128);
        const i64 row = (static_cast<i64>(number) * threads + t.thread()) >> team_bits;
        const bool mine = row < p.total_rows;
        const i64 expert = p.total_rows == p.rows || !mine ? 0 : expert_of(p, row);
        const i64 local = row - expert * p.rows;
        const auto* x = static_cast<const typename In::Element*>(p.x) + expert * p.x_stride[0] + local * p.x_stride[1];
        u8* data = p.data + expert * p.data_stride[0] + local * p.data_stride[1];
        const int me = t.thread() & (p.team - 1);
        // A thread without a row reads nothing, and meets every barrier.
        const Row here{x, data, expert, local, me, mine ? p.columns : 0};
        const u64 starts = reinterpret_cast<u64>(p.data) | static_cast<u64>(p.data_stride[0] | p.data_stride[1]);
        const bool wide = p.aligned && p.columns % 8 == 0 && starts % 8 == 0;  // for every row alike
        const i32 held = p.team * 8 * vectors;                                 // columns that the team's registers hold

        if constexpr (block != 0) {
            // Blocks are local to a few lanes, so a row of any length is walked once.
            for (i32 start = 0; start < p.columns; start += held) {
                if (wide)
                    cast_blocks<true>(t, p, here, start);
                else
                    cast_blocks<false>(t, p, here, start);
            }
        } else if (p.columns <= held) {
            if (wide)
                cast_row<true>(t, p, s, here);
            else
                cast_row<false>(t, p, s, here);
        } else {
            // Longer than the team's registers: a second visit, which the caches serve.
            u32 peak = 0;
            for (i32 column = me * 8; column < here.reach; column += p.team * 8)
                peak = magnitude_max<In>(t, peak, fold_across(t, magnitudes_of(load(t, p, here, column))));
            const float scale = scale_of_row(t, p, s, here, peak);
            for (i32 column = me * 8; column < here.reach; column += p.team * 8)
                store_eight(t, data + column, encode_eight<Codec>(t, load(t, p, here, column), scale),
                            here.reach - column);
        }
    }

private:
    struct Row {
        const typename In::Element* x;
        u8* data;
        i64 expert, local;
        int me;     // of the team
        i32 reach;  // columns
    };

    OCTET_GPU static i64 expert_of(const Params& p, i64 row) {
        constexpr i64 few = i64{1} << 32;
        return p.total_rows < few ? static_cast<i64>(static_cast<u32>(row) / static_cast<u32>(p.rows)) : row / p.rows;
    }

    OCTET_GPU static i32 column_of(const Params& p, i32 start, int me, int j) { return start + (me + j * p.team) * 8; }

    template <class Thread>
    OCTET_GPU static Eight<In> load(Thread& t, const Params& p, const Row& here, i32 column) {
        if (column + 8 <= here.reach && p.aligned) return load_eight<In>(t, here.x + column, p.reuse);
        if (column < here.reach) return load_some<In>(t, here.x + column, here.reach - column);
        return zero_eight<In>();
    }

    // wide: eights are whole, and read and written at once.
    template <bool wide, class Thread>
    OCTET_GPU static void load_all(Thread& t, const Params& p, const Row& here, i32 start,
                                   Eight<In> (&v)[static_cast<u32>(vectors)]) {
        OCTET_UNROLL
        for (int j = 0; j < vectors; ++j) {
            const i32 column = column_of(p, start, here.me, j);
            if constexpr (wide) {
                v[j] = zero_eight<In>();
                if (column < here.reach) v[j] = load_eight<In>(t, here.x + column, p.reuse);
            } else {
                v[j] = load(t, p, here, column);
            }
        }
    }
    template <bool wide, class Thread>
    OCTET_GPU static void store(Thread& t, const Params& p, const Row& here, i32 start, int j, const Vec8& eight) {
        const i32 column = column_of(p, start, here.me, j);
        if (column >= here.reach) return;
        u8* to = here.data + column;
        if constexpr (wide)
            t.template store8<Reuse::last>(to, eight);
        else
            store_eight(t, to, eight, here.reach - column);
    }

    // Columns from `start` on, as many as the team holds.
    template <bool wide, class Thread>
    OCTET_GPU static void cast_blocks(Thread& t, const Params& p, const Row& here, i32 start) {
        constexpr int lanes = block / 8;
        Eight<In> v[static_cast<u32>(vectors)];
        load_all<wide>(t, p, here, start, v);
        u32 peak[static_cast<u32>(vectors)];
        OCTET_UNROLL
        for (int j = 0; j + 1 < vectors; j += 2) {
            u32 two[2];
            peaks_of_two<In, lanes>(t, fold_across(t, magnitudes_of(v[j])), fold_across(t, magnitudes_of(v[j + 1])),
                                    two);
            peak[j] = two[0];
            peak[j + 1] = two[1];
        }
        if constexpr (vectors % 2 == 1)
            peak[vectors - 1] =
                f32_bits_of<In>(fold_lanes<In, lanes>(t, fold_across(t, magnitudes_of(v[vectors - 1]))));

        // A block's lanes all know its scale; the k-th of them writes that of the k-th vector.
        const int lane = here.me % lanes;
        OCTET_UNROLL
        for (int first = 0; first < vectors; first += lanes) {
            u32 chosen = peak[first];
            OCTET_UNROLL
            for (int j = first + 1; j < vectors && j < first + lanes; ++j)
                chosen = lane == j - first ? peak[j] : chosen;
            const i32 column = column_of(p, start, here.me - lane, first + lane);
            const bool wanted = first + lane < vectors && column < here.reach;
            make_scale<Codec, mx>(t, chosen, p.rule, p.scale, wanted, here.expert, here.local, column / block);
        }
        OCTET_UNROLL
        for (int j = 0; j < vectors; ++j)
            store<wide>(t, p, here, start, j, encode_eight<Codec>(t, v[j], multiplier_of<Codec, mx>(peak[j], p.rule)));
    }

    template <bool wide, class Thread>
    OCTET_GPU static void cast_row(Thread& t, const Params& p, Shared& s, const Row& here) {
        Eight<In> v[static_cast<u32>(vectors)];
        load_all<wide>(t, p, here, 0, v);
        Magnitudes<In> peaks = magnitudes_of(v[0]);
        OCTET_UNROLL
        for (int j = 1; j < vectors; ++j) fold(t, peaks, magnitudes_of(v[j]));
        const float scale = scale_of_row(t, p, s, here, fold_across(t, peaks));
        OCTET_UNROLL
        for (int j = 0; j < vectors; ++j) store<wide>(t, p, here, 0, j, encode_eight<Codec>(t, v[j], scale));
    }

    template <class Thread>
    OCTET_GPU static float scale_of_row(Thread& t, const Params& p, Shared& s, const Row& here, u32 peak) {
        peak = fold_lanes<In, unit>(t, peak);
        if (p.team > unit) {
            const int mine = t.thread() / unit, first = mine & ~(p.team / unit - 1);
            if (t.thread() % unit == 0) t.store_shared(&s.amax[mine], peak);
            t.barrier();
            for (int i = 0; i < p.team / unit; ++i)
                peak = magnitude_max<In>(t, peak, t.load_shared(&s.amax[first + i]));
        }
        return make_scale<Codec, false>(t, f32_bits_of<In>(peak), p.rule, p.scale, here.reach > 0 && here.me == 0,
                                        here.expert, here.local, 0);
    }
};

}  // namespace octet::gpu
