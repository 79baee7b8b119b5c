#include "train/report_summary.hpp"

#include <algorithm>
#include <limits>

namespace octet::train {
namespace {

constexpr double nothing = std::numeric_limits<double>::quiet_NaN();

template <class F>
double mean_of_last(const RunRecord& run, F&& value) {
    const std::size_t count = std::min(final_steps, run.steps.size());
    if (count == 0) return nothing;
    double sum = 0;
    for (std::size_t i = run.steps.size() - count; i < run.steps.size(); ++i) sum += value(run.steps[i]);
    return sum / static_cast<double>(count);
}

double median_speed(const RunRecord& run) {
    std::vector<double> speeds;
    for (const StepMetrics& step : run.steps)
        if (step.scales.empty()) speeds.push_back(step.tokens_per_second());  // looking at scales takes time of its own
    if (speeds.empty()) return nothing;
    const auto middle = speeds.begin() + static_cast<std::ptrdiff_t>(speeds.size() / 2);
    std::nth_element(speeds.begin(), middle, speeds.end());
    return *middle;
}

RunSummary summary_of(const RunRecord& run) {
    RunSummary summary;
    summary.recipe = run.description.recipe;
    summary.step = run.steps.empty() ? 0 : run.steps.back().step;
    summary.train_loss = mean_of_last(run, [](const StepMetrics& s) { return s.loss; });
    summary.imbalance = mean_of_last(run, [](const StepMetrics& s) { return s.imbalance(); });
    summary.eval_loss = run.evaluations.empty() ? nothing : run.evaluations.back().loss;
    summary.tokens_per_second = median_speed(run);
    double seconds = 0, casts = 0, products = 0;
    for (const StepMetrics& step : run.steps) {
        seconds += step.seconds, casts += step.cast_seconds, products += step.product_seconds;
        summary.kept_bytes = std::max(summary.kept_bytes, static_cast<double>(step.kept_bytes));
    }
    if (seconds > 0) summary.cast_share = casts / seconds, summary.product_share = products / seconds;
    return summary;
}

}  // namespace

const RunRecord* baseline(const std::vector<RunRecord>& runs) {
    for (const RunRecord& run : runs)
        if (run.description.recipe == "bf16") return &run;
    return nullptr;
}

std::vector<RunSummary> summarize(const std::vector<RunRecord>& runs) {
    std::vector<RunSummary> summaries;
    summaries.reserve(runs.size());
    for (const RunRecord& run : runs) summaries.push_back(summary_of(run));
    const RunRecord* reference = baseline(runs);
    for (RunSummary& summary : summaries) {
        summary.train_gap_percent = summary.eval_gap_percent = nothing;
        if (reference == nullptr) continue;
        const RunSummary& bf16 = summaries[static_cast<std::size_t>(reference - runs.data())];
        summary.train_gap_percent = 100 * (summary.train_loss / bf16.train_loss - 1);
        summary.eval_gap_percent = 100 * (summary.eval_loss / bf16.eval_loss - 1);
    }
    return summaries;
}

}  // namespace octet::train
