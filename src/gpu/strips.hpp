// Quantizes groups of few rows along their columns (transposed), x[M, K] -> data[K, P], with one scale a column and
// group, or one for each 128 or 32 rows; and x along its rows beside it, where that is asked for.
//
// A block takes a strip of 64 columns of one group, all of its rows: nobody else has a part in its maxima, so there is
// nothing to exchange, no memory to clear and no plan, and a small tensor is one launch. Rows are brought to shared
// memory, 64 at a step; then every unit reads its eight columns of a step transposed, 16 rows a thread, which are one
// store. One scale a group: the maxima are found as rows land, and a block that holds all of them meets two barriers.
//
// Bytes: x once, each output once. With one scale a group, of a group of more rows than are held the last ones are,
// and the others are read a second time, from the cache. Where groups are mostly longer, the tiles of tiles.hpp are
// better: they share a group. Along rows x is read once more, also from the cache where the tensor is small. Bound by
// memory.
#pragma once

#include "gpu/eight.hpp"
#include "gpu/outputs.hpp"
#include "gpu/rows.hpp"
#include "gpu/tile_list.hpp"

namespace octet::gpu {

struct StripParams : TileParams {  // operand[].column_tiles: strips
    u32 strip_blocks = 0;          // blocks past these take rows
    i32 most_rows = 0;             // of a group: longer ones are left alone
    RowsParams along_rows{};
};

template <class In_, class Codec_, Scaling scaling, bool with_rows>
struct StripsKernel {
    using In = In_;
    using Codec = Codec_;
    using Params = StripParams;
    static constexpr int columns = 64;
    static constexpr int across = columns / 8;  // eights of a row
    static constexpr int units = across;        // a unit casts eight columns
    static constexpr int threads = units * unit;
    static constexpr int step = 64;                         // rows
    static constexpr int copies = step * across / threads;  // eights a thread brings of a step
    static constexpr int slots = 6;
    static constexpr int blocks_per_core = In::words == 8 ? 2 : with_rows && scaling != Scaling::rowwise ? 3 : 4;
    static constexpr bool mx = scaling == Scaling::mx;
    static constexpr int block = static_cast<int>(block_of(scaling));  // 0: the group
    using Rows = RowsKernel<In, Codec, scaling, In::words == 4 ? 8 : 4, threads>;

    struct Shared {
        Vec16 slot[slots][static_cast<u32>(In::pieces)][static_cast<u32>(step * across)];
        alignas(16) typename In::Element peak[static_cast<u32>(units)][static_cast<u32>(columns)];  // of a unit's rows
        u32 sums[static_cast<u32>(units)];
        typename Rows::Shared rows;
    };

    template <class Thread>
    OCTET_GPU static void run(Thread& t, const Params& p, Shared& s) {
        if constexpr (with_rows)
            if (t.block() >= p.strip_blocks) return Rows::cast(t, p.along_rows, s.rows, t.block() - p.strip_blocks);
        const Strip a = strip_of(t, p, s);
        if (a.rows <= p.most_rows) {
            if constexpr (block == 0)
                cast_group(t, p, s, a);
            else
                cast_blocks(t, p, s, a);
        }
        // Launched later, it has begun beside a product, and is not to end before it (columns_by_peaks.hpp).
        if (t.block() == t.blocks() - 1) t.await_earlier();
    }

private:
    // One group's rows of some columns.
    struct Strip {
        const typename In::Element* x;  // what the thread brings first
        i64 stride;
        u8* data;  // what it writes first: 16 rows of one column
        i64 group;
        i32 operand, column;  // the one that the thread casts
        i32 rows, padded_rows;
        u32 padded_begin;
        i32 left;    // columns that the strip has, from the first that the thread brings on
        bool wide;   // read and written in wide pieces
        bool casts;  // the strip has the thread's column
    };

    template <class Thread>
    OCTET_GPU static Strip strip_of(Thread& t, const Params& p, Shared& s) {
        const u32 strips = p.tiling.column_tiles, strip = t.block() % strips, group = t.block() / strips;
        Strip a;
        a.group = group;
        a.operand = strip >= p.operand[0].column_tiles;
        const TileOperand& o = p.operand[a.operand];
        const i32 column0 = static_cast<i32>(strip - (a.operand ? p.operand[0].column_tiles : 0)) * columns;
        const int eight = t.thread() % across;
        a.left = at_most(columns, o.columns - column0) - eight * 8;
        a.column = column0 + t.thread() / 4;
        a.casts = a.column < o.columns;
        a.wide = o.columns % 8 == 0 && o.aligned && o.column_data_aligned;
        const Span span = find_span<threads>(t, p, group, s.sums);
        a.rows = span.rows;
        a.padded_rows = p.tiling.padded(span.rows, true);
        a.padded_begin = span.padded_begin;
        a.stride = o.x_stride[1];
        a.x = static_cast<const typename In::Element*>(o.x) +
              (static_cast<i64>(span.position) + t.thread() / across) * a.stride + column0 + eight * 8;
        a.data = o.column_data + a.column * o.column_data_stride[1] + span.padded_begin + 16 * (t.thread() % 4);
        return a;
    }

    template <class Thread>
    OCTET_GPU static void cast_group(Thread& t, const Params& p, Shared& s, const Strip& a) {
        const i32 steps = (a.rows + step - 1) / step;
        OCTET_ROLLED
        for (i32 i = 0; i < slots; ++i) {
            fetch(t, s, a, i);
            t.commit_copies();
        }
        Magnitudes<In> peaks{};
        OCTET_ROLLED
        for (i32 i = 0; i < steps; ++i) {
            t.template await_copies<slots - 1>();
            find_peaks(t, s, i, peaks);
            fetch(t, s, a, i + slots);
            t.commit_copies();
        }
        const float scale = find_scale(t, p, s, a, peaks);

        // The last steps are there. Where these are not all, the others come again as slots fall empty.
        OCTET_ROLLED
        for (i32 i = steps - 1; i >= 0; --i) {
            if (steps > slots) {
                t.template await_copies<slots - 2>();
                t.barrier();
                if (i + 1 < steps && i + 1 >= slots) fetch(t, s, a, i + 1 - slots);
                t.commit_copies();
            }
            store(t, a, i, encode(t, load_column(t, s, i), scale));
        }
        OCTET_ROLLED
        for (i32 i = steps; i * step < a.padded_rows; ++i) store(t, a, i, Vec16{{0, 0, 0, 0}});  // padding alone
    }

    // 128 rows at a time: a block of 128, or four of 32.
    template <class Thread>
    OCTET_GPU static void cast_blocks(Thread& t, const Params& p, Shared& s, const Strip& a) {
        const i32 rounds = (a.padded_rows + 127) / 128;
        constexpr int ahead = slots / 2;  // rounds
        const auto fetch_round = [&](i32 round) {
            fetch(t, s, a, 2 * round);
            fetch(t, s, a, 2 * round + 1);
        };
        OCTET_ROLLED
        for (i32 round = 0; round < ahead; ++round) {
            fetch_round(round);
            t.commit_copies();
        }
        OCTET_ROLLED
        for (i32 round = 0; round < rounds; ++round) {
            t.template await_copies<ahead - 2>();  // all but the ones sent for in the round before
            t.barrier();
            if (round > 0) fetch_round(round - 1 + ahead);
            t.commit_copies();
            Column x[2];
            u32 peak[2];
            OCTET_UNROLL
            for (int half = 0; half < 2; ++half) {
                x[half] = (2 * round + half) * step < a.rows ? load_column(t, s, 2 * round + half) : Column{};
                u32 word = 0;
                OCTET_UNROLL
                for (int w = 0; w < column_words; ++w)
                    word = magnitude_max<In>(t, word, magnitude_of<In>(x[half].word[w]));
                peak[half] = f32_bits_of<In>(fold_lanes < In, mx ? 2 : 4 > (t, word));
            }
            if constexpr (mx) {
                const u32 code0 = mx_scale_of_bits<Codec>(peak[0], p.rule.mx_mode),
                          code1 = mx_scale_of_bits<Codec>(peak[1], p.rule.mx_mode);
                // Of the thread's 32 rows in either half, and of the 32 beside them.
                const u32 mine = code0 | code1 << 16;
                store_codes(t, p, a, round, mine | t.shuffle_xor(mine, 2) << 8);
                store(t, a, 2 * round, encode(t, x[0], mx_multiplier_of(static_cast<u8>(code0))));
                store(t, a, 2 * round + 1, encode(t, x[1], mx_multiplier_of(static_cast<u8>(code1))));
            } else {
                const u32 both = peak[0] > peak[1] ? peak[0] : peak[1];
                const float scale = make_scale<Codec, false>(t, both, p.rule, p.operand[a.operand].column_scale,
                                                             a.casts && t.thread() % 4 == 0, 0, a.column,
                                                             static_cast<i64>(a.padded_begin) / 128 + round);
                store(t, a, 2 * round, encode(t, x[0], scale));
                store(t, a, 2 * round + 1, encode(t, x[1], scale));
            }
        }
    }

    // ---- reading

    // Where an eight lies in a slot: so that neither eights of one row meet in a bank, nor those of one column that are
    // read across at once, which are of two rows in each 16.
    OCTET_GPU static int place_of(int row, int eight) {
        static_assert(across == 8 && step == 64);
        return row * across + (eight ^ (row / 16 * 2 + row % 2));
    }

    // Sends for a step, if the strip has it.
    template <class Thread>
    OCTET_GPU static void fetch(Thread& t, Shared& s, const Strip& a, i32 i) {
        const i32 rows = a.rows - i * step;
        if (rows <= 0) return;
        auto& to = s.slot[i % slots];
        OCTET_UNROLL
        for (int j = 0; j < copies; ++j) {
            const int row = t.thread() / across + j * (threads / across);
            const auto* x = a.x + (static_cast<i64>(i) * step + j * (threads / across)) * a.stride;
            const bool inside = row < rows && a.left > 0;
            OCTET_UNROLL
            for (int piece = 0; piece < In::pieces; ++piece) {
                constexpr int elements = 8 / In::pieces;
                Vec16* at = &to[piece][place_of(row, t.thread() % across)];
                if (a.wide)
                    t.copy_async(at, x + piece * elements, inside);
                else
                    fetch_part(t, at, x + piece * elements, inside ? at_most(elements, a.left - piece * elements) : 0);
            }
        }
    }
    template <class Thread>
    OCTET_GPU_RARE static void fetch_part(Thread& t, Vec16* to, const typename In::Element* x, i32 count) {
        const Eight<In> some = load_some<In>(t, x, count);
        t.store_shared(to, Vec16{{some.word[0], some.word[1], some.word[2], some.word[3]}});
    }

    // 16 rows of the thread's column.
    static constexpr int column_words = In::words * 2;
    struct Column {
        u32 word[static_cast<u32>(column_words)];
    };
    template <class Thread>
    OCTET_GPU static Column load_column(Thread& t, Shared& s, i32 i) {
        const int eight = t.thread() / unit;
        const auto& slot = s.slot[i % slots];
        Column x;
        if constexpr (In::words == 4) {
            // Matrix j of a half brings rows 2j and 2j + 1 of each 16.
            OCTET_UNROLL
            for (int half = 0; half < 2; ++half) {
                u32 words[4];
                t.load_transposed(
                    [&](int lane) {
                        return &slot[0][place_of(lane % 8 / 2 * 16 + half * 8 + lane / 8 * 2 + lane % 2, eight)];
                    },
                    words);
                OCTET_UNROLL
                for (int w = 0; w < 4; ++w) x.word[4 * half + w] = words[w];
            }
        } else {
            const int column = t.thread() / 4 % 8;
            OCTET_UNROLL
            for (int r = 0; r < 16; ++r)
                x.word[r] = t.load_shared(&slot[column / 4][place_of(t.thread() % 4 * 16 + r, eight)].word[column % 4]);
        }
        return x;
    }

    // ---- maxima and scales

    // Of what the thread itself brought.
    template <class Thread>
    OCTET_GPU static void find_peaks(Thread& t, Shared& s, i32 i, Magnitudes<In>& peaks) {
        OCTET_UNROLL
        for (int j = 0; j < copies; ++j) OCTET_UNROLL
        for (int piece = 0; piece < In::pieces; ++piece) {
            const int at = place_of(t.thread() / across + j * (threads / across), t.thread() % across);
            const Vec16 v = t.load_shared(&s.slot[i % slots][piece][at]);
            OCTET_UNROLL
            for (int w = 0; w < 4; ++w)
                peaks.word[4 * piece + w] =
                    magnitude_max<In>(t, peaks.word[4 * piece + w], magnitude_of<In>(v.word[w]));
        }
    }

    // From the threads' maxima to the scale of the thread's column.
    template <class Thread>
    OCTET_GPU static float find_scale(Thread& t, const Params& p, Shared& s, const Strip& a, Magnitudes<In>& peaks) {
        OCTET_UNROLL
        for (int w = 0; w < In::words; ++w) OCTET_UNROLL
        for (int mask = across; mask < unit; mask *= 2)
            peaks.word[w] = magnitude_max<In>(t, peaks.word[w], t.shuffle_xor(peaks.word[w], mask));
        if (t.thread() % unit < across) {
            auto* to = reinterpret_cast<Vec16*>(&s.peak[t.thread() / unit][t.thread() % unit * 8]);
            OCTET_UNROLL
            for (int piece = 0; piece < In::pieces; ++piece)
                t.store_shared(to + piece, Vec16{{peaks.word[4 * piece], peaks.word[4 * piece + 1],
                                                  peaks.word[4 * piece + 2], peaks.word[4 * piece + 3]}});
        }
        t.barrier();
        u32 peak = 0;
        OCTET_UNROLL
        for (int u = 0; u < units; ++u) {
            const u32 other = t.load_shared(&s.peak[u][t.thread() / 4]);
            peak = other > peak ? other : peak;
        }
        return make_scale<Codec, false>(t, In::words == 4 ? peak << 16 : peak, p.rule,
                                        p.operand[a.operand].column_scale, a.casts && t.thread() % 4 == 0, a.group,
                                        a.column, 0);
    }

    // The four mx scales of a round's rows, in one store where they lie together.
    template <class Thread>
    OCTET_GPU static void store_codes(Thread& t, const Params& p, const Strip& a, i32 round, u32 codes) {
        if (!a.casts || t.thread() % 4 != 0) return;
        const ScaleOut& out = p.operand[a.operand].column_scale;
        const i64 first = a.padded_begin / 32 + i64{4} * round;
        u8* to = out.mx + place(out.scale_stride, 0, a.column, first);
        const i32 count = at_most(4, (a.padded_rows - round * 128) / 32);
        if (count == 4 && out.scale_stride[2] == 1 && reinterpret_cast<u64>(to) % 4 == 0) {
            t.store(reinterpret_cast<u32*>(to), codes);
            return;
        }
        for (i32 i = 0; i < count; ++i) t.store(to + i * out.scale_stride[2], static_cast<u8>(codes >> (8 * i)));
    }

    // ---- writing

    template <class Thread>
    OCTET_GPU static Vec16 encode(Thread& t, const Column& x, float scale) {
        const auto element = [&](int r) {
            if constexpr (In::words == 4)
                return std::bit_cast<float>(r & 1 ? x.word[r >> 1] & 0xFFFF0000u : x.word[r >> 1] << 16) * scale;
            else
                return std::bit_cast<float>(x.word[r]) * scale;
        };
        Vec16 out;
        OCTET_UNROLL
        for (int w = 0; w < 4; ++w)
            out.word[w] =
                t.template encode4<Codec>(element(4 * w), element(4 * w + 1), element(4 * w + 2), element(4 * w + 3));
        return out;
    }

    template <class Thread>
    OCTET_GPU static void store(Thread& t, const Strip& a, i32 i, Vec16 v) {
        const i32 first = i * step + 16 * (t.thread() % 4);
        const i32 real = a.rows - first, room = a.padded_rows - first;
        if (room <= 0 || !a.casts) return;
        if (real < 16) v = first_bytes(v, real);  // padding is zero bytes, whatever zero times the scale is
        u8* to = a.data + i * step;
        if (a.wide && room >= 16)
            t.store16(to, v);
        else
            store_sixteen_by_bytes(t, to, v, room);
    }
};

}  // namespace octet::gpu
