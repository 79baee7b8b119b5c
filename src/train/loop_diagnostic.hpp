// What is saved when a loss or a gradient is not finite: enough to repeat the step and look into it.
#pragma once

#include <optional>
#include <string>

#include "train/checkpoint.hpp"
#include "train/data.hpp"
#include "train/loop_folder.hpp"
#include "train/model.hpp"

namespace octet::train {

struct Diagnostic {
    std::int64_t step = 0;      // the one that failed
    std::string what{};         // "loss", "gradient norm" or "evaluation loss"
    double value = 0;           // NaN or an infinity
    std::int64_t position = 0;  // of the step's first window
    std::optional<NonFinite> origin{};
};

// Writes <run>/diagnostic-step-<n>/: the weights and moments that it was computed with, the batch, and diagnostic.json.
// Returns the sentence that the run ends with.
std::string save_diagnostic(const RunFolder& folder, const Diagnostic& diagnostic, CheckpointState state,
                            const CheckpointTensors& tensors, OwnedBatch& batch);

}  // namespace octet::train
