// The permutation: rows copied to the experts' order, and summed back token by token.
#include "cpu/tokens.hpp"

#include <algorithm>
#include <cstring>

#include "core/parallel.hpp"
#include "core/swiglu.hpp"
#include "cpu/simd.hpp"
#include "octet/error.hpp"

namespace octet::cpu {
namespace {

constexpr std::int64_t rows_per_task = 16;
constexpr std::int64_t strip = 512;  // features summed at a time: the sums stay in the first-level cache

template <class View>
auto* row_of(const View& view, std::int64_t row) {
    using Byte = std::conditional_t<std::is_same_v<View, TensorView>, char, const char>;
    return static_cast<Byte*>(view.data) + row * view.stride(0) * bytes_of(view.format);
}

std::int64_t row_of_slot(const TokenOrder& order, std::int64_t slot) {
    const std::int64_t row = order.row_of_slot[slot];
    return row >= 0 && row < order.rows ? row : -1;
}
std::int64_t slot_of_row(const TokenOrder& order, std::int64_t row) {
    const std::int64_t slot = order.slot_of_row[row];
    return slot >= 0 && slot < order.slots() ? slot : -1;
}

// A strip of a row as f32.
const float* read(const ConstTensorView& x, std::int64_t row, std::int64_t from, std::int64_t count, float* room) {
    if (x.format == Format::f32) return reinterpret_cast<const float*>(row_of(x, row)) + from;
    const auto* in = reinterpret_cast<const std::uint16_t*>(row_of(x, row)) + from;
    for (std::int64_t i = 0; i < count; ++i) room[i] = BF16::decode(in[i]);
    return room;
}

void write(const TensorView& y, std::int64_t row, std::int64_t from, std::int64_t count, const float* values) {
    if (y.format == Format::f32) {
        std::copy_n(values, count, reinterpret_cast<float*>(row_of(y, row)) + from);
    } else {
        auto* out = reinterpret_cast<std::uint16_t*>(row_of(y, row)) + from;
        for (std::int64_t i = 0; i < count; ++i) out[i] = BF16::encode(values[i]);
    }
}

using AddWeighted = void (*)(float* sums, const float* x, float weight, std::int64_t count);
void add_weighted(float* sums, const float* x, float weight, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) sums[i] = __builtin_fmaf(weight, x[i], sums[i]);
}
#if defined(__x86_64__)
[[gnu::target("avx2,fma")]] void add_weighted_avx2(float* sums, const float* x, float weight, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) sums[i] = __builtin_fmaf(weight, x[i], sums[i]);
}
#endif
AddWeighted weighted_function() {
#if defined(__x86_64__)
    if (active_target() != Target::baseline) return add_weighted_avx2;
#endif
    return add_weighted;
}

}  // namespace

void permute_tokens(const TokenOrder& order, ConstTensorView tokens, TensorView rows, const Execution& on) {
    const auto bytes = static_cast<std::size_t>(tokens.size(1) * bytes_of(tokens.format));
    parallel_for(on.threads, order.rows, rows_per_task, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t m = begin; m < end; ++m) {
            const std::int64_t slot = slot_of_row(order, m);
            if (slot < 0)
                std::memset(row_of(rows, m), 0, bytes);
            else
                std::memcpy(row_of(rows, m), row_of(tokens, slot / order.top_k), bytes);
        }
    });
}

void combine_tokens(const TokenOrder& order, ConstTensorView rows, const float* weights,
                    std::span<const ConstTensorView> addends, TensorView y, const Execution& on) {
    const std::int64_t features = y.size(1);
    const AddWeighted weighted = weighted_function();
    const auto add = [](float* sums, const float* x, std::int64_t count) {
        for (std::int64_t i = 0; i < count; ++i) sums[i] += x[i];
    };
    parallel_for(on.threads, order.tokens, rows_per_task, [&](std::int64_t begin, std::int64_t end) {
        float sums[strip], room[strip];
        for (std::int64_t t = begin; t < end; ++t) {
            for (std::int64_t from = 0; from < features; from += strip) {
                const std::int64_t count = std::min(strip, features - from);
                std::fill_n(sums, count, 0.0f);
                for (std::int64_t slot = t * order.top_k; slot < (t + 1) * order.top_k; ++slot) {
                    const std::int64_t row = row_of_slot(order, slot);
                    if (row < 0) continue;
                    const float* x = read(rows, row, from, count, room);
                    if (weights == nullptr)
                        add(sums, x, count);
                    else
                        weighted(sums, x, weights[slot], count);
                }
                for (const ConstTensorView& addend : addends) add(sums, read(addend, t, from, count, room), count);
                write(y, t, from, count, sums);
            }
        }
    });
}

void combine_tokens_backward(const TokenOrder& order, ConstTensorView dy, ConstTensorView rows, const float* weights,
                             TensorView drows, float* weight_gradients, const Execution& on) {
    constexpr std::int64_t piece = swiglu_rule::piece;
    const std::int64_t features = dy.size(1);
    parallel_for(on.threads, order.rows, rows_per_task, [&](std::int64_t begin, std::int64_t end) {
        float values[piece], room[piece];
        for (std::int64_t m = begin; m < end; ++m) {
            const std::int64_t slot = slot_of_row(order, m);
            const float weight = weights == nullptr || slot < 0 ? 1.0f : weights[slot];
            for (std::int64_t from = 0; from < features; from += piece) {
                const std::int64_t count = std::min(piece, features - from);
                std::fill_n(values, count, 0.0f);
                if (slot >= 0) {
                    const float* d = read(dy, slot / order.top_k, from, count, room);
                    for (std::int64_t i = 0; i < count; ++i) values[i] = weight * d[i];
                }
                write(drows, m, from, count, values);
            }
        }
    });
    if (weight_gradients == nullptr) return;
    parallel_for(on.threads, order.slots(), rows_per_task, [&](std::int64_t begin, std::int64_t end) {
        float terms[piece], dy_room[piece], row_room[piece];
        for (std::int64_t slot = begin; slot < end; ++slot) {
            const std::int64_t row = row_of_slot(order, slot);
            float lanes[swiglu_rule::lanes] = {};
            if (row >= 0 && slot_of_row(order, row) == slot) {
                for (std::int64_t from = 0; from < features; from += piece) {
                    const std::int64_t count = std::min(piece, features - from);
                    const float* d = read(dy, slot / order.top_k, from, count, dy_room);
                    const float* x = read(rows, row, from, count, row_room);
                    for (std::int64_t i = 0; i < count; ++i) terms[i] = d[i] * x[i];
                    std::fill(terms + count, terms + piece, 0.0f);
                    lanes[from / piece % swiglu_rule::lanes] += swiglu_rule::fold_piece(terms);
                }
            }
            weight_gradients[slot] = swiglu_rule::fold_eight(lanes);
        }
    });
}

}  // namespace octet::cpu
