// The first half of a cast both ways, rowwise: quantizes rows along their own axis, and finds the largest magnitude of
// every column of a group on the way: x[M, K] -> data[M, K], peaks[groups, K]. columns_by_peaks.hpp, which reads x
// again, is the other half: it may run beside a product that needs the rows alone.
//
// Bytes: x once, data once. Bound by memory. All threads of a block share a row, `batch` rows at a time: a thread holds
// the same columns of every row, so that their maxima stay in its registers until the group or the block's share of
// rows ends. The next `stages` batches are on their way to shared memory meanwhile, each thread's eights to places of
// its own: nobody else reads them, so that no barrier is between a copy and its use.
//
// bf16, in rows of whole eights that start on 16 bytes.
#pragma once

#include "gpu/eight.hpp"
#include "gpu/outputs.hpp"
#include "gpu/plan.hpp"

namespace octet::gpu {

struct RowsAndPeaksParams {
    const void* x;    // [groups, rows, columns]; tokens: one matrix for all groups
    i64 x_stride[2];  // group, row
    u8* data;         // likewise
    i64 data_stride[2];
    ScaleOut scale;  // [groups, rows]
    ScaleRule rule;
    i64 groups;
    i64 rows;  // of all groups, and those that nobody owns
    i32 columns;
    i64 apart;  // rows of a group that has a matrix of its own, or 0: one matrix for all
    i64 rows_a_block;
    const Span* spans;  // [groups + 2]
    u32* peaks;         // [groups, columns] f32 bits, zero before
    u8* power;          // [rows] a row's power_of, or null: nobody reads rows again
};

// What who reads rows again has to know of each: its scale's exponent bits, 0 and 255 where its bytes say nothing of x
// (infinity, NaN), and 1, which no scale has, where all of it is zero.
inline constexpr u8 power_of_zeros = 1;
OCTET_GPU u8 power_of(u32 peak, float scale) {
    return peak == 0 ? power_of_zeros : static_cast<u8>(std::bit_cast<u32>(scale) >> 23 & 0xFFu);
}

template <class Codec_, int vectors, int threads_ = 256>
struct RowsAndPeaksKernel {
    using In = Bf16In;
    using Codec = Codec_;
    using Params = RowsAndPeaksParams;
    static constexpr int threads = threads_;
    static constexpr int units = threads / unit;
    static constexpr int batch = vectors >= 4 ? 1 : vectors == 1 ? 4 : 2;
    static constexpr int stages = batch == 1 ? 3 : 2;
    static constexpr int blocks_per_core = threads < 256 ? 5 : vectors < 3 ? 4 : vectors < 8 ? 3 : 2;
    static constexpr int reach = threads * 8 * vectors;  // columns of the longest row
    static constexpr int pairs = (batch + 1) / 2;        // rows are folded two by two

    struct Shared {
        Vec16 landing[static_cast<u32>(stages)][static_cast<u32>(batch)][static_cast<u32>(vectors)]
                     [static_cast<u32>(threads)];
        alignas(16) u32 peak[2][static_cast<u32>(2 * pairs)][static_cast<u32>(units)];  // a row's, f32 bits, by unit
        alignas(16) u16 column_peak[static_cast<u32>(threads * 8)];
        i64 group;
    };

    template <class Thread>
    OCTET_GPU static void run(Thread& t, const Params& p, Shared& s) {
        const i64 first = static_cast<i64>(t.block()) * p.rows_a_block;
        const i64 last = first + p.rows_a_block < p.rows ? first + p.rows_a_block : p.rows;
        // What is sent for first does not ask for groups: x is there before they are known. Rows past the first group
        // are sent for again.
        const i64 matrix = p.apart ? first / p.apart : 0;
        Places at = places(t, p, matrix, first - matrix * p.apart);
        OCTET_UNROLL
        for (int stage = 0; stage < stages; ++stage)
            fetch(t, p, s, stage, static_cast<i32>(last - first) - stage * batch, at.from);
        t.await_earlier();
        if (p.power) t.admit_later();
        for (i64 g = t.thread(); g <= p.groups; g += threads) {
            const i64 position = t.load_made(&p.spans[g].position);
            if (position <= first && first < position + t.load_made(&p.spans[g].rows)) t.store_shared(&s.group, g);
        }
        t.barrier();
        i64 group = t.load_shared(&s.group);
        for (i64 row = first; row < last; ++group) {
            const i64 position = t.load_made(&p.spans[group].position),
                      end = position + t.load_made(&p.spans[group].rows);
            if (end <= row) continue;
            const i64 stop = end < last ? end : last;
            const i64 local = p.apart ? row - position : row;
            const i32 count = static_cast<i32>(stop - row);
            Magnitudes<In> peaks[static_cast<u32>(vectors)]{};
            if (row > first) {
                t.template await_copies<0>();
                at = places(t, p, p.apart ? group : 0, local);
                OCTET_UNROLL
                for (int stage = 0; stage < stages; ++stage) fetch(t, p, s, stage, count - stage * batch, at.from);
            }
            u32 turn = 0;
            OCTET_ROLLED
            for (i32 done = 0; done < count; done += batch, ++turn)
                cast(t, p, s, turn, group, local + done, row + done, count - done, peaks, at.from, at.to);
            row = stop;
            if (group < p.groups) hand_in(t, p, s, group, peaks);
        }
        // Who comes next is not admitted before the end, but for who reads rows again: the other half starts without
        // waiting for anybody.
    }

private:
    // What a thread sends for next, and writes next.
    struct Places {
        const u16* from;
        u8* to;
    };
    template <class Thread>
    OCTET_GPU static Places places(Thread& t, const Params& p, i64 matrix, i64 row) {
        return {static_cast<const u16*>(p.x) + matrix * p.x_stride[0] + row * p.x_stride[1] + column_of(t.thread(), 0),
                p.data + matrix * p.data_stride[0] + row * p.data_stride[1] + column_of(t.thread(), 0)};
    }

    OCTET_GPU static i32 column_of(int thread, int j) { return (thread + j * threads) * 8; }

    // Sends for the next `count` rows, or for a batch of them where there are more.
    template <class Thread>
    OCTET_GPU static void fetch(Thread& t, const Params& p, Shared& s, int stage, i32 count, const u16*& from) {
        OCTET_UNROLL
        for (int b = 0; b < batch; ++b, from += p.x_stride[1]) OCTET_UNROLL
        for (int j = 0; j < vectors; ++j)
            if (b < count && column_of(t.thread(), j) < p.columns)
                t.copy_async(&s.landing[stage][b][j][t.thread()], from + column_of(0, j), true);
        t.commit_copies();
    }

    template <class Thread>
    OCTET_GPU static Eight<In> landed(Thread& t, const Params& p, Shared& s, int stage, int b, int j, i32 count) {
        if (b >= count || column_of(t.thread(), j) >= p.columns) return zero_eight<In>();
        const Vec16 v = t.load_shared(&s.landing[stage][b][j][t.thread()]);
        Eight<In> x;
        OCTET_UNROLL
        for (int i = 0; i < 4; ++i) x.word[i] = v.word[i];
        return x;
    }

    // Casts a batch that was sent for, of the `count` rows from `row` on, counted over all groups `counted`, and sends
    // for the one `stages` further on.
    template <class Thread>
    OCTET_GPU static void cast(Thread& t, const Params& p, Shared& s, u32 turn, i64 group, i64 row, i64 counted,
                               i32 count, Magnitudes<In> (&peaks)[static_cast<u32>(vectors)], const u16*& from,
                               u8*& to) {
        const int stage = static_cast<int>(turn % stages);
        t.template await_copies<stages - 1>();
        Eight<In> x[static_cast<u32>(batch)][static_cast<u32>(vectors)];
        OCTET_UNROLL
        for (int b = 0; b < batch; ++b) OCTET_UNROLL
        for (int j = 0; j < vectors; ++j) x[b][j] = landed(t, p, s, stage, b, j, count);
        u32 row_peak[static_cast<u32>(2 * pairs)] = {};
        OCTET_UNROLL
        for (int b = 0; b < batch; ++b) OCTET_UNROLL
        for (int j = 0; j < vectors; ++j) {
            const Magnitudes<In> m = magnitudes_of(x[b][j]);
            fold(t, peaks[j], m);
            row_peak[b] = magnitude_max<In>(t, row_peak[b], fold_across(t, m));
        }
        OCTET_UNROLL
        for (int pair = 0; pair < pairs; ++pair) {
            u32 two[2];
            peaks_of_two<In, unit>(t, row_peak[2 * pair], row_peak[2 * pair + 1], two);
            if (t.thread() % unit > 1) continue;
            const int mine = t.thread() % unit;
            t.store_shared(&s.peak[turn % 2][2 * pair + mine][t.thread() / unit], mine ? two[1] : two[0]);
        }
        fetch(t, p, s, stage, count - stages * batch, from);
        t.barrier();  // one a batch: turns alternate between two halves
        // Each row's scale is found by some lanes of a unit, and told to the others.
        constexpr int lanes = unit / batch;
        static_assert(lanes >= units);
        const int lane = t.thread() % unit, mine = lane / lanes, of = lane % lanes;
        u32 peak = of < units ? t.load_shared(&s.peak[turn % 2][mine][of]) : 0;
        OCTET_UNROLL
        for (int mask = 1; mask < units; mask *= 2) peak = larger(peak, t.shuffle_xor(peak, mask));
        const bool writes = t.thread() < unit && of == 0 && mine < count;
        const float scale = make_scale<Codec, false>(t, peak, p.rule, p.scale, writes, group, row + mine, 0);
        if (writes && p.power) t.store(p.power + counted + mine, power_of(peak, scale));
        OCTET_UNROLL
        for (int b = 0; b < batch; ++b, to += p.data_stride[1]) {
            const float of_row = std::bit_cast<float>(t.shuffle(std::bit_cast<u32>(scale), b * lanes));
            OCTET_UNROLL
            for (int j = 0; j < vectors; ++j)
                if (b < count && column_of(t.thread(), j) < p.columns)
                    t.template store8<Reuse::last>(to + column_of(0, j), encode_eight<Codec>(t, x[b][j], of_row));
        }
    }

    // Through shared memory, so that neighbouring threads fold neighbouring columns.
    template <class Thread>
    OCTET_GPU static void hand_in(Thread& t, const Params& p, Shared& s, i64 group,
                                  const Magnitudes<In> (&peaks)[static_cast<u32>(vectors)]) {
        OCTET_UNROLL
        for (int j = 0; j < vectors; ++j) {
            t.barrier();
            Vec16 v;
            OCTET_UNROLL
            for (int i = 0; i < 4; ++i) v.word[i] = plain_magnitude<In>(peaks[j].word[i]);
            t.store_shared(reinterpret_cast<Vec16*>(s.column_peak) + t.thread(), v);
            t.barrier();
            OCTET_UNROLL
            for (int i = 0; i < 8; ++i) {
                const i32 column = t.thread() + threads * i;
                const u32 peak = t.load_shared(&s.column_peak[column]);
                if (j * threads * 8 + column < p.columns && peak != 0)
                    t.atomic_max(p.peaks + group * p.columns + j * threads * 8 + column, peak << 16);
            }
        }
    }
};

}  // namespace octet::gpu
