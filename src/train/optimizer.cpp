#include "train/optimizer.hpp"

#include <cmath>
#include <cstring>

#include "core/parallel.hpp"
#include "core/zeros.hpp"
#include "octet/error.hpp"
#include "train/vectorized.hpp"

namespace octet::train {
namespace {

constexpr std::int64_t elements_per_sum = 1 << 14;  // squares that are summed by one task, whatever the threads

// Everything that is the same for all elements of a parameter.
struct Move {
    float clip, one_minus_beta1, one_minus_beta2;
    float first_correction, second_correction;  // 1 / (1 - beta^t)
    float rate, epsilon, decay;                 // decay: learning rate * weight decay, or 0
};

OCTET_INLINE F32x16 square_root(F32x16 x) {
    float each[lanes];
    store(each, x);
    for (float& one : each) one = __builtin_sqrtf(one);  // one instruction: the file is built without math errno
    return load(each);
}

OCTET_INLINE void move(const Move& by, std::int64_t count, float* w, float* gradient, float* first, float* second) {
    const Move m = by;
    each16(count, [&] [[gnu::always_inline]] (std::int64_t, auto get, auto put) {
        const F32x16 g = get(gradient) * m.clip;
        F32x16 mean = get(first), square = get(second), value = get(w);
        mean += (g - mean) * m.one_minus_beta1;
        square += (g * g - square) * m.one_minus_beta2;
        const F32x16 root = square_root(square * m.second_correction);
        value -= m.rate * (mean * m.first_correction / (root + m.epsilon)) + m.decay * value;
        put(first, mean);
        put(second, square);
        put(w, value);
        put(gradient, F32x16{});
    });
}

using F64x8 = double __attribute__((vector_size(64)));
using F32x8 = float __attribute__((vector_size(32)));

OCTET_INLINE double sum_of_squares(const float* x, std::int64_t count) {
    F64x8 sums{};
    std::int64_t i = 0;
    for (; i + 8 <= count; i += 8) {
        F32x8 narrow;
        std::memcpy(&narrow, x + i, sizeof(narrow));
        const F64x8 wide = __builtin_convertvector(narrow, F64x8);
        sums += wide * wide;
    }
    double total = 0;
    for (int lane = 0; lane < 8; ++lane) total += sums[lane];
    for (; i < count; ++i) total += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    return total;
}

}  // namespace

AdamWOptions adamw_options(const TrainingConfig& training, int threads) {
    return {training.beta1, training.beta2, training.epsilon, training.weight_decay, training.clip_norm, threads};
}

AdamW::AdamW(std::span<const Parameter> parameters, const AdamWOptions& options)
    : parameters_(parameters.begin(), parameters.end()), options_(options) {
    for (const Parameter& parameter : parameters_) {
        require(parameter.value.format == Format::f32 && parameter.gradient.format == Format::f32 &&
                    parameter.value.extents.contiguous() && parameter.gradient.extents.contiguous() &&
                    parameter.value.extents.elements() == parameter.gradient.extents.elements(),
                parameter.name, " has value ", to_string(parameter.value.extents), " and gradient ",
                to_string(parameter.gradient.extents), "; expected contiguous f32 of one shape");
        first_.push_back(zeros(parameter.value.extents));
        second_.push_back(zeros(parameter.value.extents));
    }
}

double AdamW::gradient_norm() const {
    double total = 0;
    std::vector<double> sums;
    for (const Parameter& parameter : parameters_) {
        const std::span<float> g = values(parameter.gradient);
        const auto count = static_cast<std::int64_t>(g.size());
        const std::int64_t pieces = ceil_div(count, elements_per_sum);
        sums.assign(static_cast<std::size_t>(pieces), 0.0);
        parallel_for(options_.threads, pieces, 4, [&](std::int64_t begin, std::int64_t end) {
            vectorized([&] [[gnu::always_inline]] {
                for (std::int64_t piece = begin; piece < end; ++piece) {
                    const std::int64_t from = piece * elements_per_sum, left = count - from;
                    sums[static_cast<std::size_t>(piece)] =
                        sum_of_squares(g.data() + from, left < elements_per_sum ? left : elements_per_sum);
                }
            });
        });
        for (const double sum : sums) total += sum;
    }
    return std::sqrt(total);
}

double AdamW::step(double learning_rate) {
    const double norm = gradient_norm();
    if (!std::isfinite(norm)) return norm;
    ++steps_;
    const auto t = static_cast<double>(steps_);
    const bool clips = options_.clip_norm > 0 && norm > options_.clip_norm;
    Move by{};
    by.clip = clips ? static_cast<float>(options_.clip_norm / norm) : 1.0f;
    by.one_minus_beta1 = static_cast<float>(1.0 - options_.beta1);
    by.one_minus_beta2 = static_cast<float>(1.0 - options_.beta2);
    by.first_correction = static_cast<float>(1.0 / (1.0 - std::pow(options_.beta1, t)));
    by.second_correction = static_cast<float>(1.0 / (1.0 - std::pow(options_.beta2, t)));
    by.rate = static_cast<float>(learning_rate);
    by.epsilon = static_cast<float>(options_.epsilon);
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        const Parameter& parameter = parameters_[i];
        by.decay = parameter.decays ? static_cast<float>(learning_rate * options_.weight_decay) : 0.0f;
        float* w = values(parameter.value).data();
        float* g = values(parameter.gradient).data();
        float *first = first_[i].as<float>(), *second = second_[i].as<float>();
        const std::int64_t count = parameter.value.extents.elements();
        parallel_for(options_.threads, count, 4 * elements_per_sum, [&](std::int64_t begin, std::int64_t end) {
            vectorized([&] [[gnu::always_inline]] {
                move(by, end - begin, w + begin, g + begin, first + begin, second + begin);
            });
        });
    }
    return norm;
}

}  // namespace octet::train
