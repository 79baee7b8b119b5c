// Tiles that exchange maxima (tiles.hpp), where few share a scale: casts both ways of short groups and narrow rows.
//
// Each tile leaves a note of its own maxima, and who casts one reads the notes of all tiles that share with it. What a
// note says is marked as said, so nothing is counted, no answer is awaited, and what is asked for as a turn begins is
// there when it is wanted. Reading so many notes is what it costs: 16 of a row of tiles, 4 KB for each of them.
#pragma once

#include "gpu/tiles.hpp"

namespace octet::gpu {

template <class In_, class Codec_>
struct NotedTilesKernel : TilesKernel<In_, Codec_, TileScales::slab, true> {
    using Base = TilesKernel<In_, Codec_, TileScales::slab, true>;
    using Base::row_scales, Base::tile_columns, Base::units, Base::vectors, Base::unit_rows, Base::slots, Base::batch;
    using typename Base::In, typename Base::Codec, typename Base::Params, typename Base::Shared;
    static_assert(In::words == 4, "a note is two bf16 magnitudes a word");
    static constexpr bool leaves_notes = true;
    static constexpr int ahead = 2;  // turns before a tile is cast, in which it leaves its note
    static constexpr int held = ahead + 1;

    template <class Thread>
    OCTET_GPU static void run(Thread& t, const Params& p, Shared& s) {
        Base::find_spans(t, p, s);
        const u32 arrival = t.arrive_everywhere();
        Base::work_out(t, p, s, 0);
        t.barrier();
        TileState state[slots + 1];  // of the k-th tile and of the three after it
        OCTET_UNROLL
        for (u32 k = 0; k < slots - ahead; ++k) state[ahead + 1 + k] = Base::fetch(t, p, s, k);
        t.await_everywhere(arrival);
        const i32 zero = t.thread() >> 20;  // as in TilesKernel
        OCTET_ROLLED
        for (i32 turn = zero - ahead;; ++turn) {
            const u32 k = static_cast<u32>(turn);
            OCTET_UNROLL
            for (int i = 0; i < slots; ++i) state[i] = state[i + 1];
            if (turn >= 0 && !state[0].is_there()) break;
            const Visit visit = turn < 0 ? Visit::first : state[0].visit();
            const Notes notes = ask(t, p, s, k, visit == Visit::fused || visit == Visit::second);
            if (visit == Visit::first) {
                state[slots] = Base::fetch(t, p, s, k + slots);
                t.template await_copies<slots - ahead>();
            } else {
                t.template await_copies<slots - ahead - 1>();
            }
            Base::find_peaks(t, s, k + ahead, state[ahead]);
            t.barrier();
            leave(t, s, k + ahead, state[ahead]);
            Eight<In> x[static_cast<u32>(vectors)];
            if (visit != Visit::first) {
                Base::landed(t, s, k, x);
                state[slots] = Base::fetch(t, p, s, k + slots);
            }
            if ((k + slots + 1) % batch == 0) Base::work_out(t, p, s, k + slots + 1);
            if (visit != Visit::first) find_scales(t, p, s, k, state[0], notes);
            t.barrier();
            if (visit != Visit::first) Base::cast(t, p, s, k, state[0], x);
        }
    }

private:
    using Base::nth;

    // ---- notes: bf16 magnitudes two to a word, of the tile's columns and then of its rows. A magnitude has no sign:
    // in a note that bit is set, and so a word of zeros has not been written yet.

    // What a thread read of them: the pieces of eight columns and of eight rows by one of the tiles that share these.
    struct Notes {
        Vec16 of_columns, of_rows;
    };
    OCTET_GPU static Vec16 empty_note() { return {{note_mark, note_mark, note_mark, note_mark}}; }
    OCTET_GPU static bool is_left_yet(const Vec16& v) {
        return (v.word[0] & v.word[1] & v.word[2] & v.word[3] & note_mark) == note_mark;
    }

    // Sixteen threads share eight columns and eight rows, a sharing tile each.
    template <class Thread>
    OCTET_GPU static u32 reader_of(Thread& t) {
        return static_cast<u32>(t.thread()) % note_readers;
    }
    template <class Thread>
    OCTET_GPU static const u32* column_note(Thread& t, const Params& p, Shared& s, u32 k, u32 tile) {
        const u32 eight = static_cast<u32>(t.thread()) / note_readers;
        return t.load_shared(&nth(s, k).column_amax) + tile * p.tiling.column_tiles * note_words + 4 * eight;
    }
    template <class Thread>
    OCTET_GPU static const u32* row_note(Thread& t, Shared& s, u32 k, u32 tile) {
        const u32 eight = static_cast<u32>(t.thread()) / note_readers;
        return t.load_shared(&nth(s, k).row_amax) + tile * note_words + note_words / 2 + 4 * eight;
    }

    template <class Thread>
    OCTET_GPU static Notes ask(Thread& t, const Params& p, Shared& s, u32 k, bool wanted) {
        const u32 me = reader_of(t);
        Notes notes{empty_note(), empty_note()};
        if (wanted && me < p.tiling.column_tiles) notes.of_rows = t.load_fresh16(row_note(t, s, k, me));
        if (wanted && me < t.load_shared(&nth(s, k).above))
            notes.of_columns = t.load_fresh16(column_note(t, p, s, k, me));
        return notes;
    }

    // Of the columns that a thread reads notes of, and likewise rows, the maxima of two, where one of four neighbours
    // has them: 4 (l % 2) + 2 (l / 2) and the next.
    template <class Thread>
    OCTET_GPU static u32 fold_notes(Thread& t, Vec16 v) {
        deal_words<In, 2>(t, v.word);
        OCTET_UNROLL
        for (u32 mask = 4; mask < note_readers; mask *= 2)
            v.word[0] = magnitude_max<In>(t, v.word[0], t.shuffle_xor(v.word[0], static_cast<int>(mask)));
        return v.word[0];
    }

    // From the notes to scales, of a column or row a thread.
    template <class Thread>
    OCTET_GPU static void find_scales(Thread& t, const Params& p, Shared& s, u32 k, TileState state, Notes notes) {
        const u32 me = reader_of(t), above = t.load_shared(&nth(s, k).above);
        if (!is_left_yet(notes.of_rows)) notes.of_rows = t.await_marked16(row_note(t, s, k, me), note_mark);
        if (!is_left_yet(notes.of_columns))
            notes.of_columns = t.await_marked16(column_note(t, p, s, k, me), note_mark);
        if (above > note_readers && state.visit() != Visit::only)
            notes.of_columns = fold_later_notes(t, p, s, k, above, notes.of_columns);
        const u32 columns = fold_notes(t, notes.of_columns), rows = fold_notes(t, notes.of_rows);
        const u32 both = me & 8 ? rows : columns, magnitude = (me & 4 ? both : both << 16) & 0x7FFF0000u;
        const u32 place = static_cast<u32>(t.thread()) / note_readers * 8 + me % 2 * 4 + me / 2 % 2 * 2 + me / 4 % 2;
        Base::scale_slab(t, p, s, k, state, magnitude, static_cast<int>(place + (me & 8 ? tile_columns : 0)));
    }
    // Of groups with more tiles above each other than there are readers.
    template <class Thread>
    OCTET_GPU_RARE static Vec16 fold_later_notes(Thread& t, const Params& p, Shared& s, u32 k, u32 above, Vec16 v) {
        for (u32 tile = reader_of(t) + note_readers; tile < above; tile += note_readers) {
            const Vec16 other = t.await_marked16(column_note(t, p, s, k, tile), note_mark);
            OCTET_UNROLL
            for (int i = 0; i < 4; ++i) v.word[i] = magnitude_max<In>(t, v.word[i], other.word[i]);
        }
        return v;
    }

    // A thread writes two columns or two rows.
    template <class Thread>
    OCTET_GPU static void leave(Thread& t, Shared& s, u32 k, TileState state) {
        const int thread = t.thread();
        if (!state.hands_in() || thread >= static_cast<int>(note_words)) return;
        const i32 rows = t.load_shared(&nth(s, k).rows), column_tile = t.load_shared(&nth(s, k).column0) / tile_columns;
        u32 word = 0;
        if (thread < tile_columns / 2) {
            const int busy = state.is_whole() ? units : (rows + unit_rows - 1) / unit_rows;
            OCTET_UNROLL
            for (int u = 0; u < units; ++u) {
                if (u >= busy) continue;
                const u32 two = t.load_shared(reinterpret_cast<const u32*>(&s.column_peak[u][2 * thread]));
                word = magnitude_max<In>(t, word, two);
            }
        } else {
            const int row = 2 * thread - tile_columns;
            if (row < rows) {
                const Vec8 two = t.load_shared(reinterpret_cast<const Vec8*>(&s.row_peak[row]));
                word = two.word[0] >> 16 | two.word[1];
            }
        }
        t.store_fresh(t.load_shared(&nth(s, k).row_amax) + static_cast<u32>(column_tile) * note_words + thread,
                      word | note_mark);
    }
};

}  // namespace octet::gpu
