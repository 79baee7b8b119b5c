// Tiles that exchange maxima (tiles.hpp), cast both ways with scales that are powers of two, of groups that are more
// than all blocks hold at once. Those that are not held are read twice there; here the second reading is of their rows,
// which are quantized by then, one byte an element instead of two: columns come out of rows (bytes_moved.hpp).
//
// Bytes: x once, each output once, the rows once more for what is not held, and 32 of x for each of the few elements
// whose rows do not say enough. A first visit waits for its rows' maxima alone and writes the rows; a second one is of
// the same block (plan.hpp), which finds what it wrote itself, and waits for its columns' maxima alone.
//
// bf16, columns in whole sixteens, rows that start on 16 bytes; padded groups that start and end on 16.
#pragma once

#include "gpu/bytes_moved.hpp"
#include "gpu/tiles.hpp"

namespace octet::gpu {

template <class Codec_>
struct SplitTilesKernel : TilesKernel<Bf16In, Codec_, TileScales::slab, true> {
    using Base = TilesKernel<Bf16In, Codec_, TileScales::slab, true>;
    using Base::threads, Base::tile_columns, Base::vectors, Base::slots, Base::batch;
    using typename Base::In, typename Base::Codec, typename Base::Params;
    using Bytes = BytesMoved<Codec, threads>;
    static constexpr bool rereads_rows = true;
    static_assert(tile_columns == Bytes::strip && threads == tile_rows + tile_columns);

    struct Shared : Base::Shared {
        u32 next_known[2];  // as `known`, of the next tile
    };

    // As in TilesKernel. What is sent for into the place of a tile that others read from, or to be read by others, is
    // sent for once all have read that tile. A second visit's maxima are mostly in a turn before: it is looked for them
    // then, and they are asked for as that turn casts, so that the visit itself waits for no answer.
    template <class Thread>
    OCTET_GPU static void run(Thread& t, const Params& p, Shared& s) {
        static_assert(slots == 3, "which is what the order below is for");
        Base::find_spans(t, p, s);
        const u32 arrival = t.arrive_everywhere();
        Base::work_out(t, p, s, 0);
        t.barrier();
        TileState here, next, last, sent = Base::fetch(t, p, s, 0);  // of the k-th tile and of the three after it
        t.await_everywhere(arrival);
        u32 *here_amax = nullptr, *next_amax = nullptr, *last_amax = nullptr;
        bool early = false;  // the k-th tile's maxima were asked for a turn before
        u32 early_peak = 0;
        const i32 zero = t.thread() >> 20;  // as in TilesKernel
        OCTET_ROLLED
        for (i32 turn = zero - 2;; ++turn) {
            const u32 k = static_cast<u32>(turn);
            here = next;
            next = last;
            last = sent;
            if (turn >= 0 && !here.is_there()) break;
            const bool casts = turn >= 0;
            const Visit visit = here.visit();
            u32 in = 0, next_in = 0;
            if (casts && visit != Visit::only && !early) in = Base::look(t, s, k);
            if (casts && next.visit() == Visit::second) next_in = Base::look(t, s, k + 1);
            here_amax = next_amax;
            next_amax = last_amax;
            last_amax = Base::amax_of(t, s, k + 2);
            const TileState coming = t.load_shared(&nth(s, k + slots).state);
            const bool late = (casts && visit == Visit::second) || coming.visit() == Visit::second;
            if (!casts) {
                sent = fetch(t, p, s, k + slots);
                t.template await_copies<1>();
            } else if (last.hands_in()) {
                t.template await_copies<0>();
            } else {
                t.template await_copies<2>();
            }
            Base::find_peaks(t, s, k + 2, last);
            if (casts) {
                Base::tell(t, s.known, early || in >= count_wanted(t, p, s, k, visit));
                Base::tell(t, s.next_known, next_in >= count_wanted(t, p, s, k + 1, Visit::second));
            }
            t.barrier();
            const u32 answer = Base::hand_in(t, s, k + 2, last, last_amax);
            const bool known = casts && Base::told(t, s.known);
            u32 peak = early ? early_peak : known ? Base::load_peak(t, here_amax) : 0u;
            Eight<In> x[static_cast<u32>(vectors)];  // or, in a second visit, 16 rows of four columns
            if (casts) {
                if (!known) in = Base::look(t, s, k);
                if (visit == Visit::second)
                    landed_rows(t, s, k, x);
                else
                    Base::landed(t, s, k, x);
                if (!late) sent = fetch(t, p, s, k + slots);
                if (!known) Base::tell(t, s.ready, visit == Visit::only || in >= count_wanted(t, p, s, k, visit));
            }
            if ((k + slots + 1) % batch == 0) Base::work_out(t, p, s, k + slots + 1);
            if (!known) {
                t.await_answer(answer);
                t.barrier();
                Base::count_in(t, s, k + 2, last);
                if (!casts) continue;
                if (!Base::told(t, s.ready)) {
                    wait(t, p, s, k, visit);
                    t.barrier();
                }
                peak = visit == Visit::only ? 0u : Base::load_peak(t, here_amax);
            }
            early = next.visit() == Visit::second && Base::told(t, s.next_known);
            const u8 power = scale(t, p, s, k, here, peak);
            if (known) t.await_answer(answer);
            t.barrier();
            if (known) Base::count_in(t, s, k + 2, last);
            if (early) early_peak = Base::load_peak(t, next_amax);
            if (late) sent = fetch(t, p, s, k + slots);
            switch (visit) {
                case Visit::first: cast_rows(t, p, s, k, x); break;
                case Visit::second: cast_columns(t, s, k, power, x); break;
                default: Base::cast(t, p, s, k, here, x);
            }
        }
    }

private:
    using Base::nth;

    // Where a second visit keeps what it knows: nothing is staged there meanwhile.
    OCTET_GPU static typename Bytes::Shared& bytes_of(Shared& s) {
        static_assert(sizeof(typename Bytes::Shared) <= sizeof(s.stage));
        return *reinterpret_cast<typename Bytes::Shared*>(&s.stage[0][0]);
    }
    // And its rows.
    OCTET_GPU static Vec16* rows_of(Shared& s, u32 k) { return &s.slot[k % slots][0][0]; }

    // Sends for the block's k-th tile: elements of x, or bytes along rows.
    template <class Thread>
    OCTET_GPU static TileState fetch(Thread& t, const Params& p, Shared& s, u32 k) {
        const TileState state = t.load_shared(&nth(s, k).state);
        if (state.visit() != Visit::second) return Base::fetch(t, p, s, k);
        const int row = t.thread() / Bytes::chunks, chunk = t.thread() % Bytes::chunks;
        const i64 stride = p.row_data_stride[1];
        const u8* from = t.load_shared(&nth(s, k).row_data) + row * stride + chunk * 16;
        const bool inside = chunk * 16 < t.load_shared(&nth(s, k).columns);
        constexpr int rows_at_once = threads / Bytes::chunks;
        OCTET_UNROLL
        for (int i = 0; i < tile_rows / rows_at_once; ++i, from += rows_at_once * stride) {
            const int at = row + i * rows_at_once;
            t.copy_async(&rows_of(s, k)[Bytes::place_of(at / 16, at % 16, chunk)], from, inside);
        }
        t.commit_copies();
        return state;
    }

    // The thread's 16 rows of four columns, a row a word.
    template <class Thread>
    OCTET_GPU static void landed_rows(Thread& t, Shared& s, u32 k, Eight<In> (&x)[static_cast<u32>(vectors)]) {
        OCTET_UNROLL
        for (int fourth = 0; fourth < 4; ++fourth) {
            const Vec16 rows = Bytes::read_fourth(t, rows_of(s, k), 0, fourth);
            OCTET_UNROLL
            for (int i = 0; i < 4; ++i) x[fourth].word[i] = rows.word[i];
        }
    }

    // A first visit does not wait for columns; rows were waited for in it.
    template <class Thread>
    OCTET_GPU static u32 count_wanted(Thread& t, const Params& p, Shared& s, u32 k, Visit visit) {
        return t.thread() == 0 && visit == Visit::first ? 0u : Base::count_wanted(t, p, s, k);
    }
    template <class Thread>
    OCTET_GPU static void wait(Thread& t, const Params& p, Shared& s, u32 k, Visit visit) {
        if (const u32* counter = Base::counter_of(t, s, k)) t.wait(counter, count_wanted(t, p, s, k, visit));
    }

    // Each visit stores the scales that it is for. Gives the power of the thread's column, or of its row.
    template <class Thread>
    OCTET_GPU static u8 scale(Thread& t, const Params& p, Shared& s, u32 k, TileState state, u32 peak) {
        const Visit visit = state.visit();
        if (visit == Visit::first) state.bits &= ~TileState::top_bit;
        if (visit == Visit::second) state.bits &= ~TileState::left_bit;
        const float scale = scale_of_bits<Codec>(peak, p.rule.rounding);
        Base::place_scale(t, p, s, k, state, scale, t.thread());
        const u8 power = power_of(peak, scale);
        if (visit != Visit::second) return power;
        if (t.thread() < tile_columns) Bytes::find_likely(t, bytes_of(s), power);
        if (t.thread() == 0) t.store_shared(&bytes_of(s).listed_count, 0u);
        return power;
    }

    // A first visit, of whole rows: the last ones of a group are among those that are held.
    template <class Thread>
    OCTET_GPU static void cast_rows(Thread& t, const Params& p, Shared& s, u32 k,
                                    const Eight<In> (&x)[static_cast<u32>(vectors)]) {
        const auto me = Base::place_of(t);
        const i64 stride = p.row_data_stride[1];
        u8* data = t.load_shared(&nth(s, k).row_data) + me.row * stride + me.column;
        const bool inside = me.column < t.load_shared(&nth(s, k).columns);
        OCTET_UNROLL
        for (int j = 0; j < vectors; ++j) {
            const float scale = t.load_shared(&s.row_scale[me.row + Base::row_after(j)]);
            t.store8_if(inside, data + Base::row_after(j) * stride, encode_eight<Codec>(t, x[j], scale));
        }
    }

    // A second visit.
    template <class Thread>
    OCTET_GPU static void cast_columns(Thread& t, Shared& s, u32 k, u8 power,
                                       const Eight<In> (&x)[static_cast<u32>(vectors)]) {
        auto& bytes = bytes_of(s);
        const int common = Bytes::common_power(t, bytes);
        if (t.thread() < tile_columns)
            Bytes::count_column_power(t, bytes, t.thread(), power, common);
        else
            Bytes::count_row_power(t, bytes, t.thread() - tile_columns, power, common);
        t.barrier();
        const int column = Bytes::column_of(t.thread(), 0);
        const i64 stride = t.load_shared(&nth(s, k).column_stride);
        u8* const data = t.load_shared(&nth(s, k).column_data);
        if (column < t.load_shared(&nth(s, k).columns))
            Bytes::cast(t, bytes, 0, tile_rows, data + column * stride + 16 * Bytes::piece_of(t.thread()), stride,
                        [&](int fourth) {
                            const auto& of = x[fourth].word;
                            return Vec16{{of[0], of[1], of[2], of[3]}};
                        });
        t.barrier();
        Bytes::cast_listed(t, bytes, s.column_scale[0], static_cast<const u16*>(t.load_shared(&nth(s, k).x)),
                           t.load_shared(&nth(s, k).x_stride), data, stride);
    }
};

}  // namespace octet::gpu
