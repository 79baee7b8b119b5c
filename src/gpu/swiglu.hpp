// SwiGLU, forward and backward, alone or with the quantization along rows that follows (octet/activation.hpp).
//
//   forward   gate_up[M, 2H]             -> s[M, H]           parts = 1
//   backward  gate_up[M, 2H], ds[M, H]   -> dgate_up[M, 2H]   parts = 2: gate, up
//
// Bytes: each input once, each output once; with quantization the result itself is not written unless asked for. A team
// of one or more 32-thread units shares a row, as in rows.hpp. About 25 instructions an element: bound by memory, but
// not by much, so nothing is computed twice unless a row is longer than its team's registers.
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
    i64 rows;
    i32 half;     // H
    i32 team;     // threads a row: a multiple of 32 that divides the block's 256
    i32 aligned;  // every row of every tensor, and its second half, starts on 16 bytes
};

// Codec void: no quantization.
template <class In_, class Codec_, Scaling scaling, int vectors, bool backward>
struct SwigluKernel {
    using In = In_;
    using Codec = Codec_;
    using Params = SwigluParams;
    static constexpr int threads = 256;
    static constexpr int parts = backward ? 2 : 1;
    static constexpr int flight = 2;
    // Registers: what is held, and a flight's inputs.
    static constexpr int held = In::words * vectors * parts;
    static constexpr int blocks_per_core = held <= 8 ? 4 : held <= (backward ? 24 : 32) ? 3 : 2;
    static constexpr bool quantizes = !std::is_void_v<Codec>;
    static constexpr bool mx = scaling == Scaling::mx;
    static constexpr int block = static_cast<int>(block_of(scaling));  // 0: the row

    struct Shared {
        u32 amax[threads / unit];
        float sum[threads / unit * swiglu_rule::lanes];
    };

    template <class Thread>
    OCTET_GPU static void run(Thread& t, const Params& p, Shared& s) {
        Row row(t, p);
        const i32 reach = p.team * 8 * vectors;
        if constexpr (!quantizes || block != 0) {
            for (i32 start = 0; start < p.half; start += reach) {
                Values v;
                compute(t, p, row, start, v, true);
                write(t, p, row, start, v);
                if constexpr (quantizes) quantize_blocks(t, p, row, start, v);
            }
        } else if (p.half <= reach) {
            Values v;
            compute(t, p, row, 0, v, true);
            write(t, p, row, 0, v);
            const float scale = scale_of_row(t, p, s, row, peak_of(t, v, 0));
            encode(t, p, row, 0, v, scale);
        } else {
            // Longer than the team's registers: a second visit, which the caches serve.
            u32 peak = 0;
            for (i32 start = 0; start < p.half; start += reach) {
                Values v;
                compute(t, p, row, start, v, true);
                write(t, p, row, start, v);
                peak = peak_of(t, v, peak);
            }
            const float scale = scale_of_row(t, p, s, row, peak);
            for (i32 start = 0; start < p.half; start += reach) {
                Values v;
                compute(t, p, row, start, v, false);
                encode(t, p, row, start, v, scale);
            }
        }
        if constexpr (backward) store_weight_gradient(t, p, s, row);
    }

private:
    using Element = typename In::Element;

    struct Row {
        i64 index;
        bool mine;
        int me;  // of the team
        i32 columns;
        float weight;
        float lane_sum = 0.0f;  // this thread's lane of the weight's gradient
        template <class Thread>
        OCTET_GPU Row(Thread& t, const Params& p) {
            index = static_cast<i64>(t.block()) * (threads / p.team) + t.thread() / p.team;
            mine = index < p.rows;
            me = t.thread() % p.team;
            columns = mine ? p.half : 0;  // a thread without a row reads nothing, and meets every barrier
            weight = mine && p.weights ? t.load(p.weights + index) : 1.0f;
        }
    };

    struct Values {
        Eight<In> v[static_cast<u32>(vectors)][static_cast<u32>(parts)];
    };

    OCTET_GPU static i32 column_of(const Params& p, i32 start, int me, int j) { return start + (me + j * p.team) * 8; }

    // `first`: the visit in which the weight's gradient is summed.
    template <class Thread>
    OCTET_GPU static void compute(Thread& t, const Params& p, Row& row, i32 start, Values& out, bool first) {
        const bool aligned = p.aligned != 0;
        const i64 r = row.mine ? row.index : 0;
        const auto* gate = static_cast<const Element*>(p.gate_up) + r * p.gate_up_stride;
        const auto* ds = static_cast<const Element*>(p.ds) + r * p.ds_stride;
        // `flight` vectors are read at once: with all of them, inputs would take more registers than results.
        OCTET_UNROLL
        for (int j0 = 0; j0 < vectors; j0 += flight) {
            Eight<In> g[static_cast<u32>(flight)], u[static_cast<u32>(flight)], d[static_cast<u32>(flight)];
            OCTET_UNROLL
            for (int j = 0; j < flight; ++j) {
                const i32 column = column_of(p, start, row.me, j0 + j), count = row.columns - column;
                g[j] = load_elements<In>(t, gate + column, count, aligned);
                u[j] = load_elements<In>(t, gate + p.half + column, count, aligned);
                if constexpr (backward) d[j] = load_elements<In>(t, ds + column, count, aligned);
            }
            OCTET_UNROLL
            for (int j = 0; j < flight; ++j) {
                const i32 count = row.columns - column_of(p, start, row.me, j0 + j);
                const bool some = count > 0;  // no arithmetic for nobody
                if constexpr (backward)
                    slopes_of(t, p, row, start, j0 + j, g[j], u[j], d[j], some, first, out.v[j0 + j]);
                else
                    out.v[j0 + j][0] = some ? product_of(t, row, g[j], u[j]) : zero_eight<In>();
                // What lies past the row was read as zero, and zero times an infinite weight is NaN.
                if (count < 8) {
                    OCTET_UNROLL
                    for (int part = 0; part < parts; ++part) out.v[j0 + j][part] = first_of(out.v[j0 + j][part], count);
                }
            }
        }
    }

    template <class Thread>
    OCTET_GPU static Eight<In> product_of(Thread& t, const Row& row, const Eight<In>& g, const Eight<In>& u) {
        float values[8];
        OCTET_UNROLL
        for (int k = 0; k < 8; ++k) values[k] = swiglu_rule::forward(t, g[k], u[k], row.weight);
        return round_eight<In>(t, values);
    }

    template <class Thread>
    OCTET_GPU static void slopes_of(Thread& t, const Params& p, Row& row, i32 start, int j, const Eight<In>& g,
                                    const Eight<In>& u, const Eight<In>& d, bool some, bool first, Eight<In>* out) {
        float gates[8] = {}, ups[8] = {}, terms[8] = {};
        if (some) {
            OCTET_UNROLL
            for (int k = 0; k < 8; ++k) {
                const auto slopes = swiglu_rule::backward(t, g[k], u[k], row.weight, d[k]);
                gates[k] = slopes.gate;
                ups[k] = slopes.up;
                terms[k] = slopes.weight;
            }
        }
        out[0] = round_eight<In>(t, gates);
        out[1] = round_eight<In>(t, ups);
        if (!p.weight_gradients || !first) return;
        const float sum = fold_terms(t, terms);
        const i32 piece = (start + (row.me - row.me % unit + j * p.team) * 8) / swiglu_rule::piece;
        if (row.me % unit == piece % swiglu_rule::lanes) row.lane_sum = row.lane_sum + sum;
    }

    template <class Thread>
    OCTET_GPU static void write(Thread& t, const Params& p, const Row& row, i32 start, const Values& v) {
        if (!p.out) return;
        auto* out = static_cast<Element*>(p.out) + row.index * p.out_stride;
        OCTET_UNROLL
        for (int j = 0; j < vectors; ++j) {
            const i32 column = column_of(p, start, row.me, j);
            if (column >= row.columns) continue;
            OCTET_UNROLL
            for (int part = 0; part < parts; ++part)
                store_elements<In>(t, out + part * p.half + column, v.v[j][part], row.columns - column, p.aligned != 0);
        }
    }

    template <class Thread>
    OCTET_GPU static u32 peak_of(Thread& t, const Values& v, u32 peak) {
        OCTET_UNROLL
        for (int j = 0; j < vectors; ++j) OCTET_UNROLL
        for (int part = 0; part < parts; ++part)
            peak = magnitude_max<In>(t, peak, fold_across(t, magnitudes_of(v.v[j][part])));
        return peak;
    }

    template <class Thread>
    OCTET_GPU static void encode(Thread& t, const Params& p, const Row& row, i32 start, const Values& v, float scale) {
        u8* data = p.data + row.index * p.data_stride;
        OCTET_UNROLL
        for (int j = 0; j < vectors; ++j) {
            const i32 column = column_of(p, start, row.me, j);
            if (column >= row.columns) continue;
            OCTET_UNROLL
            for (int part = 0; part < parts; ++part)
                store_eight(t, data + part * p.half + column, encode_eight<Codec>(t, v.v[j][part], scale),
                            row.columns - column);
        }
    }

    // A block is local to a few lanes; with two parts, half is a multiple of it.
    template <class Thread>
    OCTET_GPU static void quantize_blocks(Thread& t, const Params& p, const Row& row, i32 start, const Values& v) {
        u8* data = p.data + row.index * p.data_stride;
        OCTET_UNROLL
        for (int j = 0; j < vectors; ++j) {
            const i32 column = column_of(p, start, row.me, j);
            OCTET_UNROLL
            for (int part = 0; part < parts; ++part) {
                const u32 peak = fold_lanes<In, block / 8>(t, fold_across(t, magnitudes_of(v.v[j][part])));
                const bool wanted = column < row.columns && row.me % (block / 8) == 0;
                const float scale = make_scale<Codec, mx>(t, f32_bits_of<In>(peak), p.rule, p.scale, wanted, 0,
                                                          row.index, (part * p.half + column) / block);
                if (column < row.columns)
                    store_eight(t, data + part * p.half + column, encode_eight<Codec>(t, v.v[j][part], scale),
                                row.columns - column);
            }
        }
    }

    template <class Thread>
    OCTET_GPU static float scale_of_row(Thread& t, const Params& p, Shared& s, const Row& row, u32 peak) {
        peak = fold_lanes<In, unit>(t, peak);
        if (p.team > unit) {
            const int mine = t.thread() / unit, first = mine - mine % (p.team / unit);
            if (t.thread() % unit == 0) t.store_shared(&s.amax[mine], peak);
            t.barrier();
            for (int i = 0; i < p.team / unit; ++i)
                peak = magnitude_max<In>(t, peak, t.load_shared(&s.amax[first + i]));
        }
        return make_scale<Codec, false>(t, f32_bits_of<In>(peak), p.rule, p.scale, row.mine && row.me == 0, 0,
                                        row.index, 0);
    }

    // Piece i was summed by unit i % units of the team, in its lane i % 8: each lane of the sum is in one thread.
    template <class Thread>
    OCTET_GPU static void store_weight_gradient(Thread& t, const Params& p, Shared& s, const Row& row) {
        if (!p.weight_gradients) return;
        const int lane = row.me % unit, units = p.team / unit;
        float* sums = s.sum + t.thread() / p.team * swiglu_rule::lanes;
        if (lane < swiglu_rule::lanes && lane % units == row.me / unit) t.store_shared(sums + lane, row.lane_sum);
        t.barrier();
        if (row.me != 0 || !row.mine) return;
        float lanes[swiglu_rule::lanes];
        OCTET_UNROLL
        for (int i = 0; i < swiglu_rule::lanes; ++i) lanes[i] = t.load_shared(sums + i);
        t.store(p.weight_gradients + row.index, swiglu_rule::fold_eight(lanes));
    }
};

}  // namespace octet::gpu
