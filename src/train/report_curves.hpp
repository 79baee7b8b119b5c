// The pictures of a report that compare runs: each a function from records to what is drawn.
#pragma once

#include <vector>

#include "train/metrics.hpp"
#include "train/report_plot.hpp"

namespace octet::train {

LinePlot train_loss_plot(const std::vector<RunRecord>& runs);  // smoothed, with the unigram entropy
LinePlot eval_loss_plot(const std::vector<RunRecord>& runs);
LinePlot gap_plot(const std::vector<RunRecord>& runs);  // to bf16, in percent; no series where there is none
LinePlot speed_plot(const std::vector<RunRecord>& runs);
LinePlot balance_plot(const std::vector<RunRecord>& runs);
LinePlot gradient_norm_plot(const std::vector<RunRecord>& runs);

// Of one run: each expert's share of its layer's tokens, 1 being the mean.
HeatPlot load_plot(const RunRecord& run);

// Of one run in 8 bits: by tensor, over the layers. Underflow and saturation: the worst layer's share of elements.
LinePlot underflow_plot(const RunRecord& run);
LinePlot saturation_plot(const RunRecord& run);
LinePlot scale_plot(const RunRecord& run);  // log2 of the smallest and largest multipliers

}  // namespace octet::train
