// The second half of a cast both ways, rowwise: quantizes the columns of groups whose largest magnitudes are known
// (rows_and_peaks.hpp), transposed.
//
//   tokens   x[M, K] in groups of rows     data [K, P]
//   weights  w[E, N, K], a group an expert data [E, K, N]
//
// Bytes: x once, data once. It is small, so that a block fits on a multiprocessor beside a product: 128 threads of 32
// registers and 12 KB. A block takes 32 columns of up to 1024 rows of a group, 64 rows at a time, three times 64 rows
// on their way to shared memory. From there they are read transposed: a lane gets 16 rows of one column, four lanes 64
// contiguous bytes of it.
//
// bf16, columns in whole eights, rows that start on 16 bytes; padded groups that start and end on 16.
#pragma once

#include "gpu/eight.hpp"
#include "gpu/outputs.hpp"
#include "gpu/plan.hpp"
#include "gpu/rows_and_peaks.hpp"

namespace octet::gpu {

struct ColumnsByPeaksParams {
    const void* x;       // [groups, rows, columns]; tokens: one matrix for all groups
    i64 x_stride[2];     // group, row
    u8* data;            // [groups, columns, rows]
    i64 data_stride[2];  // group, column
    ScaleOut scale;      // [groups, columns]
    ScaleRule rule;
    i64 groups;
    i32 columns;
    i32 apart;  // 1: every group's rows are counted from its own first one
    u32 strips;
    Tiling tiling;
    const Span* spans;  // [groups + 2], an item a tile of 128 rows
    const u16* peaks;   // [groups, columns] code_of_peak
};

template <class Codec_>
struct ColumnsByPeaksKernel {
    using Codec = Codec_;
    using Params = ColumnsByPeaksParams;
    static constexpr int threads = 128, blocks_per_core = 16;
    static constexpr int strip = 32;          // columns of a block
    static constexpr int tiles = 8;           // and its rows, in tiles
    static constexpr int step_rows = 64;      // that are cast at once
    static constexpr int chunks = strip / 8;  // 16 bytes of a row each
    static constexpr int slots = 3;
    static_assert(sizeof(Span) == sizeof(Vec16));

    // Blocks of a strip: a group's first one is its first tile / tiles + group. That leaves every group enough, and at
    // most one too many.
    static constexpr i64 blocks_a_strip(i64 all_tiles, i64 groups) { return all_tiles / tiles + groups; }

    struct Part {
        i64 x, data;       // of its first row, in elements and bytes
        i32 rows, room;    // from there on: those there are, and with padding
        i32 group, first;  // first: the group's first part
    };
    struct Shared {
        Vec16 slot[slots][step_rows * chunks];
        Part part;
    };

    template <class Thread>
    OCTET_GPU static void run(Thread& t, const Params& p, Shared& s) {
        t.admit_later();
        const i32 column0 = static_cast<i32>(t.block() % p.strips) * strip;
        const u32 index = t.block() / p.strips;
        if (index < blocks_a_strip(t.load(&p.spans[p.groups].first_item), p.groups)) {  // the launch has a bound of it
            find_part(t, p, s, index);
            t.barrier();
            cast_part(t, p, s, column0);
        }
        // It did not wait for the kernel before it, and is not to end before it either: who comes next waits for this
        // one alone. One block is enough.
        if (t.block() == t.blocks() - 1) t.await_earlier();
    }

private:
    // The thread of the group whose part it is writes it down.
    template <class Thread>
    OCTET_GPU static void find_part(Thread& t, const Params& p, Shared& s, u32 index) {
        for (i64 g = t.thread(); g < p.groups; g += threads) {
            // All of it at once: a block is short, and should not wait for memory more often than it must.
            const Vec16 span = t.load16(p.spans + g);
            const u32 next = t.load(&p.spans[g + 1].first_item);
            const u32 begin = span.word[0] / tiles + static_cast<u32>(g), end = next / tiles + static_cast<u32>(g) + 1;
            if (index < begin || index >= end) continue;
            const i32 row = static_cast<i32>(index - begin) * (tiles * tile_rows);
            const i32 rows = static_cast<i32>(span.word[1]), padded = p.tiling.padded(rows, true);
            Part part;
            part.x = g * p.x_stride[0] + (static_cast<i64>(p.apart ? 0u : span.word[2]) + row) * p.x_stride[1];
            part.data = g * p.data_stride[0] + (p.apart ? 0u : span.word[3]) + row;
            part.rows = rows - row;
            part.room = padded - row < tiles * tile_rows ? padded - row : tiles * tile_rows;
            part.group = row > 0 && row >= padded ? -1 : static_cast<i32>(g);  // -1: the one too many
            part.first = row == 0;
            t.store_shared(&s.part, part);
        }
    }

    template <class Thread>
    OCTET_GPU static void cast_part(Thread& t, const Params& p, Shared& s, i32 column0) {
        const i64 group = t.load_shared(&s.part.group);
        if (group < 0) return;
        const i32 steps = (t.load_shared(&s.part.room) + step_rows - 1) / step_rows;
        const i32 rows = t.load_shared(&s.part.rows);
        // What this thread sends for: one chunk of two rows of every step.
        const int row = t.thread() / chunks, chunk = t.thread() % chunks;
        const u16* from =
            static_cast<const u16*>(p.x) + t.load_shared(&s.part.x) + row * p.x_stride[1] + column0 + chunk * 8;
        i32 left = column0 + chunk * 8 < p.columns ? rows - row : 0;
        OCTET_UNROLL
        for (int step = 0; step < slots; ++step) fetch(t, p, s, step, step < steps, from, left);

        // What it writes: 16 rows of one column of every step.
        const i32 column = column0 + t.thread() / 4, first = t.thread() % 4 * 16;
        const bool inside = column < p.columns;
        const u32 peak = inside ? peak_of_code(t.load_fresh(p.peaks + group * p.columns + column)) : 0;
        const float scale = make_scale<Codec, false>(
            t, peak, p.rule, p.scale, inside && t.load_shared(&s.part.first) != 0 && first == 0, group, column, 0);
        u8* to = p.data + t.load_shared(&s.part.data) + column * p.data_stride[1] + first;
        i32 real = rows - first, room = inside ? t.load_shared(&s.part.room) - first : 0;
        int slot = 0;
        OCTET_ROLLED
        for (i32 step = 0; step < steps; ++step) {
            t.template await_copies<slots - 1>();
            t.barrier();
            u32 x[8];
            read(t, s, slot, x);
            t.barrier();
            fetch(t, p, s, slot, step + slots < steps, from, left);
            if (room > 0) cast(t, x, scale, real, to);
            to += step_rows;
            real -= step_rows;
            room -= step_rows;
            slot = slot + 1 == slots ? 0 : slot + 1;
        }
    }

    // Chunk c of a row lies at c ^ row / 16, so that the rows that are read together meet in no bank.
    template <class Thread>
    OCTET_GPU static void fetch(Thread& t, const Params& p, Shared& s, int slot, bool more, const u16*& from,
                                i32& left) {
        if (more) {
            const int row = t.thread() / chunks, chunk = t.thread() % chunks;
            OCTET_UNROLL
            for (int half = 0; half < 2; ++half) {
                const int at = row + half * (step_rows / 2);
                t.template copy_async<Line::rest_soon>(&s.slot[slot][at * chunks + (chunk ^ at / 16)], from,
                                                       left > half * (step_rows / 2));
                from += step_rows / 2 * p.x_stride[1];
            }
            left -= step_rows;
        }
        t.commit_copies();
    }

    // 16 rows of a column, two to a word: rows 16 (lane % 4) ... of column lane / 4 of the unit's eight.
    template <class Thread>
    OCTET_GPU static void read(Thread& t, Shared& s, int slot, u32 (&x)[8]) {
        const int chunk = t.thread() / unit;
        OCTET_UNROLL
        for (int half = 0; half < 2; ++half) {
            u32 four[4];
            t.load_transposed(
                [&](int lane) {
                    const int sixteenth = lane % 8 / 2, row = 16 * sixteenth + 8 * half + 2 * (lane / 8) + lane % 2;
                    return &s.slot[slot][row * chunks + (chunk ^ sixteenth)];
                },
                four);
            OCTET_UNROLL
            for (int i = 0; i < 4; ++i) x[4 * half + i] = four[i];
        }
    }

    template <class Thread>
    OCTET_GPU static void cast(Thread& t, const u32 (&x)[8], float scale, i32 real, u8* to) {
        const auto low = [&](u32 word) { return std::bit_cast<float>(word << 16) * scale; };
        const auto high = [&](u32 word) { return std::bit_cast<float>(word & 0xFFFF0000u) * scale; };
        Vec16 v;
        OCTET_UNROLL
        for (int w = 0; w < 4; ++w)
            v.word[w] = t.template encode4<Codec>(low(x[2 * w]), high(x[2 * w]), low(x[2 * w + 1]), high(x[2 * w + 1]));
        if (real < 16) v = first_bytes(v, real);  // padding is zero bytes, whatever zero times the scale is
        t.store16(to, v);
    }
};

}  // namespace octet::gpu
