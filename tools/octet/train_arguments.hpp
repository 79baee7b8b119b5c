// The arguments of octet train, and the runs they ask for.
#pragma once

#include <CLI/CLI.hpp>

#include <optional>
#include <string>
#include <vector>

#include "train/loop.hpp"

namespace octet::tool {

struct TrainArguments {
    std::string model = "tiny", recipe = "fp8_rowwise", dense_recipe = "bf16", activations = "bf16", device = "cpu";
    std::string compare, data, tokens = "auto", out;
    std::optional<std::int64_t> steps, batch, accumulate, sequence_length, layers, warmup;
    std::optional<double> learning_rate;
    std::uint64_t seed = 1;
    int threads = 0, keep = 2;
    std::int64_t eval_every = 100, eval_windows = 256, checkpoint_every = 200, observe_every = 25, log_every = 25;
    double eval_share = 0.05;
    bool resume = false, overwrite = false;
};

void add_train_options(CLI::App& command, TrainArguments& arguments);

// The recipes to train, each with all of its options: those of --compare, or the one of --recipe.
std::vector<Recipe> recipes_of(const TrainArguments& arguments);

// The folder everything goes to: --out, or out/<model>-<recipe> or out/<model>-compare.
std::filesystem::path folder_of(const TrainArguments& arguments);

// One run of one recipe in `folder`. Throws Error where the arguments do not make one.
train::RunOptions run_options(const TrainArguments& arguments, const Recipe& recipe,
                              const std::filesystem::path& folder);

// Where the default corpus is; throws saying how to get it when it is not.
std::filesystem::path default_corpus();

}  // namespace octet::tool
