// The second half of a cast both ways, rowwise, with scales that are powers of two: quantizes the columns of groups
// whose largest magnitudes are known (rows_and_peaks.hpp) out of the rows that are already quantized, transposed.
//
//   tokens   rows[M, K] in groups of rows     data [K, P]
//   weights  rows[E, N, K], a group an expert data [E, K, N]
//
// Both casts round to the same bits of the mantissa, and scales only shift the exponent: where a byte is a normal
// number along its row, and is one along its column too, the second byte is the first with the difference of the two
// scales' exponents added. Else x was rounded to fewer bits in one of them, and is read itself: few elements of most
// tensors (one in some thousands of normally distributed ones), all of those in rows with NaN or infinity, or whose
// scale is far from that of the columns.
//
// Bytes: rows once, data once, 32 of x for such an element. A block takes 128 rows of 128 columns: many small blocks,
// whose waiting and casting overlap. A thread casts 16 rows of four columns at a time, transposing words of four bytes
// in its registers, so that stores are whole lines. What has to be cast from x is listed, and then done by all threads.
//
// bf16, columns in whole sixteens, rows that start on 16 bytes; padded groups that start and end on 16.
#pragma once

#include "gpu/columns_by_peaks.hpp"
#include "gpu/rows_and_peaks.hpp"

namespace octet::gpu {

struct ColumnsFromRowsParams : ColumnsByPeaksParams {
    const u8* rows;  // likewise [groups, rows, columns]
    i64 rows_stride[2];
    const u8* power;  // [rows], see power_of
    Reuse reuse;      // of the rows
    i64 kept;         // rows from this one on are still in the cache: columns leave it first, until they have been read
    // Where columns begin while other rows are being cast: a group's when all parts that have rows of it are done.
    RowParts parts;
    u32 blocks_a_part;
    const u32* done;  // [parts, counter_words] blocks, or null: all rows are awaited
};

template <class Codec_>
struct ColumnsFromRowsKernel {
    using Codec = Codec_;
    using Params = ColumnsFromRowsParams;
    static constexpr int threads = 128, blocks_per_core = 8;
    static constexpr int strip = 128;          // columns of a block
    static constexpr int chunks = strip / 16;  // 16 bytes of a row each
    static constexpr int pieces = tile_rows / 16;
    static_assert(threads == tile_rows && threads == strip && threads == 4 * unit && chunks == pieces);

    // Four bytes a word. A byte without its sign is exponent * step + mantissa, so that powers of two are added in
    // steps.
    static constexpr u32 each = 0x01010101u, signs = 0x80u * each;
    static constexpr u32 step = 1u << Codec::mantissa_bits;
    static constexpr int powers = 128 / static_cast<int>(step);  // that fit beside a sign
    static constexpr u8 unknown = 0x80;                          // a row's power that is none of them

    // Tiles begin where lines of data do. Where groups do not, each has a tile more, for the rows up to the first line.
    OCTET_GPU static u32 tiles_more(const Params& p) { return !p.apart && p.tiling.alignment % 128 != 0; }

    struct Tile {
        i64 begin;         // its group's first row, counted over all groups
        i64 row, data;     // its first row, counted over all groups, and where that goes
        i64 local;         // the same row in its matrix
        i32 before;        // rows of it before the group's first one
        i32 rows, room;    // until the group ends, without and with padding
        i32 group, first;  // group: -1, none; first: the group's first tile
    };
    struct Shared {
        Vec16 rows[tile_rows * chunks];
        // Of rows and columns, counted from one power on, in steps. A column's is odd where it is none of those there
        // are.
        alignas(16) u8 power[tile_rows];
        alignas(16) u8 column_power[strip];
        // Which bits of a row are moved: all but the sign; none, where all of it is zero.
        alignas(16) u8 moves[tile_rows];
        u8 largest[pieces];         // power of 16 rows
        alignas(16) u32 likely[4];  // the least power of a unit's columns, or 0
        float scale[strip];
        u16 listed[8 * threads];  // see list
        u32 listed_count;
        Tile tile;
    };

    template <class Thread>
    OCTET_GPU static void run(Thread& t, const Params& p, Shared& s) {
        const i64 tiles = t.load(&p.spans[p.groups].first_item) + p.groups * tiles_more(p);
        // In the order in which parts are done; else the last rows first, which may still be in the cache.
        const i64 number = t.block() / p.strips, index = p.done ? number : tiles - 1 - number;
        if (0 <= index && index < tiles) {  // the launch has a bound of them
            find_tile(t, p, s, static_cast<u32>(index));
            if (t.thread() == 0) t.store_shared(&s.listed_count, 0u);
            if (p.done)
                await_rows(t, p, s);
            else
                t.await_earlier();
            t.barrier();
            if (t.load_shared(&s.tile.group) >= 0) cast_tile(t, p, s, static_cast<i32>(t.block() % p.strips) * strip);
        }
        // Who comes next waits for this kernel alone, which is not to end before those that it did not wait for.
        if (t.block() + 1 == t.blocks()) t.await_earlier();
    }

private:
    // Waits for all parts that have rows of the tile's group, a thread each.
    template <class Thread>
    OCTET_GPU static void await_rows(Thread& t, const Params& p, Shared& s) {
        t.barrier();
        const i64 begin = t.load_shared(&s.tile.begin), end = t.load_shared(&s.tile.row) + t.load_shared(&s.tile.rows);
        for (i64 part = t.thread(); part < p.parts.count; part += threads)
            if (p.parts.begin(part) < end && begin < p.parts.begin(part + 1))
                t.await_done(p.done + part * counter_words, p.blocks_a_part);
    }

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
            tile.begin = static_cast<i64>(span.word[2]);
            tile.row = tile.begin + row;
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

    // Which 16 rows a thread casts, and of which four columns, first those of half 0 and then of half 1.
    OCTET_GPU static int piece_of(int thread) { return thread % 8; }
    OCTET_GPU static int column_of(int thread, int half) {
        return thread / unit * 32 + half * 16 + thread % unit / 8 * 4;
    }

    template <class Thread>
    OCTET_GPU static void cast_tile(Thread& t, const Params& p, Shared& s, i32 column0) {
        fetch(t, p, s, column0);
        const i32 before = t.load_shared(&s.tile.before), rows = t.load_shared(&s.tile.rows);
        const bool there = before <= t.thread() && t.thread() < rows;
        const u8 row_power = there ? t.load_made(p.power + t.load_shared(&s.tile.row) + t.thread()) : power_of_zeros;
        const u8 column_power = find_column(t, p, s, column0);
        t.barrier();
        count_powers(t, s, row_power, column_power);
        t.template await_copies<0>();
        t.barrier();
        const int first = 16 * piece_of(t.thread());
        const bool inside = before <= first && first < t.load_shared(&s.tile.room);
        OCTET_UNROLL
        for (int half = 0; half < 2; ++half) {
            const int column = column_of(t.thread(), half);
            if (inside && column0 + column < p.columns)
                cast(t, p, s, half,
                     p.data + t.load_shared(&s.tile.data) + (column0 + column) * p.data_stride[1] + first);
        }
        t.barrier();
        cast_listed(t, p, s, column0);
    }

    // Chunk c of a row lies at c ^ row / 16, so that the rows that are read together meet in no bank.
    template <class Thread>
    OCTET_GPU static void fetch(Thread& t, const Params& p, Shared& s, i32 column0) {
        const int row = t.thread() / chunks, chunk = t.thread() % chunks;
        const i32 before = t.load_shared(&s.tile.before), rows = t.load_shared(&s.tile.rows);
        const u8* from = p.rows + t.load_shared(&s.tile.group) * p.rows_stride[0] +
                         (t.load_shared(&s.tile.local) + row) * p.rows_stride[1] + column0 + chunk * 16;
        const i32 until = column0 + chunk * 16 < p.columns ? rows : 0;
        OCTET_UNROLL
        for (int piece = 0; piece < pieces; ++piece) {
            const int at = row + piece * 16;
            t.copy_async(&s.rows[at * chunks + (chunk ^ piece)], from, before <= at && at < until, p.reuse);
            from += 16 * p.rows_stride[1];
        }
        t.commit_copies();
    }

    // The scale of the thread's column and its power, and of a unit's columns the least power.
    template <class Thread>
    OCTET_GPU static u8 find_column(Thread& t, const Params& p, Shared& s, i32 column0) {
        const i64 group = t.load_shared(&s.tile.group);
        const i32 column = column0 + t.thread();
        const bool inside = column < p.columns;
        const u32 peak = inside ? peak_of_code(t.load_fresh(p.peaks + group * p.columns + column)) : 0;
        const float scale = make_scale<Codec, false>(t, peak, p.rule, p.scale,
                                                     inside && t.load_shared(&s.tile.first) != 0, group, column, 0);
        const u8 power = power_of(peak, scale);
        t.store_shared(&s.scale[t.thread()], scale);
        u32 least = power > power_of_zeros ? power : 255;
        OCTET_UNROLL
        for (int mask = 1; mask < unit; mask *= 2) {
            const u32 other = t.shuffle_xor(least, mask);
            least = other < least ? other : least;
        }
        if (t.thread() % unit == 0) t.store_shared(&s.likely[t.thread() / unit], least == 255 ? 0u : least);
        return power;
    }

    // A power that most columns are near. Of the least powers of a unit's columns each the second highest: a column
    // that stands out moves one of the four.
    template <class Thread>
    OCTET_GPU static int common_power(Thread& t, Shared& s) {
        const Vec16 of = t.load_shared(reinterpret_cast<const Vec16*>(s.likely));
        const auto smaller = [](u32 a, u32 b) { return a < b ? a : b; };
        const u32 high0 = larger(of.word[0], of.word[1]), high1 = larger(of.word[2], of.word[3]);
        const u32 second =
            larger(smaller(high0, high1), larger(smaller(of.word[0], of.word[1]), smaller(of.word[2], of.word[3])));
        return static_cast<int>(second ? second : larger(high0, high1));
    }

    // Powers of the thread's row and column from one that is common to the tile.
    template <class Thread>
    OCTET_GPU static void count_powers(Thread& t, Shared& s, u8 row_power, u8 column_power) {
        const int least = common_power(t, s) - powers / 2;
        const auto known = [&](u8 power) {
            const int above = power - least;
            return power > power_of_zeros && power < 255 && 0 <= above && above < powers;
        };
        const auto steps = [&](u8 power) { return static_cast<u8>((power - least) * static_cast<int>(step)); };
        const bool zeros = row_power == power_of_zeros;
        t.store_shared(&s.power[t.thread()], known(row_power) ? steps(row_power) : zeros ? u8{0} : unknown);
        t.store_shared(&s.moves[t.thread()], zeros ? u8{0} : u8{0x7F});
        t.store_shared(&s.column_power[t.thread()], known(column_power) ? steps(column_power) : u8{1});
        u32 largest = known(row_power) ? steps(row_power) : 0;
        OCTET_UNROLL
        for (int mask = 1; mask < 16; mask *= 2) largest = larger(largest, t.shuffle_xor(largest, mask));
        if (t.thread() % 16 == 0) t.store_shared(&s.largest[t.thread() / 16], largest);
    }

    // What is known of 16 rows and four columns.
    struct Sixteen {
        Vec16 row_power, moves;  // a byte each
        u32 largest;             // row's power
        u32 column_powers;       // a byte each
    };

    template <class Thread>
    OCTET_GPU static Sixteen sixteen(Thread& t, Shared& s, int thread, int half) {
        Sixteen of;
        const int piece = piece_of(thread);
        of.row_power = t.load_shared(reinterpret_cast<const Vec16*>(&s.power[16 * piece]));
        of.moves = t.load_shared(reinterpret_cast<const Vec16*>(&s.moves[16 * piece]));
        of.largest = t.load_shared(&s.largest[piece]);
        of.column_powers = t.load_shared(reinterpret_cast<const u32*>(&s.column_power[column_of(thread, half)]));
        return of;
    }

    // Four rows of four columns, a column a word.
    template <class Thread>
    OCTET_GPU static void read(Thread& t, Shared& s, int thread, int half, int fourth, u32 (&q)[4]) {
        const int piece = piece_of(thread), column = column_of(thread, half);
        u32 row[4];
        OCTET_UNROLL
        for (int i = 0; i < 4; ++i)
            row[i] = t.load_shared(
                &s.rows[(16 * piece + 4 * fourth + i) * chunks + (column / 16 ^ piece)].word[column % 16 / 4]);
        const u32 low01 = t.permute_bytes(row[0], row[1], 0x5140u), low23 = t.permute_bytes(row[2], row[3], 0x5140u);
        const u32 high01 = t.permute_bytes(row[0], row[1], 0x7362u), high23 = t.permute_bytes(row[2], row[3], 0x7362u);
        q[0] = t.permute_bytes(low01, low23, 0x5410u);
        q[1] = t.permute_bytes(low01, low23, 0x7632u);
        q[2] = t.permute_bytes(high01, high23, 0x5410u);
        q[3] = t.permute_bytes(high01, high23, 0x7632u);
    }

    template <class Thread>
    OCTET_GPU static u32 column_power(Thread& t, u32 column_powers, int c) {
        return t.permute_bytes(column_powers, 0, 0x1111u * static_cast<u32>(c)) & ~each;
    }

    // Casts 16 rows of four columns, and lists those rows of them that have a byte which may not be what x gives.
    template <class Thread>
    OCTET_GPU static void cast(Thread& t, const Params& p, Shared& s, int half, u8* to) {
        const Reuse reuse = t.load_shared(&s.tile.row) < p.kept ? Reuse::last : Reuse::stream;
        const Sixteen of = sixteen(t, s, t.thread(), half);
        // Of each column: its power, and from which byte on a number has all bits along its row and along the column,
        // whichever of the rows it is in. (The least that has them along the row may be rounded up to it.)
        u32 power[4], normal[4];
        OCTET_UNROLL
        for (int c = 0; c < 4; ++c) {
            power[c] = column_power(t, of.column_powers, c);
            const u32 here = power[c] & 0xFFu, lost = of.largest > here ? of.largest - here : 0;
            normal[c] = (step + 1 + lost < 0x80u ? step + 1 + lost : 0x80u) * each;
        }
        const u32 known = of.column_powers & each ? 0u : signs;
        u32 good[4];
        Vec16 v[4];
        OCTET_UNROLL
        for (int w = 0; w < 4; ++w) {
            u32 q[4];
            read(t, s, t.thread(), half, w, q);
            good[w] = ~of.row_power.word[w];
            OCTET_UNROLL
            for (int c = 0; c < 4; ++c) {
                // No byte carries into the next: what is along a column is at most the largest number, and rows and
                // columns of an unknown power add nothing.
                const u32 above = (q[c] | signs) - normal[c];
                const u32 moved = (q[c] | signs) - of.row_power.word[w] + power[c];
                good[w] &= above;
                v[c].word[w] = (moved & of.moves.word[w]) | (q[c] & ~of.moves.word[w]);
            }
            good[w] = (good[w] | ~(of.moves.word[w] << 1)) & known;
        }
        OCTET_UNROLL
        for (int c = 0; c < 4; ++c) t.store16(to + c * p.data_stride[1], v[c], reuse);
        if ((good[0] & good[1] & good[2] & good[3] & signs) != signs) list(t, s, half, of, good);
    }

    // Lists what is to be cast from x, four rows of four columns at a time: half, thread, which fourth of its rows, and
    // which of them.
    template <class Thread>
    OCTET_GPU static void list(Thread& t, Shared& s, int half, const Sixteen& of, const u32 (&good)[4]) {
        OCTET_UNROLL
        for (int w = 0; w < 4; ++w) {
            if ((good[w] & signs) == signs) continue;
            // A closer look: each row by its own scale, and where both scales are the same, so are the bytes.
            u32 q[4], same = of.column_powers & each ? 0u : ~of.row_power.word[w];
            read(t, s, t.thread(), half, w, q);
            OCTET_UNROLL
            for (int c = 0; c < 4; ++c) {
                const u32 power = column_power(t, of.column_powers, c), row_power = of.row_power.word[w];
                const u32 moved = (q[c] | signs) - row_power + power;
                const u32 other = ((row_power ^ power) & ~signs) + (0x80u - step) * each;
                const u32 above = (q[c] | signs) - (step + 1) * each;
                same &= ~other | (above & moved & ((moved & ~signs) + (0x80u - step) * each));
            }
            const i32 left = t.load_shared(&s.tile.rows) - 16 * piece_of(t.thread()) - 4 * w;
            const u32 bad = (~(good[w] | same) & signs & first_bytes(left)) >> 7;
            if (bad == 0) continue;
            const u32 rows = (bad | bad >> 7 | bad >> 14 | bad >> 21) & 15u;
            t.store_shared(
                &s.listed[t.atomic_add_shared(&s.listed_count, 1u)],
                ((static_cast<u32>(half) * threads + static_cast<u32>(t.thread())) * 4 + static_cast<u32>(w)) * 16 +
                    rows);
        }
    }

    template <class Thread>
    OCTET_GPU static void cast_listed(Thread& t, const Params& p, Shared& s, i32 column0) {
        const u32 count = t.load_shared(&s.listed_count);
        OCTET_ROLLED
        for (u32 i = static_cast<u32>(t.thread()); i < count; i += threads) {
            const u32 entry = t.load_shared(&s.listed[i]);
            const int thread = static_cast<int>(entry / 64 % threads);
            const int column = column_of(thread, static_cast<int>(entry / 64 / threads));
            const i32 row = piece_of(thread) * 16 + static_cast<i32>(entry / 16 % 4) * 4;
            const u16* x = static_cast<const u16*>(p.x) + t.load_shared(&s.tile.group) * p.x_stride[0] +
                           (t.load_shared(&s.tile.local) + row) * p.x_stride[1] + column0 + column;
            u8* to = p.data + t.load_shared(&s.tile.data) + (column0 + column) * p.data_stride[1] + row;
            u64 four[4];
            OCTET_UNROLL
            for (int j = 0; j < 4; ++j)
                if (entry >> j & 1u) four[j] = t.load(reinterpret_cast<const u64*>(x + j * p.x_stride[1]));
            OCTET_UNROLL
            for (int j = 0; j < 4; ++j) {
                if ((entry >> j & 1u) == 0) continue;
                const auto scaled = [&](int c) {
                    return std::bit_cast<float>(static_cast<u32>(four[j] >> (16 * c)) << 16) *
                           t.load_shared(&s.scale[column + c]);
                };
                const u32 q = t.template encode4<Codec>(scaled(0), scaled(1), scaled(2), scaled(3));
                OCTET_UNROLL
                for (int c = 0; c < 4; ++c) t.store(to + c * p.data_stride[1] + j, static_cast<u8>(q >> (8 * c)));
            }
        }
    }
};

}  // namespace octet::gpu
