// One tile of x, 128 rows of 64 or 128 columns or 256 of 64, in a slot of shared memory: read, its maxima and scales
// found, cast along its columns (transposed), along its rows, or both. tiles.hpp goes through them.
//
// A thread holds 8 columns of 4 consecutive rows, twice: converting four rows of a column gives a word that is already
// transposed, and the tile's own slot brings such words of one column together, 16 rows to a store. Word w of column c
// lies at w ^ turned(c / 8), so that neither the writes (8 columns apart) nor the 16-byte reads (along a column) meet
// in a bank.
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

template <class In_, class Codec_, TileScales scales, bool with_rows, int doublings_>
struct TileCast {
    using In = In_;
    using Codec = Codec_;
    using Params = TileParams;
    static constexpr bool has_rows = with_rows;
    static constexpr bool exchanges = scales == TileScales::slab;
    static constexpr bool row_scales = exchanges && with_rows;  // one a row, exchanged too
    // Narrow tiles let twice as many blocks wait for each other's maxima; with rows they would be written in pieces of
    // 64 bytes, which costs more than that gives.
    static constexpr int tile_columns = exchanges && !with_rows ? 64 : 128;
    static constexpr bool chooses_reuse = exchanges;
    static constexpr int doublings = doublings_;
    static constexpr int tile_rows = gpu::tile_rows << doublings;
    static constexpr int threads = tile_rows * tile_columns / 64;
    static constexpr int across = tile_columns / 8;  // threads of a unit beside each other
    static constexpr int quads = unit / across;      // and above each other, four rows each
    static constexpr int blocks_per_core = (In::words == 4 ? 2 : 1) * (256 / threads);
    static constexpr int units = threads / unit;
    static constexpr int vectors = tile_rows * tile_columns / 8 / threads;  // eights a thread
    static constexpr int unit_rows = quads * vectors;
    static constexpr int column_pieces = tile_rows / 16;  // 16 bytes of a column each, transposed
    static constexpr int slots = 3;
    // Tiles that exchange maxima are transposed in memory of their own, a half of each eight columns at a time: the
    // slot of the one that is cast is wanted for another.
    static constexpr int staged = exchanges ? 4 : 8;
    static constexpr int few_spans = exchanges ? with_rows ? 142 : 84 : threads;  // no more than threads
    static constexpr int batch = threads / 16;  // tiles that a block works out at once
    static constexpr bool mx = scales == TileScales::run32;
    static constexpr int reduction = mx ? 32 : tile_rows;  // rows of the tile that share a scale
    static constexpr int blocks_down = tile_rows / reduction;
    static constexpr int rooms = exchanges ? batch + slots + 3 : slots + 1;  // for tiles that are known

    struct Shared {
        // Each thread's eights of a tile; then its transposed bytes, where tiles exchange nothing.
        Vec16 slot[slots][static_cast<u32>(vectors * In::pieces)][static_cast<u32>(threads)];
        Vec16 stage[static_cast<u32>(exchanges ? tile_columns * staged / 8 : 1)][static_cast<u32>(column_pieces)];
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

protected:
    OCTET_GPU static Tile& nth(Shared& s, u32 k) { return s.work[k % rooms]; }

    // Of a thread: its unit, and its number within that. Without a sign, division is one instruction, not three.
    template <class Thread>
    OCTET_GPU static int unit_of(Thread& t) {
        return static_cast<int>(static_cast<u32>(t.thread()) / unit);
    }
    template <class Thread>
    OCTET_GPU static int lane_of(Thread& t) {
        return static_cast<int>(static_cast<u32>(t.thread()) % unit);
    }

    struct Place {  // of a thread within its tile: columns from `column` on, rows row + row_after(j)
        int row, column;
    };
    template <class Thread>
    OCTET_GPU static Place place_of(Thread& t) {
        return {t.thread() / unit * unit_rows + t.thread() / across % quads * 4, t.thread() % across * 8};
    }
    OCTET_GPU static constexpr int row_after(int j) { return 4 * quads * (j / 4) + j % 4; }

    // The tile ends before the rows of the thread's unit.
    template <class Thread>
    OCTET_GPU static bool idle(Thread& t, Shared& s, u32 k, TileState state) {
        return !state.is_whole() && t.load_shared(&nth(s, k).rows) <= unit_of(t) * unit_rows;
    }

    // ---- reading

    // Sends for the block's k-th tile.
    template <class Thread>
    OCTET_GPU static TileState fetch(Thread& t, const Params& p, Shared& s, u32 k) {
        const Place me = place_of(t);
        const TileState state = t.load_shared(&nth(s, k).state);
        const auto* x = static_cast<const typename In::Element*>(t.load_shared(&nth(s, k).x));
        const i64 stride = t.load_shared(&nth(s, k).x_stride);
        x += me.row * stride + me.column;
        const i32 columns = t.load_shared(&nth(s, k).columns) - me.column,
                  rows = columns > 0 ? t.load_shared(&nth(s, k).rows) - me.row : 0;
        auto& to = s.slot[k % slots];
        const auto copy = [&](int j, bool inside) {
            OCTET_UNROLL
            for (int piece = 0; piece < In::pieces; ++piece) {
                Vec16* there = &to[j * In::pieces + piece][t.thread()];
                const auto* from = x + row_after(j) * stride + piece * (8 / In::pieces);
                if constexpr (chooses_reuse)
                    t.copy_async(there, from, inside, p.reuse);
                else
                    t.copy_async(there, from, inside);
            }
        };
        if (state.is_whole()) {
            OCTET_UNROLL
            for (int j = 0; j < vectors; ++j) copy(j, true);
        } else if (state.pieces() == Pieces::wide) {
            OCTET_UNROLL
            for (int j = 0; j < vectors; ++j) copy(j, row_after(j) < rows);
        } else if (state.is_there()) {
            fetch_part(t, x, stride, rows, columns, to);
        }
        t.commit_copies();
        return state;
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
        if (lane_of(t) >= across) return;
        OCTET_UNROLL
        for (int piece = 0; piece < In::pieces; ++piece) {
            Vec16 v;
            OCTET_UNROLL
            for (int i = 0; i < 4; ++i) v.word[i] = plain_magnitude<In>(peaks.word[piece * 4 + i]);
            t.store_shared(reinterpret_cast<Vec16*>(&s.column_peak[unit_of(t)][place_of(t).column]) + piece, v);
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
        t.store_shared(
            &s.column_scale[0][column],
            make_scale<Codec, false>(t, column_peak(t, s.column_peak, column, 0, units), p.rule, o.column_scale,
                                     at.state.has_columns() && column < at.columns && at.room > 0, at.group,
                                     at.column0 + column, at.padded_row / tile_rows));
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
        if (first != 0 || !at.state.has_columns() || column >= at.columns) return;
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

    template <class Thread>
    OCTET_GPU static void cast_rows(Thread& t, const Params& p, Shared& s, u32 k, TileState state,
                                    const Eight<In> (&x)[static_cast<u32>(vectors)]) {
        if (scales == TileScales::square && p.row_data == nullptr) return;
        const Place me = place_of(t);
        const i64 stride = p.row_data_stride[1];
        u8* data = t.load_shared(&nth(s, k).row_data) + me.row * stride + me.column;
        float two[2];  // of the thread's rows, where it finds their scales itself
        if constexpr (!row_scales && scales != TileScales::square) scale_rows(t, p, s, k, x, two);
        const auto encoded = [&](int j) {
            float scale;
            if constexpr (scales == TileScales::square)
                scale = t.load_shared(&s.square_scale);
            else if constexpr (row_scales)
                scale = t.load_shared(&s.row_scale[me.row + row_after(j)]);
            else
                scale = std::bit_cast<float>(t.shuffle(std::bit_cast<u32>(two[j % 2]), lane_of_row(t, j)));
            return encode_eight<Codec>(t, x[j], scale);
        };
        // Who has scales of rows casts both ways at once (cast_both), but tiles that are read element by element.
        if (!row_scales && state.is_whole()) {
            OCTET_UNROLL
            for (int j = 0; j < vectors; ++j) t.template store8<Reuse::last>(data + row_after(j) * stride, encoded(j));
            return;
        }
        const i32 columns = t.load_shared(&nth(s, k).columns) - me.column,
                  rows = columns > 0 ? t.load_shared(&nth(s, k).rows) - me.row : 0;
        if (!row_scales &&
            state.pieces() == Pieces::wide) {  // a loop of its own: calls of the one below cost registers
            OCTET_UNROLL
            for (int j = 0; j < vectors; ++j) {
                const Vec8 eight = encoded(j);
                t.store8_if(row_after(j) < rows, data + row_after(j) * stride, eight);
            }
            return;
        }
        OCTET_UNROLL
        for (int j = 0; j < vectors; ++j) {
            const Vec8 eight = encoded(j);
            if (row_after(j) < rows) store_row_part(t, data + row_after(j) * stride, eight, columns);
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

    // Casts a tile that is read and written in wide pieces along rows and columns: its elements are taken apart once.
    template <class Thread>
    OCTET_GPU static void cast_both(Thread& t, const Params& p, Shared& s, u32 k, TileState state,
                                    const Eight<In> (&x)[static_cast<u32>(vectors)], u32 (&words)[8][2]) {
        const Place me = place_of(t);
        const i64 stride = p.row_data_stride[1];
        u8* data = t.load_shared(&nth(s, k).row_data) + me.row * stride + me.column;
        i32 rows = tile_rows;
        if (!state.is_whole())
            rows = me.column < t.load_shared(&nth(s, k).columns) ? t.load_shared(&nth(s, k).rows) - me.row : 0;
        OCTET_UNROLL
        for (int half = 0; half < 2; ++half) {
            Vec8 eight[4];
            OCTET_UNROLL
            for (int q = 0; q < 2; ++q) {
                float of[4][4];  // row, column
                OCTET_UNROLL
                for (int r = 0; r < 4; ++r) OCTET_UNROLL
                for (int i = 0; i < 4; ++i) of[r][i] = x[4 * half + r][4 * q + i];
                OCTET_UNROLL
                for (int r = 0; r < 4; ++r) {
                    const float scale = t.load_shared(&s.row_scale[me.row + row_after(4 * half + r)]);
                    eight[r].word[q] = t.template encode4<Codec>(of[r][0] * scale, of[r][1] * scale, of[r][2] * scale,
                                                                 of[r][3] * scale);
                }
                OCTET_UNROLL
                for (int i = 0; i < 4; ++i) {
                    const float scale = t.load_shared(&s.column_scale[0][me.column + 4 * q + i]);
                    words[4 * q + i][half] = t.template encode4<Codec>(of[0][i] * scale, of[1][i] * scale,
                                                                       of[2][i] * scale, of[3][i] * scale);
                }
            }
            OCTET_UNROLL
            for (int r = 0; r < 4; ++r)
                t.store8_if(row_after(4 * half + r) < rows, data + row_after(4 * half + r) * stride, eight[r]);
        }
        if (rows <= row_after(vectors - 1)) clear_padding(rows, words);
    }

    // Padding is zero bytes, whatever zero times the scale is.
    OCTET_GPU static void clear_padding(i32 rows, u32 (&words)[8][2]) {
        OCTET_UNROLL
        for (int half = 0; half < 2; ++half) {
            const u32 real = first_bytes(rows - row_after(4 * half));
            OCTET_UNROLL
            for (int i = 0; i < 8; ++i) words[i][half] &= real;
        }
    }

    // Where a tile's columns are transposed: [columns][tile_rows bytes]
    OCTET_GPU static Vec16 (*stage_of(Shared& s, u32 k))[static_cast<u32>(column_pieces)] {
        if constexpr (exchanges)
            return s.stage;
        else
            return reinterpret_cast<Vec16(*)[static_cast<u32>(column_pieces)]>(&s.slot[k % slots][0][0]);
    }

    // A thread's transposed words: of each of its columns, those of its 2 x 4 rows.
    template <class Thread>
    OCTET_GPU static void cast_columns(Thread& t, Shared& s, u32 k, TileState state,
                                       const Eight<In> (&x)[static_cast<u32>(vectors)], u32 (&words)[8][2]) {
        static_assert(vectors == 8);
        if (!state.has_columns()) return;
        const Place me = place_of(t);
        const float* scale_of = &s.column_scale[me.row / reduction][me.column];
        OCTET_UNROLL
        for (int i = 0; i < 8; ++i) {
            const float scale = t.load_shared(scales == TileScales::square ? &s.square_scale : scale_of + i);
            OCTET_UNROLL
            for (int half = 0; half < 2; ++half) {
                const Eight<In>* four = x + 4 * half;
                words[i][half] = t.template encode4<Codec>(four[0][i] * scale, four[1][i] * scale, four[2][i] * scale,
                                                           four[3][i] * scale);
            }
        }
        if (!state.is_whole()) clear_padding(t.load_shared(&nth(s, k).rows) - me.row, words);
    }

    // By how much the words of an eight of columns are turned. Where that swaps halves of 16 bytes, a store knows it
    // when it is compiled.
    OCTET_GPU static constexpr int turned(int eight) {
        const u32 e = static_cast<u32>(eight);
        return static_cast<int>(quads == 4 ? 4 * e : 4 * (e % 8) + 2 * (e / 8));
    }

    // `staged` columns of each eight, from the first on, where others find them.
    template <int first, class Thread>
    OCTET_GPU static void stage_columns(Thread& t, Shared& s, u32 k, TileState state, const u32 (&words)[8][2]) {
        if (!state.has_columns()) return;
        const Place me = place_of(t);
        u32* to = &stage_of(s, k)[me.column / 8 * staged][0].word[0];  // [columns][words of 4 rows]
        OCTET_UNROLL
        for (int i = 0; i < staged; ++i) {
            OCTET_UNROLL
            for (int half = 0; half < 2; ++half)
                t.store_shared(to + i * (tile_rows / 4) + ((me.row / 4 + quads * half) ^ turned(me.column / 8)),
                               words[first + i][half]);
        }
    }

    template <int first, class Thread>
    OCTET_GPU static void store_columns(Thread& t, Shared& s, u32 k, TileState state) {
        if (!state.has_columns()) return;
        constexpr int step = threads / column_pieces, times = tile_columns * staged / 8 / step,
                      apart = step / staged * 8;
        const u32 thread = static_cast<u32>(t.thread()), place = thread / column_pieces;
        const int piece = static_cast<int>(thread % column_pieces), eight0 = static_cast<int>(place / staged),
                  column = eight0 * 8 + first + static_cast<int>(place % staged);
        const Vec16(*transposed)[static_cast<u32>(column_pieces)] = stage_of(s, k);
        const i64 stride = t.load_shared(&nth(s, k).column_stride);
        u8* to = t.load_shared(&nth(s, k).column_data) + column * stride + 16 * piece;
        const auto transposed_of = [&](int i) {
            const u32 turn = static_cast<u32>(turned(eight0 + apart / 8 * i)) / 4;
            const Vec16 read =
                t.load_shared(&transposed[place + static_cast<u32>(step * i)][static_cast<u32>(piece) ^ turn]);
            static_assert(quads == 4 || 64 % apart == 0);
            const bool swapped = quads == 2 && apart * i / 64 % 2 == 1;  // halves: turned(eight) & 2
            Vec16 v;
            OCTET_UNROLL
            for (int w = 0; w < 4; ++w) v.word[w] = swapped ? read.word[w ^ 2] : read.word[w];
            return v;
        };
        if (state.stores_lines()) {
            OCTET_UNROLL
            for (int i = 0; i < times; ++i) t.template store16<Reuse::last>(to + i * apart * stride, transposed_of(i));
            return;
        }
        const i32 room = t.load_shared(&nth(s, k).room) - 16 * piece,
                  columns = room > 0 ? t.load_shared(&nth(s, k).columns) - column : 0;
        if (state.pieces() == Pieces::wide && room >= 16) {
            OCTET_UNROLL
            for (int i = 0; i < times; ++i) {
                const Vec16 v = transposed_of(i);
                if (apart * i < columns) t.template store16<Reuse::last>(to + i * apart * stride, v);
            }
            return;
        }
        OCTET_ROLLED
        for (int i = 0; i < times && apart * i < columns; ++i)
            store_sixteen_by_bytes(t, to + i * apart * stride, transposed_of(i), room);
    }
};

}  // namespace octet::gpu
