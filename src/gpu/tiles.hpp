// Quantizes tiles of x, 128 rows of 64 or 128 columns or 256 of 64, along their columns (transposed), along their rows,
// or both.
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
#pragma once

#include "gpu/tile_cast.hpp"

namespace octet::gpu {

template <class In_, class Codec_, TileScales scales, bool with_rows, int doublings_ = 0>
struct TilesKernel : TileCast<In_, Codec_, scales, with_rows, doublings_> {
    using Base = TileCast<In_, Codec_, scales, with_rows, doublings_>;
    using Base::exchanges, Base::row_scales, Base::tile_columns, Base::threads, Base::units, Base::vectors;
    using Base::unit_rows, Base::slots, Base::few_spans, Base::batch, Base::has_rows;
    using typename Base::In, typename Base::Codec, typename Base::Params, typename Base::Shared;

    static constexpr bool leaves_notes = false;  // noted_tiles.hpp
    // Tiles of a block that hand in before it waits for the first of them: the one that is cast is in registers.
    static constexpr int held = row_scales ? slots + 1 : slots;

    template <class Thread>
    OCTET_GPU static void run(Thread& t, const Params& p, Shared& s) {
        if constexpr (exchanges)
            run_together(t, p, s);
        else
            run_alone(t, p, s);
    }

protected:
    using Base::cast_columns, Base::cast_rows, Base::fetch, Base::find_scales, Base::idle, Base::landed, Base::nth;
    using Base::column_peak, Base::find_column_peaks, Base::lane_of, Base::place_of, Base::row_after;
    using typename Base::Place;

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
        for (u32 k = 0;; ++k) {
            const TileState state = t.load_shared(&nth(s, k).state);
            if (!state.is_there()) break;
            const Vec16 later = take(t, p, next_item(t, k, ticket), items);
            if (t.thread() == 0) ticket = t.atomic_add(p.plan.ticket, 1u);
            t.template await_copies<slots - 2>();
            Eight<In> x[static_cast<u32>(vectors)];
            landed(t, s, k, x);
            find_scales(t, p, s, k, x);  // a barrier: the columns of the tile before are stored
            fetch(t, p, s, k + slots - 1);
            t.barrier();
            if constexpr (has_rows) cast_rows(t, p, s, k, state, x);
            u32 words[8][2];
            cast_columns(t, s, k, state, x, words);
            Base::template stage_columns<0>(t, s, k, state, words);
            t.barrier();
            Base::template store_columns<0>(t, s, k, state);
            put(t, s, k + slots, later);
        }
    }

    // Tiles exchange maxima: the k-th is cast, in registers, while the next one waits, the one after that hands in its
    // own, and a fourth is on its way to the slot of the k-th. So all that three turns of all blocks share is in before
    // anyone waits, and what one or two turns share is in a turn before it is wanted. What is asked for comes in order,
    // so a tile is sent for after the few words that are waited for, or these would come behind all of it. First visits
    // wait for nothing but tiles; nor do the two turns before the first tile's. Who has to wait for what four turns
    // share lets the fourth tile hand in first.
    template <class Thread>
    OCTET_GPU static void run_together(Thread& t, const Params& p, Shared& s) {
        static_assert(slots == 3, "which is what the order below is for");
        find_spans(t, p, s);
        const u32 arrival = t.arrive_everywhere();
        work_out(t, p, s, 0);
        t.barrier();
        TileState here, next, last, sent = fetch(t, p, s, 0);  // of the k-th tile and of the three after it
        t.await_everywhere(arrival);
        u32 *here_amax = nullptr, *next_amax = nullptr, *last_amax = nullptr;
        // Threads have small numbers, so that this is 0, but ptxas does not know it. Where it sees that all threads
        // have the same turn, nvcc 13.0's gives a copy to shared memory an address in two registers, which the hardware
        // has no instruction for ("illegal instruction").
        const i32 zero = t.thread() >> 20;
        OCTET_ROLLED
        for (i32 turn = zero - 2;; ++turn) {
            const u32 k = static_cast<u32>(turn);
            here = next;
            next = last;
            last = sent;
            if (turn >= 0 && !here.is_there()) break;
            const Visit visit = turn < 0 ? Visit::first : here.visit();
            // A first look, whose answer comes while another tile's maxima are found: a tile whose maxima are all in
            // by now waits for nothing but them. Who need not look stays at 0, which is less than a row's tiles.
            u32 in = 0;
            if (visit == Visit::fused || visit == Visit::second) in = look(t, s, k);
            here_amax = next_amax;
            next_amax = last_amax;
            last_amax = amax_of(t, s, k + 2);
            if (visit == Visit::first) {
                sent = fetch(t, p, s, k + slots);
                t.template await_copies<1>();
            } else {
                t.template await_copies<0>();
            }
            find_peaks(t, s, k + 2, last);
            if (visit != Visit::first) tell(t, s.known, in >= count_wanted(t, p, s, k));
            t.barrier();
            const u32 answer = hand_in(t, s, k + 2, last, last_amax);
            const bool known = visit != Visit::first && told(t, s.known);
            u32 peak = known ? load_peak(t, here_amax) : 0u;
            Eight<In> x[static_cast<u32>(vectors)];
            if (visit != Visit::first) {
                if (!known) in = look(t, s, k);
                landed(t, s, k, x);
                sent = fetch(t, p, s, k + slots);
                if (!known) tell(t, s.ready, visit == Visit::only || in >= count_wanted(t, p, s, k));
            }
            if ((k + slots + 1) % batch == 0) work_out(t, p, s, k + slots + 1);
            if (!known) {
                t.await_answer(answer);
                t.barrier();
                count_in(t, s, k + 2, last);
                if (visit == Visit::first) continue;
                if (!told(t, s.ready)) {
                    if constexpr (held > slots)
                        if (here.is_eager()) hand_in_sent(t, s, k + slots, sent);
                    wait(t, p, s, k);
                    t.barrier();
                }
                peak = visit == Visit::only ? 0u : load_peak(t, here_amax);
            }
            scale_slabs(t, p, s, k, here, peak);
            if (known) t.await_answer(answer);
            t.barrier();
            if (known) count_in(t, s, k + 2, last);
            cast(t, p, s, k, here, x);
        }
    }

    // A tile that was just sent for hands in, while its block would only wait: of groups that all blocks hold with it.
    template <class Thread>
    OCTET_GPU static void hand_in_sent(Thread& t, Shared& s, u32 k, TileState& sent) {
        if (!sent.hands_in()) return;
        t.template await_copies<0>();
        find_peaks(t, s, k, sent);
        t.barrier();
        const u32 answer = hand_in(t, s, k, sent, amax_of(t, s, k));
        t.await_answer(answer);
        t.barrier();
        count_in(t, s, k, sent);
        sent.bits &= ~TileState::hands_in_bit;
    }

    // Casts a tile whose scales are there, and stores it.
    template <class Thread>
    OCTET_GPU static void cast(Thread& t, const Params& p, Shared& s, u32 k, TileState state,
                               const Eight<In> (&x)[static_cast<u32>(vectors)]) {
        u32 words[8][2];
        if (idle(t, s, k, state)) {
            OCTET_UNROLL
            for (u32(&two)[2] : words) two[0] = two[1] = 0;  // what units without rows have to give
        } else if (row_scales && state.pieces() != Pieces::elements) {
            if constexpr (row_scales) Base::cast_both(t, p, s, k, state, x, words);
        } else {
            if constexpr (has_rows) cast_rows(t, p, s, k, state, x);
            cast_columns(t, s, k, state, x, words);
        }
        Base::template stage_columns<0>(t, s, k, state, words);
        t.barrier();
        Base::template store_columns<0>(t, s, k, state);
        t.barrier();
        Base::template stage_columns<4>(t, s, k, state, words);
        t.barrier();
        Base::template store_columns<4>(t, s, k, state);
    }

    // ---- items

    // With few groups, or such that need no looking up, there was no kernel before this one: every block looks them up
    // for itself, and all clear what they share. Who has awaited everyone finds it cleared.
    template <class Thread>
    OCTET_GPU static void find_spans(Thread& t, const Params& p, Shared& s) {
        if (!few(p)) return;
        PlanKernel::clear<threads>(t, p);
        if (p.ends)
            PlanKernel::for_few_spans<threads>(t, p, s.plan,
                                               [&](i64 i, const Span& span) { t.store_shared(&s.span[i], span); });
        t.barrier();
    }
    OCTET_GPU static bool few(const Params& p) { return !p.ends || p.groups + 2 <= few_spans; }
    template <class Thread>
    OCTET_GPU static Span span_of(Thread& t, const Params& p, Shared& s, i64 i) {
        if (!p.ends) return uniform_span(p, i);
        if (few(p)) return t.load_shared(&s.span[i]);
        const Vec16 v = t.load16(p.plan.span + i);
        return Span{v.word[0], static_cast<i32>(v.word[1]), v.word[2], v.word[3]};
    }
    // The k-th tile of the block, where these are dealt round.
    template <class Thread>
    OCTET_GPU static Tile dealt(Thread& t, const Params& p, Shared& s, u32 k) {
        const u32 item = t.block() + k * t.blocks();
        if (!p.ends) return uniform_tile_of(p, item);
        return tile_of(p, item, [&](i64 i) { return span_of(t, p, s, i); });
    }

    // Works out a batch of the block's tiles, from the k-th on. Those that wait for each other are dealt round: one
    // that was taken in passing might be the one that is waited for. The last unit does, while others wait for answers
    // to what they handed in; or, at first, for the other blocks to hear that this one has arrived.
    template <class Thread>
    OCTET_GPU static void work_out(Thread& t, const Params& p, Shared& s, u32 k) {
        constexpr int apart = unit / batch;
        const int me = t.thread() - (threads - unit);
        if (me < 0 || me % apart != 0) return;
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
        Vec16 piece{{0, 0, 0, 0}};  // no tile
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
    OCTET_GPU static void find_peaks(Thread& t, Shared& s, u32 k, TileState state) {
        if (!state.hands_in() || idle(t, s, k, state)) return;
        Eight<In> x[static_cast<u32>(vectors)];
        landed(t, s, k, x);
        find_column_peaks(t, s, x);
        if constexpr (row_scales) {
            const Place me = place_of(t);
            u32 rows[static_cast<u32>(vectors)], peaks[2];
            OCTET_UNROLL
            for (int j = 0; j < vectors; ++j) rows[j] = fold_across(t, magnitudes_of(x[j]));
            peaks_of_eight<In, 16>(t, rows, peaks);
            const int lane = lane_of(t) % 16;
            if (lane < 4)
                t.store_shared(reinterpret_cast<Vec8*>(&s.row_peak[me.row + row_after(lane % 2 * 4) + lane / 2 * 2]),
                               Vec8{{peaks[0], peaks[1]}});
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
    OCTET_GPU static u32 hand_in(Thread& t, Shared& s, u32 k, TileState state, u32* to) {
        if (!state.hands_in() || to == nullptr) return 0;
        const int thread = t.thread();
        if (row_scales && thread >= tile_columns)
            return t.atomic_max(to, t.load_shared(&s.row_peak[row_scales ? thread - tile_columns : 0]));
        const int busy = state.is_whole() ? units : (t.load_shared(&nth(s, k).rows) + unit_rows - 1) / unit_rows;
        return t.atomic_max(to, column_peak(t, s.column_peak, thread, 0, busy));
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
    OCTET_GPU static void count_in(Thread& t, Shared& s, u32 k, TileState state) {
        if (!state.hands_in()) return;
        if (u32* counter = counter_of(t, s, k)) t.atomic_add(counter, 1u);
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
        if (t.thread() == 0 || (row_scales && t.thread() == tile_columns))
            t.store_shared(&ready[t.thread() / tile_columns], is ? 1u : 0u);
    }
    template <class Thread>
    OCTET_GPU static bool told(Thread& t, const u32 (&ready)[2]) {
        return t.load_shared(&ready[0]) != 0 && (!row_scales || t.load_shared(&ready[1]) != 0);
    }

    template <class Thread>
    OCTET_GPU static u32 load_peak(Thread& t, const u32* from) {
        return from ? t.load_fresh(from) : 0u;
    }

    template <class Thread>
    OCTET_GPU static void scale_slabs(Thread& t, const Params& p, Shared& s, u32 k, TileState state, u32 peak) {
        const int thread = t.thread();
        if (thread >= (row_scales ? 2 : 1) * tile_columns) return;
        place_scale(t, p, s, k, state, scale_of_bits<Codec>(peak, p.rule.rounding), thread);
    }
    // place: of a column, or tile_columns and that of a row.
    template <class Thread>
    OCTET_GPU static void place_scale(Thread& t, const Params& p, Shared& s, u32 k, TileState state, float scale,
                                      int place) {
        if (place < tile_columns)
            t.store_shared(&s.column_scale[0][place], scale);
        else
            t.store_shared(&s.row_scale[row_scales ? place - tile_columns : 0], scale);
        if (!state.is_top() && !(row_scales && state.is_left())) return;
        store_slab_scale(t, p, t.borrow_shared(&nth(s, k)), place, scale);
    }
    template <class Thread>
    OCTET_GPU static void store_slab_scale(Thread& t, const Params& p, const Tile& at, int place, float scale) {
        if (place < tile_columns) {
            if (at.state.is_top() && at.state.has_columns() && place < at.columns)
                store_scale(t, p.operand[at.operand].column_scale, scale, at.group, at.column0 + place, 0);
        } else if (at.state.is_left() && place - tile_columns < at.rows) {
            store_scale(t, p.row_scale, scale, at.group, at.row + place - tile_columns, 0);
        }
    }
};

}  // namespace octet::gpu
