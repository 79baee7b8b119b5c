#include <gtest/gtest.h>

#include "train/head.hpp"
#include "train/numeric_model.hpp"

namespace octet::train {
namespace {

using testing::central_difference;
using testing::random_values;
using testing::view_of;
using testing::widen;

double exact_loss(const std::vector<double>& logits, const std::vector<std::int32_t>& targets, std::size_t v) {
    double total = 0;
    for (std::size_t t = 0; t < targets.size(); ++t) {
        if (targets[t] < 0) continue;
        double sum = 0;
        for (std::size_t i = 0; i < v; ++i) sum += std::exp(logits[t * v + i]);
        total += std::log(sum) - logits[t * v + static_cast<std::size_t>(targets[t])];
    }
    return total;
}

TEST(CrossEntropy, MatchesTheDefinitionAndItsCentralDifferences) {
    for (const std::size_t v : {1u, 2u, 16u, 37u}) {
        const std::vector<std::int32_t> targets{0, -1, static_cast<std::int32_t>(v) - 1, 0};
        const std::vector<float> logits = random_values(4 * v, 1, 3.0f);
        std::vector<float> gradient = logits, losses(4);
        cross_entropy(targets, view_of(gradient, {4, static_cast<std::int64_t>(v)}), 0.5f, losses.data(), {});
        double total = 0;
        for (const float loss : losses) total += static_cast<double>(loss);
        EXPECT_NEAR(total, exact_loss(widen(logits), targets, v), 1e-5);
        EXPECT_EQ(losses[1], 0.0f);
        const auto half = [&](const std::vector<double>& x) { return 0.5 * exact_loss(x, targets, v); };
        for (std::size_t i = 0; i < logits.size(); ++i)
            EXPECT_NEAR(static_cast<double>(gradient[i]), central_difference(half, widen(logits), i), 1e-6)
                << v << " " << i;
    }
}

TEST(CrossEntropy, LargeLogitsDoNotOverflow) {
    std::vector<float> logits{1000.0f, -1000.0f, 0.0f, 990.0f}, losses(1);
    const std::vector<std::int32_t> targets{3};
    cross_entropy(targets, view_of(logits, {1, 4}), 1.0f, losses.data(), {});
    EXPECT_NEAR(losses[0], 10.0f, 1e-3);
    EXPECT_NEAR(logits[0], 1.0f, 1e-4);
}

TEST(CrossEntropy, RefusesATargetOutsideTheVocabulary) {
    std::vector<float> logits(8), losses(2);
    const std::vector<std::int32_t> targets{0, 4};
    EXPECT_ANY_THROW(cross_entropy(targets, view_of(logits, {2, 4}), 1.0f, losses.data(), {}));
}

// Enough tokens and vocabulary for several chunks of logits.
TEST(Head, ChunksMakeNoDifference) {
    const std::int64_t t = 300, d = 5, v = 40000;
    const std::vector<float> x = random_values(static_cast<std::size_t>(t * d), 1);
    const std::vector<float> w = random_values(static_cast<std::size_t>(v * d), 2);
    std::vector<std::int32_t> targets(static_cast<std::size_t>(t));
    for (std::size_t i = 0; i < targets.size(); ++i) targets[i] = static_cast<std::int32_t>(i * 97 % 40000);
    targets[7] = -1;
    Head head(v, d, Format::f32);
    std::vector<float> dx(x.size()), dw(w.size(), 0.0f);
    const double loss = head.loss_and_gradient(view_of(x, {t, d}), view_of(w, {v, d}), targets, 0.25,
                                               view_of(dx, {t, d}), view_of(dw, {v, d}), {});
    EXPECT_EQ(loss, head.loss(view_of(x, {t, d}), view_of(w, {v, d}), targets, {}));

    std::vector<float> all(static_cast<std::size_t>(t * v)), losses(static_cast<std::size_t>(t));
    head.logits(view_of(x, {t, d}), view_of(w, {v, d}), view_of(all, {t, v}), {});
    cross_entropy(targets, view_of(all, {t, v}), 0.25f, losses.data(), {});
    double total = 0;
    for (const float one : losses) total += static_cast<double>(one);
    EXPECT_NEAR(loss, total, 1e-6 * total);
    for (const std::int64_t row : {0, 7, 127, 128, 299}) {
        for (std::int64_t i = 0; i < d; ++i) {
            double expected = 0;
            for (std::int64_t j = 0; j < v; ++j)
                expected += static_cast<double>(all[static_cast<std::size_t>(row * v + j)]) *
                            static_cast<double>(w[static_cast<std::size_t>(j * d + i)]);
            EXPECT_NEAR(static_cast<double>(dx[static_cast<std::size_t>(row * d + i)]), expected, 1e-5);
        }
    }
    for (const std::int64_t row : {0, 97, 39999}) {
        for (std::int64_t i = 0; i < d; ++i) {
            double expected = 0;
            for (std::int64_t j = 0; j < t; ++j)
                expected += static_cast<double>(all[static_cast<std::size_t>(j * v + row)]) *
                            static_cast<double>(x[static_cast<std::size_t>(j * d + i)]);
            EXPECT_NEAR(static_cast<double>(dw[static_cast<std::size_t>(row * d + i)]), expected, 1e-5);
        }
    }
}

}  // namespace
}  // namespace octet::train
