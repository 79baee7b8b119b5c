// Quantizes tiles of x, 128 rows of 64 or 128 columns, along their columns (transposed), along their rows, or both.
//
//   tokens   x[M, K] in groups of rows     column data [K, P], row data [M, K]
//   weights  w[E, N, K], a group an expert column data [E, K, N], row data [E, N, K]
//
// Bytes: x once, each output once, and x a second time for what is split (plan.hpp). Bound by memory.
//
// A tile waits in shared memory from the read to the cast, each thread's elements in places that nobody else reads:
// `slots` tiles of a block are in hand at a time, one being cast, the others on their way or waiting. So loads never
// stop, and where a scale is a whole row's or a group's whole column's, a tile hands in its maxima as soon as it has
// landed, while others are cast, and by its own turn those of the other tiles are mostly there. Maxima are folded by
// atomics. A block counts its tile in once these have been answered, and reads what is past the multiprocessor's own
// cache: no fence is needed.
//
// A thread holds 8 columns of 4 consecutive rows, twice: converting four rows of a column gives a word that is already
// transposed, and the tile's own slot brings such words of one column together, 16 rows to a store. Word w of column c
// lies at w ^ quads*(c/8), so that neither the writes (8 columns apart) nor the 16-byte reads (along a column) meet in
// a bank.
#pragma once

#include "gpu/eight.hpp"
#include "gpu/outputs.hpp"
#include "gpu/tile_list.hpp"

namespace octet::gpu {

enum class TileScales {
    slab,    // one a column of a group
    run128,  // 128 x 1 and 1 x 128
    run32,   // mx: 32 x 1 and 1 x 32
    square,  // 128 x 128, the same for both orientations
};

template <class In_, class Codec_, TileScales scales, bool with_rows>
struct TilesKernel {
    using In = In_;
    using Codec = Codec_;
    using Params = TileParams;
    static constexpr bool has_rows = with_rows;
    static constexpr bool exchanges = scales == TileScales::slab;
    static constexpr bool row_scales = exchanges && with_rows;  // one a row, exchanged too
    // Narrow tiles let twice as many blocks wait for each other's maxima; with rows they would be written in pieces of
    // 64 bytes, which costs more than that gives.
    static constexpr int tile_columns = exchanges && !with_rows ? 64 : 128;
    static constexpr int threads = 2 * tile_columns;
    static constexpr int across = tile_columns / 8;  // threads of a unit beside each other
    static constexpr int quads = unit / across;      // and above each other, four rows each
    static constexpr int blocks_per_core = (In::words == 4 ? 2 : 1) * (256 / threads);
    static constexpr int units = threads / unit;
    static constexpr int vectors = tile_rows * tile_columns / 8 / threads;  // eights a thread
    static constexpr int unit_rows = quads * vectors;
    static constexpr int slots = 3;
    static constexpr int few_spans = most_spans * tile_columns / 128;
    static constexpr int batch = threads / 16;  // tiles that a block works out at once
    static constexpr bool mx = scales == TileScales::run32;
    static constexpr int reduction = mx ? 32 : tile_rows;  // rows of the tile that share a scale
    static constexpr int blocks_down = tile_rows / reduction;
    static constexpr int rooms = exchanges ? 2 * batch : slots + 1;  // for tiles that are known

    struct Shared {
        // Each thread's eights of a tile, then the tile's transposed bytes.
        Vec16 slot[slots][static_cast<u32>(vectors * In::pieces)][static_cast<u32>(threads)];
        typename In::Element column_peak[static_cast<u32>(units)][static_cast<u32>(tile_columns)];  // of a unit's rows
        alignas(16) u32 row_peak[static_cast<u32>(row_scales ? tile_rows : 4)];
        alignas(16) float row_scale[static_cast<u32>(row_scales ? tile_rows : 4)];
        alignas(16) float column_scale[static_cast<u32>(blocks_down)][static_cast<u32>(tile_columns)];
        // Read in wide pieces, which must not reach into what is being written.
        alignas(16) u32 unit_peak[static_cast<u32>(units)];
        alignas(16) float square_scale;
        u32 known[2], ready[2];  // what those who look after counters saw, as the turn began and later in it
        Tile work[static_cast<u32>(rooms)];
        PlanKernel::Shared plan;
        alignas(16) Span span[static_cast<u32>(few_spans)];  // where they fit
    };

    template <class Thread>
    OCTET_GPU static void run(Thread& t, const Params& p, Shared& s) {
        if constexpr (exchanges)
            run_together(t, p, s);
        else
            run_alone(t, p, s);
    }

private:
    // Scales stay within a tile.
    template <class Thread>
    OCTET_GPU static void run_alone(Thread& t, const Params& p, Shared& s) {
        find_spans(t, p, s);
        const u32 items = span_of(t, p, s, p.groups + 1).first_item;
        list(t, p, s, items);
        const u32 arrival = t.arrive_everywhere();
        t.await_everywhere(arrival);
        OCTET_ROLLED
        for (u32 k = 0; k + 1 < slots; ++k) fetch(t, p, s, k);
        u32 ticket = 0;  // the first thread's
        OCTET_ROLLED
        for (u32 k = 0; !t.load_shared(&nth(s, k).none); ++k) {
            const Vec16 later = take(t, p, next_item(t, k, ticket), items);
            if (t.thread() == 0) ticket = t.atomic_add(p.plan.ticket, 1u);
            t.template await_copies<slots - 2>();
            Eight<In> x[static_cast<u32>(vectors)];
            landed(t, s, k, x);
            find_scales(t, p, s, k, x);  // a barrier: the columns of the tile before are stored
            fetch(t, p, s, k + slots - 1);
            t.barrier();
            cast(t, p, s, k, x);
            t.barrier();
            store_columns(t, p, s, k);
            put(t, s, k + slots, later);
        }
    }

    // Tiles exchange maxima: the k-th is cast while the next hands in its own and the one after that is on its way.
    // What is asked for comes in order, so a tile is sent for after the few words that are waited for, or these would
    // come behind all of it. First visits wait for nothing but tiles.
    template <class Thread>
    OCTET_GPU static void run_together(Thread& t, const Params& p, Shared& s) {
        static_assert(slots == 3, "which is what the order below is for");
        find_spans(t, p, s);
        const u32 arrival = t.arrive_everywhere();
        work_out(t, p, s, 0);
        t.await_everywhere(arrival);
        fetch(t, p, s, 0);
        t.template await_copies<0>();
        find_peaks(t, s, 0);
        u32* amax = amax_of(t, s, 0);
        t.barrier();
        const u32 first_answer = hand_in(t, s, 0, amax);
        fetch(t, p, s, 1);
        t.await_answer(first_answer);
        t.barrier();
        count_in(t, s, 0);
        OCTET_ROLLED
        for (u32 k = 0; !t.load_shared(&nth(s, k).none); ++k) {
            // A first look, whose answer comes while the next tile's maxima are found: a tile whose maxima are all in
            // by now waits for nothing but them. Who need not look stays at 0, which is less than a row's tiles.
            const Visit kind = t.load_shared(&nth(s, k).kind);
            u32 in = 0;
            if (kind == Visit::fused || kind == Visit::second) in = look(t, s, k);
            u32* here = amax;
            amax = amax_of(t, s, k + 1);
            if ((k + slots) % batch == 0) work_out(t, p, s, k + slots);
            if (kind == Visit::first) {
                fetch(t, p, s, k + 2);
                t.template await_copies<1>();
            } else {
                t.template await_copies<0>();
            }
            find_peaks(t, s, k + 1);
            tell(t, s.known, in >= count_wanted(t, p, s, k));
            t.barrier();
            const u32 answer = hand_in(t, s, k + 1, amax);
            const bool known = told(t, s.known);
            u32 peak = known ? load_peak(t, here) : 0u;
            if (kind != Visit::first) {
                if (!known) in = look(t, s, k);
                fetch(t, p, s, k + 2);
                if (!known) tell(t, s.ready, kind == Visit::only || in >= count_wanted(t, p, s, k));
            }
            if (!known) {
                t.await_answer(answer);
                t.barrier();
                count_in(t, s, k + 1);
                if (kind == Visit::first) continue;
                if (!told(t, s.ready)) {
                    wait(t, p, s, k);
                    t.barrier();
                }
                peak = kind == Visit::only ? 0u : load_peak(t, here);
            }
            Eight<In> x[static_cast<u32>(vectors)];
            landed(t, s, k, x);
            scale_slabs(t, p, s, k, peak);
            if (known) t.await_answer(answer);
            t.barrier();
            if (known) count_in(t, s, k + 1);
            cast(t, p, s, k, x);
            t.barrier();
            store_columns(t, p, s, k);
            // Before its slot is sent for again: at once, or after the next turn's first barrier.
            if (t.load_shared(&nth(s, k + 1).kind) == Visit::first) t.barrier();
        }
    }

    OCTET_GPU static Tile& nth(Shared& s, u32 k) { return s.work[k % rooms]; }

    struct Place {  // of a thread within its tile: columns from `column` on, rows row + row_after(j)
        int row, column;
    };
    template <class Thread>
    OCTET_GPU static Place place_of(Thread& t) {
        return {t.thread() / unit * unit_rows + t.thread() / across % quads * 4, t.thread() % across * 8};
    }
    OCTET_GPU static constexpr int row_after(int j) { return 4 * quads * (j / 4) + j % 4; }

    // ---- items

    // With few groups there was no kernel before this one: every block looks them up for itself, and all clear what
    // they share. Who has awaited everyone finds it cleared.
    template <class Thread>
    OCTET_GPU static void find_spans(Thread& t, const Params& p, Shared& s) {
        if (!few(p)) return;
        PlanKernel::clear<threads>(t, p);
        if (p.ends)
            PlanKernel::for_spans<threads>(t, p, s.plan,
                                           [&](i64 i, const Span& span) { t.store_shared(&s.span[i], span); });
        else
            for (i64 i = t.thread(); i < p.groups + 2; i += threads) t.store_shared(&s.span[i], uniform_span(p, i));
        t.barrier();
    }
    OCTET_GPU static bool few(const Params& p) { return p.groups + 2 <= few_spans; }
    template <class Thread>
    OCTET_GPU static Span span_of(Thread& t, const Params& p, Shared& s, i64 i) {
        if (few(p)) return t.load_shared(&s.span[i]);
        const Vec16 v = t.load16(p.plan.span + i);
        return Span{v.word[0], static_cast<i32>(v.word[1]), v.word[2], v.word[3]};
    }
    // The k-th tile of the block, where these are dealt round.
    template <class Thread>
    OCTET_GPU static Tile dealt(Thread& t, const Params& p, Shared& s, u32 k) {
        return tile_of(p, t.block() + k * t.blocks(), [&](i64 i) { return span_of(t, p, s, i); });
    }

    // Works out a batch of the block's tiles, from the k-th on. Those that wait for each other are dealt round: one
    // that was taken in passing might be the one that is waited for. The first unit leaves that to the others: it may
    // still be telling other blocks that this one has arrived.
    template <class Thread>
    OCTET_GPU static void work_out(Thread& t, const Params& p, Shared& s, u32 k) {
        constexpr int apart = (threads - unit) / batch;
        const int me = t.thread() - unit;
        if (me < 0 || me % apart != 0 || me >= apart * batch) return;
        k += static_cast<u32>(me / apart);
        t.store_shared(&nth(s, k), dealt(t, p, s, k));
    }

    // Others are listed, by all blocks for all: each lists those that it would be dealt, and keeps the first.
    template <class Thread>
    OCTET_GPU static void list(Thread& t, const Params& p, Shared& s, u32 items) {
        OCTET_ROLLED
        for (u32 k = static_cast<u32>(t.thread()); k < slots || t.block() + k * t.blocks() < items; k += threads) {
            const Tile tile = dealt(t, p, s, k);
            if (k < slots)
                t.store_shared(&nth(s, k), tile);
            else
                t.store(p.plan.tile + t.block() + k * t.blocks(), tile);
        }
    }

    // They are taken as blocks come by, since multiprocessors are not equally fast; a ticket is asked for a tile
    // ahead.
    template <class Thread>
    OCTET_GPU static u32 next_item(Thread& t, u32 k, u32 ticket) {
        const u32 taken = t.shuffle(ticket, 0);
        return k == 0 ? t.block() + slots * t.blocks() : (slots + 1) * t.blocks() + taken;
    }

    // These come from the list in 16-byte pieces, one for each of the first threads.
    static constexpr int tile_pieces = sizeof(Tile) / 16;
    template <class Thread>
    OCTET_GPU static Vec16 take(Thread& t, const Params& p, u32 item, u32 items) {
        Vec16 piece{{t.thread() == 0 ? 1u : 0u, 0, 0, 0}};  // none
        if (t.thread() < tile_pieces && item < items)
            piece = t.load_made(reinterpret_cast<const Vec16*>(p.plan.tile + item) + t.thread());
        return piece;
    }
    template <class Thread>
    OCTET_GPU static void put(Thread& t, Shared& s, u32 k, Vec16 piece) {
        if (t.thread() < tile_pieces) t.store_shared(reinterpret_cast<Vec16*>(&nth(s, k)) + t.thread(), piece);
    }

    // ---- exchanging maxima. The first threads look after columns, those from 128 on after rows.

    // The tile's part in the maxima, left in s.column_peak and s.row_peak.
    template <class Thread>
    OCTET_GPU static void find_peaks(Thread& t, Shared& s, u32 k) {
        if (!t.load_shared(&nth(s, k).hands_in)) return;
        if (idle(t, s, k)) return;
        Eight<In> x[static_cast<u32>(vectors)];
        landed(t, s, k, x);
        find_column_peaks(t, s, x);
        if constexpr (row_scales) {
            const Place me = place_of(t);
            OCTET_UNROLL
            for (int j = 0; j < vectors; j += 2) {
                u32 peaks[2];
                peaks_of_two<In, 16>(t, fold_across(t, magnitudes_of(x[j])), fold_across(t, magnitudes_of(x[j + 1])),
                                     peaks);
                if (me.column == 0)
                    t.store_shared(reinterpret_cast<Vec8*>(&s.row_peak[me.row + row_after(j)]),
                                   Vec8{{peaks[0], peaks[1]}});
            }
        }
    }

    // Where the maximum of a thread's column or row is, or null where it has none.
    template <class Thread>
    OCTET_GPU static u32* amax_of(Thread& t, Shared& s, u32 k) {
        const int thread = t.thread();
        if (thread < tile_columns) {
            u32* first = t.load_shared(&nth(s, k).column_amax);
            const i32 columns = t.load_shared(&nth(s, k).columns);
            return first && thread < columns ? first + thread : nullptr;
        }
        if (!row_scales || thread >= 2 * tile_columns) return nullptr;
        u32* first = t.load_shared(&nth(s, k).row_amax);
        const i32 rows = t.load_shared(&nth(s, k).rows);
        return thread - tile_columns < rows ? first + (thread - tile_columns) : nullptr;
    }

    // Folds the tile's maxima into those of its group. Returns the atomic's answer: who has it, is done.
    template <class Thread>
    OCTET_GPU static u32 hand_in(Thread& t, Shared& s, u32 k, u32* to) {
        const u32 hands_in = t.load_shared(&nth(s, k).hands_in);
        const i32 rows = t.load_shared(&nth(s, k).rows);
        if (!hands_in || to == nullptr) return 0;
        const int thread = t.thread();
        return t.atomic_max(to, thread < tile_columns
                                    ? column_peak(t, s.column_peak, thread, 0, (rows + unit_rows - 1) / unit_rows)
                                    : t.load_shared(&s.row_peak[row_scales ? thread - tile_columns : 0]));
    }

    // The counter that a thread looks after, or null.
    template <class Thread>
    OCTET_GPU static u32* counter_of(Thread& t, Shared& s, u32 k) {
        if (t.thread() == 0) return t.load_shared(&nth(s, k).column_counter);
        if (row_scales && t.thread() == tile_columns) return t.load_shared(&nth(s, k).row_counter);
        return nullptr;
    }
    template <class Thread>
    OCTET_GPU static u32 count_wanted(Thread& t, const Params& p, Shared& s, u32 k) {
        return t.thread() == 0 ? t.load_shared(&nth(s, k).above) : p.tiling.column_tiles;
    }

    // After a barrier at which everyone had the answers to what they handed in.
    template <class Thread>
    OCTET_GPU static void count_in(Thread& t, Shared& s, u32 k) {
        u32* counter = counter_of(t, s, k);
        if (counter && t.load_shared(&nth(s, k).hands_in)) t.atomic_add(counter, 1u);
    }
    // Tiles whose maxima are in, of those that the thread looks after; all, where it looks after none. Nothing is
    // worked out from the answer, which would wait for it.
    template <class Thread>
    OCTET_GPU static u32 look(Thread& t, Shared& s, u32 k) {
        const u32* counter = counter_of(t, s, k);
        u32 in = ~0u;
        if (counter) in = t.load_fresh(counter);
        return in;
    }
    template <class Thread>
    OCTET_GPU static void wait(Thread& t, const Params& p, Shared& s, u32 k) {
        if (const u32* counter = counter_of(t, s, k)) t.wait(counter, count_wanted(t, p, s, k));
    }

    // From those who look after counters to all, with a barrier between.
    template <class Thread>
    OCTET_GPU static void tell(Thread& t, u32 (&ready)[2], bool is) {
        if (t.thread() % tile_columns == 0 && t.thread() <= tile_columns)
            t.store_shared(&ready[t.thread() / tile_columns], is ? 1u : 0u);
    }
    template <class Thread>
    OCTET_GPU static bool told(Thread& t, const u32 (&ready)[2]) {
        return t.load_shared(&ready[0]) != 0 && t.load_shared(&ready[1]) != 0;
    }

    template <class Thread>
    OCTET_GPU static u32 load_peak(Thread& t, const u32* from) {
        return from ? t.load_fresh(from) : 0u;
    }

    template <class Thread>
    OCTET_GPU static void scale_slabs(Thread& t, const Params& p, Shared& s, u32 k, u32 peak) {
        const int thread = t.thread();
        if (thread >= (row_scales ? 2 : 1) * tile_columns) return;
        const float scale = scale_of_bits<Codec>(peak, p.rule.rounding);
        if (thread < tile_columns)
            t.store_shared(&s.column_scale[0][thread], scale);
        else
            t.store_shared(&s.row_scale[row_scales ? thread - tile_columns : 0], scale);
        if (t.load_shared(&nth(s, k).row0) != 0 && t.load_shared(&nth(s, k).column0) != 0) return;
        store_slab_scale(t, p, t.borrow_shared(&nth(s, k)), thread, scale);
    }
    template <class Thread>
    OCTET_GPU static void store_slab_scale(Thread& t, const Params& p, const Tile& at, int thread, float scale) {
        if (thread < tile_columns) {
            if (at.row0 == 0 && at.has_columns && thread < at.columns)
                store_scale(t, p.operand[at.operand].column_scale, scale, at.group, at.column0 + thread, 0);
        } else if (at.column0 == 0 && thread - tile_columns < at.rows) {
            store_scale(t, p.row_scale, scale, at.group, at.row + thread - tile_columns, 0);
        }
    }

    // The tile ends before the rows of the thread's unit.
    template <class Thread>
    OCTET_GPU static bool idle(Thread& t, Shared& s, u32 k) {
        return t.load_shared(&nth(s, k).rows) <= t.thread() / unit * unit_rows;
    }

    // ---- reading

    // Sends for the block's k-th tile.
    template <class Thread>
    OCTET_GPU static void fetch(Thread& t, const Params& p, Shared& s, u32 k) {
        const Place me = place_of(t);
        const auto* x = static_cast<const typename In::Element*>(t.load_shared(&nth(s, k).x));
        const i64 stride = p.operand[t.load_shared(&nth(s, k).operand)].x_stride[1];
        x += me.row * stride + me.column;
        const i32 columns = t.load_shared(&nth(s, k).columns) - me.column,
                  rows = columns > 0 ? t.load_shared(&nth(s, k).rows) - me.row : 0;
        auto& to = s.slot[k % slots];
        const Pieces pieces = t.load_shared(&nth(s, k).pieces);
        if (pieces == Pieces::whole) {
            OCTET_UNROLL
            for (int j = 0; j < vectors; ++j) OCTET_UNROLL
            for (int piece = 0; piece < In::pieces; ++piece)
                t.copy_async(&to[j * In::pieces + piece][t.thread()],
                             x + row_after(j) * stride + piece * (8 / In::pieces), true);
        } else if (pieces != Pieces::elements) {
            OCTET_UNROLL
            for (int j = 0; j < vectors; ++j) OCTET_UNROLL
            for (int piece = 0; piece < In::pieces; ++piece)
                t.copy_async(&to[j * In::pieces + piece][t.thread()],
                             x + row_after(j) * stride + piece * (8 / In::pieces), row_after(j) < rows);
        } else if (!t.load_shared(&nth(s, k).none)) {
            fetch_part(t, x, stride, rows, columns, to);
        }
        t.commit_copies();
    }
    template <class Thread>
    OCTET_GPU_RARE static void fetch_part(Thread& t, const typename In::Element* x, i64 stride, i32 rows, i32 columns,
                                          Vec16 (*to)[static_cast<u32>(threads)]) {
        OCTET_ROLLED
        for (int j = 0; j < vectors; ++j) {
            const Eight<In> some =
                row_after(j) < rows ? load_some<In>(t, x + row_after(j) * stride, columns) : zero_eight<In>();
            for (int piece = 0; piece < In::pieces; ++piece)
                t.store_shared(&to[j * In::pieces + piece][t.thread()],
                               Vec16{{some.word[4 * piece], some.word[4 * piece + 1], some.word[4 * piece + 2],
                                      some.word[4 * piece + 3]}});
        }
    }

    template <class Thread>
    OCTET_GPU static void landed(Thread& t, Shared& s, u32 k, Eight<In> (&x)[static_cast<u32>(vectors)]) {
        OCTET_UNROLL
        for (int j = 0; j < vectors; ++j) OCTET_UNROLL
        for (int piece = 0; piece < In::pieces; ++piece) {
            const Vec16 v = t.load_shared(&s.slot[k % slots][j * In::pieces + piece][t.thread()]);
            OCTET_UNROLL
            for (int i = 0; i < 4; ++i) x[j].word[piece * 4 + i] = v.word[i];
        }
    }

    // ---- maxima and scales

    // Two neighbouring halves of a unit hold the same columns.
    template <class Thread>
    OCTET_GPU static void find_column_peaks(Thread& t, Shared& s, const Eight<In> (&x)[static_cast<u32>(vectors)]) {
        Magnitudes<In> peaks = magnitudes_of(x[0]);
        OCTET_UNROLL
        for (int j = 1; j < vectors; ++j) fold(t, peaks, magnitudes_of(x[j]));
        OCTET_UNROLL
        for (int i = 0; i < In::words; ++i) OCTET_UNROLL
        for (int mask = across; mask < unit; mask *= 2)
            peaks.word[i] = magnitude_max<In>(t, peaks.word[i], t.shuffle_xor(peaks.word[i], mask));
        if (t.thread() % unit >= across) return;
        OCTET_UNROLL
        for (int piece = 0; piece < In::pieces; ++piece) {
            Vec16 v;
            OCTET_UNROLL
            for (int i = 0; i < 4; ++i) v.word[i] = plain_magnitude<In>(peaks.word[piece * 4 + i]);
            t.store_shared(reinterpret_cast<Vec16*>(&s.column_peak[t.thread() / unit][place_of(t).column]) + piece, v);
        }
    }

    // f32 bits of a column's largest magnitude over the units [first, first + count).
    template <class Thread>
    OCTET_GPU static u32 column_peak(Thread& t, const typename In::Element (*peaks)[static_cast<u32>(tile_columns)],
                                     int column, int first, int count) {
        u32 peak = 0;
        OCTET_UNROLL
        for (int u = 0; u < units; ++u) {
            if (u >= count) continue;
            const u32 other = t.load_shared(&peaks[first + u][column]);
            peak = other > peak ? other : peak;
        }
        return In::words == 4 ? peak << 16 : peak;
    }

    // Scales that stay within a tile: leaves those of its columns in s.column_scale, or s.square_scale.
    template <class Thread>
    OCTET_GPU static void find_scales(Thread& t, const Params& p, Shared& s, u32 k,
                                      const Eight<In> (&x)[static_cast<u32>(vectors)]) {
        const Tile& at = t.borrow_shared(&nth(s, k));
        const TileOperand& o = p.operand[at.operand];
        if constexpr (scales == TileScales::square) {
            scale_square(t, p, s, o, at, x);
        } else {
            find_column_peaks(t, s, x);
            t.barrier();
            if constexpr (mx)
                scale_columns_mx(t, p, s, o, at);
            else if (t.thread() < tile_columns)
                scale_columns(t, p, s, o, at);
        }
    }

    template <class Thread>
    OCTET_GPU static void scale_columns(Thread& t, const Params& p, Shared& s, const TileOperand& o, const Tile& at) {
        const int column = t.thread();
        t.store_shared(&s.column_scale[0][column],
                       make_scale<Codec, false>(t, column_peak(t, s.column_peak, column, 0, units), p.rule,
                                                o.column_scale, at.has_columns && column < at.columns && at.room > 0,
                                                at.group, at.column0 + column, at.padded_row / tile_rows));
    }

    // Two neighbours share a column, two of its four blocks each.
    template <class Thread>
    OCTET_GPU static void scale_columns_mx(Thread& t, const Params& p, Shared& s, const TileOperand& o,
                                           const Tile& at) {
        static_assert(blocks_down == 4 && threads == 2 * tile_columns);
        constexpr int tall = reduction / unit_rows;  // units
        const int column = t.thread() / 2, first = t.thread() % 2 * 2;
        u32 codes = 0;
        OCTET_UNROLL
        for (int i = 0; i < 2; ++i) {
            const u32 peak = column_peak(t, s.column_peak, column, (first + i) * tall, tall);
            const u8 code = mx_scale_of_bits<Codec>(peak, p.rule.mx_mode);
            codes |= static_cast<u32>(code) << (8 * i);
            t.store_shared(&s.column_scale[first + i][column], mx_multiplier_of(code));
        }
        codes |= t.shuffle_xor(codes, 1) << 16;
        if (first != 0 || !at.has_columns || column >= at.columns) return;
        const i64 apart = o.column_scale.scale_stride[2];
        u8* to =
            o.column_scale.mx + place(o.column_scale.scale_stride, at.group, at.column0 + column, at.padded_row / 32);
        if (apart == 1 && at.room >= tile_rows && reinterpret_cast<u64>(to) % 4 == 0)
            t.store(reinterpret_cast<u32*>(to), codes);
        else
            store_codes(t, to, apart, codes, at.room);
    }
    // Those of the blocks that begin in the first `rows` rows.
    template <class Thread>
    OCTET_GPU_RARE static void store_codes(Thread& t, u8* to, i64 apart, u32 codes, i32 rows) {
        for (int block = 0; block < blocks_down && block * reduction < rows; ++block)
            t.store(to + block * apart, static_cast<u8>(codes >> (8 * block)));
    }

    // One scale for the whole tile: expert, row block, column block, and the same the other way round.
    template <class Thread>
    OCTET_GPU static void scale_square(Thread& t, const Params& p, Shared& s, const TileOperand& o, const Tile& at,
                                       const Eight<In> (&x)[static_cast<u32>(vectors)]) {
        Magnitudes<In> peaks = magnitudes_of(x[0]);
        OCTET_UNROLL
        for (int j = 1; j < vectors; ++j) fold(t, peaks, magnitudes_of(x[j]));
        u32 peak = fold_lanes<In, unit>(t, fold_across(t, peaks));
        if (t.thread() % unit == 0) t.store_shared(&s.unit_peak[t.thread() / unit], peak);
        t.barrier();
        OCTET_UNROLL
        for (int u = 0; u < units; ++u) peak = magnitude_max<In>(t, peak, t.load_shared(&s.unit_peak[u]));
        const i32 down = at.row0 / tile_rows, across = at.column0 / tile_columns;
        const float scale = make_scale<Codec, false>(t, f32_bits_of<In>(peak), p.rule, p.row_scale,
                                                     t.thread() == 0 && p.row_data != nullptr, at.group, down, across);
        if (t.thread() == 0) {
            if (o.columns_wanted) store_scale(t, o.column_scale, scale, at.group, across, down);
            t.store_shared(&s.square_scale, scale);
        }
    }

    // ---- writing

    // The tile's rows, and its columns into its slot.
    template <class Thread>
    OCTET_GPU static void cast(Thread& t, const Params& p, Shared& s, u32 k,
                               const Eight<In> (&x)[static_cast<u32>(vectors)]) {
        if (exchanges && idle(t, s, k)) return;
        if constexpr (with_rows) cast_rows(t, p, s, k, x);
        if (t.load_shared(&nth(s, k).has_columns)) cast_columns(t, s, k, x);
    }

    template <class Thread>
    OCTET_GPU static void cast_rows(Thread& t, const Params& p, Shared& s, u32 k,
                                    const Eight<In> (&x)[static_cast<u32>(vectors)]) {
        if (scales == TileScales::square && p.row_data == nullptr) return;
        const Place me = place_of(t);
        const Pieces pieces = t.load_shared(&nth(s, k).pieces);
        const i32 rows = t.load_shared(&nth(s, k).rows) - me.row,
                  columns = t.load_shared(&nth(s, k).columns) - me.column;
        const i64 stride = p.row_data_stride[1];
        u8* data = t.load_shared(&nth(s, k).row_data) + me.row * stride + me.column;
        float two[2];  // of the thread's rows, where it finds their scales itself
        if constexpr (!row_scales && scales != TileScales::square) scale_rows(t, p, s, k, x, two);
        OCTET_UNROLL
        for (int j = 0; j < vectors; ++j) {
            const bool inside = row_after(j) < rows && columns > 0;
            float scale;
            if constexpr (scales == TileScales::square)
                scale = t.load_shared(&s.square_scale);
            else if constexpr (row_scales)
                scale = t.load_shared(&s.row_scale[me.row + row_after(j)]);
            else
                scale = std::bit_cast<float>(t.shuffle(std::bit_cast<u32>(two[j % 2]), lane_of_row(t, j)));
            const Vec8 eight = encode_eight<Codec>(t, x[j], scale);
            u8* to = data + row_after(j) * stride;
            if (pieces == Pieces::whole)
                t.store8(to, eight);
            else if (inside && pieces != Pieces::elements)
                t.store8(to, eight);
            else if (inside)
                store_row_part(t, to, eight, columns);
        }
    }
    // Scales along a thread's rows: each of four neighbours finds those of two rows, as peaks_of_eight deals them.
    template <class Thread>
    OCTET_GPU static void scale_rows(Thread& t, const Params& p, Shared& s, u32 k,
                                     const Eight<In> (&x)[static_cast<u32>(vectors)], float (&two)[2]) {
        constexpr int lanes = mx ? 4 : 16;
        u32 rows[static_cast<u32>(vectors)];
        OCTET_UNROLL
        for (int j = 0; j < vectors; ++j) rows[j] = fold_across(t, magnitudes_of(x[j]));
        u32 peaks[2];
        peaks_of_eight<In, lanes>(t, rows, peaks);
        const Place me = place_of(t);
        const int lane = t.thread() % lanes, row = me.row + row_after(lane % 2 * 4) + lane / 2 * 2;
        const i32 column = me.column / (lanes * 8) * (lanes * 8);
        const i32 left =
            lane < 4 && column < t.load_shared(&nth(s, k).columns) ? t.load_shared(&nth(s, k).rows) - row : 0;
        OCTET_UNROLL
        for (int i = 0; i < 2; ++i)
            two[i] = make_scale<Codec, mx>(t, peaks[i], p.rule, p.row_scale, i < left, t.load_shared(&nth(s, k).group),
                                           t.load_shared(&nth(s, k).row) + row + i,
                                           (t.load_shared(&nth(s, k).column0) + column) / (lanes * 8));
    }
    // Of a unit, which has the scale of the thread's j-th row.
    template <class Thread>
    OCTET_GPU static int lane_of_row(Thread& t, int j) {
        return t.thread() % unit / 4 * 4 + j / 4 + j / 2 % 2 * 2;
    }
    template <class Thread>
    OCTET_GPU_RARE static void store_row_part(Thread& t, u8* to, Vec8 v, i32 count) {
        store_eight(t, to, v, count);
    }

    template <class Thread>
    OCTET_GPU static void cast_columns(Thread& t, Shared& s, u32 k, const Eight<In> (&x)[static_cast<u32>(vectors)]) {
        const Place me = place_of(t);
        u32* words = &s.slot[k % slots][0][0].word[0] + me.column * 32;  // [columns][32 words of 4 rows]
        const float* scale_of = &s.column_scale[me.row / reduction][me.column];
        OCTET_UNROLL
        for (int i = 0; i < 8; ++i) {
            const float scale = t.load_shared(scales == TileScales::square ? &s.square_scale : scale_of + i);
            OCTET_UNROLL
            for (int half = 0; half < vectors / 4; ++half) {
                const Eight<In>* four = x + 4 * half;
                const int word = (me.row / 4 + quads * half) ^ (me.column / 8 * quads);
                t.store_shared(words + i * 32 + word,
                               t.template encode4<Codec>(four[0][i] * scale, four[1][i] * scale, four[2][i] * scale,
                                                         four[3][i] * scale));
            }
        }
    }

    template <class Thread>
    OCTET_GPU static void store_columns(Thread& t, const Params& p, Shared& s, u32 k) {
        if (!t.load_shared(&nth(s, k).has_columns)) return;
        const int piece = t.thread() % 8, column = t.thread() / 8;
        const auto* transposed = reinterpret_cast<const Vec16(*)[8]>(&s.slot[k % slots][0][0]);
        const i64 stride = p.operand[t.load_shared(&nth(s, k).operand)].column_data_stride[1];
        u8* to = t.load_shared(&nth(s, k).column_data) + column * stride + 16 * piece;
        const Pieces pieces = t.load_shared(&nth(s, k).pieces);
        constexpr int step = threads / 8;
        const auto transposed_of = [&](int i) {
            const int turned = (column / 8 + step / 8 * i) * quads;  // words
            const Vec16 read = t.load_shared(&transposed[column + step * i][piece ^ (turned / 4)]);
            Vec16 v;  // the swizzle's bit 1 swaps halves
            OCTET_UNROLL
            for (int w = 0; w < 4; ++w) v.word[w] = turned & 2 ? read.word[w ^ 2] : read.word[w];
            return v;
        };
        if (pieces == Pieces::whole) {
            OCTET_UNROLL
            for (int i = 0; i < tile_columns / step; ++i) t.store16(to + i * step * stride, transposed_of(i));
            return;
        }
        const i32 columns = t.load_shared(&nth(s, k).columns) - column;
        const i32 real = t.load_shared(&nth(s, k).rows) - 16 * piece,
                  room = t.load_shared(&nth(s, k).room) - 16 * piece;
        if (room <= 0) return;
        if (pieces != Pieces::elements && room >= 16) {
            // Padding is zero bytes, whatever zero times the scale is.
            const Vec16 kept = first_bytes(Vec16{{~0u, ~0u, ~0u, ~0u}}, real);
            OCTET_UNROLL
            for (int i = 0; i < tile_columns / step; ++i) {
                Vec16 v = transposed_of(i);
                OCTET_UNROLL
                for (int w = 0; w < 4; ++w) v.word[w] &= kept.word[w];
                if (step * i < columns) t.store16(to + i * step * stride, v);
            }
            return;
        }
        OCTET_ROLLED
        for (int i = 0; i < tile_columns / step && step * i < columns; ++i)
            store_sixteen_by_bytes(t, to + i * step * stride, first_bytes(transposed_of(i), real), room);
    }
};

}  // namespace octet::gpu
