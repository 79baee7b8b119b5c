// Tiles that exchange maxima (tiles.hpp), where few share a scale and scales are powers of two: casts both ways of
// short groups and narrow rows.
//
// Each tile leaves a note of its own scales, a byte each, and who casts one reads the notes of all tiles that share
// with it. A byte that is there says so itself, so nothing is counted, no answer is awaited, and what is asked for as a
// turn begins is there when it is wanted. Reading so many notes is what it costs: 16 of a row of tiles, 2 KB for each
// of them.
#pragma once

#include "gpu/tiles.hpp"

namespace octet::gpu {

template <class In_, class Codec_>
struct NotedTilesKernel : TilesKernel<In_, Codec_, TileScales::slab, true> {
    using Base = TilesKernel<In_, Codec_, TileScales::slab, true>;
    static constexpr int held = Base::slots;
    using Base::tile_columns, Base::units, Base::vectors, Base::unit_rows, Base::slots, Base::batch;
    using typename Base::In, typename Base::Codec, typename Base::Params, typename Base::Shared;
    static constexpr bool leaves_notes = true;
    static constexpr int ahead = 2;  // turns before a tile is cast, in which it leaves its note
    static_assert(ahead + 1 == slots, "a group whose tiles fill all slots is not split: none waits for a later one");
    static_assert(In::words == 4, "codes are folded as bf16 magnitudes are");
    static_assert(Base::threads == tile_rows + tile_columns && Base::threads == 4 * note_words,
                  "a thread looks after a column, or a row");
    static_assert(widest_noted == note_readers * tile_columns, "all notes of a row of tiles are read at once");

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
            const Vec16 note = ask(t, p, s, k, visit == Visit::fused || visit == Visit::second);
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
            if (visit != Visit::first) find_scales(t, p, s, k, state[0], note);
            t.barrier();
            if (visit != Visit::first) Base::cast(t, p, s, k, state[0], x);
        }
    }

private:
    using Base::nth;

    // ---- notes: a byte a column of the tile, and then a byte a row, that says which power of two its scale would be:
    // the code is the larger, the smaller the scale. 0 has not been written yet.
    //
    // NOTES: bytes are stored one by one and read sixteen at a time, and each is taken as there when it is not zero. A
    // memory model that knows only accesses of one size says nothing of that; L2 merges bytes, and gives each of them
    // as it is before or after its store.

    static constexpr u32 code_of_exponent_0 = 190, infinite = 200, nan = 255;
    OCTET_GPU static constexpr u32 code_of_number(u32 peak) { return code_of_exponent_0 - scale_exponent<Codec>(peak); }
    static_assert(code_of_number(0) > 0 && code_of_number(0x7F7FFFFFu) < infinite);
    OCTET_GPU static u32 code_of(u32 peak) {
        const u32 code = peak == 0x7F800000u ? infinite : code_of_number(peak);
        return peak > 0x7F800000u ? nan : code;
    }
    OCTET_GPU static float scale_of(u32 code) {
        const float scale = code == infinite ? 0.0f : std::bit_cast<float>((code_of_exponent_0 - code) << 23);
        return std::bit_cast<float>(code == nan ? 0x7FC00000u : std::bit_cast<u32>(scale));
    }

    // Where there is no tile to read: what one of zeros says.
    OCTET_GPU static Vec16 no_note() {
        constexpr u32 zeros = code_of_number(0) * 0x01010101u;
        return {{zeros, zeros, zeros, zeros}};
    }

    // Sixteen threads share sixteen columns or rows, a tile each; the first half of the block columns.
    template <class Thread>
    OCTET_GPU static u32 reader_of(Thread& t) {
        return static_cast<u32>(t.thread()) % note_readers;
    }
    template <class Thread>
    OCTET_GPU static bool reads_rows(Thread& t) {
        return t.thread() >= Base::threads / 2;
    }
    template <class Thread>
    OCTET_GPU static const u32* note_of(Thread& t, const Params& p, Shared& s, u32 k, u32 tile) {
        const u32 piece = static_cast<u32>(t.thread()) / note_readers % 8 * 4;
        if (reads_rows(t)) return t.load_shared(&nth(s, k).row_amax) + tile * note_words + note_words / 2 + piece;
        return t.load_shared(&nth(s, k).column_amax) + tile * p.tiling.column_tiles * note_words + piece;
    }

    template <class Thread>
    OCTET_GPU static Vec16 ask(Thread& t, const Params& p, Shared& s, u32 k, bool wanted) {
        Vec16 note = no_note();
        if (!wanted) return note;
        const u32 me = reader_of(t), sharing = reads_rows(t) ? p.tiling.column_tiles : t.load_shared(&nth(s, k).above);
        if (me < sharing) note = t.load_fresh16(note_of(t, p, s, k, me));
        return note;
    }

    // From the notes to scales, of a column or row a thread.
    template <class Thread>
    OCTET_GPU static void find_scales(Thread& t, const Params& p, Shared& s, u32 k, TileState state, Vec16 note) {
        const u32 me = reader_of(t), above = t.load_shared(&nth(s, k).above);
        if (!all_bytes(note)) note = t.await_bytes(note_of(t, p, s, k, me));
        if (above > note_readers && !reads_rows(t) && state.visit() != Visit::only)
            note = fold_later(t, p, s, k, above, note);
        u32 two[8];  // codes apart, two a word: small numbers of bf16, whose maximum the instruction takes as they are
        OCTET_UNROLL
        for (int i = 0; i < 4; ++i) {
            two[2 * i] = note.word[i] & 0x00FF00FFu;
            two[2 * i + 1] = note.word[i] >> 8 & 0x00FF00FFu;
        }
        deal_words<In, 8>(t, two);
        const u32 codes = magnitude_max<In>(t, two[0], t.shuffle_xor(two[0], 8));
        const u32 place =
            static_cast<u32>(t.thread()) / note_readers * 16 + me % 2 * 8 + me / 2 % 2 * 4 + me / 4 % 2 + me / 8 * 2;
        Base::place_scale(t, p, s, k, state, scale_of((me & 8 ? codes >> 16 : codes) & 0xFFu), static_cast<int>(place));
    }
    // Of groups with more tiles above each other than there are readers.
    template <class Thread>
    OCTET_GPU_RARE static Vec16 fold_later(Thread& t, const Params& p, Shared& s, u32 k, u32 above, Vec16 v) {
        constexpr u32 even = 0x00FF00FFu;
        for (u32 tile = reader_of(t) + note_readers; tile < above; tile += note_readers) {
            const Vec16 other = t.await_bytes(note_of(t, p, s, k, tile));
            OCTET_UNROLL
            for (int i = 0; i < 4; ++i) {
                const u32 low = magnitude_max<In>(t, v.word[i] & even, other.word[i] & even),
                          high = magnitude_max<In>(t, v.word[i] >> 8 & even, other.word[i] >> 8 & even);
                v.word[i] = (low & even) | (high & even) << 8;
            }
        }
        return v;
    }

    // A thread writes its column's byte, or its row's.
    template <class Thread>
    OCTET_GPU static void leave(Thread& t, Shared& s, u32 k, TileState state) {
        if (!state.hands_in()) return;
        const int thread = t.thread();
        const i32 rows = t.load_shared(&nth(s, k).rows), column_tile = t.load_shared(&nth(s, k).column0) / tile_columns;
        u32 peak = 0;
        if (!reads_rows(t))
            peak = Base::column_peak(t, s.column_peak, thread, 0,
                                     state.is_whole() ? units : (rows + unit_rows - 1) / unit_rows);
        else if (thread - tile_columns < rows)
            peak = t.load_shared(&s.row_peak[thread - tile_columns]);
        u32* const note = t.load_shared(&nth(s, k).row_amax) + static_cast<u32>(column_tile) * note_words;
        t.store_fresh(reinterpret_cast<u8*>(note) + thread, static_cast<u8>(code_of(peak)));
    }
};

}  // namespace octet::gpu
