// SwiGLU with the router's weight, forward and backward. One row a step; the loops are written so that compilers
// vectorize them, and compiled for several widths of vectors.
#include <algorithm>
#include <bit>

#include "cpu/parallel.hpp"
#include "cpu/simd.hpp"
#include "octet/error.hpp"
#include "octet/moe.hpp"

namespace octet {
namespace {

constexpr std::int64_t rows_per_task = 4;
constexpr std::int64_t lanes = 16;  // partial sums of a dot product: the same on every machine

// e^x to about 1 unit in the last place: x = n ln2 + r, then a polynomial in r and n into the exponent.
[[gnu::always_inline]] inline float exponential(float x) {
    constexpr float log2e = 1.44269504f, ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
    constexpr float to_integer = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
    x = x > 88.0f ? 88.0f : x;
    x = x < -87.0f ? -87.0f : x;
    const float shifted = x * log2e + to_integer;
    const float n = shifted - to_integer;
    const std::uint32_t exponent = std::bit_cast<std::uint32_t>(shifted) + 127u;
    const float r = (x - n * ln2_high) - n * ln2_low;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return p * std::bit_cast<float>(exponent << 23);
}

[[gnu::always_inline]] inline float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }

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
    for (std::int64_t i = 0; i < count; ++i) {
        const float g = value_of(gate[i]);
        put(s[i], weight * (g * sigmoid(g) * value_of(up[i])));
    }
}

// The slopes of up to `lanes` elements, and ds * silu(g) * u of each added into its lane.
template <class T>
[[gnu::always_inline]] inline void backward_piece(const T* gate, const T* up, const T* ds, std::int64_t count,
                                                  float weight, T* dgate, T* dup, float* sums) {
    for (std::int64_t i = 0; i < count; ++i) {
        const float g = value_of(gate[i]), u = value_of(up[i]), d = value_of(ds[i]);
        const float sig = sigmoid(g), silu = g * sig;
        put(dgate[i], d * weight * u * (sig * (1.0f + g * (1.0f - sig))));
        put(dup[i], d * weight * silu);
        sums[i] += d * (silu * u);
    }
}

// Returns the gradient of the weight: the sum over the row of ds * silu(g) * u.
template <class T>
[[gnu::always_inline]] inline float backward_row(const T* gate, const T* up, const T* ds, std::int64_t count,
                                                 float weight, T* dgate, T* dup) {
    float sums[lanes] = {};
    std::int64_t i = 0;
    for (; i + lanes <= count; i += lanes)
        backward_piece(gate + i, up + i, ds + i, lanes, weight, dgate + i, dup + i, sums);
    backward_piece(gate + i, up + i, ds + i, count - i, weight, dgate + i, dup + i, sums);
    float sum = 0.0f;
    for (const float partial : sums) sum += partial;
    return sum;
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
[[gnu::target("avx2")]] void forward(const T* gate, const T* up, std::int64_t count, float weight, T* s) {
    forward_row(gate, up, count, weight, s);
}
template <class T>
[[gnu::target("avx2")]] float backward(const T* gate, const T* up, const T* ds, std::int64_t count, float weight,
                                       T* dgate, T* dup) {
    return backward_row(gate, up, ds, count, weight, dgate, dup);
}
}  // namespace avx2
namespace avx512 {
template <class T>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")]] void forward(const T* gate, const T* up,
                                                                                           std::int64_t count,
                                                                                           float weight, T* s) {
    forward_row(gate, up, count, weight, s);
}
template <class T>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")]] float backward(
    const T* gate, const T* up, const T* ds, std::int64_t count, float weight, T* dgate, T* dup) {
    return backward_row(gate, up, ds, count, weight, dgate, dup);
}
}  // namespace avx512
#endif

template <class T>
RowFunctions<T> row_functions() {
#if defined(__x86_64__)
    switch (cpu::active_target()) {
        case cpu::Target::avx512: return {avx512::forward<T>, avx512::backward<T>};
        case cpu::Target::avx2: return {avx2::forward<T>, avx2::backward<T>};
        case cpu::Target::baseline: break;
    }
#endif
    return {baseline::forward<T>, baseline::backward<T>};
}

void check_shapes(const ConstTensorView& gate_up, const char* what, const ConstTensorView& s) {
    const bool fits = gate_up.rank() == 2 && s.rank() == 2 && gate_up.size(0) == s.size(0) &&
                      gate_up.size(1) == 2 * s.size(1) && gate_up.format == s.format;
    require(fits, "gate_up has shape ", to_string(gate_up.extents), " and format ", name(gate_up.format), ", ", what,
            " has shape ", to_string(s.extents), " and format ", name(s.format),
            "; expected [rows, 2 H] and [rows, H] of one format");
    require(s.format == Format::bf16 || s.format == Format::f32, what, " has format ", name(s.format),
            ", expected bf16 or f32");
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
    check_shapes(gate_up, "s", s);
    const std::int64_t h = s.size(1);
    with_element(s.format, [&](auto element) {
        using T = decltype(element);
        const RowFunctions<T> functions = row_functions<T>();
        cpu::parallel_for(on.threads, s.size(0), rows_per_task, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t m = begin; m < end; ++m) {
                const T* row = row_of<T>(gate_up, m);
                functions.forward(row, row + h, h, weights == nullptr ? 1.0f : weights[m], row_of<T>(s, m));
            }
        });
    });
}

void swiglu_backward(ConstTensorView gate_up, const float* weights, ConstTensorView ds, TensorView dgate_up,
                     float* weight_gradients, const Execution& on) {
    check_shapes(gate_up, "ds", ds);
    check_shapes(dgate_up, "ds", ds);
    const std::int64_t h = ds.size(1);
    with_element(ds.format, [&](auto element) {
        using T = decltype(element);
        const RowFunctions<T> functions = row_functions<T>();
        cpu::parallel_for(on.threads, ds.size(0), rows_per_task, [&](std::int64_t begin, std::int64_t end) {
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

}  // namespace octet
