// Columns out of quantized rows: a tile of 128 rows x 128 columns that are quantized along rows becomes one that is
// quantized along columns, transposed, where both have scales that are powers of two.
//
// Both casts round to the same bits of the mantissa, and scales only shift the exponent: where a byte is a normal
// number along its row, and is one along its column too, the second byte is the first with the difference of the two
// scales' exponents added. Else x was rounded to fewer bits in one of them, and is read itself: few elements of most
// tensors (one in some thousands of normally distributed ones), all of those in rows with NaN or infinity, or whose
// scale is far from that of the columns. What has to be cast from x is listed, and then done by all threads.
//
// A thread casts 16 rows of four columns at a time, transposing words of four bytes in its registers, so that stores
// are whole lines. Of 128 threads each does so twice, of 256 once.
#pragma once

#include "gpu/rows_and_peaks.hpp"

namespace octet::gpu {

template <class Codec, int threads>
struct BytesMoved {
    static constexpr int strip = 128;          // columns
    static constexpr int chunks = strip / 16;  // 16 bytes of a row each
    static constexpr int pieces = tile_rows / 16;
    static constexpr int halves = 256 / threads;  // that a thread does one after the other
    static_assert((threads == 128 || threads == 256) && tile_rows == 128 && chunks == pieces);

    // Four bytes a word. A byte without its sign is exponent * step + mantissa, so that powers of two are added in
    // steps.
    static constexpr u32 each = 0x01010101u, signs = 0x80u * each;
    static constexpr u32 step = 1u << Codec::mantissa_bits;
    static constexpr int powers = 128 / static_cast<int>(step);  // that fit beside a sign
    static constexpr u8 unknown = 0x80;                          // a row's power that is none of them

    struct Shared {
        // Of rows and columns, counted from one power on, in steps. A column's is odd where it is none of those there
        // are.
        alignas(16) u8 power[tile_rows];
        alignas(16) u8 column_power[strip];
        // Which bits of a row are moved: all but the sign; none, where all of it is zero.
        alignas(16) u8 moves[tile_rows];
        u8 largest[pieces];         // power of 16 rows
        alignas(16) u32 likely[4];  // the least power of a unit's columns, or 0
        u16 listed[1024];           // see list
        u32 listed_count;           // 0 before
    };

    // Where 16 bytes of row 16 * piece + row lie, so that the rows that are read together meet in no bank.
    OCTET_GPU static int place_of(int piece, int row, int chunk) {
        return (16 * piece + row) * chunks + (chunk ^ piece);
    }

    // Of a unit's columns, the thread's power and the others', the least one. By the first 128 threads, before a
    // barrier and count_powers.
    template <class Thread>
    OCTET_GPU static void find_likely(Thread& t, Shared& s, u8 power) {
        u32 least = power > power_of_zeros ? power : 255;
        OCTET_UNROLL
        for (int mask = 1; mask < unit; mask *= 2) {
            const u32 other = t.shuffle_xor(least, mask);
            least = other < least ? other : least;
        }
        if (t.thread() % unit == 0) t.store_shared(&s.likely[t.thread() / unit], least == 255 ? 0u : least);
    }

    // A power that most columns are near, after a barrier. Of the least powers of a unit's columns each the second
    // highest: a column that stands out moves one of the four.
    template <class Thread>
    OCTET_GPU static int common_power(Thread& t, Shared& s) {
        const Vec16 of = t.load_shared(reinterpret_cast<const Vec16*>(s.likely));
        const auto smaller = [](u32 a, u32 b) { return a < b ? a : b; };
        const u32 high0 = larger(of.word[0], of.word[1]), high1 = larger(of.word[2], of.word[3]);
        const u32 second =
            larger(smaller(high0, high1), larger(smaller(of.word[0], of.word[1]), smaller(of.word[2], of.word[3])));
        return static_cast<int>(second ? second : larger(high0, high1));
    }
    // Powers of the row and the column with the number `at`, from one that is common to the tile, before a barrier.
    template <class Thread>
    OCTET_GPU static void count_row_power(Thread& t, Shared& s, int at, u8 power, int common) {
        const bool zeros = power == power_of_zeros, is_known = known(power, common);
        t.store_shared(&s.power[at], is_known ? steps(power, common) : zeros ? u8{0} : unknown);
        t.store_shared(&s.moves[at], zeros ? u8{0} : u8{0x7F});
        u32 largest = is_known ? steps(power, common) : 0;
        OCTET_UNROLL
        for (int mask = 1; mask < 16; mask *= 2) largest = larger(largest, t.shuffle_xor(largest, mask));
        if (t.thread() % 16 == 0) t.store_shared(&s.largest[at / 16], static_cast<u8>(largest));
    }
    template <class Thread>
    OCTET_GPU static void count_column_power(Thread& t, Shared& s, int at, u8 power, int common) {
        t.store_shared(&s.column_power[at], known(power, common) ? steps(power, common) : u8{1});
    }

    // Which 16 rows a thread casts, and of which four columns.
    OCTET_GPU static int piece_of(int thread) { return thread % 8; }
    OCTET_GPU static int column_of(int thread, int half) {
        return thread / unit * (16 * halves) + half * 16 + thread % unit / 8 * 4;
    }

    // Four rows of the thread's columns, a word each.
    template <class Thread>
    OCTET_GPU static Vec16 read_fourth(Thread& t, const Vec16* rows, int half, int fourth) {
        const int piece = piece_of(t.thread()), column = column_of(t.thread(), half);
        Vec16 row;
        OCTET_UNROLL
        for (int i = 0; i < 4; ++i)
            row.word[i] = t.load_shared(&rows[place_of(piece, 4 * fourth + i, column / 16)].word[column % 16 / 4]);
        return row;
    }

    // Casts 16 rows of four columns, and lists those rows of them that have a byte which may not be what x gives.
    // fourth(w) gives what read_fourth does. left: rows of the group from the 16 on.
    template <class Thread, class Fourth>
    OCTET_GPU static void cast(Thread& t, Shared& s, int half, i32 left, u8* to, i64 stride, Fourth fourth) {
        const Sixteen of = sixteen(t, s, half);
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
            transpose(t, fourth(w), q);
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
        for (int c = 0; c < 4; ++c) t.template store16<Reuse::last>(to + c * stride, v[c]);
        if ((good[0] & good[1] & good[2] & good[3] & signs) != signs) list(t, s, half, left, of, good, fourth);
    }

    // Casts what is listed, after a barrier. x and to: of the tile's first element.
    template <class Thread>
    OCTET_GPU static void cast_listed(Thread& t, Shared& s, const float* scale, const u16* x, i64 x_stride, u8* to,
                                      i64 stride) {
        const u32 count = t.load_shared(&s.listed_count);
        OCTET_ROLLED
        for (u32 i = static_cast<u32>(t.thread()); i < count; i += threads) {
            const u32 entry = t.load_shared(&s.listed[i]);
            const int thread = static_cast<int>(entry / 64 % threads);
            const int column = column_of(thread, static_cast<int>(entry / 64 / threads));
            const i32 row = piece_of(thread) * 16 + static_cast<i32>(entry / 16 % 4) * 4;
            const u16* from = x + row * x_stride + column;
            u8* at = to + column * stride + row;
            u64 four[4];
            OCTET_UNROLL
            for (int j = 0; j < 4; ++j)
                if (entry >> j & 1u) four[j] = t.load(reinterpret_cast<const u64*>(from + j * x_stride));
            OCTET_UNROLL
            for (int j = 0; j < 4; ++j) {
                if ((entry >> j & 1u) == 0) continue;
                const auto scaled = [&](int c) {
                    return std::bit_cast<float>(static_cast<u32>(four[j] >> (16 * c)) << 16) *
                           t.load_shared(&scale[column + c]);
                };
                const u32 q = t.template encode4<Codec>(scaled(0), scaled(1), scaled(2), scaled(3));
                OCTET_UNROLL
                for (int c = 0; c < 4; ++c) t.store(at + c * stride + j, static_cast<u8>(q >> (8 * c)));
            }
        }
    }

private:
    OCTET_GPU static bool known(u8 power, int common) {
        const int above = power - (common - powers / 2);
        return power > power_of_zeros && power < 255 && 0 <= above && above < powers;
    }
    OCTET_GPU static u8 steps(u8 power, int common) {
        return static_cast<u8>((power - (common - powers / 2)) * static_cast<int>(step));
    }

    // What is known of 16 rows and four columns.
    struct Sixteen {
        Vec16 row_power, moves;  // a byte each
        u32 largest;             // row's power
        u32 column_powers;       // a byte each
    };

    template <class Thread>
    OCTET_GPU static Sixteen sixteen(Thread& t, Shared& s, int half) {
        Sixteen of;
        const int piece = piece_of(t.thread());
        of.row_power = t.load_shared(reinterpret_cast<const Vec16*>(&s.power[16 * piece]));
        of.moves = t.load_shared(reinterpret_cast<const Vec16*>(&s.moves[16 * piece]));
        of.largest = t.load_shared(&s.largest[piece]);
        of.column_powers = t.load_shared(reinterpret_cast<const u32*>(&s.column_power[column_of(t.thread(), half)]));
        return of;
    }

    // Four rows of four columns, from a row a word to a column a word.
    template <class Thread>
    OCTET_GPU static void transpose(Thread& t, const Vec16& row, u32 (&q)[4]) {
        const u32 low01 = t.permute_bytes(row.word[0], row.word[1], 0x5140u),
                  low23 = t.permute_bytes(row.word[2], row.word[3], 0x5140u);
        const u32 high01 = t.permute_bytes(row.word[0], row.word[1], 0x7362u),
                  high23 = t.permute_bytes(row.word[2], row.word[3], 0x7362u);
        q[0] = t.permute_bytes(low01, low23, 0x5410u);
        q[1] = t.permute_bytes(low01, low23, 0x7632u);
        q[2] = t.permute_bytes(high01, high23, 0x5410u);
        q[3] = t.permute_bytes(high01, high23, 0x7632u);
    }

    template <class Thread>
    OCTET_GPU static u32 column_power(Thread& t, u32 column_powers, int c) {
        return t.permute_bytes(column_powers, 0, 0x1111u * static_cast<u32>(c)) & ~each;
    }

    // Lists what is to be cast from x, four rows of four columns at a time: half, thread, which fourth of its rows, and
    // which of them.
    template <class Thread, class Fourth>
    OCTET_GPU static void list(Thread& t, Shared& s, int half, i32 left, const Sixteen& of, const u32 (&good)[4],
                               Fourth fourth) {
        OCTET_UNROLL
        for (int w = 0; w < 4; ++w) {
            if ((good[w] & signs) == signs) continue;
            // A closer look: each row by its own scale, and where both scales are the same, so are the bytes.
            u32 q[4], same = of.column_powers & each ? 0u : ~of.row_power.word[w];
            transpose(t, fourth(w), q);
            OCTET_UNROLL
            for (int c = 0; c < 4; ++c) {
                const u32 power = column_power(t, of.column_powers, c), row_power = of.row_power.word[w];
                const u32 moved = (q[c] | signs) - row_power + power;
                const u32 other = ((row_power ^ power) & ~signs) + (0x80u - step) * each;
                const u32 above = (q[c] | signs) - (step + 1) * each;
                same &= ~other | (above & moved & ((moved & ~signs) + (0x80u - step) * each));
            }
            const u32 bad = (~(good[w] | same) & signs & first_bytes(left - 4 * w)) >> 7;
            if (bad == 0) continue;
            const u32 rows = (bad | bad >> 7 | bad >> 14 | bad >> 21) & 15u;
            t.store_shared(
                &s.listed[t.atomic_add_shared(&s.listed_count, 1u)],
                static_cast<u16>(
                    ((static_cast<u32>(half) * threads + static_cast<u32>(t.thread())) * 4 + static_cast<u32>(w)) * 16 +
                    rows));
        }
    }
};

}  // namespace octet::gpu
