// Quantizes groups of few rows along their columns (transposed), x[M, K] -> data[K, P], with one scale a column and
// group, or one for each 128 or 32 rows; and x along its rows beside it, where that is asked for.
//
// A block takes a strip of 64 columns of one group, all of its rows: nobody else has a part in its maxima, so there is
// nothing to exchange, no memory to clear and no plan, and a small tensor is one launch. Rows are brought to shared
// memory, 64 at a step, as soon as the group's own two offsets are there: where its padded rows go, which depends on
// all groups before it, is worked out while they come. Then every unit reads its eight columns of two steps transposed,
// 16 rows of either a thread, and stores them in lines of 128 bytes. One scale a group: the maxima are found as rows
// land, and a block that holds all of them meets two barriers.
//
// Where blocks do not all begin at once, those that begin last should have little to do: the last groups are taken in
// an order that another kernel makes while the first ones run (RankKernel of plan.hpp).
//
// Groups are short on average, which is all that the host knows, but one may be most of the tensor. Long groups are
// left to blocks that come first and mostly find none: with one scale a group these take strips of 32 or 16 columns, so
// that there are more of them, else 512 rows each. So nothing is exchanged for them either.
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
    u32 narrow = 0;                // long groups' strips are narrow, so that there are enough of them
    u32 unranked = ~0u;            // groups before this one are taken as they come, the others in the plan's order
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
    static constexpr int narrow_columns = block == 0 ? 16 : columns;
    static constexpr int long_columns = block == 0 && !with_rows ? 32 : narrow_columns;  // with rows: no registers
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
        if (t.block() >= p.long_blocks)
            take_group(t, p, s);
        else if (narrow_columns != long_columns && p.narrow)
            take_long_groups<narrow_columns>(t, p, s);
        else
            take_long_groups<long_columns>(t, p, s);
        // Launched later, it has begun beside a product, and is not to end before it (columns_by_peaks.hpp).
        if (t.block() == t.blocks() - 1) t.await_earlier();
    }

private:
    // Some rows of one group, of so many columns, as a thread sees them. A step is 64 rows of 64 columns, or 128 rows
    // of 32, or 256 of 16: then the times 64 rows lie beside each other in shared memory as columns would.
    template <int columns_>
    struct Strip {
        static constexpr int width = columns_, eights = width / 8;
        static constexpr i32 step_rows = step * (across / eights);
        const typename In::Element* x;  // what the thread brings next: an eight of a row, and one 32 rows on
        i64 stride;
        i32 left;        // columns that the strip has, from the first that the thread brings on
        i32 to_bring;    // rows from the first that the thread brings on
        i32 brings;      // of a step, the first row
        u32 place;       // in a slot
        i32 wide;        // read and written in wide pieces
        i32 whole;       // so, and the strip has all of its columns
        u8* data;        // what it writes first: 16 rows of one column
        i32 writes;      // of a step, the first row
        i32 has_column;  // the strip has it
        i32 real;        // rows from the first that it writes on,
        i32 room;        // and padding included; none where the strip does not have the column
        i32 rows, padded_rows;
        i32 operand, column;  // the one that the thread casts
        i64 group;
        u32 padded_begin;
    };

    template <class Thread>
    OCTET_GPU static void take_group(Thread& t, const Params& p, Shared& s) {
        const u32 item = t.block() - p.long_blocks, group = item / p.strips, strip = item - group * p.strips;
        if (group >= p.unranked) return take_ranked(t, p, s, group - p.unranked, strip);
        const AskedSpan asked = ask_span(t, p, group);
        Strip<columns> a = strip_of<columns>(t, p, group, strip);
        const i32 likely_rows = asked.likely(p.rows) ? asked.end - asked.begin : all_rows;
        const bool early = likely_rows <= most_rows;
        if (early) send_first(t, s, a, asked.begin, likely_rows);
        const Span span = place_span<threads>(t, p, group, asked, s.sums);
        if (span.rows > most_rows) return;
        if (!early || span.position != static_cast<u32>(asked.begin) || span.rows != likely_rows) {
            t.template await_copies<0>();
            a = strip_of<columns>(t, p, group, strip);
            send_first(t, s, a, span.position, span.rows);
        }
        set_place(p, a, span, 0, all_rows);
        cast(t, p, s, a);
    }
    template <class Thread>
    OCTET_GPU static void take_ranked(Thread& t, const Params& p, Shared& s, u32 rank, u32 strip) {
        t.await_earlier();
        const Span span = std::bit_cast<Span>(t.load_made(reinterpret_cast<const Vec16*>(p.plan.span + rank)));
        if (span.rows > most_rows) return;
        Strip<columns> a = strip_of<columns>(t, p, span.first_item, strip);
        send_first(t, s, a, span.position, span.rows);
        set_place(p, a, span, 0, all_rows);
        cast(t, p, s, a);
    }
    template <int width, class Thread>
    OCTET_GPU static void take_long_groups(Thread& t, const Params& p, Shared& s) {
        OCTET_ROLLED
        for (u32 item = t.block(); find_item(t, p, s, item); item += p.long_blocks) {
            const Span span = t.load_shared(&s.span);
            const u32 of_group = item - span.first_item, part = block == 0 ? 0 : of_group / p.strips;
            auto a = strip_of<width>(t, p, t.load_shared(&s.group), of_group - part * p.strips);
            const i32 row0 = static_cast<i32>(part) * long_rows, most = block == 0 ? all_rows : long_rows;
            send_first(t, s, a, static_cast<i64>(span.position) + row0, at_most(most, span.rows - row0));
            set_place(p, a, span, row0, most);
            cast(t, p, s, a);
        }
    }
    template <int width, class Thread>
    OCTET_GPU static void cast(Thread& t, const Params& p, Shared& s, const Strip<width>& a) {
        if constexpr (block == 0)
            cast_group(t, p, s, a);
        else
            cast_blocks(t, p, s, a);
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

    // One of a group's strips, whose rows are not known yet.
    template <int width, class Thread>
    OCTET_GPU static Strip<width> strip_of(Thread& t, const Params& p, i64 group, u32 strip) {
        Strip<width> a;
        a.group = group;
        const u32 first_ones = static_cast<u32>(p.operand[0].columns + width - 1) / width;
        a.operand = strip >= first_ones;
        const TileOperand& o = p.operand[a.operand];
        const i32 column0 = static_cast<i32>(strip - (a.operand ? first_ones : 0)) * width;
        a.wide = o.columns % 8 == 0 && o.aligned && o.column_data_aligned;
        a.whole = a.wide && o.columns - column0 >= width;
        const u32 me = static_cast<u32>(t.thread()), eight = me % across;
        const i32 first = static_cast<i32>(eight % a.eights) * 8;
        a.brings = static_cast<i32>(eight / a.eights * step + me / across);
        a.place = place_of(me / across, eight);
        if (block == 0) a.place = t.keep(a.place);  // the others have no registers to spare
        a.left = at_most(width, o.columns - column0) - first;
        a.stride = o.x_stride[1];
        a.x = static_cast<const typename In::Element*>(o.x) + a.brings * a.stride + column0 + first;
        a.writes = static_cast<i32>(me / unit / a.eights * step + me % 4 * 16);
        a.column = column0 + static_cast<i32>(me / 4 % width);
        a.data = o.column_data + a.column * o.column_data_stride[1] + a.writes;
        a.has_column = a.column < o.columns;
        return a;
    }
    // So many rows from row0 of x on are its rows: sends for as many as there are slots for, step by step, or two at a
    // time.
    template <int width, class Thread>
    OCTET_GPU static void send_first(Thread& t, Shared& s, Strip<width>& a, i64 row0, i32 rows) {
        a.rows = rows;
        a.to_bring = a.left > 0 ? rows - a.brings : 0;
        a.x += row0 * a.stride;
        OCTET_ROLLED
        for (int slot = 0; slot < slots; ++slot) {
            if (slot * a.step_rows < rows) fetch(t, s, a, slot);
            if (block == 0 || slot % 2 == 1) t.commit_copies();
        }
    }
    // Where they go: `most` of the group's padded rows from its row0 on, or those that are left.
    template <int width>
    OCTET_GPU static void set_place(const Params& p, Strip<width>& a, const Span& span, i32 row0, i32 most) {
        a.padded_rows = at_most(most, p.tiling.padded(span.rows, true) - row0);
        a.padded_begin = span.padded_begin + static_cast<u32>(row0);
        a.real = a.rows - a.writes;
        a.room = a.has_column ? a.padded_rows - a.writes : 0;
        a.data += a.padded_begin;
    }
    // Whether the thread is the one that writes its column's scales.
    template <int width, class Thread>
    OCTET_GPU static bool writes_scale(Thread& t, const Strip<width>& a) {
        const u32 me = static_cast<u32>(t.thread());
        return me % 4 == 0 && me / unit < static_cast<u32>(a.eights) && a.has_column;
    }

    template <int width, class Thread>
    OCTET_GPU static void cast_group(Thread& t, const Params& p, Shared& s, Strip<width> a) {
        const i32 steps = (a.rows + a.step_rows - 1) / a.step_rows;
        Magnitudes<In> peaks{};
        int slot = 0;
        OCTET_ROLLED
        for (i32 i = 0; i < steps; ++i, slot = next(slot)) {
            t.template await_copies<slots - 1>();
            find_peaks(t, s, a, slot, peaks);
            if (i + slots < steps) fetch(t, s, a, slot);
            t.commit_copies();
        }
        const float scale = find_scale(t, p, s, a, peaks);
        const auto encoded = [&](int from) { return encode(t, load_column(t, s, from), scale); };
        const Vec16 none{{0, 0, 0, 0}};

        if (steps <= slots) {
            OCTET_ROLLED
            for (i32 i = 0; i * a.step_rows < a.padded_rows; i += 2)
                store_two(t, p, a, i * a.step_rows, i < steps ? encoded(i) : none,
                          i + 1 < steps ? encoded(i + 1) : none);
            return;
        }
        // The last steps are there, and the others come again as slots fall empty.
        const i32 again = steps - slots;
        begin_again(a, steps);
        OCTET_ROLLED
        for (i32 i = 0; i < steps; ++i, slot = next(slot)) {
            t.template await_copies<slots - 2>();
            t.barrier();
            if (0 < i && i <= again) fetch(t, s, a, slot == 0 ? slots - 1 : slot - 1);
            t.commit_copies();
            store(t, a, (i < slots ? i + again : i - slots) * a.step_rows, encoded(slot));
        }
        OCTET_ROLLED
        for (i32 row = steps * a.step_rows; row < a.padded_rows; row += a.step_rows) store(t, a, row, none);
    }

    // 128 rows at a time: a block of 128, or four of 32.
    template <int width, class Thread>
    OCTET_GPU static void cast_blocks(Thread& t, const Params& p, Shared& s, Strip<width> a) {
        static_assert(slots % 2 == 0, "two a round");
        // Four neighbours have a column: each keeps the scales of a fourth round, and writes them beside the others'.
        u32 kept = 0;  // four mx codes, or the maximum
        const auto fetch_round = [&](int slot, i32 row) {
            if (row < a.rows) {
                fetch(t, s, a, slot);
                fetch(t, s, a, slot + 1);
            }
            t.commit_copies();
        };
        int slot = 0;
        OCTET_ROLLED
        for (i32 row = 0; row < a.padded_rows; row += 128) {
            if (row == 0)
                t.template await_copies<slots / 2 - 1>();
            else
                t.template await_copies<1>();  // all but the ones sent for in the round before
            t.barrier();
            fetch_round(slot == 0 ? slots - 2 : slot - 2, row > 0 ? row + 256 : a.rows);
            Column x[2];
            u32 peak[2];
            OCTET_UNROLL
            for (int half = 0; half < 2; ++half) {
                x[half] = row + half * step < a.rows ? load_column(t, s, slot + half) : Column{};
                u32 word = 0;
                OCTET_UNROLL
                for (int w = 0; w < column_words; ++w)
                    word = magnitude_max<In>(t, word, magnitude_of<In>(x[half].word[w]));
                peak[half] = f32_bits_of<In>(fold_lanes < In, mx ? 2 : 4 > (t, word));
            }
            float scale[2];
            if constexpr (mx) {
                const u32 code0 = mx_scale_of_bits<Codec>(peak[0], p.rule.mx_mode),
                          code1 = mx_scale_of_bits<Codec>(peak[1], p.rule.mx_mode);
                // Of the thread's 32 rows in either half, and of the 32 beside them.
                const u32 mine = code0 | code1 << 16, four = mine | t.shuffle_xor(mine, 2) << 8;
                const u32 whole = t.shuffle(four, t.thread() % unit / 4 * 4);
                if (row / 128 % 4 == t.thread() % 4) kept = whole;
                scale[0] = mx_multiplier_of(static_cast<u8>(code0));
                scale[1] = mx_multiplier_of(static_cast<u8>(code1));
            } else {
                const u32 both = larger(peak[0], peak[1]);
                scale[0] = scale[1] = scale_of_bits<Codec>(both, p.rule.rounding);
                if (row / 128 % 4 == t.thread() % 4) kept = both;
            }
            store_two(t, p, a, row, encode(t, x[0], scale[0]), encode(t, x[1], scale[1]));
            if ((row / 128 % 4 == 3 || row + 128 >= a.padded_rows) && a.has_column)
                store_kept(t, p, a, row / 512 * 4 + t.thread() % 4, kept);
            slot = slot == slots - 2 ? 0 : slot + 2;
        }
    }

    // ---- reading

    OCTET_GPU static int next(int slot) { return slot == slots - 1 ? 0 : slot + 1; }

    // Where an eight lies in a slot: so that neither eights of one row meet in a bank, nor those of one column that are
    // read across at once, which are of two rows in each 16.
    OCTET_GPU static u32 place_of(u32 row, u32 eight) {
        static_assert(across == 8 && step == 64);
        return row * across + (eight ^ (row / 16 * 2 + row % 2));
    }
    // Of the eights that a thread brings: the second one is of 32 rows on.
    OCTET_GPU static u32 place_to_bring(u32 first, int j) {
        static_assert(copies == 2 && threads / across == 32);
        return j == 0 ? first : (first ^ 4) + 32 * across;
    }

    // Sends for the next step of a strip.
    template <int width, class Thread>
    OCTET_GPU static void fetch(Thread& t, Shared& s, Strip<width>& a, int slot) {
        if (a.wide) {
            OCTET_UNROLL
            for (int j = 0; j < copies; ++j) OCTET_UNROLL
            for (int piece = 0; piece < In::pieces; ++piece)
                t.template copy_async<Line::rest_soon>(&s.slot[slot][piece][place_to_bring(a.place, j)],
                                                       a.x + j * 32 * a.stride + piece * elements, a.to_bring > j * 32);
        } else {
            fetch_parts(t, s.slot[slot], a.place, a.x, a.stride, a.to_bring, a.left);
        }
        a.x += a.step_rows * a.stride;
        a.to_bring -= a.step_rows;
    }
    static constexpr int elements = 8 / In::pieces;  // of 16 bytes
    template <class Thread>
    OCTET_GPU_RARE static void fetch_parts(Thread& t, Vec16 (*slot)[static_cast<u32>(step * across)], u32 place,
                                           const typename In::Element* x, i64 stride, i32 rows, i32 left) {
        for (int j = 0; j < copies; ++j)
            for (int piece = 0; piece < In::pieces; ++piece) {
                const Eight<In> some = load_some<In>(t, x + j * 32 * stride + piece * elements,
                                                     rows > j * 32 ? at_most(elements, left - piece * elements) : 0);
                t.store_shared(&slot[piece][place_to_bring(place, j)],
                               Vec16{{some.word[0], some.word[1], some.word[2], some.word[3]}});
            }
    }
    // From the first step on, after so many.
    template <int width>
    OCTET_GPU static void begin_again(Strip<width>& a, i32 after) {
        a.x -= static_cast<i64>(after) * a.step_rows * a.stride;
        a.to_bring += after * a.step_rows;
    }

    // 16 rows of the thread's column.
    static constexpr int column_words = In::words * 2;
    struct Column {
        u32 word[static_cast<u32>(column_words)];
    };
    template <class Thread>
    OCTET_GPU static Column load_column(Thread& t, Shared& s, int number) {
        const u32 me = static_cast<u32>(t.thread()), eight = me / unit;
        const auto& slot = s.slot[number];
        Column x;
        if constexpr (In::words == 4) {
            // Matrix j of a half brings rows 2j and 2j + 1 of each 16; the other half is of 8 rows on.
            OCTET_UNROLL
            for (u32 half = 0; half < 2; ++half) {
                u32 words[4];
                t.load_transposed(
                    [&](int lane) {
                        const u32 l = static_cast<u32>(lane);
                        return &slot[0][place_of(l % 8 / 2 * 16 + l / 8 * 2 + l % 2, eight) + half * 8 * across];
                    },
                    words);
                OCTET_UNROLL
                for (u32 w = 0; w < 4; ++w) x.word[4 * half + w] = words[w];
            }
        } else {
            const u32 column = me / 4 % 8;
            OCTET_UNROLL
            for (u32 r = 0; r < 16; ++r)
                x.word[r] = t.load_shared(&slot[column / 4][place_of(me % 4 * 16 + r, eight)].word[column % 4]);
        }
        return x;
    }

    // ---- maxima and scales

    // Of what the thread itself brought.
    template <int width, class Thread>
    OCTET_GPU static void find_peaks(Thread& t, Shared& s, const Strip<width>& a, int slot, Magnitudes<In>& peaks) {
        OCTET_UNROLL
        for (int j = 0; j < copies; ++j) OCTET_UNROLL
        for (int piece = 0; piece < In::pieces; ++piece) {
            const Vec16 v = t.load_shared(&s.slot[slot][piece][place_to_bring(a.place, j)]);
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
        const u32 me = static_cast<u32>(t.thread());
        if (me % unit < across) {
            auto* to = reinterpret_cast<Vec16*>(&s.peak[me / unit][me % unit * 8]);
            OCTET_UNROLL
            for (int piece = 0; piece < In::pieces; ++piece) {
                Vec16 v;
                OCTET_UNROLL
                for (int w = 0; w < 4; ++w) v.word[w] = plain_magnitude<In>(peaks.word[4 * piece + w]);
                t.store_shared(to + piece, v);
            }
        }
        t.barrier();
        u32 peak = 0;
        OCTET_UNROLL
        for (u32 beside = 0; beside < columns; beside += width) OCTET_UNROLL
        for (u32 u = 0; u < units; ++u) peak = larger(peak, t.load_shared(&s.peak[u][beside + me / 4 % width]));
        return make_scale<Codec, false>(t, In::words == 4 ? peak << 16 : peak, p.rule,
                                        p.operand[a.operand].column_scale, writes_scale(t, a), a.group, a.column, 0);
    }

    // The scales of a column's 128 rows.
    template <int width, class Thread>
    OCTET_GPU static void store_kept(Thread& t, const Params& p, const Strip<width>& a, i32 round, u32 kept) {
        const ScaleOut& out = p.operand[a.operand].column_scale;
        const u32 first = a.padded_begin / static_cast<u32>(block == 0 ? 1 : block);
        const i32 room = a.padded_rows - round * 128;
        if (room <= 0) return;
        if constexpr (mx) {
            u8* to = out.mx + place(out.scale_stride, 0, a.column, first + static_cast<u32>(round) * 4);
            if (out.scale_stride[2] == 1 && reinterpret_cast<u64>(to) % 4 == 0 && room >= 128)
                t.store(reinterpret_cast<u32*>(to), kept);
            else
                store_codes(t, to, out.scale_stride[2], kept, room / 32);
        } else {
            make_scale<Codec, false>(t, kept, p.rule, out, true, 0, a.column, first + static_cast<u32>(round));
        }
    }
    // The first `count` of four mx scales.
    template <class Thread>
    OCTET_GPU_RARE static void store_codes(Thread& t, u8* to, i64 apart, u32 codes, i32 count) {
        for (i32 i = 0; i < count && i < 4; ++i) t.store(to + i * apart, static_cast<u8>(codes >> (8 * i)));
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

    // Two steps, from `row` on. Threads of neighbouring columns exchange one of their two pieces, so that eight threads
    // store a line of one column, and not four its half: L2 is asked half as often.
    template <int width, class Thread>
    OCTET_GPU static void store_two(Thread& t, const Params& p, const Strip<width>& a, i32 row, Vec16 low, Vec16 high) {
        if (width != columns || !a.whole || a.padded_rows - row < 2 * step) {
            store(t, a, row, low);
            store(t, a, row + a.step_rows, high);
            return;
        }
        low = real_part(low, a.real - row);
        high = real_part(high, a.real - row - step);
        const bool odd = t.thread() & 4;  // and so is the column
        Vec16 first, second;
        OCTET_UNROLL
        for (int w = 0; w < 4; ++w) {
            const u32 other = t.shuffle_xor(odd ? low.word[w] : high.word[w], 4);
            first.word[w] = odd ? other : low.word[w];
            second.word[w] = odd ? high.word[w] : other;
        }
        const i64 stride = p.operand[a.operand].column_data_stride[1];
        u8* to = a.data + row + (odd ? step - stride : 0);
        t.store16(to, first);
        t.store16(to + stride, second);
    }
    // Padding is zero bytes, whatever zero times the scale is.
    OCTET_GPU static Vec16 real_part(Vec16 v, i32 real) {
        return real >= 16 ? v : real <= 0 ? Vec16{{0, 0, 0, 0}} : first_bytes(v, real);
    }

    // 16 rows, of the step that begins with `row`.
    template <int width, class Thread>
    OCTET_GPU static void store(Thread& t, const Strip<width>& a, i32 row, Vec16 v) {
        const i32 real = a.real - row, room = a.room - row;
        if (room <= 0) return;
        u8* to = a.data + row;
        if (real >= 16 && a.wide) {  // and so is room
            t.store16(to, v);
            return;
        }
        v = real_part(v, real);
        if (a.wide && room >= 16)
            t.store16(to, v);
        else
            store_sixteen_by_bytes(t, to, v, room);
    }
};

}  // namespace octet::gpu
