// The router: choice and ties, weights, stable permutation, balance, auxiliary loss.
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "octet/error.hpp"
#include "octet/moe.hpp"
#include "products/operands.hpp"

namespace octet::testing {
namespace {

Tensor logits_of(std::initializer_list<std::initializer_list<float>> rows) {
    Tensor tensor(Format::f32, {std::int64_t(rows.size()), std::int64_t(rows.begin()->size())});
    float* out = tensor.as<float>();
    for (const auto& row : rows) out = std::copy(row.begin(), row.end(), out);
    return tensor;
}

std::vector<int> chosen_by(const Routing& routing) { return {routing.chosen, routing.chosen + routing.rows()}; }

const float nan = std::numeric_limits<float>::quiet_NaN();

TEST(Router, EqualScoresGoToTheLowerIndex) {
    for (const RouterScore score : {RouterScore::softmax, RouterScore::sigmoid}) {
        Router router({.experts = 5, .top_k = 3, .score = score});
        const Tensor logits = logits_of({{1, 1, 1, 1, 1}, {0, 2, 1, 2, 1}, {-3, -3, 4, -3, 4}, {0, -0.0f, 0, 1, 0}});
        EXPECT_EQ(chosen_by(router.route(logits, nullptr)), (std::vector<int>{0, 1, 2, 1, 3, 2, 2, 4, 0, 3, 0, 1}));
    }
}

TEST(Router, NanRanksLastAndTheChoiceIsAlwaysValid) {
    Router router({.experts = 4, .top_k = 3, .score = RouterScore::sigmoid});
    const Tensor logits = logits_of({{nan, 1, nan, 0}, {nan, nan, nan, nan}});
    const Routing& routing = router.route(logits, nullptr);
    EXPECT_EQ(chosen_by(routing), (std::vector<int>{1, 3, 0, 0, 1, 2}));
    EXPECT_TRUE(std::isnan(routing.weights[2]));
    EXPECT_EQ(routing.groups.ends[3], 6);
}

TEST(Router, WeightsAreScoresOrSumToTheScaling) {
    Random random(41);
    const Tensor logits = make_normal(Format::f32, {50, 8}, random);
    Router plain({.experts = 8, .top_k = 8, .weights = RouterWeights::as_scored});
    const Routing& all = plain.route(logits, nullptr);
    for (std::int64_t t = 0; t < 50; ++t) {
        float sum = 0;
        for (std::int64_t j = 0; j < 8; ++j) {
            sum += all.weights[t * 8 + j];
            if (j > 0) {
                EXPECT_LE(all.weights[t * 8 + j], all.weights[t * 8 + j - 1]);
            }
        }
        EXPECT_NEAR(sum, 1.0f, 1e-6f);  // all experts chosen: the softmax itself
    }
    Router scaled({.experts = 8, .top_k = 3, .score = RouterScore::sigmoid, .scaling = 2.5f});
    const Routing& three = scaled.route(logits, nullptr);
    for (std::int64_t t = 0; t < 50; ++t)
        EXPECT_NEAR(three.weights[t * 3] + three.weights[t * 3 + 1] + three.weights[t * 3 + 2], 2.5f, 1e-5f);
}

TEST(Router, RowsAreSortedByExpertAndKeepTheOrderOfTokens) {
    Random random(42);
    for (int round = 0; round < 200; ++round) {
        const std::int64_t experts = uniform(random, 1, 12), top_k = uniform(random, 1, experts),
                           tokens = uniform(random, 0, 40);
        Router router({.experts = experts, .top_k = top_k});
        const Tensor logits = make_normal(Format::f32, {tokens, experts}, random);
        const Routing& routing = router.route(logits, nullptr);
        ASSERT_EQ(routing.groups.ends[experts - 1], routing.rows());
        std::int64_t row = 0;
        for (std::int64_t e = 0; e < experts; ++e) {
            int previous = -1;
            for (; row < routing.groups.ends[e]; ++row) {
                const int slot = routing.slot_of_row[row];
                ASSERT_EQ(routing.chosen[slot], e);
                ASSERT_GT(slot, previous);
                ASSERT_EQ(routing.row_of_slot[slot], row);
                ASSERT_EQ(routing.row_weights[row], routing.weights[slot]);
                previous = slot;
            }
        }
        for (std::int64_t t = 0; t < tokens; ++t)
            ASSERT_EQ(std::set<int>(routing.chosen + t * top_k, routing.chosen + (t + 1) * top_k).size(),
                      std::size_t(top_k));
    }
}

TEST(Router, TheBiasChangesTheChoiceAndNotTheWeights) {
    Router router({.experts = 3,
                   .top_k = 1,
                   .score = RouterScore::sigmoid,
                   .weights = RouterWeights::as_scored,
                   .balance = RouterBalance::bias});
    const Tensor logits = logits_of({{2, 1, 0}});
    const float bias[] = {0, 0, 1};
    const Routing& routing = router.route(logits, bias);
    EXPECT_EQ(routing.chosen[0], 2);
    EXPECT_EQ(routing.weights[0], 0.5f);
}

TEST(Router, TheAuxiliaryLossIsItsFactorWhenBalancedAndMoreWhenNot) {
    Router router({.experts = 2, .top_k = 1, .auxiliary_loss = 0.25f});
    router.route(logits_of({{3, 0}, {0, 3}}), nullptr);
    EXPECT_NEAR(router.auxiliary_loss(), 0.25f, 1e-6f);
    router.route(logits_of({{3, 0}, {3, 0}}), nullptr);
    const float share = 1.0f / (1.0f + std::exp(-3.0f));
    EXPECT_NEAR(router.auxiliary_loss(), 0.25f * 2 * share, 1e-6f);
}

TEST(Router, GathersAndSumsWhatItPermuted) {
    Random random(43);
    for (const Format format : {Format::bf16, Format::f32}) {
        const std::int64_t tokens = 33, features = 700, top_k = 3;
        Router router({.experts = 7, .top_k = top_k});
        const Routing& routing = router.route(make_normal(Format::f32, {tokens, 7}, random), nullptr);
        const Tensor x = make_normal(format, {tokens, features}, random),
                     extra = make_normal(Format::f32, {tokens, features}, random);
        Tensor rows = make_poisoned(format, {tokens * top_k, features}),
               y = make_poisoned(Format::f32, {tokens, features});
        gather_rows(routing, x, rows);
        for (std::int64_t m = 0; m < tokens * top_k; ++m)
            for (std::int64_t c = 0; c < features; ++c)
                ASSERT_EQ(load(rows.view(), m, c), load(x.view(), routing.slot_of_row[m] / top_k, c));
        const ConstTensorView addends[] = {extra};
        if (format == Format::f32) {
            sum_rows(routing, rows, addends, y);
            for (std::int64_t t = 0; t < tokens; ++t)
                for (std::int64_t c = 0; c < features; ++c) {
                    const float value = load(x.view(), t, c);
                    ASSERT_EQ(load(y.view(), t, c), 0.0f + value + value + value + load(extra.view(), t, c));
                }
        }
    }
}

TEST(Router, RefusesWhatItCannotRoute) {
    EXPECT_THROW(Router({.experts = 4, .top_k = 5}), Error);
    EXPECT_THROW(Router({.experts = 0, .top_k = 0}), Error);
    EXPECT_THROW(Router({.experts = 4, .top_k = 2, .scaling = nan}), Error);
    EXPECT_THROW(Router({.experts = 4, .top_k = 2, .scaling = 0}), Error);
    EXPECT_THROW(Router({.experts = 4, .top_k = 2, .balance_rate = nan}), Error);
    EXPECT_THROW(Router({.experts = 4, .top_k = 2, .auxiliary_loss = -1}), Error);
    Router router({.experts = 4, .top_k = 2});
    EXPECT_THROW(router.route(logits_of({{1, 2, 3}}), nullptr), Error);
}

}  // namespace
}  // namespace octet::testing
