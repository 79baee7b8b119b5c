// Quantizes the columns of groups whose largest magnitudes are known (rows_and_peaks.hpp), transposed:
//
//   tokens   x[M, K] in groups of rows     data [K, P]
//   weights  w[E, N, K], a group an expert data [E, K, N]
//
// Bytes: x once, data once. Bound by memory. Tiles are 128 x 128, or 256 rows x 64 columns, whose 256 contiguous bytes
// a column the memory takes better; they wait for nobody. As in tiles.hpp, a thread holds 8 columns of 4 consecutive
// rows, twice: converting four rows of a column gives a word that is already transposed, and shared memory brings 16
// rows together. Word w of a column of eight e lies at w ^ words_a_step * e, so that neither the writes (8 columns
// apart) nor the 16-byte reads (along a column) meet in a bank. The next tile is on its way while this one is stored.
#pragma once

#include "gpu/eight.hpp"
#include "gpu/outputs.hpp"
#include "gpu/plan.hpp"

namespace octet::gpu {

struct ScaledColumnsParams {
    const void* x;    // [groups, rows, columns]
    i64 x_stride[2];  // group, row
    i32 columns;
    i32 aligned;         // every row starts on 16 bytes
    u8* data;            // [groups, columns, rows]
    i64 data_stride[2];  // group, column
    i32 data_aligned;    // 16 rows of a column are one aligned store
    u32 column_tiles;
    ScaleOut scale;  // [groups, columns]
    ScaleRule rule;
    i64 groups;
    Plan plan;  // column_amax: [groups, columns]
};

template <class In_, class Codec_, int tile_rows_>
struct ScaledColumnsKernel {
    using In = In_;
    using Codec = Codec_;
    using Params = ScaledColumnsParams;
    static constexpr int threads = 256;
    static constexpr int blocks_per_core = In::words == 4 ? 4 : 2;
    static constexpr int tile_rows = tile_rows_, tile_columns = threads * 64 / tile_rows;
    static constexpr int across = tile_columns / 8;          // threads of a unit along a row
    static constexpr int words_a_step = unit / across;       // along a column: 4 rows of each thread of a unit
    static constexpr int words = tile_rows / 4;              // of a column
    static constexpr int pieces = words / 4;                 // 16-byte stores of a column
    static constexpr int columns_a_step = threads / pieces;  // that the block stores at once

    struct Tile {
        i64 group;
        i64 begin, padded_begin;  // of the group (plan.hpp)
        i32 rows, padded_rows;
        i32 row0, column0;  // of the tile, within the group
        i64 none;           // 1: there are no more
    };

    struct Shared {
        Vec16 transposed[static_cast<u32>(tile_columns)][static_cast<u32>(pieces)];
        float scale[static_cast<u32>(tile_columns)];
        Tile work[2];  // the item in hand and the next: here, because registers are for elements
    };

    template <class Thread>
    OCTET_GPU static void run(Thread& t, const Params& p, Shared& s) {
        t.await_earlier();
        if (t.thread() == 0) decode(t, p, t.block(), s.work[0]);
        t.barrier();
        Eight<In> x[8];
        u32 peak = 0;         // of a column, in the first threads
        bool stores = false;  // the tile before waits in shared memory
        for (int turn = 0;; turn ^= 1) {
            const Tile &at = s.work[turn], &before = s.work[turn ^ 1];
            const bool none = t.load_shared(&at.none);
            if (!none) load(t, p, t.borrow_shared(&at), place_of(t), x, peak);
            t.barrier();
            if (stores) store(t, p, s, t.borrow_shared(&before), t.thread_again());
            if (none) return;
            stores = true;
            t.barrier();
            if (t.thread() == 0)  // while the elements are on their way
                decode(t, p, t.blocks() + t.atomic_add(p.plan.ticket, 1u), s.work[turn ^ 1]);
            scale(t, p, s, t.borrow_shared(&at), t.thread_again(), peak);
            t.barrier();
            cast(t, s, place_of(t), x);
        }
    }

private:
    struct Place {  // of a thread within its tile: rows 4 * words_a_step * (2 u + i) + 4 q + r, columns 8 c ...
        int u, q, c;
    };
    template <class Thread>
    OCTET_GPU static Place place_of(Thread& t) {
        const int thread = t.thread_again();
        return {thread / unit, thread % unit / across, thread % across};
    }
    OCTET_GPU static int row_of(const Place& me) { return 8 * words_a_step * me.u + 4 * me.q; }
    OCTET_GPU static int row_after(int j) { return 4 * words_a_step * (j / 4) + j % 4; }

    // Field by field into shared memory: registers are full of elements.
    template <class Thread>
    OCTET_GPU static void decode(Thread& t, const Params& p, u32 item, Tile& to) {
        const u32 items = t.load(p.plan.first_item + p.groups + 1);
        t.store_shared(&to.none, item >= items ? 1 : 0);
        if (item >= items) return;
        const i64 index = find_item(t, p.plan.first_item, p.groups + 1, item);
        const u32 local = item - t.load(p.plan.first_item + index);
        const Group* group = p.plan.group + index;
        t.store_shared(&to.group, index);
        t.store_shared(&to.begin, t.load(&group->begin));
        t.store_shared(&to.padded_begin, t.load(&group->padded_begin));
        t.store_shared(&to.rows, t.load(&group->rows));
        t.store_shared(&to.padded_rows, t.load(&group->padded_rows));
        t.store_shared(&to.row0, static_cast<i32>(local / p.column_tiles) * tile_rows);
        t.store_shared(&to.column0, static_cast<i32>(local % p.column_tiles) * tile_columns);
    }

    template <class Thread>
    OCTET_GPU static void load(Thread& t, const Params& p, const Tile& at, const Place& me, Eight<In> (&x)[8],
                               u32& peak) {
        const auto* from = static_cast<const typename In::Element*>(p.x) + at.group * p.x_stride[0] +
                           (at.begin + at.row0 + row_of(me)) * p.x_stride[1] + at.column0 + 8 * me.c;
        const i32 columns = p.columns - at.column0 - 8 * me.c, rows = at.rows - at.row0 - row_of(me);
        if (p.aligned && columns >= 8) {
            OCTET_UNROLL
            for (int j = 0; j < 8; ++j)
                x[j] = row_after(j) < rows ? load_eight<In, Reuse::stream>(t, from + row_after(j) * p.x_stride[1])
                                           : zero_eight<In>();
        } else {
            OCTET_UNROLL
            for (int j = 0; j < 8; ++j)
                x[j] = row_after(j) < rows && columns > 0
                           ? load_some<In>(t, from + row_after(j) * p.x_stride[1], columns)
                           : zero_eight<In>();
        }
        const i32 column = at.column0 + t.thread();
        if (t.thread() < tile_columns)
            peak = column < p.columns ? t.load(p.plan.column_amax + at.group * p.columns + column) : 0u;
    }

    template <class Thread>
    OCTET_GPU static void scale(Thread& t, const Params& p, Shared& s, const Tile& at, int thread, u32 peak) {
        if (thread >= tile_columns) return;
        const i32 column = at.column0 + thread;
        t.store_shared(&s.scale[thread],
                       make_scale<Codec, false>(t, peak, p.rule, p.scale, at.row0 == 0 && column < p.columns, at.group,
                                                column, 0));
    }

    template <class Thread>
    OCTET_GPU static void cast(Thread& t, Shared& s, const Place& me, const Eight<In> (&x)[8]) {
        u32* to = &s.transposed[0][0].word[0];
        OCTET_UNROLL
        for (int k = 0; k < 8; ++k) {
            const int column = 8 * me.c + k;
            const float scale = t.load_shared(&s.scale[column]);
            OCTET_UNROLL
            for (int i = 0; i < 2; ++i) {
                const int word = (words_a_step * (2 * me.u + i) + me.q) ^ words_a_step * me.c;
                t.store_shared(to + column * words + word,
                               t.template encode4<Codec>(x[4 * i][k] * scale, x[4 * i + 1][k] * scale,
                                                         x[4 * i + 2][k] * scale, x[4 * i + 3][k] * scale));
            }
        }
    }

    template <class Thread>
    OCTET_GPU static void store(Thread& t, const Params& p, Shared& s, const Tile& at, int thread) {
        const int piece = thread % pieces;
        const i32 row = at.row0 + 16 * piece;
        const i32 room = at.padded_rows - row, real = at.rows - row;
        if (room <= 0) return;
        u8* data = p.data + at.group * p.data_stride[0] + at.padded_begin + row;
        OCTET_UNROLL
        for (int i = 0; i < tile_columns / columns_a_step; ++i) {
            const int column = thread / pieces + columns_a_step * i, swizzle = words_a_step * (column / 8);
            if (at.column0 + column >= p.columns) continue;
            const Vec16 read = t.load_shared(&s.transposed[column][piece ^ swizzle / 4]);
            Vec16 v;
            OCTET_UNROLL
            for (int w = 0; w < 4; ++w) v.word[w] = swizzle & 2 ? read.word[w ^ 2] : read.word[w];
            if (real < 16) {  // padding is zero bytes, whatever zero times the scale is
                OCTET_UNROLL
                for (int w = 0; w < 4; ++w) {
                    const i32 bytes = real - 4 * w;
                    v.word[w] = bytes >= 4   ? v.word[w]
                                : bytes <= 0 ? 0u
                                             : v.word[w] & (0xFFFFFFFFu >> (32 - 8 * bytes));
                }
            }
            u8* to = data + (at.column0 + column) * p.data_stride[1];
            if (room >= 16 && p.data_aligned) {
                t.store16(to, v);
            } else {
                for (int b = 0; b < 16 && b < room; ++b) {
                    const u32 word = b < 8 ? (b < 4 ? v.word[0] : v.word[1]) : (b < 12 ? v.word[2] : v.word[3]);
                    t.store(to + b, static_cast<u8>(word >> (8 * (b & 3))));
                }
            }
        }
    }
};

}  // namespace octet::gpu
