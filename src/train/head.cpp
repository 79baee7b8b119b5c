#include "train/head.hpp"

#include <algorithm>
#include <cmath>

#include "core/parallel.hpp"
#include "linear/stopwatch.hpp"
#include "octet/error.hpp"
#include "octet/product.hpp"
#include "train/norm.hpp"
#include "train/vectorized.hpp"

namespace octet::train {
namespace {

constexpr std::int64_t logits_at_a_time = std::int64_t{1} << 22;  // 16 MiB of them

OCTET_INLINE float largest_of(const float* x, std::int64_t count) {
    F32x16 highest = spread(x[0]);
    std::int64_t i = 0;
    for (; i + lanes <= count; i += lanes) {
        const F32x16 y = load(x + i);
        highest = y > highest ? y : highest;
    }
    if (i < count) {
        const F32x16 y = load_some(x + i, count - i, x[0]);
        highest = y > highest ? y : highest;
    }
    return largest(highest);
}

// Returns the log-sum-exp; the logits become e^(logit - largest), and `total` is their sum.
OCTET_INLINE float exponentials(float* x, std::int64_t count, float& total) {
    const float shift = largest_of(x, count);
    F32x16 sums{};
    std::int64_t i = 0;
    for (; i + lanes <= count; i += lanes) {
        const F32x16 e = exponential(load(x + i) - shift);
        sums += e;
        store(x + i, e);
    }
    if (i < count) {
        F32x16 e = exponential(load_some(x + i, count - i, shift) - shift);
        for (std::int64_t lane = count - i; lane < lanes; ++lane) e[lane] = 0.0f;
        sums += e;
        store_some(x + i, count - i, e);
    }
    total = sum(sums);
    return shift + std::log(total);
}

OCTET_INLINE void scale_row(float* x, std::int64_t count, float by) {
    each16(count, [&] [[gnu::always_inline]] (std::int64_t, auto get, auto put) { put(x, get(x) * by); });
}

Groups one_group(const std::int32_t& end) { return {&end, 1, {}}; }

template <class View>
View rows_of(const View& x, std::int64_t begin, std::int64_t rows) {
    View part = x;
    part.data = static_cast<decltype(x.data)>(
        const_cast<char*>(static_cast<const char*>(x.data) + begin * x.stride(0) * bytes_of(x.format)));
    part.extents.shape[0] = rows;
    return part;
}

template <class View>
View as_expert(const View& w) {
    return View(w.data, w.format, {1, w.size(0), w.size(1)});
}

}  // namespace

void cross_entropy(std::span<const std::int32_t> targets, TensorView logits, float scale, float* losses,
                   const Execution& on) {
    const std::int64_t rows = logits.size(0), v = logits.size(1);
    require(static_cast<std::int64_t>(targets.size()) == rows, targets.size(),
            " targets were given for logits of shape ", to_string(logits.extents));
    for (std::size_t t = 0; t < targets.size(); ++t)
        require(targets[t] < v, "target ", t, " is ", targets[t], "; the vocabulary has 0 to ", v - 1);
    auto* all = static_cast<float*>(logits.data);
    parallel_for(on.threads, rows, 16, [&](std::int64_t begin, std::int64_t end) {
        vectorized([&] [[gnu::always_inline]] {
            for (std::int64_t t = begin; t < end; ++t) {
                float* row = all + t * v;
                const std::int32_t target = targets[static_cast<std::size_t>(t)];
                losses[t] = 0.0f;
                if (target < 0) {
                    std::fill_n(row, v, 0.0f);
                    continue;
                }
                const float of_target = row[target];
                float total = 0.0f;
                losses[t] = exponentials(row, v, total) - of_target;
                if (scale == 0.0f) continue;
                scale_row(row, v, scale / total);
                row[target] -= scale;
            }
        });
    });
}

Head::Head(std::int64_t vocabulary, std::int64_t hidden, Format activations)
    : vocabulary_(vocabulary), hidden_(hidden), activations_(activations) {}

ConstTensorView Head::prepare(ConstTensorView weights, const Execution& on) {
    require(weights.rank() == 2 && weights.size(0) == vocabulary_ && weights.size(1) == hidden_,
            "the head's weights have shape ", to_string(weights.extents), ", expected [", vocabulary_, ", ", hidden_,
            "]");
    if (activations_ == Format::f32) return as_expert(weights);
    if (!prepared_) convert(weights, rounded_.reshape(Format::bf16, {1, vocabulary_, hidden_}), on);
    prepared_ = true;
    return rounded_.view();
}

std::int64_t Head::rows_at_a_time() const {
    return std::clamp<std::int64_t>(logits_at_a_time / vocabulary_, 128, 1 << 14);
}

void Head::logits(ConstTensorView x, ConstTensorView weights, TensorView out, const Execution& on) {
    const auto end = static_cast<std::int32_t>(x.size(0));
    const ConstTensorView w = prepare(weights, on);
    timed(product_seconds_, [&] { grouped_forward(x, w, one_group(end), out, {}, on); });
}

template <class F>
double Head::each_chunk(ConstTensorView x, ConstTensorView weights, std::span<const std::int32_t> targets, float scale,
                        const Execution& on, F&& then) {
    const ConstTensorView w = prepare(weights, on);
    const std::int64_t tokens = x.size(0);
    double total = 0;
    for (std::int64_t begin = 0; begin < tokens; begin += rows_at_a_time()) {
        const std::int64_t rows = std::min(rows_at_a_time(), tokens - begin);
        const auto end = static_cast<std::int32_t>(rows);
        const TensorView chunk = logits_.reshape(Format::f32, {rows, vocabulary_});
        const ConstTensorView x_rows = rows_of(x, begin, rows);
        timed(product_seconds_, [&] { grouped_forward(x_rows, w, one_group(end), chunk, {}, on); });
        auto* losses = static_cast<float*>(losses_.reshape(Format::f32, {rows}).data);
        cross_entropy(targets.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(rows)), chunk, scale,
                      losses, on);
        for (std::int64_t t = 0; t < rows; ++t) total += static_cast<double>(losses[t]);
        then(begin, rows, x_rows, w, ConstTensorView(chunk));
    }
    return total;
}

double Head::loss(ConstTensorView x, ConstTensorView weights, std::span<const std::int32_t> targets,
                  const Execution& on) {
    return each_chunk(x, weights, targets, 0.0f, on, [](auto...) {});
}

double Head::loss_and_gradient(ConstTensorView x, ConstTensorView weights, std::span<const std::int32_t> targets,
                               double scale, TensorView dx, TensorView weight_gradient, const Execution& on) {
    return each_chunk(x, weights, targets, static_cast<float>(scale), on,
                      [&](std::int64_t begin, std::int64_t rows, const ConstTensorView& x_rows,
                          const ConstTensorView& w, const ConstTensorView& dlogits) {
                          const auto end = static_cast<std::int32_t>(rows);
                          timed(product_seconds_, [&] {
                              grouped_dgrad(dlogits, w, one_group(end), rows_of(dx, begin, rows), {}, on);
                              grouped_wgrad(dlogits, x_rows, one_group(end), 1, as_expert(weight_gradient),
                                            {Update::add}, on);
                          });
                      });
}

}  // namespace octet::train
