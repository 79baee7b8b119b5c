// Quantizes 128 x 128 tiles of x along their columns (transposed), and along their rows too where both are wanted and
// scales stay within a tile.
//
//   tokens   x[M, K] in groups of rows     column data [K, P], row data [M, K]
//   weights  w[E, N, K], a group an expert column data [E, K, N], row data [E, N, K]
//
// Bytes: x once, each output once, and x a second time for slabs that are split (plan.hpp). Bound by memory.
//
// A tile stays in registers from the read to the cast. A thread holds 8 columns of 4 consecutive rows, twice:
// converting four rows of a column gives a word that is already transposed, and shared memory only has to bring such
// words of one column together, 16 rows to a store. Word w of column c lies at w ^ 2*(c/8), so that neither the writes
// (8 columns apart) nor the 16-byte reads (along a column) meet in a bank.
//
// Where a scale is a whole group's column's, the tiles of a slab (plan.hpp) exchange maxima without a fence: each
// publishes its own as words that carry a mark, and reads those of the others as they come. More than 32 tiles fold
// their maxima into one place, count themselves in, and wait for the count.
//
// The next tile is on its way while this one is stored: a block knows its next item beforehand.
#pragma once

#include "gpu/eight.hpp"
#include "gpu/outputs.hpp"
#include "gpu/plan.hpp"

namespace octet::gpu {

enum class TileScales {
    slab,    // one a column of a group
    run128,  // 128 x 1 and 1 x 128
    run32,   // mx: 32 x 1 and 1 x 32
    square,  // 128 x 128, the same for both orientations
};

struct TileOperand {
    const void* x = nullptr;   // [groups, rows, columns]
    i64 x_stride[2] = {0, 0};  // group, row
    i32 columns = 0;
    u32 column_tiles = 0;
    i32 aligned = 0;                     // every row starts on 16 bytes
    i32 columns_wanted = 0;              // 0: along rows only
    u8* column_data = nullptr;           // [groups, columns, rows]
    i64 column_data_stride[2] = {0, 0};  // group, column
    ScaleOut column_scale;
    i32 column_data_aligned = 0;  // 16 rows of a column are one aligned store
};

struct TileParams {
    TileOperand operand[2];  // the second one is empty but in dual calls
    u8* row_data = nullptr;  // of the first operand: [groups, rows, columns], or null
    i64 row_data_stride[2] = {0, 0};
    ScaleOut row_scale;
    ScaleRule rule;
    i64 groups = 0;
    i64 columns_in_all = 0;  // of both operands
    u32 column_tiles = 0;    // of both operands
    u32 lead = 1;            // of split groups (plan.hpp)
    u32 neighbours = 0;      // tiles of a slab that may exchange maxima directly
    Plan plan;
};

template <class In_, class Codec_, TileScales scales, bool with_rows>
struct TilesKernel {
    using In = In_;
    using Codec = Codec_;
    using Params = TileParams;
    static constexpr int threads = 256;
    static constexpr int blocks_per_core = In::words == 4 ? 4 : 2;
    static constexpr int tile = 128;
    static constexpr int units = threads / unit;
    static constexpr bool mx = scales == TileScales::run32;
    static constexpr bool exchanges = scales == TileScales::slab;
    static_assert(!(exchanges && with_rows), "rows with a scale each are another kernel's");
    static constexpr int blocks_down = mx ? tile / 32 : 1;

    static constexpr int most_neighbours = 32;
    static constexpr u32 mark = In::words == 4 ? 0x80008000u : 0x80000000u;
    static constexpr int peak_vectors = tile * static_cast<int>(sizeof(typename In::Element)) / 16;  // of a tile

    enum class Visit : i32 {
        only,      // the tile knows its scales
        exchange,  // it reads the maxima of its slab's other tiles
        counted,   // it waits for the count of them
        first,     // of a split slab
        second,
    };

    struct Tile {
        i64 group;
        i64 begin, padded_begin;  // of the group (plan.hpp)
        i64 peaks;                // of Plan::tile_peaks: the slab's first tile
        i32 rows, padded_rows;
        i32 row0, column0;  // of the tile, within the group and its operand
        i32 operand;
        u32 row_tile;
        Visit kind;
        u32 slab, slab_items;  // tiles that hand in maxima
        i32 none;              // 1: there are no more
    };

    struct Shared {
        Vec16 transposed[tile][8];                                    // a column's 128 rows, in 16-row pieces
        typename In::Element column_peak[units][tile];                // a unit's 16 rows
        typename In::Element slab_peak[exchanges ? units : 1][tile];  // some tiles of the slab
        float column_scale[static_cast<u32>(blocks_down)][tile];
        alignas(16) u32 unit_peak[units];  // read in wide pieces, which must not reach into what is being written
        float square_scale;
        Tile work[2];  // the item in hand and the next: here, because registers are for elements
    };

    template <class Thread>
    OCTET_GPU static void run(Thread& t, const Params& p, Shared& s) {
        t.await_earlier();
        u32 item = t.block();
        if (t.thread() == 0) decode(t, p, item, s.work[0]);
        t.barrier();
        Eight<In> x[8];       // row 16 u + 8 (j/4) + 4 q + j%4
        bool stores = false;  // the tile before waits in shared memory
        for (int turn = 0;; turn ^= 1) {
            const Tile &at = s.work[turn], &before = s.work[turn ^ 1];
            const bool none = t.load_shared(&at.none);
            if (!none) load(t, p, t.borrow_shared(&at), place_of(t), x);
            t.barrier();
            if (stores) store_columns(t, p, s, t.borrow_shared(&before));
            if (none) return;
            t.barrier();
            if (t.thread() == 0) {  // while the elements are on their way
                item = exchanges ? item + t.blocks() : t.blocks() + t.atomic_add(p.plan.ticket, 1u);
                decode(t, p, item, s.work[turn ^ 1]);
            }
            stores = cast(t, p, s, t.borrow_shared(&at), place_of(t), x);
        }
    }

private:
    struct Place {  // of a thread within its tile: rows 16 u + 8 i + 4 q + r, columns 8 c ...
        int thread, u, q, c;
    };
    template <class Thread>
    OCTET_GPU static Place place_of(Thread& t) {
        const int thread = t.thread_again();
        return {thread, thread / unit, thread / 16 % 2, thread % 16};
    }

    // Field by field into shared memory: registers are full of elements.
    template <class Thread>
    OCTET_GPU static void decode(Thread& t, const Params& p, u32 item, Tile& to) {
        const u32 items = t.load(p.plan.first_item + p.groups + 1);
        t.store_shared(&to.none, item >= items);
        if (item >= items) return;
        const i64 index = find_item(t, p.plan.first_item, p.groups + 1, item);
        const u32 local = item - t.load(p.plan.first_item + index);
        const Group* group = p.plan.group + index;
        t.store_shared(&to.group, index);
        t.store_shared(&to.begin, t.load(&group->begin));
        t.store_shared(&to.padded_begin, t.load(&group->padded_begin));
        const i32 rows = t.load(&group->rows);
        t.store_shared(&to.rows, rows);
        t.store_shared(&to.padded_rows, t.load(&group->padded_rows));
        const u32 across = p.column_tiles;
        u32 row_tile = local / across, column_tile = local % across, slab_items = 0;
        Visit kind = Visit::only;
        if constexpr (exchanges) {
            const u32 down = t.load(&group->row_tiles);
            const auto order = static_cast<GroupOrder>(t.load(&group->order));
            if (order != GroupOrder::once) {
                column_tile = local / down;  // a slab's tiles one after another
                row_tile = local % down;
            }
            slab_items = static_cast<u32>((rows + tile - 1) / tile);  // those of padding alone stay out of it
            if (order == GroupOrder::fused && row_tile < slab_items)
                kind = slab_items <= p.neighbours ? Visit::exchange : Visit::counted;
            if (order == GroupOrder::split) {
                // `lead` first slabs, then one second slab after each further first one.
                const u32 lead = p.lead < across ? p.lead : across;
                const u32 turn = column_tile < lead ? 0 : column_tile - lead;
                const bool paired = turn < 2 * (across - lead);
                kind = column_tile < lead || (paired && turn % 2 == 0) ? Visit::first : Visit::second;
                if (column_tile >= lead)
                    column_tile = !paired ? turn - (across - lead) : kind == Visit::first ? lead + turn / 2 : turn / 2;
                if (kind == Visit::second && row_tile >= slab_items) kind = Visit::only;
            }
        }
        t.store_shared(&to.kind, kind);
        t.store_shared(&to.slab, static_cast<u32>(index) * across + column_tile);
        t.store_shared(&to.slab_items, slab_items);
        // Groups share no tile if each starts where it would after the rows before it, and one on for each group.
        t.store_shared(&to.peaks, peaks_of(p, t.load(&group->position) / tile + index, column_tile));
        const i32 operand = column_tile >= p.operand[0].column_tiles;
        t.store_shared(&to.operand, operand);
        t.store_shared(&to.row_tile, row_tile);
        t.store_shared(&to.row0, static_cast<i32>(row_tile) * tile);
        t.store_shared(&to.column0, static_cast<i32>(column_tile - (operand ? p.operand[0].column_tiles : 0)) * tile);
    }

    // ---- exchanging maxima

    // Casts a tile, its columns into s.transposed. Returns whether there are any.
    template <class Thread>
    OCTET_GPU static bool cast(Thread& t, const Params& p, Shared& s, const Tile& at, const Place& me,
                               const Eight<In> (&x)[8]) {
        find_scales(t, p, s, at, me, x);
        t.barrier();
        if (exchanges && at.kind == Visit::first) return false;
        if constexpr (with_rows) cast_rows(t, p, s, p.operand[at.operand], at, me, x);
        if (!p.operand[at.operand].columns_wanted || at.group >= p.groups) return false;
        cast_columns(t, s, place_of(t), x);
        return true;
    }

    // Leaves the scales of the tile's columns in s.column_scale.
    template <class Thread>
    OCTET_GPU static void find_scales(Thread& t, const Params& p, Shared& s, const Tile& at, const Place& me,
                                      const Eight<In> (&x)[8]) {
        const TileOperand& o = p.operand[at.operand];
        if constexpr (scales == TileScales::square) {
            scale_square(t, p, s, o, at, x);
        } else {
            if (!exchanges || at.kind < Visit::second) find_column_peaks(t, s.column_peak, me, x);
            t.barrier();
            if constexpr (exchanges) {
                if (at.kind == Visit::exchange) exchange(t, p, s, at, me);
                if (at.kind == Visit::counted || at.kind == Visit::first) hand_in(t, p, s, at, me);
                if (at.kind == Visit::first) return;
                if (at.kind == Visit::counted || at.kind == Visit::second) {
                    if (me.thread == 0) t.wait(p.plan.arrived + at.slab, at.slab_items);
                    t.barrier();
                }
            }
            scale_columns(t, p, s, o, at, me);
        }
    }

    OCTET_GPU static i64 peaks_of(const Params& p, i64 row_tile, u32 column_tile) {
        return (row_tile * p.column_tiles + column_tile) * peak_vectors;
    }

    // Leaves the slab's maxima in s.slab_peak.
    template <class Thread>
    OCTET_GPU static void exchange(Thread& t, const Params& p, Shared& s, const Tile& at, const Place& me) {
        publish(t, p, s.column_peak, at.peaks + peaks_of(p, at.row_tile, 0), me);
        Magnitudes<In> peaks{};
        gather(t, p.plan.tile_peaks + at.peaks, peaks_of(p, 1, 0), at.slab_items, me, peaks);
        store_column_peaks(t, s.slab_peak, me, peaks);
        t.barrier();
    }

    template <class Thread>
    OCTET_GPU static void publish(Thread& t, const Params& p, const typename In::Element (*peaks)[tile], i64 to,
                                  const Place& me) {
        const int word = me.thread;
        if (word >= peak_vectors * 4) return;
        u32 peak = 0;
        OCTET_UNROLL
        for (int u = 0; u < units; ++u)
            peak = magnitude_max<In>(t, peak, t.load_shared(reinterpret_cast<const u32*>(peaks[u]) + word));
        t.publish(p.plan.tile_peaks[to].word + word, peak | mark);
    }

    // Folds in the maxima of `count` tiles, the first 32 at most: sixteen at a time, by the threads' rows of 16.
    template <class Thread>
    OCTET_GPU static void gather(Thread& t, const Vec16* from, i64 step, u32 count, const Place& me,
                                 Magnitudes<In>& peaks) {
        constexpr int rounds = most_neighbours / (2 * units);
        const int mine = 2 * me.u + me.q, last = static_cast<int>(count);
        from += mine * step + me.c * In::pieces;
        Vec16 seen[static_cast<u32>(rounds)][static_cast<u32>(In::pieces)];
        OCTET_UNROLL
        for (int i = 0; i < rounds; ++i) {
            if (mine + 2 * units * i >= last) continue;
            OCTET_UNROLL
            for (int piece = 0; piece < In::pieces; ++piece)
                seen[i][piece] = t.load_fresh(from + 2 * units * i * step + piece);
        }
        OCTET_UNROLL
        for (int i = 0; i < rounds; ++i) {
            if (mine + 2 * units * i >= last) continue;
            OCTET_UNROLL
            for (int piece = 0; piece < In::pieces; ++piece) {
                const Vec16 v = t.until_marked(from + 2 * units * i * step + piece, seen[i][piece], mark);
                OCTET_UNROLL
                for (int w = 0; w < 4; ++w) {
                    u32& peak = peaks.word[piece * 4 + w];
                    peak = magnitude_max<In>(t, peak, magnitude_of<In>(v.word[w]));
                }
            }
        }
    }

    // Folds a tile's maxima into those of its group, and counts it in.
    template <class Thread>
    OCTET_GPU static void hand_in(Thread& t, const Params& p, Shared& s, const Tile& at, const Place& me) {
        if (at.row_tile >= at.slab_items) return;
        if (me.thread < tile && at.column0 + me.thread < p.operand[at.operand].columns)
            t.atomic_max(p.plan.column_amax + slot_of(p, at) + me.thread,
                         column_peak(t, s.column_peak, me.thread, 0, units));
        t.barrier();
        if (me.thread == 0) t.signal(p.plan.arrived + at.slab);
    }

    // ---- reading

    OCTET_GPU static int row_of(const Place& me, int j) { return 16 * me.u + 8 * (j / 4) + 4 * me.q + j % 4; }

    template <class Thread>
    OCTET_GPU static void load(Thread& t, const Params& p, const Tile& at, const Place& me, Eight<In> (&x)[8]) {
        const TileOperand& o = p.operand[at.operand];
        const auto* from = static_cast<const typename In::Element*>(o.x) + at.group * o.x_stride[0] +
                           (at.begin + at.row0 + row_of(me, 0)) * o.x_stride[1] + at.column0 + 8 * me.c;
        const i32 columns = o.columns - at.column0 - 8 * me.c, rows = at.rows - at.row0 - row_of(me, 0);
        if (o.aligned && columns >= 8) {
            OCTET_UNROLL
            for (int j = 0; j < 8; ++j) {
                const int row = 8 * (j / 4) + j % 4;
                x[j] = row < rows ? load_eight<In, Reuse::stream>(t, from + row * o.x_stride[1]) : zero_eight<In>();
            }
        } else {
            OCTET_UNROLL
            for (int j = 0; j < 8; ++j) {
                const int row = 8 * (j / 4) + j % 4;
                x[j] = row < rows && columns > 0 ? load_some<In>(t, from + row * o.x_stride[1], columns)
                                                 : zero_eight<In>();
            }
        }
    }

    // ---- maxima and scales

    template <class Thread>
    OCTET_GPU static void find_column_peaks(Thread& t, typename In::Element (*to)[tile], const Place& me,
                                            const Eight<In> (&x)[8]) {
        Magnitudes<In> peaks = magnitudes_of(x[0]);
        OCTET_UNROLL
        for (int j = 1; j < 8; ++j) fold(t, peaks, magnitudes_of(x[j]));
        store_column_peaks(t, to, me, peaks);
    }

    // Two neighbouring halves of a unit hold the same columns.
    template <class Thread>
    OCTET_GPU static void store_column_peaks(Thread& t, typename In::Element (*to)[tile], const Place& me,
                                             Magnitudes<In> peaks) {
        OCTET_UNROLL
        for (int i = 0; i < In::words; ++i)
            peaks.word[i] = magnitude_max<In>(t, peaks.word[i], t.shuffle_xor(peaks.word[i], 16));
        if (me.q != 0) return;
        OCTET_UNROLL
        for (int piece = 0; piece < In::pieces; ++piece) {
            Vec16 v;
            OCTET_UNROLL
            for (int i = 0; i < 4; ++i) v.word[i] = peaks.word[piece * 4 + i];
            t.store_shared(reinterpret_cast<Vec16*>(&to[me.u][8 * me.c]) + piece, v);
        }
    }

    OCTET_GPU static u32 element_bits(typename In::Element peak) {
        return In::words == 4 ? static_cast<u32>(peak) << 16 : static_cast<u32>(peak);
    }

    // f32 bits of a column's largest magnitude over the units [first, first + count).
    template <class Thread>
    OCTET_GPU static u32 column_peak(Thread& t, const typename In::Element (*peaks)[tile], int column, int first,
                                     int count) {
        u32 peak = 0;
        OCTET_UNROLL
        for (int u = 0; u < count; ++u) {
            const u32 other = t.load_shared(&peaks[first + u][column]);
            peak = other > peak ? other : peak;
        }
        return element_bits(static_cast<typename In::Element>(peak));
    }

    // Of column_amax: where the tile's first column is.
    OCTET_GPU static i64 slot_of(const Params& p, const Tile& at) {
        return at.group * p.columns_in_all + (at.operand ? p.operand[0].columns : 0) + at.column0;
    }

    template <class Thread>
    OCTET_GPU static void scale_columns(Thread& t, const Params& p, Shared& s, const TileOperand& o, const Tile& at,
                                        const Place& me) {
        const int thread = me.thread;
        if (thread >= tile) return;
        constexpr int reduction = mx ? 32 : tile;  // rows that share a scale, within the tile
        u32 codes = 0;                             // mx: the tile's four of a column, one store where they lie together
        const bool together = mx && o.column_scale.scale_stride[2] == 1 && at.row0 + tile <= at.padded_rows &&
                              (reinterpret_cast<u64>(o.column_scale.mx) +
                               static_cast<u64>(place(o.column_scale.scale_stride, at.group, at.column0 + thread,
                                                      (at.padded_begin + at.row0) / 32))) %
                                      4 ==
                                  0;
        OCTET_ROLLED
        for (int block = 0; block < blocks_down; ++block) {
            const int column = thread;
            const bool inside = at.group < p.groups && at.column0 + column < o.columns;
            u32 peak;
            if (exchanges && at.kind == Visit::exchange) {
                peak = column_peak(t, s.slab_peak, column, 0, units);
            } else if (exchanges && at.kind != Visit::only) {
                peak = inside ? t.load_fresh(p.plan.column_amax + slot_of(p, at) + column) : 0u;
            } else {
                peak = column_peak(t, s.column_peak, column, block * (reduction / 16), reduction / 16);
            }
            const i32 row = at.row0 + block * reduction;
            const bool wanted = inside && o.columns_wanted && (exchanges ? at.row_tile == 0 : row < at.padded_rows);
            const i64 inner = exchanges ? 0 : (at.padded_begin + row) / reduction;
            if constexpr (mx) {
                const u8 code = mx_scale_of<Codec>(std::bit_cast<float>(peak), p.rule.mx_mode);
                codes |= static_cast<u32>(code) << (8 * block);
                if (wanted && !together) store_mx_scale(t, o.column_scale, code, at.group, at.column0 + column, inner);
                t.store_shared(&s.column_scale[block][column], mx_multiplier(code));
            } else {
                t.store_shared(&s.column_scale[block][column],
                               make_scale<Codec, false>(t, peak, p.rule, o.column_scale, wanted, at.group,
                                                        at.column0 + column, inner));
            }
        }
        if (together && at.group < p.groups && at.column0 + thread < o.columns && o.columns_wanted)
            t.store(reinterpret_cast<u32*>(o.column_scale.mx + place(o.column_scale.scale_stride, at.group,
                                                                     at.column0 + thread,
                                                                     (at.padded_begin + at.row0) / 32)),
                    codes);
    }

    // One scale for the whole tile: expert, row block, column block, and the same the other way round.
    template <class Thread>
    OCTET_GPU static void scale_square(Thread& t, const Params& p, Shared& s, const TileOperand& o, const Tile& at,
                                       const Eight<In> (&x)[8]) {
        Magnitudes<In> peaks = magnitudes_of(x[0]);
        OCTET_UNROLL
        for (int j = 1; j < 8; ++j) fold(t, peaks, magnitudes_of(x[j]));
        u32 peak = fold_lanes<In, unit>(t, fold_across(t, peaks));
        if (t.thread() % unit == 0) t.store_shared(&s.unit_peak[t.thread() / unit], peak);
        t.barrier();
        OCTET_UNROLL
        for (int u = 0; u < units; ++u) peak = magnitude_max<In>(t, peak, t.load_shared(&s.unit_peak[u]));
        const i32 down = at.row0 / tile, across = at.column0 / tile;
        const float scale = make_scale<Codec, false>(t, f32_bits_of<In>(peak), p.rule, p.row_scale,
                                                     t.thread() == 0 && p.row_data != nullptr, at.group, down, across);
        if (t.thread() == 0) {
            if (o.columns_wanted) store_scale(t, o.column_scale, scale, at.group, across, down);
            t.store_shared(&s.square_scale, scale);
        }
    }

    // ---- writing

    template <class Thread>
    OCTET_GPU static void cast_rows(Thread& t, const Params& p, Shared& s, const TileOperand& o, const Tile& at,
                                    const Place& me, const Eight<In> (&x)[8]) {
        if (scales == TileScales::square && p.row_data == nullptr) return;
        constexpr int lanes = mx ? 4 : 16;
        u32 peaks[2];  // of this row and the next
        const i32 column = at.column0 + 8 * me.c;
        u8* data = p.row_data + at.group * p.row_data_stride[0] +
                   (at.begin + at.row0 + row_of(me, 0)) * p.row_data_stride[1] + column;
        OCTET_UNROLL
        for (int j = 0; j < 8; ++j) {
            const i32 row = at.row0 + row_of(me, j);
            const bool inside = row < at.rows && column < o.columns;
            float scale;
            if constexpr (scales == TileScales::square) {
                scale = t.load_shared(&s.square_scale);
            } else {
                if (j % 2 == 0)
                    peaks_of_two<In, lanes>(t, fold_across(t, magnitudes_of(x[j])),
                                            fold_across(t, magnitudes_of(x[j + 1])), peaks);
                scale = make_scale<Codec, mx>(t, peaks[j % 2], p.rule, p.row_scale, inside && me.c % lanes == 0,
                                              at.group, at.begin + row, column / (lanes * 8));
            }
            if (inside)
                store_eight(t, data + (8 * (j / 4) + j % 4) * p.row_data_stride[1], encode_eight<Codec>(t, x[j], scale),
                            o.columns - column);
        }
    }

    template <class Thread>
    OCTET_GPU static void cast_columns(Thread& t, Shared& s, const Place& me, const Eight<In> (&x)[8]) {
        u32* words = &s.transposed[0][0].word[0];  // [128 columns][32 words of 4 rows]
        OCTET_UNROLL
        for (int k = 0; k < 8; ++k) {
            const int column = 8 * me.c + k;
            float scale;
            if constexpr (scales == TileScales::square)
                scale = t.load_shared(&s.square_scale);
            else
                scale = t.load_shared(&s.column_scale[mx ? me.u / 2 : 0][column]);
            OCTET_UNROLL
            for (int i = 0; i < 2; ++i) {
                const int word = (4 * me.u + 2 * i + me.q) ^ 2 * me.c;
                t.store_shared(words + column * 32 + word,
                               t.template encode4<Codec>(x[4 * i][k] * scale, x[4 * i + 1][k] * scale,
                                                         x[4 * i + 2][k] * scale, x[4 * i + 3][k] * scale));
            }
        }
    }

    template <class Thread>
    OCTET_GPU static void store_columns(Thread& t, const Params& p, Shared& s, const Tile& at) {
        const Place me = place_of(t);
        const TileOperand& o = p.operand[at.operand];
        const int piece = me.thread % 8;
        const i32 row = at.row0 + 16 * piece;
        const i32 room = at.padded_rows - row, real = at.rows - row;
        u8* data = o.column_data + at.group * o.column_data_stride[0] + at.padded_begin + row;
        OCTET_UNROLL
        for (int i = 0; i < 4; ++i) {
            const int column = me.thread / 8 + 32 * i, c = column / 8;
            if (at.column0 + column >= o.columns || room <= 0) continue;
            const Vec16 read = t.load_shared(&s.transposed[column][piece ^ (c / 2)]);
            Vec16 v;  // the swizzle's bit 1 swaps halves
            OCTET_UNROLL
            for (int w = 0; w < 4; ++w) v.word[w] = c & 1 ? read.word[w ^ 2] : read.word[w];
            if (real < 16) {  // padding is zero bytes, whatever zero times the scale is
                OCTET_UNROLL
                for (int w = 0; w < 4; ++w) {
                    const i32 bytes = real - 4 * w;
                    v.word[w] = bytes >= 4   ? v.word[w]
                                : bytes <= 0 ? 0u
                                             : v.word[w] & (0xFFFFFFFFu >> (32 - 8 * bytes));
                }
            }
            u8* to = data + (at.column0 + column) * o.column_data_stride[1];
            if (room >= 16 && o.column_data_aligned) {
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
