// Thousands of hostile calls with fixed seeds, in every test run and under the sanitizers.
#include "fuzz/hostile_call.hpp"

#include <gtest/gtest.h>

namespace octet::fuzz {
namespace {

class HostileCalls : public testing::TestWithParam<int> {};

TEST_P(HostileCalls, AreRefusedWholeOrDoneWhole) {
    constexpr std::uint64_t calls = 1500;
    std::int64_t accepted = 0, refused = 0;
    for (std::uint64_t seed = 0; seed < calls; ++seed) {
        Choices choices(seed + 1000003 * static_cast<std::uint64_t>(GetParam()));
        try {
            (hostile_call(GetParam(), choices) == Outcome::accepted ? accepted : refused) += 1;
        } catch (const Broken& story) {
            FAIL() << "seed " << seed << ": " << story.what();
        }
    }
    // A driver that only ever fails, or never does, tests nothing.
    EXPECT_GT(accepted, static_cast<std::int64_t>(calls) / 5);
    EXPECT_GT(refused, static_cast<std::int64_t>(calls) / 5);
}

INSTANTIATE_TEST_SUITE_P(Operations, HostileCalls, testing::Range(0, operation_count),
                         [](const auto& param) { return operation_name(param.param); });

TEST(HostileCalls, WithoutTensors) {
    constexpr std::uint64_t calls = 20000;
    std::int64_t accepted = 0, refused = 0;
    for (std::uint64_t seed = 0; seed < calls; ++seed) {
        Choices choices(seed);
        try {
            (hostile_small_call(choices) == Outcome::accepted ? accepted : refused) += 1;
        } catch (const Broken& story) {
            FAIL() << "seed " << seed << ": " << story.what();
        }
    }
    EXPECT_GT(accepted, 1000);
    EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace octet::fuzz
