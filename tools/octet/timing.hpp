// Timing: repeat, take the median, and say how far the middle half spreads.
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

namespace octet::tool {

struct Timing {
    double us = 0;          // median
    double spread_pct = 0;  // distance between the quartiles, in percent of the median
};

struct TimingPlan {
    int repetitions = 9;
    double seconds = 1.0;  // stop early once this much has been spent, after three repetitions
};

// Of repetitions, in any order.
inline Timing timing_of(std::vector<double> us) {
    std::sort(us.begin(), us.end());
    const double median = us[us.size() / 2];
    return {median, 100.0 * (us[us.size() * 3 / 4] - us[us.size() / 4]) / median};
}

template <class F>
Timing time_median(const TimingPlan& plan, F&& f) {
    using Clock = std::chrono::steady_clock;
    f();  // warm up: page faults, thread start
    std::vector<double> us;
    const auto start = Clock::now();
    for (int i = 0; i < plan.repetitions; ++i) {
        const auto begin = Clock::now();
        f();
        us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
        if (i >= 2 && std::chrono::duration<double>(Clock::now() - start).count() > plan.seconds) break;
    }
    return timing_of(std::move(us));
}

}  // namespace octet::tool
