// Finding a better configuration, offline, without being fooled by noise.
//
// All candidates are timed in turn, round after round, so that a busy moment meets all of them alike. The incumbent is
// timed twice a round: how far its two series differ is the noise, and the margin a winner must clear. Of the
// candidates within twice the margin of the fastest the first in the space's order is taken, so that two sweeps agree;
// it is then timed again, against the incumbent alone, and wins only if it clears the margin once more.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tune/table.hpp"

namespace octet::tune {

struct Parameter {
    std::string name;
    std::vector<std::int64_t> values;  // the default first
};

// What may be chosen for an operation: every combination of its parameters' values.
struct Space {
    std::string operation;
    std::vector<Parameter> parameters;
    std::vector<Configuration> configurations() const;  // the defaults first
};

// One repetition of one configuration, in microseconds. Throws where the configuration does not work.
using Timer = std::function<double(const Configuration&)>;

struct Progress {
    std::size_t done = 0, total = 0;  // repetitions
    double seconds_left = 0;
};

struct SweepOptions {
    int rounds = 9;
    double least_margin_pct = 1.5;
    std::function<void(const Progress&)> progress{};
};

struct Failure {
    Configuration configuration;
    std::string why;
};

struct SweepResult {
    Configuration incumbent, chosen;  // the same where none was better
    double incumbent_us = 0, chosen_us = 0;
    double margin_pct = 0;
    std::vector<Failure> failures{};
    bool changes() const { return !(incumbent == chosen); }
    double gain_pct() const { return incumbent_us > 0 ? 100.0 * (1.0 - chosen_us / incumbent_us) : 0.0; }
};

// Throws Error(device_error) only where the incumbent itself fails.
SweepResult sweep(const Space& space, const Configuration& incumbent, const Timer& time, const SweepOptions& options);

}  // namespace octet::tune
