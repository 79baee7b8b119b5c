#include "train/vectorized.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace octet::train {
namespace {

struct Results {
    std::vector<float> exponentials;
    std::vector<std::uint16_t> codes;  // the same in bf16
    float sum = 0.0f, largest = 0.0f;
};

OCTET_INLINE void compute(const std::vector<float>& x, Results& r) {
    F32x16 total = spread(0.0f), peak = spread(-std::numeric_limits<float>::infinity());
    const auto count = static_cast<std::int64_t>(x.size());
    for (std::int64_t i = 0; i < count; i += lanes) {
        const F32x16 some = load_some(x.data() + i, std::min(lanes, count - i), 0.0f), e = exponential(some);
        store_some(r.exponentials.data() + i, std::min(lanes, count - i), e);
        store_some(r.codes.data() + i, std::min(lanes, count - i), e);
        total += some;
        peak = larger(peak, some);
    }
    r.sum = sum(total);
    r.largest = largest(peak);
}

// What each instruction set of this machine makes of x.
std::vector<Results> on_each_instruction_set(const std::vector<float>& x) {
    Results r{std::vector<float>(x.size()), std::vector<std::uint16_t>(x.size())};
    const auto body = [&] [[gnu::always_inline]] { compute(x, r); };
    body();
    std::vector<Results> results{r};
#if defined(__x86_64__)
    if (detail::widest_vectors() >= detail::Vectors::avx2) {
        detail::on_avx2(body);
        results.push_back(r);
    }
    if (detail::widest_vectors() >= detail::Vectors::avx512) {
        detail::on_avx512(body);
        results.push_back(r);
    }
#endif
    return results;
}

TEST(Vectorized, EveryInstructionSetGivesTheSameBitsAndTheTrueExponential) {
    std::vector<float> x;
    for (int i = -870; i <= 880; ++i) x.push_back(static_cast<float>(i) * 0.1f);
    const std::vector<Results> results = on_each_instruction_set(x);
    for (const Results& r : results) {
        for (std::size_t i = 0; i < x.size(); ++i) {
            const double expected = std::exp(static_cast<double>(x[i]));
            ASSERT_NEAR(static_cast<double>(r.exponentials[i]) / expected, 1.0, 2.5e-7) << x[i];
            ASSERT_NEAR(static_cast<double>(as_floats(U32x16{} + (std::uint32_t{r.codes[i]} << 16))[0]) / expected, 1.0,
                        0.00391)
                << x[i];
        }
        EXPECT_EQ(r.exponentials, results[0].exponentials);
        EXPECT_EQ(r.codes, results[0].codes);
        EXPECT_EQ(r.sum, results[0].sum);
        EXPECT_EQ(r.largest, 88.0f);
    }
}

}  // namespace
}  // namespace octet::train
