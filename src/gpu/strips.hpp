// Quantizes groups of few rows along their columns (transposed), x[M, K] -> data[K, P], with one scale a column and
// group, or one for each 128 or 32 rows; and x along its rows beside it, where that is asked for.
//
// A block takes a strip of 64 columns of one group, all of its rows: nobody else has a part in its maxima, so there is
// nothing to exchange, no memory to clear and no plan, and a small tensor is one launch. Rows are brought to shared
// memory, 64 at a step; then every unit reads its eight columns of a step transposed, 16 rows a thread, which are one
// store. One scale a group: the maxima are found as rows land, and a block that holds all of them meets two barriers.
//
// Groups are short on average, which is all that the host knows, but one may be most of the tensor. Long groups are
// left to blocks that come first and mostly find none: with one scale a group these take strips of 16 columns, so that
// there are more of them, else 512 rows each. So nothing is exchanged for them either.
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
    u32 strips = 0;                // of both operands
    u32 long_blocks = 0;           // the first ones take long groups, whose items `tiling` says; then a block a strip,
    u32 first_row_block = 0;       // and then rows
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
    // A long group's item: all rows of few columns, or some rows of a strip.
    static constexpr i32 most_rows = 1024;  // of a group that is not long
    static constexpr int long_columns = block == 0 ? 16 : columns;
    static constexpr int long_doublings = block == 0 ? 23 : 2;
    static constexpr i32 long_rows = tile_rows << long_doublings, all_rows = 1 << 30;
    using Rows = RowsKernel<In, Codec, scaling, In::words == 4 ? 8 : 4, threads>;

    struct Shared {
        Vec16 slot[slots][static_cast<u32>(In::pieces)][static_cast<u32>(step * across)];
        alignas(16) typename In::Element peak[static_cast<u32>(units)][static_cast<u32>(columns)];  // of a unit's rows
        u32 sums[static_cast<u32>(units)];
        typename Rows::Shared rows;
        PlanKernel::Shared plan;
        Span span;  // of the long group that an item is of
        i64 group;
        u32 items;  // of all long groups
    };

    template <class Thread>
    OCTET_GPU static void run(Thread& t, const Params& p, Shared& s) {
        if constexpr (with_rows)
            if (t.block() >= p.first_row_block)
                return Rows::cast(t, p.along_rows, s.rows, t.block() - p.first_row_block);
        const bool long_ones = t.block() < p.long_blocks;
        if constexpr (block == 0) {
            if (long_ones)
                take_long_groups(t, p, s);
            else
                take_group(t, p, s);
        } else {
            take_blocks(t, p, s, long_ones);
        }
        // Launched later, it has begun beside a product, and is not to end before it (columns_by_peaks.hpp).
        if (t.block() == t.blocks() - 1) t.await_earlier();
    }

private:
    // Some rows of one group, of so many columns. A step is 64 rows of 64 columns, or 256 rows of 16: then the four
    // times 64 rows lie beside each other in shared memory as columns would.
    template <int columns_>
    struct Strip {
        static constexpr int width = columns_, eights = width / 8;
        static constexpr i32 step_rows = step * (across / eights);
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

        // The thread's first rows of a step, as it brings and writes them.
        template <class Thread>
        OCTET_GPU static i32 brings(Thread& t) {
            return t.thread() % across / eights * step + t.thread() / across;
        }
        template <class Thread>
        OCTET_GPU static i32 writes(Thread& t) {
            return t.thread() / unit / eights * step + 16 * (t.thread() % 4);
        }
    };

    template <class Thread>
    OCTET_GPU static void take_group(Thread& t, const Params& p, Shared& s) {
        const u32 item = t.block() - p.long_blocks, group = item / p.strips;
        const Span span = find_span<threads>(t, p, group, s.sums);
        if (span.rows > most_rows) return;
        cast_group(t, p, s, rows_of<columns>(t, p, group, span, item % p.strips, 0, all_rows));
    }
    template <class Thread>
    OCTET_GPU static void take_long_groups(Thread& t, const Params& p, Shared& s) {
        OCTET_ROLLED
        for (u32 item = t.block(); find_item(t, p, s, item); item += p.long_blocks) {
            const Span span = t.load_shared(&s.span);
            cast_group(t, p, s,
                       rows_of<long_columns>(t, p, t.load_shared(&s.group), span, item - span.first_item, 0, all_rows));
        }
    }
    // Either, in one loop: a second copy of what it does takes registers.
    template <class Thread>
    OCTET_GPU static void take_blocks(Thread& t, const Params& p, Shared& s, bool long_ones) {
        u32 item = long_ones ? t.block() : t.block() - p.long_blocks;
        OCTET_ROLLED
        do {
            if (long_ones && !find_item(t, p, s, item)) return;
            const u32 from = long_ones ? t.load_shared(&s.span.first_item) : 0u, part = (item - from) / p.strips;
            const Span span = long_ones ? t.load_shared(&s.span) : find_span<threads>(t, p, part, s.sums);
            if (!long_ones && span.rows > most_rows) return;
            cast_blocks(
                t, p, s,
                rows_of<columns>(t, p, long_ones ? t.load_shared(&s.group) : part, span, (item - from) % p.strips,
                                 long_ones ? static_cast<i32>(part) * long_rows : 0, long_ones ? long_rows : all_rows));
            item += p.long_blocks;
        } while (long_ones);
    }

    // Looks for the long group that an item is of. Returns whether there is one.
    template <class Thread>
    OCTET_GPU static bool find_item(Thread& t, const Params& p, Shared& s, u32 item) {
        PlanKernel::for_spans<threads>(t, p, s.plan, [&](i64 g, const Span& span) {
            if (g > p.groups) {
                t.store_shared(&s.items, span.first_item);
            } else if (item - span.first_item < p.tiling.items(span.rows, g < p.groups)) {
                t.store_shared(&s.span, span);
                t.store_shared(&s.group, g);
            }
        });
        t.barrier();
        return item < t.load_shared(&s.items);
    }

    // `most` rows from row0 on, padding included, or those that are left, of one of the group's strips.
    template <int width, class Thread>
    OCTET_GPU static Strip<width> rows_of(Thread& t, const Params& p, i64 group, const Span& span, u32 strip, i32 row0,
                                          i32 most) {
        Strip<width> a;
        a.group = group;
        const u32 first_ones = static_cast<u32>(p.operand[0].columns + width - 1) / width;
        a.operand = strip >= first_ones;
        const TileOperand& o = p.operand[a.operand];
        const i32 column0 = static_cast<i32>(strip - (a.operand ? first_ones : 0)) * width;
        const int eight = t.thread() % across % a.eights;
        a.left = at_most(width, o.columns - column0) - eight * 8;
        a.column = column0 + t.thread() / 4 % width;
        a.casts = a.column < o.columns;
        a.wide = o.columns % 8 == 0 && o.aligned && o.column_data_aligned;
        a.rows = at_most(most, span.rows - row0);
        a.padded_rows = at_most(most, p.tiling.padded(span.rows, true) - row0);
        a.padded_begin = span.padded_begin + static_cast<u32>(row0);
        a.stride = o.x_stride[1];
        a.x = static_cast<const typename In::Element*>(o.x) +
              (static_cast<i64>(span.position) + row0 + a.brings(t)) * a.stride + column0 + eight * 8;
        a.data = o.column_data + a.column * o.column_data_stride[1] + a.padded_begin + a.writes(t);
        return a;
    }

    template <int width, class Thread>
    OCTET_GPU static void cast_group(Thread& t, const Params& p, Shared& s, const Strip<width>& a) {
        const i32 steps = (a.rows + a.step_rows - 1) / a.step_rows;
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
        for (i32 i = steps; i * a.step_rows < a.padded_rows; ++i) store(t, a, i, Vec16{{0, 0, 0, 0}});  // padding alone
    }

    // 128 rows at a time: a block of 128, or four of 32.
    template <int width, class Thread>
    OCTET_GPU static void cast_blocks(Thread& t, const Params& p, Shared& s, const Strip<width>& a) {
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
    template <int width, class Thread>
    OCTET_GPU static void fetch(Thread& t, Shared& s, const Strip<width>& a, i32 i) {
        const i32 rows = a.rows - i * a.step_rows;
        if (rows <= 0) return;
        auto& to = s.slot[i % slots];
        OCTET_UNROLL
        for (int j = 0; j < copies; ++j) {
            constexpr int rows_at_once = threads / across;
            const auto* x = a.x + (static_cast<i64>(i) * a.step_rows + j * rows_at_once) * a.stride;
            const bool inside = a.brings(t) + j * rows_at_once < rows && a.left > 0;
            OCTET_UNROLL
            for (int piece = 0; piece < In::pieces; ++piece) {
                constexpr int elements = 8 / In::pieces;
                Vec16* at = &to[piece][place_of(t.thread() / across + j * rows_at_once, t.thread() % across)];
                if (a.wide)
                    t.template copy_async<Line::rest_soon>(at, x + piece * elements, inside);
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
    template <int width, class Thread>
    OCTET_GPU static float find_scale(Thread& t, const Params& p, Shared& s, const Strip<width>& a,
                                      Magnitudes<In>& peaks) {
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
        for (int beside = 0; beside < columns; beside += width) OCTET_UNROLL
        for (int u = 0; u < units; ++u) peak = larger(peak, t.load_shared(&s.peak[u][beside + t.thread() / 4 % width]));
        return make_scale<Codec, false>(t, In::words == 4 ? peak << 16 : peak, p.rule,
                                        p.operand[a.operand].column_scale, a.casts && a.writes(t) == 0, a.group,
                                        a.column, 0);
    }

    // The four mx scales of a round's rows, in one store where they lie together.
    template <int width, class Thread>
    OCTET_GPU static void store_codes(Thread& t, const Params& p, const Strip<width>& a, i32 round, u32 codes) {
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

    template <int width, class Thread>
    OCTET_GPU static void store(Thread& t, const Strip<width>& a, i32 i, Vec16 v) {
        const i32 first = i * a.step_rows + a.writes(t);
        const i32 real = a.rows - first, room = a.padded_rows - first;
        if (room <= 0 || !a.casts) return;
        if (real < 16) v = first_bytes(v, real);  // padding is zero bytes, whatever zero times the scale is
        u8* to = a.data + i * a.step_rows;
        if (a.wide && room >= 16)
            t.store16(to, v);
        else
            store_sixteen_by_bytes(t, to, v, room);
    }
};

}  // namespace octet::gpu
