#include "train/optimizer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "train/numeric_model.hpp"
#include "train/schedule.hpp"

namespace octet::train {
namespace {

using testing::random_values;
using testing::view_of;

struct Problem {
    std::vector<float> w, g, norm_w, norm_g;
    std::vector<Parameter> parameters;
    explicit Problem(std::int64_t size)
        : w(random_values(static_cast<std::size_t>(size), 1)),
          g(w.size()),
          norm_w(random_values(21, 2)),
          norm_g(21),
          parameters{{"w", view_of(w, {size}), view_of(g, {size}), true},
                     {"norm", view_of(norm_w, {21}), view_of(norm_g, {21}), false}} {}
    void fill(std::uint64_t seed, float deviation) {
        std::ranges::copy(random_values(w.size(), seed, deviation), g.begin());  // in place: the views point there
        std::ranges::copy(random_values(21, seed + 100, deviation), norm_g.begin());
    }
};

// AdamW as its authors write it, one element, in f64.
struct Scalar {
    double w, m = 0, v = 0;
    void step(double g, double rate, double decay, const AdamWOptions& o, int t) {
        m = o.beta1 * m + (1 - o.beta1) * g;
        v = o.beta2 * v + (1 - o.beta2) * g * g;
        const double first = m / (1 - std::pow(o.beta1, t)), second = v / (1 - std::pow(o.beta2, t));
        w -= rate * (first / (std::sqrt(second) + o.epsilon) + decay * w);
    }
};

TEST(AdamW, MatchesTheScalarDefinition) {
    Problem problem(100);
    AdamWOptions options;
    options.clip_norm = 3.0;
    AdamW adamw(problem.parameters, options);
    std::vector<Scalar> scalars;
    for (const float w : problem.w) scalars.push_back({static_cast<double>(w)});
    for (const float w : problem.norm_w) scalars.push_back({static_cast<double>(w)});
    for (int t = 1; t <= 20; ++t) {
        problem.fill(static_cast<std::uint64_t>(t), t % 3 == 0 ? 1e-3f : 1.0f);  // clipped, and not
        double squares = 0;
        for (const float g : problem.g) squares += static_cast<double>(g) * static_cast<double>(g);
        for (const float g : problem.norm_g) squares += static_cast<double>(g) * static_cast<double>(g);
        const double norm = std::sqrt(squares), clip = norm > 3.0 ? 3.0 / norm : 1.0, rate = 1e-2 / t;
        for (std::size_t i = 0; i < scalars.size(); ++i) {
            const double g = static_cast<double>(i < 100 ? problem.g[i] : problem.norm_g[i - 100]);
            scalars[i].step(g * clip, rate, i < 100 ? options.weight_decay : 0.0, options, t);
        }
        EXPECT_NEAR(adamw.step(rate), norm, 1e-12 * norm);
        for (const float g : problem.g) EXPECT_EQ(g, 0.0f);  // ready for the next accumulation
    }
    EXPECT_EQ(adamw.steps(), 20);
    for (std::size_t i = 0; i < scalars.size(); ++i)
        EXPECT_NEAR(static_cast<double>(i < 100 ? problem.w[i] : problem.norm_w[i - 100]), scalars[i].w, 2e-6) << i;
}

TEST(AdamW, IsTheSameForAnyThreads) {
    std::vector<std::vector<float>> results;
    std::vector<double> norms;
    for (const int threads : {1, 2, 5}) {
        Problem problem(300001);
        AdamWOptions options;
        options.threads = threads;
        AdamW adamw(problem.parameters, options);
        double norm = 0;
        for (std::uint64_t t = 0; t < 3; ++t) {
            problem.fill(t, 1.0f);
            norm = adamw.step(1e-3);
        }
        results.push_back(problem.w);
        norms.push_back(norm);
    }
    EXPECT_EQ(results[0], results[1]);
    EXPECT_EQ(results[0], results[2]);
    EXPECT_EQ(norms[0], norms[1]);
    EXPECT_EQ(norms[0], norms[2]);
}

TEST(AdamW, AGradientThatIsNotFiniteChangesNothing) {
    Problem problem(50);
    AdamW adamw(problem.parameters, {});
    problem.fill(1, 1.0f);
    adamw.step(1e-2);
    const std::vector<float> before = problem.w;
    problem.fill(2, 1.0f);
    problem.g[17] = std::numeric_limits<float>::infinity();
    EXPECT_FALSE(std::isfinite(adamw.step(1e-2)));
    EXPECT_EQ(problem.w, before);
    EXPECT_EQ(adamw.steps(), 1);
}

TEST(Schedule, WarmsUpAndFallsAsACosine) {
    TrainingConfig training;
    training.steps = 110;
    training.warmup_steps = 10;
    training.learning_rate = 1.0;
    training.final_learning_rate = 0.1;
    EXPECT_DOUBLE_EQ(learning_rate(training, 0), 0.1);
    EXPECT_DOUBLE_EQ(learning_rate(training, 9), 1.0);
    EXPECT_DOUBLE_EQ(learning_rate(training, 10), 1.0);
    EXPECT_NEAR(learning_rate(training, 60), 0.55, 1e-12);
    EXPECT_DOUBLE_EQ(learning_rate(training, 110), 0.1);
    EXPECT_DOUBLE_EQ(learning_rate(training, 100000), 0.1);
    training.warmup_steps = 0;
    EXPECT_DOUBLE_EQ(learning_rate(training, 0), 1.0);
}

}  // namespace
}  // namespace octet::train
