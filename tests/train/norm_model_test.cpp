#include <gtest/gtest.h>

#include "train/embedding.hpp"
#include "train/norm.hpp"
#include "train/numeric_model.hpp"

namespace octet::train {
namespace {

using testing::central_difference;
using testing::random_values;
using testing::view_of;
using testing::widen;

constexpr double eps = 1e-5;

// sum of slopes * rms_norm(h), in f64.
double weighted_norm(const std::vector<double>& h, const std::vector<double>& weight, const std::vector<float>& slopes,
                     std::int64_t t, std::int64_t d) {
    double total = 0;
    for (std::int64_t row = 0; row < t; ++row) {
        const auto at = [&](std::int64_t i) { return static_cast<std::size_t>(row * d + i); };
        double squares = 0;
        for (std::int64_t i = 0; i < d; ++i) squares += h[at(i)] * h[at(i)];
        const double inverse = 1 / std::sqrt(squares / static_cast<double>(d) + eps);
        for (std::int64_t i = 0; i < d; ++i)
            total += static_cast<double>(slopes[at(i)]) * weight[static_cast<std::size_t>(i)] * h[at(i)] * inverse;
    }
    return total;
}

class NormTest : public ::testing::TestWithParam<std::pair<std::int64_t, std::int64_t>> {};
INSTANTIATE_TEST_SUITE_P(Shapes, NormTest,
                         ::testing::Values(std::pair{1, 1}, std::pair{3, 7}, std::pair{5, 16}, std::pair{130, 33}));

TEST_P(NormTest, GradientsAreCentralDifferences) {
    const auto [t, d] = GetParam();
    const auto n = static_cast<std::size_t>(t * d), width = static_cast<std::size_t>(d);
    std::vector<float> h = random_values(n, 1), weight = random_values(width, 2), slopes = random_values(n, 3);
    std::vector<float> y(n), inverse(static_cast<std::size_t>(t)), dweight(width, 0.5f);
    std::vector<float> dh = random_values(n, 4), before = dh;
    ReusedTensor partial;
    rms_norm({view_of(h, {t, d}), {}, {}}, weight.data(), eps, view_of(y, {t, d}), inverse.data(), {});
    rms_norm_backward(view_of(h, {t, d}), inverse.data(), weight.data(), view_of(slopes, {t, d}), view_of(dh, {t, d}),
                      dweight.data(), partial, {});

    double total = 0;
    for (std::size_t i = 0; i < n; ++i) total += static_cast<double>(slopes[i]) * static_cast<double>(y[i]);
    EXPECT_NEAR(total, weighted_norm(widen(h), widen(weight), slopes, t, d), 1e-4 * std::sqrt(static_cast<double>(n)));
    const auto of_h = [&](const std::vector<double>& x) { return weighted_norm(x, widen(weight), slopes, t, d); };
    const auto of_weight = [&](const std::vector<double>& w) { return weighted_norm(widen(h), w, slopes, t, d); };
    for (std::size_t i = 0; i < n; i += n / 20 + 1)
        EXPECT_NEAR(static_cast<double>(dh[i] - before[i]), central_difference(of_h, widen(h), i), 2e-4) << i;
    for (std::size_t i = 0; i < width; ++i)
        EXPECT_NEAR(static_cast<double>(dweight[i] - 0.5f), central_difference(of_weight, widen(weight), i), 2e-4) << i;
}

TEST(Norm, AddsTheBranchFirst) {
    const std::int64_t t = 4, d = 21;
    std::vector<float> before = random_values(84, 1), branch = random_values(84, 2), h(84), y(84), sum(84),
                       expected(84);
    std::vector<float> weight(21, 1.0f), inverse(4), other(4);
    for (std::size_t i = 0; i < 84; ++i) sum[i] = before[i] + branch[i];
    rms_norm({view_of(before, {t, d}), view_of(branch, {t, d}), view_of(h, {t, d})}, weight.data(), eps,
             view_of(y, {t, d}), inverse.data(), {});
    rms_norm({view_of(sum, {t, d}), {}, {}}, weight.data(), eps, view_of(expected, {t, d}), other.data(), {});
    EXPECT_EQ(h, sum);
    EXPECT_EQ(y, expected);
    EXPECT_EQ(inverse, other);
}

TEST(Norm, RoundsToBf16AsTheFormatSays) {
    std::vector<float> x = random_values(37, 1);
    x[3] = std::nanf("");
    x[5] = 3.4e38f;
    x[7] = -0.0f;
    std::vector<std::uint16_t> codes(37);
    convert(view_of(x, {37}), {codes.data(), Format::bf16, {37}}, {});
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(codes[i], BF16::encode(x[i])) << i;
}

TEST(Embedding, ScattersInTokenOrderForAnyThreads) {
    const std::vector<std::int32_t> tokens{2, 0, 2, 2, 1, 2};
    const std::int64_t d = 150;
    std::vector<float> table = random_values(450, 1), h(900), dh = random_values(900, 2);
    embed(tokens, view_of(table, {3, d}), view_of(h, {6, d}), {});
    for (std::size_t i = 0; i < 150; ++i) EXPECT_EQ(h[450 + i], table[300 + i]);
    std::vector<float> one(450, 0.25f), many(450, 0.25f), expected(450, 0.25f);
    for (std::size_t t = 0; t < 6; ++t)
        for (std::size_t i = 0; i < 150; ++i)
            expected[static_cast<std::size_t>(tokens[t]) * 150 + i] += dh[t * 150 + i];
    embed_backward(tokens, view_of(dh, {6, d}), view_of(one, {3, d}), {Backend::automatic, 1});
    embed_backward(tokens, view_of(dh, {6, d}), view_of(many, {3, d}), {Backend::automatic, 3});
    EXPECT_EQ(one, expected);
    EXPECT_EQ(many, expected);
    const std::vector<std::int32_t> bad{0, 3, 0, 0, 0, 0};
    EXPECT_ANY_THROW(embed(bad, view_of(table, {3, d}), view_of(h, {6, d}), {}));
}

}  // namespace
}  // namespace octet::train
