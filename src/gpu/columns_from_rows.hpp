// The second half of a cast both ways, rowwise, with scales that are powers of two: quantizes the columns of groups
// whose largest magnitudes are known (rows_and_peaks.hpp) out of the rows that are already quantized, transposed.
//
//   tokens   rows[M, K] in groups of rows     data [K, P]
//   weights  rows[E, N, K], a group an expert data [E, K, N]
//
// Bytes: rows once, data once, 32 of x for each element that has to be read (bytes_moved.hpp). A block takes 128 rows
// of 128 columns: many small blocks, whose waiting and casting overlap.
//
// bf16, columns in whole sixteens, rows that start on 16 bytes; padded groups that start and end on 16.
#pragma once

#include "gpu/bytes_moved.hpp"
#include "gpu/columns_by_peaks.hpp"

namespace octet::gpu {

struct ColumnsFromRowsParams : ColumnsByPeaksParams {
    const u8* rows;  // likewise [groups, rows, columns]
    i64 rows_stride[2];
    const u8* power;  // [rows], see power_of
};

template <class Codec_>
struct ColumnsFromRowsKernel {
    using Codec = Codec_;
    using Params = ColumnsFromRowsParams;
    static constexpr int threads = 128, blocks_per_core = 8;
    using Bytes = BytesMoved<Codec, threads>;
    static constexpr int strip = Bytes::strip;  // columns of a block
    static constexpr int chunks = Bytes::chunks;
    static_assert(threads == tile_rows && threads == strip);

    // Tiles begin where lines of data do. Where groups do not, each has a tile more, for the rows up to the first line.
    OCTET_GPU static u32 tiles_more(const Params& p) { return !p.apart && p.tiling.alignment % 128 != 0; }

    struct Tile {
        i64 row, data;     // its first row, counted over all groups, and where that goes
        i64 local;         // the same row in its matrix
        i32 before;        // rows of it before the group's first one
        i32 rows, room;    // until the group ends, without and with padding
        i32 group, first;  // group: -1, none; first: the group's first tile
    };
    struct Shared {
        Vec16 rows[static_cast<u32>(tile_rows * chunks)];
        typename Bytes::Shared bytes;
        float scale[static_cast<u32>(strip)];
        Tile tile;
    };

    template <class Thread>
    OCTET_GPU static void run(Thread& t, const Params& p, Shared& s) {
        // The last rows first: they may still be in the cache.
        const i64 tiles = t.load(&p.spans[p.groups].first_item) + p.groups * tiles_more(p);
        const i64 index = tiles - 1 - t.block() / p.strips;
        // The launch has a bound of them. Every group has one, so that not all blocks end without having waited.
        if (index < 0) return;
        find_tile(t, p, s, static_cast<u32>(index));
        if (t.thread() == 0) t.store_shared(&s.bytes.listed_count, 0u);
        t.await_earlier();
        t.barrier();
        if (t.load_shared(&s.tile.group) >= 0) cast_tile(t, p, s, static_cast<i32>(t.block() % p.strips) * strip);
    }

private:
    // The thread of the group whose tile it is writes it down.
    template <class Thread>
    OCTET_GPU static void find_tile(Thread& t, const Params& p, Shared& s, u32 index) {
        const u32 more = tiles_more(p);
        for (i64 g = t.thread(); g < p.groups; g += threads) {
            const Vec16 span = t.load16(p.spans + g);
            const u32 next = t.load(&p.spans[g + 1].first_item);
            const u32 begin = span.word[0] + more * static_cast<u32>(g), end = next + more * static_cast<u32>(g + 1);
            if (index < begin || index >= end) continue;
            const u32 position = p.apart ? 0u : span.word[2], padded_begin = p.apart ? 0u : span.word[3];
            const i32 row = static_cast<i32>(index - begin) * tile_rows - static_cast<i32>(padded_begin % 128u * more);
            const i32 rows = static_cast<i32>(span.word[1]), padded = p.tiling.padded(rows, true);
            Tile tile;
            tile.row = static_cast<i64>(span.word[2]) + row;
            tile.local = static_cast<i64>(position) + row;
            tile.data = g * p.data_stride[0] + static_cast<i64>(padded_begin) + row;
            tile.before = row < 0 ? -row : 0;
            tile.rows = rows - row;
            tile.room = padded - row;
            tile.group = row > 0 && row >= padded ? -1 : static_cast<i32>(g);
            tile.first = row <= 0;
            t.store_shared(&s.tile, tile);
        }
    }

    template <class Thread>
    OCTET_GPU static void cast_tile(Thread& t, const Params& p, Shared& s, i32 column0) {
        fetch(t, p, s, column0);
        const i32 before = t.load_shared(&s.tile.before), rows = t.load_shared(&s.tile.rows);
        const bool there = before <= t.thread() && t.thread() < rows;
        const u8 row_power = there ? t.load_made(p.power + t.load_shared(&s.tile.row) + t.thread()) : power_of_zeros;
        const u8 column_power = find_column(t, p, s, column0);
        t.barrier();
        const int common = Bytes::common_power(t, s.bytes);
        Bytes::count_row_power(t, s.bytes, t.thread(), row_power, common);
        Bytes::count_column_power(t, s.bytes, t.thread(), column_power, common);
        t.template await_copies<0>();
        t.barrier();
        const int piece = Bytes::piece_of(t.thread()), first = 16 * piece;
        const bool inside = before <= first && first < t.load_shared(&s.tile.room);
        OCTET_UNROLL
        for (int half = 0; half < 2; ++half) {
            const int column = Bytes::column_of(t.thread(), half);
            if (!inside || column0 + column >= p.columns) continue;
            Bytes::cast(t, s.bytes, half, t.load_shared(&s.tile.rows) - first,
                        p.data + t.load_shared(&s.tile.data) + (column0 + column) * p.data_stride[1] + first,
                        p.data_stride[1], [&](int fourth) { return Bytes::read_fourth(t, s.rows, half, fourth); });
        }
        t.barrier();
        Bytes::cast_listed(t, s.bytes, s.scale,
                           static_cast<const u16*>(p.x) + t.load_shared(&s.tile.group) * p.x_stride[0] +
                               t.load_shared(&s.tile.local) * p.x_stride[1] + column0,
                           p.x_stride[1], p.data + t.load_shared(&s.tile.data) + column0 * p.data_stride[1],
                           p.data_stride[1]);
    }

    template <class Thread>
    OCTET_GPU static void fetch(Thread& t, const Params& p, Shared& s, i32 column0) {
        const int row = t.thread() / chunks, chunk = t.thread() % chunks;
        const i32 before = t.load_shared(&s.tile.before), rows = t.load_shared(&s.tile.rows);
        const u8* from = p.rows + t.load_shared(&s.tile.group) * p.rows_stride[0] +
                         (t.load_shared(&s.tile.local) + row) * p.rows_stride[1] + column0 + chunk * 16;
        const i32 until = column0 + chunk * 16 < p.columns ? rows : 0;
        OCTET_UNROLL
        for (int piece = 0; piece < Bytes::pieces; ++piece) {
            const int at = row + piece * 16;
            t.copy_async(&s.rows[Bytes::place_of(piece, row, chunk)], from, before <= at && at < until);
            from += 16 * p.rows_stride[1];
        }
        t.commit_copies();
    }

    // The scale of the thread's column, and its power.
    template <class Thread>
    OCTET_GPU static u8 find_column(Thread& t, const Params& p, Shared& s, i32 column0) {
        const i64 group = t.load_shared(&s.tile.group);
        const i32 column = column0 + t.thread();
        const bool inside = column < p.columns;
        const u32 peak = inside ? t.load_fresh(p.peaks + group * p.columns + column) : 0;
        const float scale = make_scale<Codec, false>(t, peak, p.rule, p.scale,
                                                     inside && t.load_shared(&s.tile.first) != 0, group, column, 0);
        const u8 power = power_of(peak, scale);
        t.store_shared(&s.scale[t.thread()], scale);
        Bytes::find_likely(t, s.bytes, power);
        return power;
    }
};

}  // namespace octet::gpu
