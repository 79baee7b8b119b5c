// The sweep's decisions, with a clock that the test makes: what wins, what noise may not do, what failing costs.
#include "tune/sweep.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "gpu/tuning.hpp"
#include "octet/error.hpp"
#include "tune/spaces.hpp"

namespace octet::tune {
namespace {

const Space space{"pair", {{"share", {3, 0, 2, 4}}, {"blocks", {4, 3, 2}}}};

std::int64_t value(const Configuration& configuration, const char* name, std::int64_t otherwise) {
    for (const Setting& setting : configuration)
        if (setting.name == name) return setting.value;
    return otherwise;
}

// A device: a true time for each configuration, times noise that is sometimes a hiccup.
struct Device {
    std::mt19937 random;
    double noise;
    std::function<double(std::int64_t share, std::int64_t blocks)> truth;
    int calls = 0;
    double operator()(const Configuration& configuration) {
        ++calls;
        std::normal_distribution<double> normal(0.0, noise);
        const double hiccup = random() % 50 == 0 ? 1.5 : 1.0;
        return truth(value(configuration, "share", 3), value(configuration, "blocks", 4)) * hiccup *
               std::max(0.5, 1.0 + normal(random));
    }
};

SweepResult run(Device& device, const Configuration& incumbent = {}) {
    return sweep(space, incumbent, [&](const Configuration& c) { return device(c); }, {});
}

TEST(Sweep, ASpaceListsItsDefaultsFirstAndNamesOnlyWhatDiffers) {
    const auto all = space.configurations();
    ASSERT_EQ(all.size(), 12u);
    EXPECT_EQ(to_string(all[0]), "defaults");
    EXPECT_EQ(to_string(all[1]), "blocks=3");
    EXPECT_EQ(to_string(all[11]), "share=4, blocks=2");
}

TEST(Sweep, TakesAClearWinner) {
    Device device{std::mt19937(1), 0.005,
                  [](auto share, auto blocks) { return share == 2 && blocks == 3 ? 80.0 : 100.0; }};
    const SweepResult result = run(device);
    EXPECT_EQ(to_string(result.chosen), "share=2, blocks=3");
    EXPECT_NEAR(result.gain_pct(), 20.0, 2.0);
    EXPECT_TRUE(result.changes());
}

TEST(Sweep, KeepsTheIncumbentWhenNothingIsBetterThanTheNoise) {
    int changed = 0;
    for (unsigned seed = 0; seed < 200; ++seed) {
        Device device{std::mt19937(seed), 0.03, [](auto, auto) { return 100.0; }};
        changed += run(device).changes();
    }
    EXPECT_LE(changed, 1);
}

TEST(Sweep, KeepsTheIncumbentWhenItIsTheBest) {
    Device device{std::mt19937(3), 0.01, [](auto share, auto) { return share == 4 ? 90.0 : 100.0; }};
    const Configuration incumbent{{"share", 4}};
    const SweepResult result = run(device, incumbent);
    EXPECT_EQ(result.chosen, incumbent);
    EXPECT_FALSE(result.changes());
}

TEST(Sweep, AnIncumbentOutsideTheSpaceIsTimedAllTheSame) {
    Device device{std::mt19937(4), 0.005, [](auto share, auto) { return share == 7 ? 50.0 : 100.0; }};
    const Configuration incumbent{{"share", 7}};
    EXPECT_EQ(run(device, incumbent).chosen, incumbent);
}

TEST(Sweep, AFailingConfigurationIsReportedOnceAndSkipped) {
    Device device{std::mt19937(5), 0.005, [](auto share, auto blocks) {
                      if (blocks == 2) throw std::runtime_error("too many registers");
                      return share == 0 ? 70.0 : 100.0;
                  }};
    const SweepResult result = run(device);
    ASSERT_EQ(result.failures.size(), 4u);
    EXPECT_EQ(result.failures[0].why, "too many registers");
    EXPECT_EQ(value(result.chosen, "share", 3), 0);
    EXPECT_NE(value(result.chosen, "blocks", 4), 2);
}

TEST(Sweep, AWinnerThatFailsWhenTimedAgainDoesNotWin) {
    int calls = 0;
    const Timer timer = [&](const Configuration& configuration) {
        if (configuration.empty()) return 100.0;
        if (++calls > 9 * 11) throw std::runtime_error("hung");
        return 60.0;
    };
    const SweepResult result = sweep(space, {}, timer, {});
    EXPECT_FALSE(result.changes());
    EXPECT_EQ(result.failures.size(), 1u);
}

TEST(Sweep, AnIncumbentThatFailsIsAnError) {
    const Timer timer = [](const Configuration&) -> double { throw std::runtime_error("no device"); };
    EXPECT_THROW(sweep(space, {}, timer, {}), Error);
}

TEST(Sweep, TwoTuningsOfOneMachineAgree) {
    // Neighbours half a percent apart, under one percent of noise: any of them would do, and both tunings take the
    // same.
    int agree = 0;
    const int pairs = 100;
    for (unsigned seed = 0; seed < pairs; ++seed) {
        const auto truth = [](std::int64_t share, std::int64_t blocks) {
            return (share == 0 ? 80.0 : share == 2 ? 80.4 : 100.0) + 5.0 * static_cast<double>(4 - blocks);
        };
        Device first{std::mt19937(2 * seed), 0.01, truth}, second{std::mt19937(2 * seed + 1), 0.01, truth};
        agree += run(first).chosen == run(second).chosen;
    }
    EXPECT_GE(agree, 97);
}

TEST(Sweep, ReportsProgressAndTheTimeLeft) {
    Device device{std::mt19937(6), 0.01, [](auto, auto) { return 100.0; }};
    std::vector<Progress> seen;
    SweepOptions options;
    options.rounds = 5;
    options.progress = [&](const Progress& progress) { seen.push_back(progress); };
    sweep(
        space, {}, [&](const Configuration& c) { return device(c); }, options);
    ASSERT_EQ(seen.size(), 13u * 5u);
    EXPECT_EQ(seen.back().done, 65u);
    EXPECT_GE(seen.back().total, seen.back().done);
    EXPECT_GE(seen.back().seconds_left, 0.0);
    options.rounds = 2;
    EXPECT_THROW(sweep(
                     space, {}, [&](const Configuration& c) { return device(c); }, options),
                 Error);
}

// The first value of a parameter is what a kernel does when a table says nothing.
TEST(Spaces, StartFromTheKernelsDefaults) {
    const gpu::QuantizerTuning tuning;
    const std::map<std::string, std::int64_t> defaults = {{"rows_vectors", tuning.rows_vectors},
                                                          {"fused_tiles", tuning.fused_tiles},
                                                          {"tile_blocks", tuning.tile_blocks},
                                                          {"tall_tiles", tuning.tall_tiles},
                                                          {"swiglu_vectors", tuning.swiglu_vectors}};
    EXPECT_FALSE(spaces().empty());
    for (const Space& each : spaces()) {
        EXPECT_EQ(space_of(each.operation).parameters.size(), each.parameters.size());
        for (const Parameter& parameter : each.parameters)
            EXPECT_EQ(parameter.values.at(0), defaults.at(parameter.name)) << each.operation;
    }
    EXPECT_TRUE(space_of("nothing").parameters.empty());
}

}  // namespace
}  // namespace octet::tune
