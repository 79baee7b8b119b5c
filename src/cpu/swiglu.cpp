// SwiGLU with the router's weight, forward and backward. One row a step; the loops are written so that compilers
// vectorize them, and compiled for several widths of vectors.
#include <algorithm>
#include <bit>

#include "core/parallel.hpp"
#include "core/swiglu.hpp"
#include "cpu/quantize.hpp"
#include "cpu/simd.hpp"
#include "cpu/tokens.hpp"
#include "octet/memory.hpp"

namespace octet::cpu {
namespace {

constexpr std::int64_t rows_per_task = 4;
constexpr swiglu_rule::HostMath math{};

[[gnu::always_inline]] inline float value_of(float x) { return x; }
[[gnu::always_inline]] inline float value_of(std::uint16_t x) { return BF16::decode(x); }
[[gnu::always_inline]] inline void put(float& to, float x) { to = x; }
[[gnu::always_inline]] inline void put(std::uint16_t& to, float x) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t rounded = (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16, quiet = bits >> 16 | 0x40u;
    to = static_cast<std::uint16_t>((bits & 0x7FFFFFFFu) > 0x7F800000u ? quiet : rounded);
}

template <class T>
[[gnu::always_inline]] inline void forward_row(const T* gate, const T* up, std::int64_t count, float weight, T* s) {
    for (std::int64_t i = 0; i < count; ++i)
        put(s[i], swiglu_rule::forward(math, value_of(gate[i]), value_of(up[i]), weight));
}

// The slopes of up to `piece` elements, and each one's term of the weight's gradient.
template <class T>
[[gnu::always_inline]] inline void backward_piece(const T* gate, const T* up, const T* ds, std::int64_t count,
                                                  float weight, T* dgate, T* dup, float* terms) {
    for (std::int64_t i = 0; i < count; ++i) {
        const auto slopes = swiglu_rule::backward(math, value_of(gate[i]), value_of(up[i]), weight, value_of(ds[i]));
        put(dgate[i], slopes.gate);
        put(dup[i], slopes.up);
        terms[i] = slopes.weight;
    }
}

// Returns the gradient of the weight.
template <class T>
[[gnu::always_inline]] inline float backward_row(const T* gate, const T* up, const T* ds, std::int64_t count,
                                                 float weight, T* dgate, T* dup) {
    float lanes[swiglu_rule::lanes] = {}, terms[swiglu_rule::piece];
    for (std::int64_t i = 0; i < count; i += swiglu_rule::piece) {
        const std::int64_t here = std::min<std::int64_t>(swiglu_rule::piece, count - i);
        std::fill(terms + here, terms + swiglu_rule::piece, 0.0f);
        backward_piece(gate + i, up + i, ds + i, here, weight, dgate + i, dup + i, terms);
        lanes[i / swiglu_rule::piece % swiglu_rule::lanes] += swiglu_rule::fold_piece(terms);
    }
    return swiglu_rule::fold_eight(lanes);
}

template <class T>
struct RowFunctions {
    void (*forward)(const T* gate, const T* up, std::int64_t count, float weight, T* s);
    float (*backward)(const T* gate, const T* up, const T* ds, std::int64_t count, float weight, T* dgate, T* dup);
};

// The same rows, compiled for one instruction set each.
namespace baseline {
template <class T>
void forward(const T* gate, const T* up, std::int64_t count, float weight, T* s) {
    forward_row(gate, up, count, weight, s);
}
template <class T>
float backward(const T* gate, const T* up, const T* ds, std::int64_t count, float weight, T* dgate, T* dup) {
    return backward_row(gate, up, ds, count, weight, dgate, dup);
}
}  // namespace baseline
#if defined(__x86_64__)
namespace avx2 {
template <class T>
[[gnu::target("avx2,fma")]] void forward(const T* gate, const T* up, std::int64_t count, float weight, T* s) {
    forward_row(gate, up, count, weight, s);
}
template <class T>
[[gnu::target("avx2,fma")]] float backward(const T* gate, const T* up, const T* ds, std::int64_t count, float weight,
                                           T* dgate, T* dup) {
    return backward_row(gate, up, ds, count, weight, dgate, dup);
}
}  // namespace avx2
namespace avx512 {
template <class T>
[[gnu::target("fma,avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")]] void forward(const T* gate,
                                                                                               const T* up,
                                                                                               std::int64_t count,
                                                                                               float weight, T* s) {
    forward_row(gate, up, count, weight, s);
}
template <class T>
[[gnu::target("fma,avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")]] float backward(
    const T* gate, const T* up, const T* ds, std::int64_t count, float weight, T* dgate, T* dup) {
    return backward_row(gate, up, ds, count, weight, dgate, dup);
}
}  // namespace avx512
#endif

template <class T>
RowFunctions<T> row_functions() {
#if defined(__x86_64__)
    switch (active_target()) {
        case Target::avx512: return {avx512::forward<T>, avx512::backward<T>};
        case Target::avx2: return {avx2::forward<T>, avx2::backward<T>};
        case Target::baseline: break;
    }
#endif
    return {baseline::forward<T>, baseline::backward<T>};
}

template <class T, class View>
auto* row_of(const View& view, std::int64_t row) {
    using Element = std::conditional_t<std::is_same_v<View, TensorView>, T, const T>;
    return static_cast<Element*>(view.data) + row * view.stride(0);
}

template <class F>
void with_element(Format format, F&& f) {
    if (format == Format::f32) {
        f(float{});
    } else {
        f(std::uint16_t{});
    }
}

}  // namespace

void swiglu(ConstTensorView gate_up, const float* weights, TensorView s, const Execution& on) {
    const std::int64_t h = s.size(1);
    with_element(s.format, [&](auto element) {
        using T = decltype(element);
        const RowFunctions<T> functions = row_functions<T>();
        parallel_for(on.threads, s.size(0), rows_per_task, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t m = begin; m < end; ++m) {
                const T* row = row_of<T>(gate_up, m);
                functions.forward(row, row + h, h, weights == nullptr ? 1.0f : weights[m], row_of<T>(s, m));
            }
        });
    });
}

void swiglu_backward(ConstTensorView gate_up, const float* weights, ConstTensorView ds, TensorView dgate_up,
                     float* weight_gradients, const Execution& on) {
    const std::int64_t h = ds.size(1);
    with_element(ds.format, [&](auto element) {
        using T = decltype(element);
        const RowFunctions<T> functions = row_functions<T>();
        parallel_for(on.threads, ds.size(0), rows_per_task, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t m = begin; m < end; ++m) {
                const T* row = row_of<T>(gate_up, m);
                T* out = row_of<T>(dgate_up, m);
                const float weight = weights == nullptr ? 1.0f : weights[m];
                const float sum = functions.backward(row, row + h, row_of<T>(ds, m), h, weight, out, out + h);
                if (weight_gradients != nullptr) weight_gradients[m] = sum;
            }
        });
    });
}

void swiglu_quantize(ConstTensorView gate_up, const float* weights, Groups groups, std::int64_t alignment,
                     const QuantizeOptions& options, QuantizedView rows, QuantizedView columns, const Execution& on) {
    Tensor s(gate_up.format, {gate_up.size(0), gate_up.size(1) / 2});
    cpu::swiglu(gate_up, weights, s, on);
    if (columns.data.null())
        cpu::quantize_rows(s, options, rows, on);
    else
        cpu::quantize_pair(s, groups, alignment, options, rows, columns, on);
}

void swiglu_backward_quantize(ConstTensorView gate_up, const float* weights, ConstTensorView ds, Groups groups,
                              std::int64_t alignment, const QuantizeOptions& options, QuantizedView rows,
                              QuantizedView columns, float* weight_gradients, const Execution& on) {
    Tensor dgate_up(gate_up.format, {gate_up.size(0), gate_up.size(1)});
    cpu::swiglu_backward(gate_up, weights, ds, dgate_up, weight_gradients, on);
    if (columns.data.null())
        cpu::quantize_rows(dgate_up, options, rows, on);
    else
        cpu::quantize_pair(dgate_up, groups, alignment, options, rows, columns, on);
}

}  // namespace octet::cpu
