#include "tune/sweep.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>

#include "octet/error.hpp"

namespace octet::tune {
namespace {

struct Candidate {
    Configuration configuration;
    std::vector<double> us{};
    bool failed = false;
};

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const std::size_t middle = values.size() / 2;
    return values.size() % 2 ? values[middle] : 0.5 * (values[middle - 1] + values[middle]);
}

// How far two series of the same thing are apart: three quarters of the rounds differ by less.
double noise_pct(const std::vector<double>& a, const std::vector<double>& b) {
    std::vector<double> apart;
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
        apart.push_back(100.0 * std::abs(a[i] - b[i]) / std::min(a[i], b[i]));
    std::sort(apart.begin(), apart.end());
    return apart[apart.size() * 3 / 4];
}

class Meter {
public:
    Meter(const Timer& time, const SweepOptions& options, std::size_t total)
        : time_(time), options_(options), start_(Clock::now()) {
        progress_.total = total;
    }

    // Every candidate once, from another one on each round. Candidates 0 and 1 are the incumbent.
    void round(std::vector<Candidate>& candidates, std::size_t number, std::vector<Failure>& failures) {
        for (std::size_t i = 0; i < candidates.size(); ++i) {
            Candidate& candidate = candidates[(i + number) % candidates.size()];
            if (!candidate.failed) measure(candidate, &candidate - candidates.data() < 2, failures);
            ++progress_.done;
            const double spent = std::chrono::duration<double>(Clock::now() - start_).count();
            const auto done = static_cast<double>(progress_.done);
            progress_.seconds_left = spent / done * std::max(0.0, static_cast<double>(progress_.total) - done);
            if (options_.progress) options_.progress(progress_);
        }
    }

private:
    using Clock = std::chrono::steady_clock;

    void measure(Candidate& candidate, bool incumbent, std::vector<Failure>& failures) {
        try {
            const double us = time_(candidate.configuration);
            if (!(us > 0)) fail(Status::internal, "a time of ", us, " us was measured");
            candidate.us.push_back(us);
        } catch (const std::exception& error) {
            if (incumbent)
                fail(Status::device_error, "the configuration in force (", to_string(candidate.configuration),
                     ") failed: ", error.what());
            candidate.failed = true;
            failures.push_back({candidate.configuration, error.what()});
        }
    }

    const Timer& time_;
    const SweepOptions& options_;
    Clock::time_point start_;
    Progress progress_;
};

}  // namespace

std::vector<Configuration> Space::configurations() const {
    std::vector<Configuration> all{{}};
    for (const Parameter& parameter : parameters) {
        std::vector<Configuration> next;
        for (const Configuration& prefix : all) {
            for (std::size_t i = 0; i < parameter.values.size(); ++i) {
                Configuration longer = prefix;
                if (i > 0) longer.push_back({parameter.name, parameter.values[i]});  // defaults are not named
                next.push_back(std::move(longer));
            }
        }
        all = std::move(next);
    }
    return all;
}

SweepResult sweep(const Space& space, const Configuration& incumbent, const Timer& time, const SweepOptions& options) {
    require(options.rounds >= 3, options.rounds, " rounds were asked for, expected 3 or more");
    std::vector<Candidate> candidates{{incumbent}, {incumbent}};
    for (Configuration& configuration : space.configurations())
        if (!(configuration == incumbent)) candidates.push_back({std::move(configuration)});
    const auto rounds = static_cast<std::size_t>(options.rounds);

    SweepResult result;
    result.incumbent = result.chosen = incumbent;
    Meter meter(time, options, candidates.size() * rounds + 3 * 2 * rounds);
    for (std::size_t i = 0; i < rounds; ++i) meter.round(candidates, i, result.failures);

    const auto incumbent_us = [](const std::vector<Candidate>& list) {
        std::vector<double> both = list[0].us;
        both.insert(both.end(), list[1].us.begin(), list[1].us.end());
        return median(both);
    };
    const auto clears = [&](double us, double against) { return us < against * (1.0 - result.margin_pct / 100.0); };
    result.margin_pct = std::max(options.least_margin_pct, noise_pct(candidates[0].us, candidates[1].us));
    result.incumbent_us = result.chosen_us = incumbent_us(candidates);
    double fastest = result.incumbent_us;
    for (const Candidate& candidate : candidates)
        if (!candidate.failed) fastest = std::min(fastest, median(candidate.us));
    const Candidate* best = nullptr;
    for (const Candidate& candidate : candidates) {
        if (candidate.failed || &candidate - candidates.data() < 2) continue;
        const double us = median(candidate.us);
        if (best == nullptr && us <= fastest * (1.0 + 2.0 * result.margin_pct / 100.0) &&
            clears(us, result.incumbent_us))
            best = &candidate;
    }
    if (best == nullptr) return result;

    // The best of many is partly the luckiest: it must win again, on its own.
    std::vector<Candidate> finalists{{incumbent}, {incumbent}, {best->configuration}};
    for (std::size_t i = 0; i < 2 * rounds; ++i) meter.round(finalists, i, result.failures);
    result.margin_pct =
        std::max({result.margin_pct, options.least_margin_pct, noise_pct(finalists[0].us, finalists[1].us)});
    result.incumbent_us = result.chosen_us = incumbent_us(finalists);
    if (finalists[2].failed || !clears(median(finalists[2].us), result.incumbent_us)) return result;
    result.chosen = finalists[2].configuration;
    result.chosen_us = median(finalists[2].us);
    return result;
}

}  // namespace octet::tune
