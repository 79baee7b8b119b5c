#include "train/norm.hpp"

#include <cmath>

#include "core/parallel.hpp"
#include "octet/error.hpp"
#include "train/vectorized.hpp"

namespace octet::train {
namespace {

constexpr std::int64_t rows_per_task = 32;
constexpr std::int64_t rows_per_sum = 64;  // tokens whose weight gradients are summed before all blocks are

template <class T>
OCTET_INLINE void add_row(const float* before, const T* branch, std::int64_t d, float* h) {
    each16(d, [&] [[gnu::always_inline]] (std::int64_t, auto get, auto put) { put(h, get(before) + get(branch)); });
}

OCTET_INLINE float sum_of_squares(const float* h, std::int64_t d) {
    F32x16 squares{};
    each16(d, [&] [[gnu::always_inline]] (std::int64_t, auto get, auto) {
        const F32x16 x = get(h);
        squares += x * x;
    });
    return sum(squares);
}

template <class T>
OCTET_INLINE void scale_row(const float* h, const float* weight, float inverse, std::int64_t d, T* y) {
    each16(d,
           [&] [[gnu::always_inline]] (std::int64_t, auto get, auto put) { put(y, get(weight) * (get(h) * inverse)); });
}

// With n = h * r: dh = r * (g - n * mean(g * n)), g = weight * dy; the weight's gradient is dy * n.
template <class T>
OCTET_INLINE void backward_row(const float* h, float inverse, const float* weight, const T* dy, std::int64_t d,
                               float* dh, float* dweight) {
    F32x16 products{};
    each16(d, [&] [[gnu::always_inline]] (std::int64_t, auto get, auto) {
        products += get(weight) * get(dy) * (get(h) * inverse);
    });
    const float mean = sum(products) / static_cast<float>(d);
    each16(d, [&] [[gnu::always_inline]] (std::int64_t, auto get, auto put) {
        const F32x16 slope = get(dy), normed = get(h) * inverse;
        put(dh, get(dh) + inverse * (get(weight) * slope - normed * mean));
        put(dweight, get(dweight) + slope * normed);
    });
}

OCTET_INLINE void add_into(const float* x, std::int64_t count, float* y) {
    each16(count, [&] [[gnu::always_inline]] (std::int64_t, auto get, auto put) { put(y, get(y) + get(x)); });
}

template <class To, class From>
OCTET_INLINE void convert_row(const From* x, std::int64_t count, To* y) {
    each16(count, [&] [[gnu::always_inline]] (std::int64_t, auto get, auto put) { put(y, get(x)); });
}

template <class F>
void with_element(Format format, F&& f) {
    if (format == Format::bf16) {
        f(std::uint16_t{});
    } else {
        f(float{});
    }
}

void check_rows(const char* what, const ConstTensorView& x, std::int64_t t, std::int64_t d) {
    require(x.rank() == 2 && x.size(0) == t && x.size(1) == d && x.extents.contiguous(), what, " has shape ",
            to_string(x.extents), "; expected contiguous [", t, ", ", d, "]");
    require(x.format == Format::bf16 || x.format == Format::f32, what, " has format ", name(x.format),
            ", expected bf16 or f32");
}

}  // namespace

void add_branch(const NormInput& input, const Execution& on) {
    const std::int64_t t = input.before.size(0), d = input.before.size(1);
    check_rows("branch", input.branch, t, d);
    check_rows("h", input.h, t, d);
    const auto* before = static_cast<const float*>(input.before.data);
    auto* h = static_cast<float*>(input.h.data);
    with_element(input.branch.format, [&](auto element) {
        const auto* branch = static_cast<const decltype(element)*>(input.branch.data);
        parallel_for(on.threads, t, rows_per_task, [&](std::int64_t begin, std::int64_t end) {
            vectorized([&] [[gnu::always_inline]] {
                add_row(before + begin * d, branch + begin * d, (end - begin) * d, h + begin * d);
            });
        });
    });
}

void rms_norm(const NormInput& input, const float* weight, double eps, TensorView y, float* inverse_rms,
              const Execution& on) {
    const std::int64_t t = input.before.size(0), d = input.before.size(1);
    check_rows("y", y, t, d);
    if (!input.branch.null()) add_branch(input, on);
    const auto* h = static_cast<const float*>(input.branch.null() ? input.before.data : input.h.data);
    with_element(y.format, [&](auto element) {
        auto* out = static_cast<decltype(element)*>(y.data);
        parallel_for(on.threads, t, rows_per_task, [&](std::int64_t begin, std::int64_t end) {
            vectorized([&] [[gnu::always_inline]] {
                for (std::int64_t row = begin; row < end; ++row) {
                    const float* x = h + row * d;
                    const double mean = static_cast<double>(sum_of_squares(x, d)) / static_cast<double>(d);
                    inverse_rms[row] = static_cast<float>(1.0 / std::sqrt(mean + eps));
                    scale_row(x, weight, inverse_rms[row], d, out + row * d);
                }
            });
        });
    });
}

void rms_norm_backward(ConstTensorView h, const float* inverse_rms, const float* weight, ConstTensorView dy,
                       TensorView dh, float* weight_gradient, ReusedTensor& partial, const Execution& on) {
    const std::int64_t t = h.size(0), d = h.size(1), blocks = ceil_div(t, rows_per_sum);
    check_rows("dy", dy, t, d);
    check_rows("dh", dh, t, d);
    auto* sums = static_cast<float*>(partial.reshape(Format::f32, {blocks, d}).data);
    const auto* x = static_cast<const float*>(h.data);
    auto* dx = static_cast<float*>(dh.data);
    with_element(dy.format, [&](auto element) {
        const auto* slopes = static_cast<const decltype(element)*>(dy.data);
        parallel_for(on.threads, blocks, 1, [&](std::int64_t begin, std::int64_t end) {
            vectorized([&] [[gnu::always_inline]] {
                for (std::int64_t block = begin; block < end; ++block) {
                    float* dweight = sums + block * d;
                    std::memset(dweight, 0, static_cast<std::size_t>(d) * sizeof(float));
                    const std::int64_t last = (block + 1) * rows_per_sum < t ? (block + 1) * rows_per_sum : t;
                    for (std::int64_t row = block * rows_per_sum; row < last; ++row)
                        backward_row(x + row * d, inverse_rms[row], weight, slopes + row * d, d, dx + row * d, dweight);
                }
            });
        });
    });
    vectorized([&] [[gnu::always_inline]] {
        for (std::int64_t block = 0; block < blocks; ++block) add_into(sums + block * d, d, weight_gradient);
    });
}

void convert(ConstTensorView x, TensorView y, const Execution& on) {
    const std::int64_t count = x.extents.elements();
    require(y.extents.elements() == count, "x has shape ", to_string(x.extents), " and y ", to_string(y.extents));
    with_element(x.format, [&](auto from) {
        with_element(y.format, [&](auto to) {
            const auto* in = static_cast<const decltype(from)*>(x.data);
            auto* out = static_cast<decltype(to)*>(y.data);
            parallel_for(on.threads, count, 1 << 14, [&](std::int64_t begin, std::int64_t end) {
                vectorized([&] [[gnu::always_inline]] { convert_row(in + begin, end - begin, out + begin); });
            });
        });
    });
}

}  // namespace octet::train
