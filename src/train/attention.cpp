#include "train/attention.hpp"

#include <algorithm>
#include <cmath>

#include "core/parallel.hpp"
#include "cpu/product_blas.hpp"
#include "cpu/workspace.hpp"
#include "octet/error.hpp"
#include "train/vectorized.hpp"

namespace octet::train {
namespace {

using cpu::blas_multiply;
using cpu::BlasMatrix;
using cpu::Chunk;
using cpu::Lies;

constexpr std::int64_t queries_per_block = 64;

// Turns `rows` rows of pairs by their positions; direction -1 turns back.
OCTET_INLINE void turn(float* x, std::int64_t step, std::int64_t rows, std::int64_t pairs, const float* cosines,
                       const float* sines, float direction) {
    for (std::int64_t row = 0; row < rows; ++row, x += step) {
        float* second = x + pairs;
        const float* c = cosines + row * pairs;
        const float* s = sines + row * pairs;
        each16(pairs, [&] [[gnu::always_inline]] (std::int64_t, auto get, auto put) {
            const F32x16 a = get(x), b = get(second), cosine = get(c), sine = get(s) * direction;
            put(x, a * cosine - b * sine);
            put(second, b * cosine + a * sine);
        });
    }
}

// Rows of scores have room for whole vectors: what lies past the last score may be anything and is masked.
constexpr std::int64_t row_step(std::int64_t scores) { return round_up(scores, lanes); }

// f(i, x) for every 16 of the `valid` scores, x with the lanes past them set to `rest`.
template <class F>
OCTET_INLINE void each_valid(const float* row, std::int64_t valid, float rest, F&& f) {
    std::int64_t i = 0;
    for (; i + lanes <= valid; i += lanes) f(i, load(row + i));
    if (i < valid) f(i, first_lanes(load(row + i), valid - i, rest));
}

// Scores to probabilities: the first `valid` count, the others of n become 0. Returns the log-sum-exp.
OCTET_INLINE float softmax_row(float* scores, std::int64_t valid, std::int64_t n, float scale) {
    F32x16 highest = spread(scores[0]);
    each_valid(scores, valid, scores[0],
               [&] [[gnu::always_inline]] (std::int64_t, F32x16 x) { highest = larger(x, highest); });
    const float shift = largest(highest) * scale;
    F32x16 sums{};
    each_valid(scores, valid, 0.0f, [&] [[gnu::always_inline]] (std::int64_t i, F32x16 x) {
        const F32x16 p = first_lanes(exponential(x * scale - shift), valid - i, 0.0f);
        sums += p;
        store(scores + i, p);
    });
    const float total = sum(sums), inverse = 1.0f / total;
    const std::int64_t written = row_step(valid);
    for (std::int64_t i = 0; i < written; i += lanes) store(scores + i, load(scores + i) * inverse);
    for (std::int64_t i = written; i < n; i += lanes) store(scores + i, F32x16{});
    return shift + std::log(total);
}

// Scores to probabilities again, with the log-sum-exp at hand, and dp to the gradient of the scores:
// scale * p * (dp - sum of p * dp).
OCTET_INLINE void backward_row(float* p, float* dp, std::int64_t valid, std::int64_t n, float scale, float log_sum) {
    F32x16 products{};
    each_valid(p, valid, 0.0f, [&] [[gnu::always_inline]] (std::int64_t i, F32x16 x) {
        const F32x16 probability = first_lanes(exponential(x * scale - log_sum), valid - i, 0.0f);
        const F32x16 slope = first_lanes(load(dp + i), valid - i, 0.0f);
        products += probability * slope;
        store(p + i, probability);
        store(dp + i, slope);
    });
    const float mixed = sum(products);
    const std::int64_t written = row_step(valid);
    for (std::int64_t i = 0; i < written; i += lanes) store(dp + i, scale * (load(p + i) * (load(dp + i) - mixed)));
    for (std::int64_t i = written; i < n; i += lanes) {
        store(p + i, F32x16{});
        store(dp + i, F32x16{});
    }
}

OCTET_INLINE void round_rows(const float* from, std::int64_t rows, std::int64_t count, std::uint16_t* to,
                             std::int64_t step) {
    for (std::int64_t row = 0; row < rows; ++row)
        each16(count, [&] [[gnu::always_inline]] (std::int64_t, auto get, auto put) {
            put(to + row * step, get(from + row * count));
        });
}

void check_tensor(const char* what, const ConstTensorView& x, std::int64_t rows, std::int64_t columns) {
    require(x.rank() == 2 && x.size(0) == rows && x.size(1) == columns && x.extents.contiguous(), what, " has shape ",
            to_string(x.extents), "; expected contiguous [", rows, ", ", columns, "]");
}

void check_f32(const char* what, const ConstTensorView& x) {
    require(x.format == Format::f32, what, " has format ", name(x.format), ", expected f32");
}

// Where the rows of one sequence and one kind of head lie.
struct Place {
    std::int64_t step;   // features of a token
    std::int64_t first;  // of the sequence's first token
    std::int64_t head_dim;
    template <class T>
    T* of(T* base, std::int64_t head) const {
        return base + first * step + head * head_dim;
    }
};

BlasMatrix rows_of(const float* data, std::int64_t step) { return {data, step, Lies::along_reduction}; }
BlasMatrix columns_of(const float* data, std::int64_t step) { return {data, step, Lies::across_reduction}; }

// One task: a sequence and a key-value head with the query heads that share it, so that its key and value gradients
// are one thread's, in one order.
struct Task {
    std::int64_t sequence, kv_head;
};

template <class F>
void each_task(const AttentionShape& shape, int threads, F&& f) {
    const cpu::SingleThreadedBlas single;
    parallel_for(threads, shape.sequences * shape.kv_heads, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) f(Task{i / shape.kv_heads, i % shape.kv_heads});
    });
}

}  // namespace

void RotaryTable::reserve(std::int64_t length) {
    if (length <= length_) return;
    auto* cosines = static_cast<float*>(table_.reshape(Format::f32, {2, length, pairs_}).data);
    float* sines = cosines + length * pairs_;
    for (std::int64_t pair = 0; pair < pairs_; ++pair) {
        const double turns = std::pow(theta_, -static_cast<double>(pair) / static_cast<double>(pairs_));
        for (std::int64_t position = 0; position < length; ++position) {
            const double angle = static_cast<double>(position) * turns;
            cosines[position * pairs_ + pair] = static_cast<float>(std::cos(angle));
            sines[position * pairs_ + pair] = static_cast<float>(std::sin(angle));
        }
    }
    length_ = length;
}

void attention(const AttentionShape& shape, const RotaryTable& rotary, TensorView qkv, TensorView out, float* log_sums,
               const Execution& on) {
    const std::int64_t t = shape.tokens(), s = shape.length, d = shape.head_dim, group = shape.heads / shape.kv_heads;
    check_tensor("qkv", qkv, t, shape.features());
    check_tensor("out", out, t, shape.heads * d);
    check_f32("qkv", qkv);
    const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(d)));
    auto* base = static_cast<float*>(qkv.data);
    each_task(shape, on.threads, [&](const Task& task) {
        cpu::Workspace scratch;
        auto* scores = scratch.take<float>(queries_per_block * row_step(s));
        auto* mixed = scratch.take<float>(queries_per_block * d);
        const Place in{shape.features(), task.sequence * s, d}, result{shape.heads * d, task.sequence * s, d};
        float* k = in.of(base, shape.heads + task.kv_head);
        const float* v = in.of(base, shape.heads + shape.kv_heads + task.kv_head);
        vectorized([&] [[gnu::always_inline]] { turn(k, in.step, s, d / 2, rotary.cosines(), rotary.sines(), 1.0f); });
        for (std::int64_t head = task.kv_head * group; head < (task.kv_head + 1) * group; ++head) {
            float* q = in.of(base, head);
            vectorized(
                [&] [[gnu::always_inline]] { turn(q, in.step, s, d / 2, rotary.cosines(), rotary.sines(), 1.0f); });
            float* sums = log_sums == nullptr ? nullptr : log_sums + head * t + task.sequence * s;
            for (std::int64_t begin = 0; begin < s; begin += queries_per_block) {
                const std::int64_t rows = std::min(queries_per_block, s - begin), n = begin + rows;  // keys in sight
                const std::int64_t step = row_step(n);
                blas_multiply(rows, n, d, rows_of(q + begin * in.step, in.step), rows_of(k, in.step), Chunk::first,
                              scores, step);
                vectorized([&] [[gnu::always_inline]] {
                    for (std::int64_t row = 0; row < rows; ++row) {
                        const float log_sum = softmax_row(scores + row * step, begin + row + 1, n, scale);
                        if (sums != nullptr) sums[begin + row] = log_sum;
                    }
                });
                if (out.format == Format::f32) {
                    float* to = result.of(static_cast<float*>(out.data), head) + begin * result.step;
                    blas_multiply(rows, d, n, rows_of(scores, step), columns_of(v, in.step), Chunk::first, to,
                                  result.step);
                } else {
                    auto* to = result.of(static_cast<std::uint16_t*>(out.data), head) + begin * result.step;
                    blas_multiply(rows, d, n, rows_of(scores, step), columns_of(v, in.step), Chunk::first, mixed, d);
                    vectorized([&] [[gnu::always_inline]] { round_rows(mixed, rows, d, to, result.step); });
                }
            }
        }
    });
}

void attention_backward(const AttentionShape& shape, const RotaryTable& rotary, ConstTensorView qkv,
                        const float* log_sums, ConstTensorView dout, TensorView dqkv, const Execution& on) {
    const std::int64_t t = shape.tokens(), s = shape.length, d = shape.head_dim, group = shape.heads / shape.kv_heads;
    check_tensor("qkv", qkv, t, shape.features());
    check_tensor("dout", dout, t, shape.heads * d);
    check_tensor("dqkv", dqkv, t, shape.features());
    check_f32("qkv", qkv);
    check_f32("dout", dout);
    check_f32("dqkv", dqkv);
    const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(d)));
    const auto* base = static_cast<const float*>(qkv.data);
    auto* gradient = static_cast<float*>(dqkv.data);
    each_task(shape, on.threads, [&](const Task& task) {
        cpu::Workspace scratch;
        auto* p = scratch.take<float>(queries_per_block * row_step(s));
        auto* dp = scratch.take<float>(queries_per_block * row_step(s));
        const Place in{shape.features(), task.sequence * s, d}, result{shape.heads * d, task.sequence * s, d};
        const std::int64_t key_head = shape.heads + task.kv_head, value_head = key_head + shape.kv_heads;
        const float *k = in.of(base, key_head), *v = in.of(base, value_head);
        float *dk = in.of(gradient, key_head), *dv = in.of(gradient, value_head);
        for (std::int64_t row = 0; row < s; ++row) {
            std::fill_n(dk + row * in.step, d, 0.0f);
            std::fill_n(dv + row * in.step, d, 0.0f);
        }
        for (std::int64_t head = task.kv_head * group; head < (task.kv_head + 1) * group; ++head) {
            const float* q = in.of(base, head);
            float* dq = in.of(gradient, head);
            const float* slopes = result.of(static_cast<const float*>(dout.data), head);
            const float* sums = log_sums + head * t + task.sequence * s;
            for (std::int64_t begin = 0; begin < s; begin += queries_per_block) {
                const std::int64_t rows = std::min(queries_per_block, s - begin), n = begin + rows;
                const std::int64_t step = row_step(n);
                const float* q_block = q + begin * in.step;
                const float* slope_block = slopes + begin * result.step;
                blas_multiply(rows, n, d, rows_of(q_block, in.step), rows_of(k, in.step), Chunk::first, p, step);
                blas_multiply(rows, n, d, rows_of(slope_block, result.step), rows_of(v, in.step), Chunk::first, dp,
                              step);
                vectorized([&] [[gnu::always_inline]] {
                    for (std::int64_t row = 0; row < rows; ++row) {
                        backward_row(p + row * step, dp + row * step, begin + row + 1, n, scale, sums[begin + row]);
                    }
                });
                blas_multiply(n, d, rows, columns_of(p, step), columns_of(slope_block, result.step), Chunk::further, dv,
                              in.step);
                blas_multiply(n, d, rows, columns_of(dp, step), columns_of(q_block, in.step), Chunk::further, dk,
                              in.step);
                blas_multiply(rows, d, n, rows_of(dp, step), columns_of(k, in.step), Chunk::first, dq + begin * in.step,
                              in.step);
            }
            vectorized(
                [&] [[gnu::always_inline]] { turn(dq, in.step, s, d / 2, rotary.cosines(), rotary.sines(), -1.0f); });
        }
        vectorized(
            [&] [[gnu::always_inline]] { turn(dk, in.step, s, d / 2, rotary.cosines(), rotary.sines(), -1.0f); });
    });
}

}  // namespace octet::train
