// SwiGLU, forward and backward, alone or with the quantization along rows that follows (octet/activation.hpp).
//
//   forward   gate_up[M, 2H]             -> s[M, H]           parts = 1
//   backward  gate_up[M, 2H], ds[M, H]   -> dgate_up[M, 2H]   parts = 2: gate, up
//
// Bytes: each input once, each output once; with quantization the result itself is not written unless asked for. A team
// of one or more 32-thread units shares a row, eight neighbouring elements a thread at a time. About 40 instructions an
// element, 60 backward, need more than half of the issue slots that the bytes leave time for, so:
//   - blocks take row after row, and a thread sends for its next inputs, the next row's included, as soon as it has
//     computed with those it has;
//   - a row's results lie in shared memory between the maximum and the cast, each thread's own: the elements of a row
//     are a loop, with few registers and many threads;
//   - rows that can be read and written eight at a time have a kernel without a trace of tails.
#pragma once

#include <type_traits>

#include "gpu/eight.hpp"
#include "gpu/outputs.hpp"
#include "gpu/permute.hpp"
#include "octet/recipe.hpp"

namespace octet::gpu {

struct SwigluParams {
    const void* gate_up;  // [M, 2H]
    i64 gate_up_stride;
    const float* weights;  // [M] or null
    const void* ds;        // [M, H], backward
    i64 ds_stride;
    void* out;  // [M, parts * H] as In stores it, or null
    i64 out_stride;
    u8* data;  // [M, parts * H], with quantization
    i64 data_stride;
    ScaleOut scale;
    ScaleRule rule;
    float* weight_gradients;  // [M] or null, backward
    i32 rows;                 // M
    i32 half;                 // H
    i32 team;                 // threads a row: a multiple of 32 that divides the block's 256
    i32 reach;                // H, rounded up to whole turns of a team
    i32 held;                 // a row's results are kept until its scale is known
};

// Codec void: no quantization. `whole`: every row of every tensor, and its second half, starts on 16 bytes (8 for
// data), and H is a multiple of 8. `writes`: there is an `out`.
template <class In_, class Codec_, Scaling scaling, bool backward, bool whole, bool writes>
struct SwigluKernel {
    using In = In_;
    using Codec = Codec_;
    using Params = SwigluParams;
    static constexpr int threads = 256;
    static constexpr int blocks_per_core = backward ? 3 : 4;
    static constexpr int parts = backward ? 2 : 1;
    static constexpr int inputs = backward ? 3 : 2;
    static constexpr bool quantizes = !std::is_void_v<Codec>;
    static constexpr bool mx = scaling == Scaling::mx;
    static constexpr int block = static_cast<int>(block_of(scaling));  // 0: the row
    static constexpr bool by_row = quantizes && block == 0;
    static constexpr int eights = In::words == 4 ? 2 : 1;        // of a thread in a turn
    static constexpr int held = !by_row ? 0 : backward ? 6 : 8;  // eights of a thread whose results are kept

    struct Shared {
        Vec16 result[static_cast<u32>(by_row ? held * parts : 1)][by_row ? threads : 1];
        // Of units, for the others of their team. Rows alternate between two halves, with one barrier a row.
        u32 amax[2][threads / unit];
        float sum[2][threads / unit][swiglu_rule::lanes];
    };

    template <class Thread>
    OCTET_GPU static void run(Thread& t, const Params& p, Shared& s) {
        const i32 rows_here = threads / p.team, step = static_cast<i32>(t.blocks()) * rows_here;
        i32 first = static_cast<i32>(t.block()) * rows_here;
        Row row(t, p, first);
        Inputs in(t, p, row);
        Vec16* const results = &s.result[0][by_row ? t.thread() : 0];
        // The teams of a block go on while its first one has a row: they meet at barriers.
        OCTET_ROLLED
        for (u32 parity = 0; first < p.rows; first += step, parity ^= 1) {
            const float next_weight = weight_of(t, p, row.index + step);
            const i32 then = by_row && !p.held ? row.index : row.index + step;
            Vec16* kept = results;
            u32 peak = 0;
            i32 column = row.me * 8;
            OCTET_ROLLED
            do {
                const i32 ahead = in.prepare(p, row, column, then);
                OCTET_UNROLL
                for (int j = 0; j < eights; ++j, column += p.team * 8, kept += parts * threads) {
                    Result v;
                    compute(t, p, row, column, j, ahead, in, v, true);
                    if constexpr (writes) write(t, p, row, column, v);
                    if constexpr (by_row) {
                        peak = peak_of(t, v, peak);
                        if (p.held) keep(t, kept, v);
                    } else if constexpr (quantizes) {
                        quantize_blocks(t, p, row, column, v);
                    }
                }
            } while (column < p.reach);
            if constexpr (by_row || backward) share(t, p, s, parity, row, peak);
            if constexpr (by_row) {
                const float scale = make_scale<Codec, false>(t, f32_bits_of<In>(peak), p.rule, p.scale,
                                                             row.columns > 0 && row.me == 0, 0, row.index, 0);
                column = row.me * 8;
                u8* data = p.data + row.index * p.data_stride + column;
                if (p.held) {
                    const Vec16* from = results;
                    OCTET_ROLLED
                    for (; column < row.columns; column += p.team * 8, data += p.team * 8, from += parts * threads)
                        encode(t, p, row, column, data, kept_result(t, from), scale);
                } else {  // longer than what is kept: computed again, from inputs that the caches serve
                    OCTET_ROLLED
                    while (column < p.reach) {
                        const i32 ahead = in.prepare(p, row, column, row.index + step);
                        OCTET_UNROLL
                        for (int j = 0; j < eights; ++j, column += p.team * 8, data += p.team * 8) {
                            Result v;
                            compute(t, p, row, column, j, ahead, in, v, false);
                            if (column < row.columns) encode(t, p, row, column, data, v, scale);
                        }
                    }
                }
            }
            row.move(p, row.index + step, next_weight);
        }
    }

private:
    using Element = typename In::Element;

    // A thread without a row has no columns: it reads nothing, and meets every barrier.
    OCTET_GPU static i32 columns_of(const Params& p, i32 row) { return row < p.rows ? p.half : 0; }
    template <class Thread>
    OCTET_GPU static float weight_of(Thread& t, const Params& p, i32 row) {
        return p.weights && row < p.rows ? t.load(p.weights + row) : 1.0f;
    }

    struct Row {
        i32 index;
        i32 columns;
        int me;  // of the team
        float weight;
        float lane_sum;  // this thread's lane of the weight's gradient
        template <class Thread>
        OCTET_GPU Row(Thread& t, const Params& p, i32 first) : me(t.thread() % p.team) {
            const i32 row = first + t.thread() / p.team;
            move(p, row, weight_of(t, p, row));
        }
        OCTET_GPU void move(const Params& p, i32 row, float its_weight) {
            index = row;
            columns = columns_of(p, row);
            weight = its_weight;
            lane_sum = 0.0f;
        }
    };

    struct Input {
        Eight<In> x[static_cast<u32>(inputs)];
    };
    struct Result {
        Eight<In> x[static_cast<u32>(parts)];
    };

    // The inputs that were sent for: a turn's, row after row.
    struct Inputs {
        Input of[static_cast<u32>(eights)];
        template <class Thread>
        OCTET_GPU Inputs(Thread& t, const Params& p, const Row& row) {
            begin(p, row.index);
            OCTET_UNROLL
            for (int j = 0; j < eights; ++j) send(t, p, j, (row.me + j * p.team) * 8);
        }
        // The first column of the turn after the one at `column`: of this row, or else of `next_row`.
        OCTET_GPU i32 prepare(const Params& p, const Row& row, i32 column, i32 next_row) {
            column += p.team * 8 * eights;
            if (column < p.reach) return column;
            begin(p, next_row);
            return row.me * 8;
        }
        // For the j-th inputs of a turn, from `column` on.
        template <class Thread>
        OCTET_GPU void send(Thread& t, const Params& p, int j, i32 column) {
            const i32 count = columns_ - column;
            if (count <= 0) return;
            OCTET_UNROLL
            for (int i = 0; i < inputs; ++i) {
                const Element* from = i == 2 ? ds_ + column : gate_ + column + i * p.half;
                if constexpr (whole)
                    of[j].x[i] = load_eight<In>(t, from);
                else
                    of[j].x[i] = load_some<In>(t, from, count);
            }
        }

    private:
        OCTET_GPU void begin(const Params& p, i32 row) {
            columns_ = columns_of(p, row);
            gate_ = static_cast<const Element*>(p.gate_up) + row * p.gate_up_stride;
            if constexpr (backward) ds_ = static_cast<const Element*>(p.ds) + row * p.ds_stride;
        }

        const Element* gate_;  // the row
        const Element* ds_ = nullptr;
        i32 columns_;
    };

    // The results of the j-th inputs that were sent for; then those that follow are. `first`: the visit in which the
    // weight's gradient is summed.
    template <class Thread>
    OCTET_GPU static void compute(Thread& t, const Params& p, Row& row, i32 column, int j, i32 ahead, Inputs& in,
                                  Result& out, bool first) {
        const i32 count = row.columns - column;
        float terms[8] = {};
        if (count > 0) {
            out = result_of(t, row, in.of[j], terms);
            // What lies past the row was read as zero, and zero times an infinite weight is NaN.
            if constexpr (!whole) {
                OCTET_UNROLL
                for (int part = 0; part < parts; ++part) out.x[part] = first_of(out.x[part], count);
            }
        } else {
            OCTET_UNROLL
            for (int part = 0; part < parts; ++part) out.x[part] = zero_eight<In>();
        }
        in.send(t, p, j, ahead + j * p.team * 8);
        if constexpr (backward) {
            if (!p.weight_gradients || !first) return;
            const float sum = fold_terms(t, terms);
            const u32 piece = static_cast<u32>(column) / swiglu_rule::piece;
            if (static_cast<u32>(row.me) % unit == piece % swiglu_rule::lanes) row.lane_sum = row.lane_sum + sum;
        }
    }

    template <class Thread>
    OCTET_GPU static Result result_of(Thread& t, const Row& row, const Input& in, float* terms) {
        float values[static_cast<u32>(parts)][8];
        OCTET_UNROLL
        for (int k = 0; k < 8; ++k) {
            if constexpr (backward) {
                const auto slopes = swiglu_rule::backward(t, in.x[0][k], in.x[1][k], row.weight, in.x[2][k]);
                values[0][k] = slopes.gate;
                values[1][k] = slopes.up;
                terms[k] = slopes.weight;
            } else {
                values[0][k] = swiglu_rule::forward(t, in.x[0][k], in.x[1][k], row.weight);
            }
        }
        Result out;
        OCTET_UNROLL
        for (int part = 0; part < parts; ++part) out.x[part] = round_eight<In>(t, values[part]);
        return out;
    }

    template <class Thread>
    OCTET_GPU static void write(Thread& t, const Params& p, const Row& row, i32 column, const Result& v) {
        if (column >= row.columns) return;
        auto* out = static_cast<Element*>(p.out) + row.index * p.out_stride + column;
        OCTET_UNROLL
        for (int part = 0; part < parts; ++part)
            store_elements<In>(t, out + part * p.half, v.x[part], whole ? 8 : row.columns - column, whole);
    }

    template <class Thread>
    OCTET_GPU static u32 peak_of(Thread& t, const Result& v, u32 peak) {
        OCTET_UNROLL
        for (int part = 0; part < parts; ++part)
            peak = magnitude_max<In>(t, peak, fold_across(t, magnitudes_of(v.x[part])));
        return peak;
    }

    // bf16 alone is quantized here: eight of them are one Vec16.
    template <class Thread>
    OCTET_GPU static void keep(Thread& t, Vec16* to, const Result& v) {
        OCTET_UNROLL
        for (int part = 0; part < parts; ++part) t.store_shared(to + part * threads, std::bit_cast<Vec16>(v.x[part]));
    }
    template <class Thread>
    OCTET_GPU static Result kept_result(Thread& t, const Vec16* from) {
        Result v;
        OCTET_UNROLL
        for (int part = 0; part < parts; ++part)
            v.x[part] = std::bit_cast<Eight<In>>(t.load_shared(from + part * threads));
        return v;
    }

    // `data`: where the row's elements from `column` on go.
    template <class Thread>
    OCTET_GPU static void store_codes(Thread& t, const Row& row, i32 column, u8* data, const Vec8& codes) {
        if constexpr (whole)
            t.template store8<Reuse::last>(data, codes);
        else
            store_eight(t, data, codes, row.columns - column);
    }
    template <class Thread>
    OCTET_GPU static void encode(Thread& t, const Params& p, const Row& row, i32 column, u8* data, const Result& v,
                                 float scale) {
        OCTET_UNROLL
        for (int part = 0; part < parts; ++part)
            store_codes(t, row, column, data + part * p.half, encode_eight<Codec>(t, v.x[part], scale));
    }

    // A block is local to a few lanes; with two parts, half is a multiple of it.
    template <class Thread>
    OCTET_GPU static void quantize_blocks(Thread& t, const Params& p, const Row& row, i32 column, const Result& v) {
        u8* data = p.data + row.index * p.data_stride + column;
        OCTET_UNROLL
        for (int part = 0; part < parts; ++part) {
            const u32 peak = fold_lanes<In, block / 8>(t, fold_across(t, magnitudes_of(v.x[part])));
            const bool wanted = column < row.columns && row.me % (block / 8) == 0;
            const float scale = make_scale<Codec, mx>(t, f32_bits_of<In>(peak), p.rule, p.scale, wanted, 0, row.index,
                                                      (part * p.half + column) / block);
            if (column < row.columns)
                store_codes(t, row, column, data + part * p.half, encode_eight<Codec>(t, v.x[part], scale));
        }
    }

    // Its row's peak to every thread of a team, and the weight's gradient to where it is wanted.
    template <class Thread>
    OCTET_GPU static void share(Thread& t, const Params& p, Shared& s, u32 parity, const Row& row, u32& peak) {
        const bool sums = backward && p.weight_gradients;
        const int me = t.thread() / unit, units = p.team / unit, first = me & -units;  // units of the block
        if constexpr (by_row) peak = fold_lanes<In, unit>(t, peak);
        if (units > 1 && (by_row || sums)) {
            const int lane = t.thread() % unit;
            if constexpr (by_row)
                if (lane == 0) t.store_shared(&s.amax[parity][me], peak);
            // Piece i was summed by unit i % units of the team, in its lane i % 8: each lane of the sum is one
            // thread's.
            if constexpr (backward)
                if (sums && lane < swiglu_rule::lanes && (lane & (units - 1)) == me - first)
                    t.store_shared(&s.sum[parity][first][lane], row.lane_sum);
            t.barrier();
            if constexpr (by_row)
                for (int i = 0; i < units; ++i)
                    peak = magnitude_max<In>(t, peak, t.load_shared(&s.amax[parity][first + i]));
        }
        if constexpr (backward) {
            if (!sums) return;
            const int lane = row.me % swiglu_rule::lanes;
            float sum = units > 1 ? t.load_shared(&s.sum[parity][first][lane]) : row.lane_sum;
            OCTET_UNROLL
            for (int mask = 1; mask < swiglu_rule::lanes; mask *= 2)
                sum = sum + std::bit_cast<float>(t.shuffle_xor(std::bit_cast<u32>(sum), mask));
            if (row.me == 0 && row.columns > 0) t.store(p.weight_gradients + row.index, sum);
        }
    }
};

}  // namespace octet::gpu
