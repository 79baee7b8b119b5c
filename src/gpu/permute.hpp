// Tokens to the experts' order and back (octet/permute.hpp). Bytes: every row once in and once out, each token's rows
// once for their sum. Bound by memory; a unit of 32 threads a row, or a piece of one.
#pragma once

#include "core/swiglu.hpp"
#include "gpu/eight.hpp"

namespace octet::gpu {

struct OrderLists {
    const i32* row_of_slot;  // [tokens * top_k]
    const i32* slot_of_row;  // [rows]
    i32 tokens, top_k, rows, slots;
};

// -1 where there is none.
template <class Thread>
OCTET_GPU i32 row_of_slot(Thread& t, const OrderLists& order, i32 slot) {
    const i32 row = t.load(order.row_of_slot + slot);
    return row >= 0 && row < order.rows ? row : -1;
}
template <class Thread>
OCTET_GPU i32 slot_of_row(Thread& t, const OrderLists& order, i32 row) {
    const i32 slot = t.load(order.slot_of_row + row);
    return slot >= 0 && slot < order.slots ? slot : -1;
}

// The rows in the order of their slots: the readers of one token are neighbours, and all but the first find it in the
// cache. Then the rows that are no slot's; where the two lists contradict each other, slot_of_row counts. `item` runs
// to slots + rows. Whether it names a row: its index and its slot, or -1.
struct RowAndSlot {
    i32 row, slot;
    bool agree;  // the slot names the row as well
};
template <class Thread>
OCTET_GPU bool find_row(Thread& t, const OrderLists& order, i64 item, RowAndSlot& found) {
    if (item < order.slots) {
        const i32 slot = static_cast<i32>(item), row = row_of_slot(t, order, slot);
        found = {row, slot, true};
        return row >= 0 && slot_of_row(t, order, row) == slot;
    }
    const i32 row = static_cast<i32>(item - order.slots), slot = slot_of_row(t, order, row);
    found = {row, slot, false};
    return slot < 0 || row_of_slot(t, order, slot) != row;
}

// The sum of one piece of 256 terms, eight a thread of a unit, in each thread: swiglu_rule's tree.
template <class Thread>
OCTET_GPU float fold_terms(Thread& t, const float* eight_terms) {
    float sum = swiglu_rule::fold_eight(eight_terms);
    OCTET_UNROLL
    for (int mask = 1; mask < unit; mask *= 2)
        sum = sum + std::bit_cast<float>(t.shuffle_xor(std::bit_cast<u32>(sum), mask));
    return sum;
}

// Eight elements of f32 values, stored as In stores them.
template <class In, class Thread>
OCTET_GPU Eight<In> round_eight(Thread& t, const float* values) {
    Eight<In> x;
    OCTET_UNROLL
    for (int i = 0; i < In::words; ++i) {
        if constexpr (In::words == 4)
            x.word[i] = t.encode_bf16x2(values[2 * i], values[2 * i + 1]);
        else
            x.word[i] = std::bit_cast<u32>(values[i]);
    }
    return x;
}

// Eight elements to `to`: wide where rows are aligned and all are wanted, else the first `count` one by one.
template <class In, class Thread>
OCTET_GPU void store_elements(Thread& t, typename In::Element* to, const Eight<In>& x, i32 count, bool aligned) {
    if (count >= 8 && aligned) {
        OCTET_UNROLL
        for (int piece = 0; piece < In::pieces; ++piece) {
            Vec16 v;
            OCTET_UNROLL
            for (int i = 0; i < 4; ++i) v.word[i] = x.word[piece * 4 + i];
            t.store16(to + piece * (8 / In::pieces), v);
        }
        return;
    }
    OCTET_UNROLL
    for (int i = 0; i < 8; ++i) {
        if (i >= count) continue;
        if constexpr (In::words == 4)
            t.store(to + i, static_cast<u16>(x.word[i >> 1] >> (i & 1 ? 16 : 0)));
        else
            t.store(to + i, x.word[i]);
    }
}

template <class In, class Thread>
OCTET_GPU Eight<In> load_elements(Thread& t, const typename In::Element* from, i32 count, bool aligned) {
    if (count >= 8 && aligned) return load_eight<In>(t, from);
    if (count > 0) return load_some<In>(t, from, count);
    return zero_eight<In>();
}

// ---- rows[m] = tokens[slot_of_row[m] / top_k]

struct PermuteParams {
    const u8* tokens;
    u8* rows;
    i64 token_stride, row_stride, row_bytes;
    OrderLists order;
    i32 wide;  // everything is a multiple of 16 bytes
};

struct PermuteKernel {
    using Params = PermuteParams;
    static constexpr int threads = 256;
    static constexpr int blocks_per_core = 6;
    static constexpr int loads = 4;  // in flight
    struct Shared {};

    template <class Thread>
    OCTET_GPU static void run(Thread& t, const Params& p, Shared&) {
        const i64 step = static_cast<i64>(t.blocks()) * (threads / unit);
        const int lane = t.thread() % unit;
        for (i64 item = static_cast<i64>(t.block()) * (threads / unit) + t.thread() / unit;
             item < static_cast<i64>(p.order.slots) + p.order.rows; item += step) {
            RowAndSlot found;
            if (!find_row(t, p.order, item, found)) continue;
            const i32 slot = found.slot;
            u8* to = p.rows + found.row * p.row_stride;
            const u8* from = p.tokens + (slot < 0 ? 0 : slot / p.order.top_k) * p.token_stride;
            if (p.wide)
                copy_wide(t, p, from, to, lane, slot >= 0);
            else
                for (i64 i = lane; i < p.row_bytes; i += unit) t.store(to + i, slot < 0 ? u8{0} : t.load(from + i));
        }
    }

private:
    template <class Thread>
    OCTET_GPU static void copy_wide(Thread& t, const Params& p, const u8* from, u8* to, int lane, bool given) {
        for (i64 start = lane * 16; start < p.row_bytes; start += unit * 16 * loads) {
            Vec16 v[loads];
            OCTET_UNROLL
            for (int j = 0; j < loads; ++j) {
                const i64 at = start + j * unit * 16;
                v[j] = given && at < p.row_bytes ? t.load16(from + at) : Vec16{};
            }
            OCTET_UNROLL
            for (int j = 0; j < loads; ++j) {
                const i64 at = start + j * unit * 16;
                if (at < p.row_bytes) t.store16(to + at, v[j]);
            }
        }
    }
};

// ---- y[t] = sum of the token's rows, then the addends

struct CombineParams {
    static constexpr int most_addends = 3;
    const void* rows;
    i64 row_stride;
    const float* weights;  // [slots] or null
    const void* addend[most_addends];
    i64 addend_stride[most_addends];
    i32 addend_f32[most_addends];
    i32 addends;
    void* y;
    i64 y_stride;
    i32 columns;
    i32 aligned;  // every row of everything starts on 16 bytes
    OrderLists order;
};

template <class In, class Out>
struct CombineKernel {
    using Params = CombineParams;
    static constexpr int threads = 256;
    static constexpr int blocks_per_core = 4;
    static constexpr int together = 4;  // rows read at once
    struct Shared {};

    template <class Thread>
    OCTET_GPU static void run(Thread& t, const Params& p, Shared&) {
        // A unit takes 256 columns of a token at a time: a few tokens are work for many units too.
        const i64 step = static_cast<i64>(t.blocks()) * (threads / unit),
                  pieces = (p.columns + unit * 8 - 1) / (unit * 8);
        for (i64 item = static_cast<i64>(t.block()) * (threads / unit) + t.thread() / unit;
             item < p.order.tokens * pieces; item += step) {
            const i64 token = item / pieces;
            const i32 column = (static_cast<i32>(item - token * pieces) * unit + t.thread() % unit) * 8;
            if (column < p.columns) sum_eight(t, p, token, column);
        }
    }

private:
    using Element = typename In::Element;

    template <class Thread>
    OCTET_GPU static void sum_eight(Thread& t, const Params& p, i64 token, i32 column) {
        const i32 count = p.columns - column;
        const bool aligned = p.aligned != 0;
        float sum[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        const i32 first = static_cast<i32>(token) * p.order.top_k;
        for (i32 j = 0; j < p.order.top_k; j += together) {
            Eight<In> x[together];
            i32 row[together];
            OCTET_UNROLL
            for (int i = 0; i < together; ++i) {
                row[i] = j + i < p.order.top_k ? row_of_slot(t, p.order, first + j + i) : -1;
                const auto* from = static_cast<const Element*>(p.rows) + (row[i] < 0 ? 0 : row[i]) * p.row_stride;
                x[i] = row[i] < 0 ? zero_eight<In>() : load_elements<In>(t, from + column, count, aligned);
            }
            OCTET_UNROLL
            for (int i = 0; i < together; ++i) {
                if (row[i] < 0) continue;
                const float weight = p.weights ? t.load(p.weights + first + j + i) : 1.0f;
                OCTET_UNROLL
                for (int k = 0; k < 8; ++k) sum[k] = t.fma(weight, x[i][k], sum[k]);
            }
        }
        for (i32 a = 0; a < p.addends; ++a) {
            if (p.addend_f32[a])
                add<F32In>(t, p, a, token, column, count, sum);
            else
                add<Bf16In>(t, p, a, token, column, count, sum);
        }
        auto* y = static_cast<typename Out::Element*>(p.y) + token * p.y_stride;
        store_elements<Out>(t, y + column, round_eight<Out>(t, sum), count, aligned);
    }

    template <class Addend, class Thread>
    OCTET_GPU static void add(Thread& t, const Params& p, i32 a, i64 token, i32 column, i32 count, float* sum) {
        const auto* from = static_cast<const typename Addend::Element*>(p.addend[a]) + token * p.addend_stride[a];
        const Eight<Addend> x = load_elements<Addend>(t, from + column, count, p.aligned != 0);
        OCTET_UNROLL
        for (int k = 0; k < 8; ++k) sum[k] = sum[k] + x[k];
    }
};

// ---- drows[m] = weight * dy[t], and the weights' gradients

struct CombineBackwardParams {
    const void* dy;
    i64 dy_stride;
    const void* rows;  // null where no weight gradients are wanted
    i64 row_stride;
    const float* weights;  // [slots] or null
    void* drows;
    i64 drow_stride;
    float* weight_gradients;  // [slots] or null
    i32 columns;
    i32 aligned;
    OrderLists order;
};

template <class In>
struct CombineBackwardKernel {
    using Params = CombineBackwardParams;
    static constexpr int threads = 256;
    static constexpr int blocks_per_core = 4;
    struct Shared {};

    template <class Thread>
    OCTET_GPU static void run(Thread& t, const Params& p, Shared&) {
        const i64 every = static_cast<i64>(t.blocks()) * threads;
        if (p.weight_gradients)  // of slots whose row does not name them
            for (i64 i = static_cast<i64>(t.block()) * threads + t.thread(); i < p.order.slots; i += every) {
                const i32 slot = static_cast<i32>(i), row = row_of_slot(t, p.order, slot);
                if (row < 0 || slot_of_row(t, p.order, row) != slot) t.store(p.weight_gradients + slot, 0.0f);
            }
        for (i64 item = static_cast<i64>(t.block()) * (threads / unit) + t.thread() / unit;
             item < static_cast<i64>(p.order.slots) + p.order.rows; item += every / unit) {
            RowAndSlot found;
            if (find_row(t, p.order, item, found)) one_row(t, p, found);
        }
    }

private:
    using Element = typename In::Element;

    template <class Thread>
    OCTET_GPU static void one_row(Thread& t, const Params& p, const RowAndSlot& found) {
        const i64 row = found.row;
        const i32 slot = found.slot;
        const bool aligned = p.aligned != 0, wanted = found.agree && p.weight_gradients;
        const float weight = p.weights && slot >= 0 ? t.load(p.weights + slot) : 1.0f;
        const auto* dy = static_cast<const Element*>(p.dy) + (slot < 0 ? 0 : slot / p.order.top_k) * p.dy_stride;
        const auto* x = static_cast<const Element*>(p.rows) + (wanted ? row : 0) * p.row_stride;
        auto* drow = static_cast<Element*>(p.drows) + row * p.drow_stride;
        const int lane = t.thread() % unit;
        float lane_sum = 0.0f;
        for (i32 start = 0, piece = 0; start < p.columns; start += unit * 8, ++piece) {
            const i32 column = start + lane * 8, count = p.columns - column;
            const Eight<In> d = slot < 0 ? zero_eight<In>() : load_elements<In>(t, dy + column, count, aligned);
            const Eight<In> r = wanted ? load_elements<In>(t, x + column, count, aligned) : zero_eight<In>();
            float scaled[8], terms[8];
            OCTET_UNROLL
            for (int k = 0; k < 8; ++k) {
                scaled[k] = slot < 0 ? 0.0f : weight * d[k];
                terms[k] = t.product(d[k], r[k]);
            }
            if (count > 0) store_elements<In>(t, drow + column, round_eight<In>(t, scaled), count, aligned);
            if (wanted) {
                const float sum = fold_terms(t, terms);
                if (lane == piece % swiglu_rule::lanes) lane_sum = lane_sum + sum;
            }
        }
        if (!wanted) return;
        OCTET_UNROLL
        for (int mask = 1; mask < swiglu_rule::lanes; mask *= 2)
            lane_sum = lane_sum + std::bit_cast<float>(t.shuffle_xor(std::bit_cast<u32>(lane_sum), mask));
        if (lane == 0) t.store(p.weight_gradients + slot, lane_sum);
    }
};

}  // namespace octet::gpu
