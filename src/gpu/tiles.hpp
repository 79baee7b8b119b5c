// Quantizes 128 x 128 tiles of x along their columns (transposed), and along their rows too where both are wanted.
//
//   tokens   x[M, K] in groups of rows     column data [K, P], row data [M, K]
//   weights  w[E, N, K], a group an expert column data [E, K, N], row data [E, N, K]
//
// Bytes: x once, each output once, and x a second time for groups that are visited twice (plan.hpp). Bound by memory.
//
// A tile stays in registers from the read to the cast. A thread holds 8 columns of 4 consecutive rows, twice:
// converting four rows of a column gives a word that is already transposed, and shared memory only has to bring such
// words of one column together, 16 rows to a store. Word w of column c lies at w ^ 2*(c/8), so that neither the writes
// (8 columns apart) nor the 16-byte reads (along a column) meet in a bank.
//
// Where a scale needs more than the tile (a whole group's column, a whole row), tiles fold their maxima into global
// memory, count themselves in, and wait for the count; a fused tile (plan.hpp) is held in registers while it waits.
// Nobody waits for ever: blocks take items in order, all run at once, a fused slab has no more tiles than there are
// blocks, and a block that holds a fused tile takes its next ticket after the wait.
#pragma once

#include "gpu/eight.hpp"
#include "gpu/outputs.hpp"
#include "gpu/plan.hpp"

namespace octet::gpu {

enum class TileScales {
    slab,    // one a column of a group, one a row
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
    i64 columns_in_all = 0;   // of both operands
    u32 column_tiles = 0;     // of both operands
    u32 lead = 1;             // of alternating groups (plan.hpp)
    i64 group_row_slots = 0;  // of row_amax, from one group's first row to the next's; 0 when rows count through
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
    static constexpr int blocks_down = mx ? tile / 32 : 1;

    static constexpr int chunk = tile;  // rows of a first item

    enum class Visit : i32 { only, fused, first, second };

    struct Tile {
        i64 group;
        i64 begin, padded_begin;  // of the group (plan.hpp)
        i32 rows, padded_rows;
        i32 row0, column0;  // of the tile or chunk, within the group and its operand
        i32 operand;
        u32 row_tile, column_tile;
        Visit kind;
        u32 slab, slab_items;  // first items that a second one waits for
        i32 none;              // 1: there are no more
    };

    struct Shared {
        Vec16 transposed[tile][8];                      // a column's 128 rows, in 16-row pieces
        typename In::Element column_peak[units][tile];  // a unit's 16 rows
        float column_scale[static_cast<u32>(blocks_down)][tile];
        float row_scale[tile];
        u32 unit_peak[units];
        Tile work[2];  // the item in hand and the next: here, because registers are for elements
    };

    template <class Thread>
    OCTET_GPU static void run(Thread& t, const Params& p, Shared& s) {
        if (t.thread() == 0) t.store_shared(&s.work[0], decode(t, p, t.atomic_add(p.plan.ticket, 1u)));
        t.barrier();
        for (int turn = 0; !t.load_shared(&s.work[turn].none); turn ^= 1) {
            visit(t, p, s, t.borrow_shared(&s.work[turn]), s.work[turn ^ 1]);
            t.barrier();
        }
    }

private:
    struct Place {  // of a thread within its tile: rows 16 u + 8 i + 4 q + r, columns 8 c ...
        int u, q, c;
    };

    template <class Thread>
    OCTET_GPU static Tile decode(Thread& t, const Params& p, u32 item) {
        Tile at{};
        at.none = item >= t.load(p.plan.first_item + p.groups + 1);
        if (at.none) return at;
        at.group = find_item(t, p.plan.first_item, p.groups + 1, item);
        u32 local = item - t.load(p.plan.first_item + at.group);
        const u32 across = p.column_tiles;
        u32 down = t.load(&p.plan.group[at.group].row_tiles);
        at.kind = Visit::only;
        at.row_tile = local / across;
        at.column_tile = local % across;
        if constexpr (exchanges) {
            auto order = static_cast<GroupOrder>(t.load(&p.plan.group[at.group].order));
            u32 chunks = t.load(&p.plan.group[at.group].row_chunks);
            const u32 mine = order == GroupOrder::lagged        ? chunks * across
                             : order == GroupOrder::alternating ? (chunks + down) * across
                                                                : down * across;
            if (local >= mine) {  // some group's second items, which follow this one's
                at.group = find_item(t, p.plan.second_item, p.groups + 1, item);
                down = t.load(&p.plan.group[at.group].row_tiles);
                chunks = t.load(&p.plan.group[at.group].row_chunks);
                // Backwards: what was read last is the likeliest to be in the cache still.
                local = down * across - 1 - (item - t.load(p.plan.second_item + at.group));
                at.row_tile = local / across;
                at.column_tile = local % across;
                at.kind = Visit::second;
            } else if (order == GroupOrder::fused) {
                at.kind = Visit::fused;
                if constexpr (!with_rows) {  // a slab's tiles one after another
                    at.column_tile = local / down;
                    at.row_tile = local % down;
                }
                chunks = down;
            } else if (order == GroupOrder::lagged) {
                at.kind = Visit::first;
            } else if (order == GroupOrder::alternating) {
                // `lead` first slabs, then one second slab after each further first one.
                const u32 lead = p.lead < across ? p.lead : across, both = chunks + down;
                u32 slab;
                if (local < lead * chunks) {
                    slab = local / chunks;
                    at.row_tile = local % chunks;
                    at.kind = Visit::first;
                } else if ((local -= lead * chunks) < (across - lead) * both) {
                    slab = local / both;
                    at.row_tile = local % both;
                    at.kind = at.row_tile < chunks ? Visit::first : Visit::second;
                    if (at.kind == Visit::first)
                        slab += lead;
                    else
                        at.row_tile -= chunks;
                } else {
                    local -= (across - lead) * both;
                    slab = across - lead + local / down;
                    at.row_tile = local % down;
                    at.kind = Visit::second;
                }
                at.column_tile = slab;
            }
            at.slab = with_rows ? static_cast<u32>(at.group) : static_cast<u32>(at.group) * across + at.column_tile;
            at.slab_items = with_rows ? chunks * across : chunks;
        }
        const Group* group = p.plan.group + at.group;
        at.begin = t.load(&group->begin);
        at.padded_begin = t.load(&group->padded_begin);
        at.rows = t.load(&group->rows);
        at.padded_rows = t.load(&group->padded_rows);
        at.operand = at.column_tile >= p.operand[0].column_tiles;
        at.row0 = static_cast<i32>(at.row_tile) * (at.kind == Visit::first ? chunk : tile);
        at.column0 = static_cast<i32>(at.column_tile - (at.operand ? p.operand[0].column_tiles : 0)) * tile;
        return at;
    }

    template <class Thread>
    OCTET_GPU static void visit(Thread& t, const Params& p, Shared& s, const Tile& at, Tile& next) {
        const TileOperand& o = p.operand[at.operand];
        const int thread = t.thread();
        const Place me{thread / unit, thread / 16 % 2, thread % 16};
        Eight<In> x[8];  // row 16 u + 8 (j/4) + 4 q + j%4
        if (exchanges && at.kind == Visit::first)
            load<Reuse::normal>(t, o, at, me, x);
        else
            load<Reuse::stream>(t, o, at, me, x);

        // While the elements are on their way; but a ticket taken before a wait could be the one that is waited for.
        const bool waits = exchanges && (at.kind == Visit::fused || at.kind == Visit::second);
        if (!waits && thread == 0) t.store_shared(&next, decode(t, p, t.atomic_add(p.plan.ticket, 1u)));

        u32 ticket = 0;
        if constexpr (scales == TileScales::square) {
            scale_square(t, p, s, o, at, x);
        } else {
            if (at.kind != Visit::second) find_column_peaks(t, s, me, x);
            t.barrier();
            if constexpr (exchanges) {
                if (at.kind == Visit::fused || at.kind == Visit::first) hand_in(t, p, s, at, me, x);
                if (at.kind == Visit::first) return;
                if (waits) {
                    if (thread == 0) {
                        t.wait(p.plan.arrived + at.slab, at.slab_items);
                        ticket = t.atomic_add(p.plan.ticket, 1u);
                    }
                    t.barrier();
                }
            }
            scale_columns(t, p, s, o, at);
        }
        t.barrier();
        if constexpr (with_rows) cast_rows(t, p, s, o, at, me, x);
        const bool columns_wanted = o.columns_wanted && at.group < p.groups;
        if (columns_wanted) cast_columns(t, s, me, x);
        t.barrier();
        if (columns_wanted) store_columns(t, s, o, at);
        if (waits && thread == 0) t.store_shared(&next, decode(t, p, ticket));
    }

    // Folds a tile's maxima into those of its group and its rows, and counts it in.
    template <class Thread>
    OCTET_GPU static void hand_in(Thread& t, const Params& p, Shared& s, const Tile& at, const Place& me,
                                  const Eight<In> (&x)[8]) {
        if (t.thread() < tile && at.group < p.groups && at.column0 + t.thread() < p.operand[at.operand].columns)
            t.atomic_max(p.plan.column_amax + slot_of(p, at) + t.thread(), column_peak(t, s, t.thread(), 0, units));
        if constexpr (with_rows) {
            u32 peaks[8];
            row_peaks<16>(t, x, peaks);
            u32 mine = peaks[0];  // lane c of the 16 that share rows folds row c
            OCTET_UNROLL
            for (int j = 1; j < 8; ++j) mine = me.c == j ? peaks[j] : mine;
            const i32 row = at.row0 + row_of(me, 0) + 8 * (me.c / 4) + me.c % 4;
            if (me.c < 8 && row < at.rows) t.atomic_max(p.plan.row_amax + row_slot(p, at, row), mine);
        }
        t.barrier();
        if (t.thread() == 0) t.signal(p.plan.arrived + at.slab);
    }

    // ---- reading

    OCTET_GPU static int row_of(const Place& me, int j) { return 16 * me.u + 8 * (j / 4) + 4 * me.q + j % 4; }

    template <Reuse reuse, class Thread>
    OCTET_GPU static void load(Thread& t, const TileOperand& o, const Tile& at, const Place& me, Eight<In> (&x)[8]) {
        const auto* from = static_cast<const typename In::Element*>(o.x) + at.group * o.x_stride[0] +
                           (at.begin + at.row0 + row_of(me, 0)) * o.x_stride[1] + at.column0 + 8 * me.c;
        const i32 columns = o.columns - at.column0 - 8 * me.c, rows = at.rows - at.row0 - row_of(me, 0);
        if (o.aligned && columns >= 8) {
            OCTET_UNROLL
            for (int j = 0; j < 8; ++j) {
                const int row = 8 * (j / 4) + j % 4;
                x[j] = row < rows ? load_eight<In, reuse>(t, from + row * o.x_stride[1]) : zero_eight<In>();
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
    OCTET_GPU static void find_column_peaks(Thread& t, Shared& s, const Place& me, const Eight<In> (&x)[8]) {
        Magnitudes<In> peaks = magnitudes_of(x[0]);
        OCTET_UNROLL
        for (int j = 1; j < 8; ++j) fold(t, peaks, magnitudes_of(x[j]));
        store_column_peaks(t, s, me, peaks);
    }

    // Two neighbouring halves of a unit hold the same columns.
    template <class Thread>
    OCTET_GPU static void store_column_peaks(Thread& t, Shared& s, const Place& me, Magnitudes<In> peaks) {
        OCTET_UNROLL
        for (int i = 0; i < In::words; ++i)
            peaks.word[i] = magnitude_max<In>(t, peaks.word[i], t.shuffle_xor(peaks.word[i], 16));
        if (me.q != 0) return;
        OCTET_UNROLL
        for (int piece = 0; piece < In::pieces; ++piece) {
            Vec16 v;
            OCTET_UNROLL
            for (int i = 0; i < 4; ++i) v.word[i] = peaks.word[piece * 4 + i];
            t.store_shared(reinterpret_cast<Vec16*>(&s.column_peak[me.u][8 * me.c]) + piece, v);
        }
    }

    OCTET_GPU static u32 element_bits(typename In::Element peak) {
        return In::words == 4 ? static_cast<u32>(peak) << 16 : static_cast<u32>(peak);
    }

    // f32 bits of a column's largest magnitude over the units [first, first + count).
    template <class Thread>
    OCTET_GPU static u32 column_peak(Thread& t, Shared& s, int column, int first, int count) {
        u32 peak = 0;
        OCTET_UNROLL
        for (int u = 0; u < count; ++u) {
            const u32 other = t.load_shared(&s.column_peak[first + u][column]);
            peak = other > peak ? other : peak;
        }
        return element_bits(static_cast<typename In::Element>(peak));
    }

    // Of column_amax: where the tile's first column is.
    OCTET_GPU static i64 slot_of(const Params& p, const Tile& at) {
        return at.group * p.columns_in_all + (at.operand ? p.operand[0].columns : 0) + at.column0;
    }

    OCTET_GPU static i64 row_slot(const Params& p, const Tile& at, i64 row) {
        return at.group * p.group_row_slots + at.begin + row;
    }

    template <class Thread>
    OCTET_GPU static void scale_columns(Thread& t, const Params& p, Shared& s, const TileOperand& o, const Tile& at) {
        const int thread = t.thread();
        if constexpr (with_rows && exchanges) {
            if (thread >= tile) {
                const i32 row = at.row0 + thread - tile;
                const u32 peak = row < at.rows ? t.load_fresh(p.plan.row_amax + row_slot(p, at, row)) : 0u;
                const bool wanted = row < at.rows && at.column_tile == 0;
                t.store_shared(
                    &s.row_scale[thread - tile],
                    make_scale<Codec, false>(t, peak, p.rule, p.row_scale, wanted, at.group, at.begin + row, 0));
            }
        }
        if (thread >= tile) return;
        constexpr int reduction = mx ? 32 : tile;  // rows that share a scale, within the tile
        u32 codes = 0;                             // mx: the tile's four of a column, one store where they lie together
        const bool together = mx && o.column_scale.scale_stride[2] == 1 && at.row0 + tile <= at.padded_rows &&
                              (reinterpret_cast<u64>(o.column_scale.mx) +
                               static_cast<u64>(place(o.column_scale.scale_stride, at.group, at.column0 + thread,
                                                      (at.padded_begin + at.row0) / 32))) %
                                      4 ==
                                  0;
        OCTET_UNROLL
        for (int block = 0; block < blocks_down; ++block) {
            const int column = thread;
            const bool inside = at.group < p.groups && at.column0 + column < o.columns;
            u32 peak;
            if (exchanges && at.kind != Visit::only) {
                peak = inside ? t.load_fresh(p.plan.column_amax + slot_of(p, at) + column) : 0u;
            } else {
                peak = column_peak(t, s, column, block * (reduction / 16), reduction / 16);
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
            t.store_shared(&s.row_scale[0], scale);
        }
    }

    // The largest magnitudes of two rows, each folded over a thread's eight elements, over `lanes` neighbours: as f32
    // bits, in each of them.
    template <int lanes, class Thread>
    OCTET_GPU static void peaks_of_two(Thread& t, u32 a, u32 b, u32 (&peaks)[2]) {
        if constexpr (In::words == 4) {  // both in one word
            const u32 both =
                fold_lanes<In, lanes>(t, t.max_u16x2(t.permute_bytes(a, b, 0x5410u), t.permute_bytes(a, b, 0x7632u)));
            peaks[0] = both << 16;
            peaks[1] = both & 0xFFFF0000u;
        } else {
            peaks[0] = fold_lanes<In, lanes>(t, a);
            peaks[1] = fold_lanes<In, lanes>(t, b);
        }
    }

    template <int lanes, class Thread>
    OCTET_GPU static void row_peaks(Thread& t, const Eight<In> (&x)[8], u32 (&peaks)[8]) {
        OCTET_UNROLL
        for (int j = 0; j < 8; j += 2) {
            u32 two[2];
            peaks_of_two<lanes>(t, fold_across(t, magnitudes_of(x[j])), fold_across(t, magnitudes_of(x[j + 1])), two);
            peaks[j] = two[0];
            peaks[j + 1] = two[1];
        }
    }

    // ---- writing

    template <class Thread>
    OCTET_GPU static void cast_rows(Thread& t, const Params& p, Shared& s, const TileOperand& o, const Tile& at,
                                    const Place& me, const Eight<In> (&x)[8]) {
        if (scales == TileScales::square && p.row_data == nullptr) return;
        constexpr int lanes = mx ? 4 : 16;
        u32 peaks[8];
        if constexpr (scales == TileScales::run128 || mx) row_peaks<lanes>(t, x, peaks);
        const i32 column = at.column0 + 8 * me.c;
        u8* data = p.row_data + at.group * p.row_data_stride[0] +
                   (at.begin + at.row0 + row_of(me, 0)) * p.row_data_stride[1] + column;
        OCTET_UNROLL
        for (int j = 0; j < 8; ++j) {
            const i32 row = at.row0 + row_of(me, j);
            const bool inside = row < at.rows && column < o.columns;
            float scale;
            if constexpr (scales == TileScales::slab) {
                scale = t.load_shared(&s.row_scale[row_of(me, j)]);
            } else if constexpr (scales == TileScales::square) {
                scale = t.load_shared(&s.row_scale[0]);
            } else {
                scale = make_scale<Codec, mx>(t, peaks[j], p.rule, p.row_scale, inside && me.c % lanes == 0, at.group,
                                              at.begin + row, column / (lanes * 8));
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
                scale = t.load_shared(&s.row_scale[0]);
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
    OCTET_GPU static void store_columns(Thread& t, Shared& s, const TileOperand& o, const Tile& at) {
        const int piece = t.thread() % 8;
        const i32 row = at.row0 + 16 * piece;
        const i32 room = at.padded_rows - row, real = at.rows - row;
        u8* data = o.column_data + at.group * o.column_data_stride[0] + at.padded_begin + row;
        OCTET_UNROLL
        for (int i = 0; i < 4; ++i) {
            const int column = t.thread() / 8 + 32 * i, c = column / 8;
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
