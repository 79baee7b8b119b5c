// What a run comes to in one line: the end of `octet train`, and the first table of the report.
#pragma once

#include <string>
#include <vector>

#include "train/metrics.hpp"

namespace octet::train {

struct RunSummary {
    std::string recipe{};
    std::int64_t step = 0;
    double train_loss = 0;                               // mean of the last steps, at most 20
    double eval_loss = 0;                                // NaN where there was no evaluation
    double train_gap_percent = 0, eval_gap_percent = 0;  // to bf16; NaN where it is not there to compare with
    double tokens_per_second = 0;                        // of the median step
    double cast_share = 0, product_share = 0;            // of all the time
    double kept_bytes = 0;                               // for backward, the largest
    double imbalance = 1;                                // mean of the last steps
};

inline constexpr std::size_t final_steps = 20;

std::vector<RunSummary> summarize(const std::vector<RunRecord>& runs);

// The run that the others are measured against: bf16; null where there is none.
const RunRecord* baseline(const std::vector<RunRecord>& runs);

}  // namespace octet::train
