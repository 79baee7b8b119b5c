#include "reference/tokens.hpp"

#include <cstring>
#include <vector>

#include "core/element.hpp"
#include "core/swiglu.hpp"
#include "octet/memory.hpp"
#include "reference/quantize.hpp"

// A Mixture-of-Experts layer sorts its tokens by expert (permute), lets each expert work on its own rows, and adds
// every token's rows up again with the weights that the router gave them (combine). Inside an expert, SwiGLU joins the
// two halves of the first product: gate and up. All of it is computed in f32 and rounded once when it is stored.

namespace octet::reference {
namespace {

constexpr swiglu_rule::HostMath math{};

// The row of a slot, or -1 where it was dropped; and the other way round.
std::int64_t row_of(const TokenOrder& order, std::int64_t slot) {
    const std::int64_t row = order.row_of_slot[slot];
    return row >= 0 && row < order.rows ? row : -1;
}
std::int64_t slot_of(const TokenOrder& order, std::int64_t row) {
    const std::int64_t slot = order.slot_of_row[row];
    return slot >= 0 && slot < order.slots() ? slot : -1;
}

// The sum of term(0) .. term(count - 1) in the order that GPUs find easy: see core/swiglu.hpp.
template <class Term>
float sum_in_order(std::int64_t count, Term term) {
    float lanes[swiglu_rule::lanes] = {};
    for (std::int64_t start = 0; start < count; start += swiglu_rule::piece) {
        float terms[swiglu_rule::piece];
        for (std::int64_t i = 0; i < swiglu_rule::piece; ++i) terms[i] = start + i < count ? term(start + i) : 0.0f;
        lanes[start / swiglu_rule::piece % swiglu_rule::lanes] += swiglu_rule::fold_piece(terms);
    }
    return swiglu_rule::fold_eight(lanes);
}

}  // namespace

void permute_tokens(const TokenOrder& order, ConstTensorView tokens, TensorView rows, const Execution&) {
    const std::int64_t size = bytes_of(tokens.format);
    const auto bytes = static_cast<std::size_t>(tokens.size(1) * size);
    for (std::int64_t m = 0; m < order.rows; ++m) {
        auto* to = static_cast<char*>(rows.data) + m * rows.stride(0) * size;
        const std::int64_t slot = slot_of(order, m);
        if (slot < 0)
            std::memset(to, 0, bytes);
        else
            std::memcpy(to, static_cast<const char*>(tokens.data) + slot / order.top_k * tokens.stride(0) * size,
                        bytes);
    }
}

void combine_tokens(const TokenOrder& order, ConstTensorView rows, const float* weights,
                    std::span<const ConstTensorView> addends, TensorView y, const Execution&) {
    for (std::int64_t t = 0; t < order.tokens; ++t) {
        for (std::int64_t i = 0; i < y.size(1); ++i) {
            float sum = 0.0f;
            for (std::int64_t slot = t * order.top_k; slot < (t + 1) * order.top_k; ++slot) {
                const std::int64_t row = row_of(order, slot);
                if (row >= 0) sum = math.fma(weights == nullptr ? 1.0f : weights[slot], load(rows, row, i), sum);
            }
            for (const ConstTensorView& addend : addends) sum += load(addend, t, i);
            store(y, sum, t, i);
        }
    }
}

void combine_tokens_backward(const TokenOrder& order, ConstTensorView dy, ConstTensorView rows, const float* weights,
                             TensorView drows, float* weight_gradients, const Execution&) {
    for (std::int64_t m = 0; m < order.rows; ++m) {
        const std::int64_t slot = slot_of(order, m);
        for (std::int64_t i = 0; i < dy.size(1); ++i) {
            const float weight = weights == nullptr || slot < 0 ? 1.0f : weights[slot];
            store(drows, slot < 0 ? 0.0f : weight * load(dy, slot / order.top_k, i), m, i);
        }
    }
    if (weight_gradients == nullptr) return;
    for (std::int64_t slot = 0; slot < order.slots(); ++slot) {
        const std::int64_t row = row_of(order, slot), token = slot / order.top_k;
        // The two lists agree, or the slot has no row.
        weight_gradients[slot] =
            row < 0 || slot_of(order, row) != slot
                ? 0.0f
                : sum_in_order(dy.size(1), [&](std::int64_t i) { return load(dy, token, i) * load(rows, row, i); });
    }
}

void swiglu(ConstTensorView gate_up, const float* weights, TensorView s, const Execution&) {
    const std::int64_t h = s.size(1);
    for (std::int64_t m = 0; m < s.size(0); ++m)
        for (std::int64_t i = 0; i < h; ++i)
            store(s,
                  swiglu_rule::forward(math, load(gate_up, m, i), load(gate_up, m, h + i),
                                       weights == nullptr ? 1.0f : weights[m]),
                  m, i);
}

void swiglu_backward(ConstTensorView gate_up, const float* weights, ConstTensorView ds, TensorView dgate_up,
                     float* weight_gradients, const Execution&) {
    const std::int64_t h = ds.size(1);
    for (std::int64_t m = 0; m < ds.size(0); ++m) {
        const auto slopes = [&](std::int64_t i) {
            return swiglu_rule::backward(math, load(gate_up, m, i), load(gate_up, m, h + i),
                                         weights == nullptr ? 1.0f : weights[m], load(ds, m, i));
        };
        for (std::int64_t i = 0; i < h; ++i) {
            store(dgate_up, slopes(i).gate, m, i);
            store(dgate_up, slopes(i).up, m, h + i);
        }
        if (weight_gradients != nullptr)
            weight_gradients[m] = sum_in_order(h, [&](std::int64_t i) { return slopes(i).weight; });
    }
}

void swiglu_quantize(ConstTensorView gate_up, const float* weights, Groups groups, std::int64_t alignment,
                     const QuantizeOptions& options, QuantizedView rows, QuantizedView columns, const Execution& on) {
    Tensor s(gate_up.format, {gate_up.size(0), gate_up.size(1) / 2});
    reference::swiglu(gate_up, weights, s, on);
    reference::quantize_rows(s, options, rows, on);
    if (!columns.data.null()) reference::quantize_columns(s, groups, alignment, options, columns, on);
}

void swiglu_backward_quantize(ConstTensorView gate_up, const float* weights, ConstTensorView ds, Groups groups,
                              std::int64_t alignment, const QuantizeOptions& options, QuantizedView rows,
                              QuantizedView columns, float* weight_gradients, const Execution& on) {
    Tensor dgate_up(gate_up.format, {gate_up.size(0), gate_up.size(1)});
    reference::swiglu_backward(gate_up, weights, ds, dgate_up, weight_gradients, on);
    reference::quantize_rows(dgate_up, options, rows, on);
    if (!columns.data.null()) reference::quantize_columns(dgate_up, groups, alignment, options, columns, on);
}

}  // namespace octet::reference
