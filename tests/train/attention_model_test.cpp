#include <gtest/gtest.h>

#include <limits>

#include "train/attention.hpp"
#include "train/numeric_model.hpp"

namespace octet::train {

static void PrintTo(const AttentionShape& a, std::ostream* to) {
    *to << a.sequences << "x" << a.length << ", heads " << a.heads << "/" << a.kv_heads << " of " << a.head_dim;
}

namespace {

using testing::central_difference;
using testing::random_values;
using testing::view_of;
using testing::widen;

constexpr double theta = 100.0;

// The definition, in f64: rotary, causal softmax, mixing.
std::vector<double> exact_attention(const AttentionShape& a, std::vector<double> qkv) {
    const std::int64_t d = a.head_dim, pairs = d / 2;
    const auto at = [&](std::int64_t token, std::int64_t head, std::int64_t i) -> double& {
        return qkv[static_cast<std::size_t>(token * a.features() + head * d + i)];
    };
    for (std::int64_t token = 0; token < a.tokens(); ++token)
        for (std::int64_t head = 0; head < a.heads + a.kv_heads; ++head)
            for (std::int64_t i = 0; i < pairs; ++i) {
                const double angle = static_cast<double>(token % a.length) *
                                     std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(d));
                const double x = at(token, head, i), y = at(token, head, i + pairs);
                at(token, head, i) = x * std::cos(angle) - y * std::sin(angle);
                at(token, head, i + pairs) = y * std::cos(angle) + x * std::sin(angle);
            }
    std::vector<double> out(static_cast<std::size_t>(a.tokens() * a.heads * d), 0.0);
    for (std::int64_t token = 0; token < a.tokens(); ++token)
        for (std::int64_t head = 0; head < a.heads; ++head) {
            const std::int64_t first = token / a.length * a.length, kv = head / (a.heads / a.kv_heads);
            std::vector<double> p;
            double sum = 0;
            for (std::int64_t key = first; key <= token; ++key) {
                double score = 0;
                for (std::int64_t i = 0; i < d; ++i) score += at(token, head, i) * at(key, a.heads + kv, i);
                p.push_back(std::exp(score / std::sqrt(static_cast<double>(d))));
                sum += p.back();
            }
            for (std::int64_t key = first; key <= token; ++key)
                for (std::int64_t i = 0; i < d; ++i)
                    out[static_cast<std::size_t>((token * a.heads + head) * d + i)] +=
                        p[static_cast<std::size_t>(key - first)] / sum * at(key, a.heads + a.kv_heads + kv, i);
        }
    return out;
}

struct Outcome {
    std::vector<float> turned, out, log_sums, dqkv;
};

Outcome run(const AttentionShape& a, const std::vector<float>& qkv, const std::vector<float>& dout, int threads) {
    const std::int64_t width = a.heads * a.head_dim;
    Outcome r{qkv, std::vector<float>(dout.size(), -1.0f),
              std::vector<float>(static_cast<std::size_t>(a.heads * a.tokens())),
              std::vector<float>(qkv.size(), std::numeric_limits<float>::quiet_NaN())};
    RotaryTable rotary(theta, a.head_dim);
    rotary.reserve(a.length);
    const Execution on{Backend::automatic, threads};
    attention(a, rotary, view_of(r.turned, {a.tokens(), a.features()}), view_of(r.out, {a.tokens(), width}),
              r.log_sums.data(), on);
    attention_backward(a, rotary, view_of(std::as_const(r.turned), {a.tokens(), a.features()}), r.log_sums.data(),
                       view_of(dout, {a.tokens(), width}), view_of(r.dqkv, {a.tokens(), a.features()}), on);
    return r;
}

class AttentionTest : public ::testing::TestWithParam<AttentionShape> {};
INSTANTIATE_TEST_SUITE_P(Shapes, AttentionTest,
                         ::testing::Values(AttentionShape{1, 1, 1, 1, 2},    // one token sees itself
                                           AttentionShape{2, 5, 2, 2, 6},    // multi-head
                                           AttentionShape{2, 19, 4, 2, 8},   // grouped-query
                                           AttentionShape{1, 70, 3, 1, 34},  // more than one block of queries
                                           AttentionShape{1, 129, 2, 1, 4}));

TEST_P(AttentionTest, MatchesTheDefinitionAndItsCentralDifferences) {
    const AttentionShape a = GetParam();
    const std::vector<float> qkv = random_values(static_cast<std::size_t>(a.tokens() * a.features()), 1);
    const std::vector<float> dout = random_values(static_cast<std::size_t>(a.tokens() * a.heads * a.head_dim), 2);
    const Outcome r = run(a, qkv, dout, 2);
    EXPECT_LE(testing::relative_error(r.out, exact_attention(a, widen(qkv))), 2e-6);
    const auto weighted = [&](const std::vector<double>& x) {
        const std::vector<double> out = exact_attention(a, x);
        double total = 0;
        for (std::size_t i = 0; i < out.size(); ++i) total += out[i] * static_cast<double>(dout[i]);
        return total;
    };
    for (std::size_t i = 0; i < qkv.size(); i += qkv.size() / 40 + 1)
        EXPECT_NEAR(static_cast<double>(r.dqkv[i]), central_difference(weighted, widen(qkv), i), 1e-4) << i;
}

TEST_P(AttentionTest, IsTheSameForAnyThreads) {
    const AttentionShape a = GetParam();
    const std::vector<float> qkv = random_values(static_cast<std::size_t>(a.tokens() * a.features()), 3);
    const std::vector<float> dout = random_values(static_cast<std::size_t>(a.tokens() * a.heads * a.head_dim), 4);
    const Outcome one = run(a, qkv, dout, 1), three = run(a, qkv, dout, 3);
    EXPECT_EQ(one.out, three.out);
    EXPECT_EQ(one.dqkv, three.dqkv);
}

TEST(Attention, NoTokenSeesALaterOne) {
    const AttentionShape a{1, 66, 2, 1, 4};
    std::vector<float> qkv = random_values(static_cast<std::size_t>(a.tokens() * a.features()), 5);
    const std::vector<float> dout(static_cast<std::size_t>(a.tokens() * 8), 1.0f);
    const Outcome before = run(a, qkv, dout, 1);
    for (std::size_t i = static_cast<std::size_t>(40 * a.features()); i < qkv.size(); ++i) qkv[i] *= -3.0f;
    const Outcome after = run(a, qkv, dout, 1);
    for (std::size_t i = 0; i < 40 * 8; ++i) EXPECT_EQ(before.out[i], after.out[i]);
    EXPECT_NE(before.out[40 * 8], after.out[40 * 8]);
}

TEST(Attention, LargeScoresDoNotOverflow) {
    const AttentionShape a{1, 20, 1, 1, 4};
    std::vector<float> qkv = random_values(static_cast<std::size_t>(a.tokens() * a.features()), 6, 200.0f);
    const std::vector<float> dout(80, 1.0f);
    const Outcome r = run(a, qkv, dout, 1);
    for (const float x : r.out) EXPECT_TRUE(std::isfinite(x));
    for (const float x : r.dqkv) EXPECT_TRUE(std::isfinite(x));
}

TEST(Attention, ANanReachesTheOutput) {
    const AttentionShape a{1, 20, 1, 1, 4};
    std::vector<float> qkv = random_values(static_cast<std::size_t>(a.tokens() * a.features()), 7);
    qkv[static_cast<std::size_t>(5 * a.features()) + 4] = std::nanf("");  // a key of token 5
    const Outcome r = run(a, qkv, std::vector<float>(80, 1.0f), 1);
    for (std::size_t i = 0; i < 5 * 4; ++i) EXPECT_TRUE(std::isfinite(r.out[i])) << i;
    for (std::size_t i = 5 * 4; i < 80; ++i) EXPECT_TRUE(std::isnan(r.out[i])) << i;
}

}  // namespace
}  // namespace octet::train
