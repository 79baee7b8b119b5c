// The training loop: data, model, optimizer, evaluation, checkpoints and metrics of one run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "train/corpus.hpp"
#include "train/data.hpp"
#include "train/loop_folder.hpp"
#include "train/metrics.hpp"
#include "train/model.hpp"

namespace octet::train {

struct RunOptions {
    Config config{};       // the model, and the numbers of training
    ModelOptions model{};  // recipes, seed of the weights, threads
    CorpusOptions corpus{};
    std::uint64_t data_seed = 1;
    double eval_share = 0.05;

    std::filesystem::path folder{};
    Start start = Start::fresh;
    std::int64_t eval_every = 100;        // steps; also after the last one. 0: only then
    std::int64_t eval_windows = 256;      // at most, spread over the evaluation split
    std::int64_t checkpoint_every = 200;  // steps; also after the last one. 0: only then
    int checkpoints_kept = 2;
    std::int64_t observe_every = 50;  // steps between looks at scales, saturation and underflow; 0: never
};

// What the loop tells whoever watches it. Called between steps, from the thread that runs the loop.
class RunObserver {
public:
    virtual ~RunObserver() = default;
    virtual void started(const RunDescription&, std::int64_t /*first_step*/) {}
    virtual void stepped(const StepMetrics&) {}
    virtual void evaluated(const EvalMetrics&) {}
    virtual void noted(const std::string& /*sentence*/) {}
};

enum class RunEnd : std::uint8_t { finished, interrupted };

struct RunResult {
    RunEnd end = RunEnd::finished;
    std::int64_t step = 0;                              // steps taken
    std::optional<std::filesystem::path> checkpoint{};  // the newest one, where one could be written
    bool last_checkpoint_written = false;
};

// Trains until the configured number of steps or until `stop` says so; either way ends with a checkpoint. A loss or a
// gradient that is not finite: a diagnostic is saved and Error names the step, the layer and the tensor.
RunResult run(const RunOptions& options, RunObserver& observer, const std::function<bool()>& stop);

}  // namespace octet::train
