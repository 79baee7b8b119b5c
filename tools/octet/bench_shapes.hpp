// What the benchmarks share: random tensors, splits of the tokens, interleaved timing, recipes.
#pragma once

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "core/parallel.hpp"
#include "octet/memory.hpp"
#include "octet/recipe.hpp"
#include "timing.hpp"

namespace octet::tool {

inline Tensor random_bf16(Extents extents, std::uint64_t seed) {
    Tensor tensor(Format::bf16, extents);
    auto* to = tensor.as<std::uint16_t>();
    parallel_for(0, tensor.elements(), 1 << 20, [&](std::int64_t begin, std::int64_t end) {
        std::mt19937_64 random(seed + static_cast<std::uint64_t>(begin));
        std::normal_distribution<float> normal;
        for (std::int64_t i = begin; i < end; ++i) to[i] = BF16::encode(normal(random));
    });
    return tensor;
}

// even: equal groups; uneven: weights of 0.5 to 1.5; skewed: group g has a share in proportion to 1 / (g + 1).
inline std::vector<std::int32_t> split_ends(const std::string& split, std::int64_t tokens, std::int64_t count) {
    std::mt19937_64 random(static_cast<std::uint64_t>(count));
    std::uniform_real_distribution<double> weight(0.5, 1.5);
    std::vector<double> cumulative;
    double sum = 0;
    for (std::int64_t g = 0; g < count; ++g) {
        const double skewed = 1.0 / static_cast<double>(g + 1);
        sum += split == "even" ? 1.0 : split == "uneven" ? weight(random) : skewed;
        cumulative.push_back(sum);
    }
    std::vector<std::int32_t> ends;
    for (const double value : cumulative)
        ends.push_back(static_cast<std::int32_t>(value / sum * static_cast<double>(tokens)));
    ends.back() = static_cast<std::int32_t>(tokens);
    return ends;
}

// Times several things in turn, round after round, so that a busy moment of the machine meets all of them alike.
inline std::vector<Timing> time_in_turn(const TimingPlan& plan, const std::vector<std::function<void()>>& work) {
    using Clock = std::chrono::steady_clock;
    std::vector<std::vector<double>> us(work.size());
    for (const auto& f : work) f();  // warm up
    const auto start = Clock::now();
    for (int i = 0; i < plan.repetitions; ++i) {
        for (std::size_t j = 0; j < work.size(); ++j) {
            const auto begin = Clock::now();
            work[j]();
            us[j].push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
        }
        if (i >= 2 && std::chrono::duration<double>(Clock::now() - start).count() > plan.seconds) break;
    }
    std::vector<Timing> timings;
    for (auto& list : us) timings.push_back(timing_of(std::move(list)));
    return timings;
}

inline std::vector<Recipe> parse_recipes(const std::vector<std::string>& texts) {
    std::vector<Recipe> recipes;
    for (const std::string& text : texts) recipes.push_back(parse_recipe(text));
    return recipes;
}

}  // namespace octet::tool
