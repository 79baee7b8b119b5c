#include "train/report_curves.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "train/report_summary.hpp"
#include "train/report_text.hpp"

namespace octet::train {
namespace {

constexpr const char* colors[] = {"#333333", "#d97706", "#2563eb", "#059669",
                                  "#be185d", "#7c3aed", "#0891b2", "#65a30d"};
constexpr double nothing = std::numeric_limits<double>::quiet_NaN();

// bf16 is always the dark one; the others take the colours in turn.
std::string color_of(const std::vector<RunRecord>& runs, std::size_t index) {
    const RunRecord* reference = baseline(runs);
    if (reference == &runs[index]) return colors[0];
    std::size_t at = 1;
    for (std::size_t i = 0; i < index; ++i) at += reference != &runs[i];
    return colors[1 + (at - 1) % (std::size(colors) - 1)];
}

// A running mean over the last `window` values: steps differ by their data far more than recipes differ.
std::vector<double> smoothed(const std::vector<double>& values, std::size_t window) {
    std::vector<double> out(values.size());
    double sum = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        sum += values[i];
        if (i >= window) sum -= values[i - window];
        out[i] = sum / static_cast<double>(std::min(i + 1, window));
    }
    return out;
}

std::size_t window_for(std::size_t steps) { return std::clamp<std::size_t>(steps / 30, 1, 100); }

template <class F>
Series series_of(const RunRecord& run, const std::string& color, F&& value) {
    Series series{run.description.recipe, color, {}, {}};
    for (const StepMetrics& step : run.steps) {
        series.x.push_back(static_cast<double>(step.step));
        series.y.push_back(value(step));
    }
    return series;
}

template <class F>
LinePlot plot_of(const std::vector<RunRecord>& runs, const std::string& label, F&& value) {
    LinePlot plot;
    plot.y_label = label;
    for (std::size_t i = 0; i < runs.size(); ++i) {
        plot.series.push_back(series_of(runs[i], color_of(runs, i), value));
        plot.series.back().y = smoothed(plot.series.back().y, window_for(runs[i].steps.size()));
    }
    return plot;
}

void add_level(LinePlot& plot, const std::string& name, const std::string& color, double y) {
    double first = 1, last = 1;
    for (const Series& series : plot.series)
        if (!series.x.empty()) last = std::max(last, series.x.back());
    Series level{name, color, {first, last}, {y, y}};
    level.dashed = true;
    plot.series.push_back(std::move(level));
}

// Share of elements by tensor, in the layer where it is highest, over the observed steps.
template <class F>
LinePlot by_tensor(const RunRecord& run, const std::string& label, F&& share) {
    std::map<std::string, std::map<std::int64_t, double>> worst;
    for (const StepMetrics& step : run.steps)
        for (const ScaleStatistics& s : step.scales) {
            double& value = worst[s.tensor][step.step];
            value = std::max(value, share(s));
        }
    LinePlot plot;
    plot.y_label = label;
    std::size_t color = 1;
    for (const auto& [tensor, values] : worst) {
        Series series{tensor, colors[color++ % std::size(colors)], {}, {}};
        for (const auto& [step, value] : values) {
            series.x.push_back(static_cast<double>(step));
            series.y.push_back(value);
        }
        series.points = true;
        plot.series.push_back(std::move(series));
    }
    return plot;
}

double percent(std::int64_t part, std::int64_t whole) {
    return whole > 0 ? 100 * static_cast<double>(part) / static_cast<double>(whole) : 0;
}

}  // namespace

LinePlot train_loss_plot(const std::vector<RunRecord>& runs) {
    LinePlot plot = plot_of(runs, "training loss, nats a token", [](const StepMetrics& s) { return s.loss; });
    if (!runs.empty()) add_level(plot, "unigram entropy", "#999999", runs[0].description.unigram_entropy);
    return plot;
}

LinePlot eval_loss_plot(const std::vector<RunRecord>& runs) {
    LinePlot plot;
    plot.y_label = "evaluation loss, nats a token";
    for (std::size_t i = 0; i < runs.size(); ++i) {
        Series series{runs[i].description.recipe, color_of(runs, i), {}, {}};
        for (const EvalMetrics& e : runs[i].evaluations) {
            series.x.push_back(static_cast<double>(e.step));
            series.y.push_back(e.loss);
        }
        series.points = true;
        if (!series.x.empty()) plot.series.push_back(std::move(series));
    }
    return plot;
}

LinePlot gap_plot(const std::vector<RunRecord>& runs) {
    LinePlot plot;
    plot.y_label = "loss above bf16, percent";
    const RunRecord* reference = baseline(runs);
    if (reference == nullptr || runs.size() < 2) return plot;
    std::map<std::int64_t, double> train, eval;
    for (const StepMetrics& s : reference->steps) train[s.step] = s.loss;
    for (const EvalMetrics& e : reference->evaluations) eval[e.step] = e.loss;
    for (std::size_t i = 0; i < runs.size(); ++i) {
        if (&runs[i] == reference) continue;
        // The ratio of smoothed losses: both runs saw the same batches, so most of the noise is gone already.
        std::vector<double> x, ours, theirs;
        for (const StepMetrics& s : runs[i].steps) {
            if (!train.count(s.step)) continue;
            x.push_back(static_cast<double>(s.step));
            ours.push_back(s.loss);
            theirs.push_back(train.at(s.step));
        }
        ours = smoothed(ours, window_for(ours.size()));
        theirs = smoothed(theirs, window_for(theirs.size()));
        Series series{runs[i].description.recipe + ", train", color_of(runs, i), x, {}};
        for (std::size_t j = 0; j < x.size(); ++j) series.y.push_back(100 * (ours[j] / theirs[j] - 1));
        plot.series.push_back(std::move(series));
        Series evaluated{runs[i].description.recipe + ", eval", color_of(runs, i), {}, {}};
        for (const EvalMetrics& e : runs[i].evaluations) {
            if (!eval.count(e.step)) continue;
            evaluated.x.push_back(static_cast<double>(e.step));
            evaluated.y.push_back(100 * (e.loss / eval.at(e.step) - 1));
        }
        evaluated.points = evaluated.dashed = true;
        if (!evaluated.x.empty()) plot.series.push_back(std::move(evaluated));
    }
    add_level(plot, "bf16", colors[0], 0);
    add_level(plot, "1 percent", "#bbbbbb", 1);
    add_level(plot, "", "#bbbbbb", -1);
    return plot;
}

LinePlot speed_plot(const std::vector<RunRecord>& runs) {
    return plot_of(runs, "tokens a second", [](const StepMetrics& s) { return s.tokens_per_second(); });
}

LinePlot balance_plot(const std::vector<RunRecord>& runs) {
    return plot_of(runs, "busiest expert / mean", [](const StepMetrics& s) { return s.imbalance(); });
}

LinePlot gradient_norm_plot(const std::vector<RunRecord>& runs) {
    return plot_of(runs, "gradient norm", [](const StepMetrics& s) { return s.gradient_norm; });
}

HeatPlot load_plot(const RunRecord& run) {
    HeatPlot plot;
    plot.legend = "tokens / mean";
    if (run.steps.empty() || run.steps.front().tokens_per_expert.empty()) return plot;
    constexpr std::size_t columns = 120;  // steps are put together, as many as it takes
    const std::size_t each = (run.steps.size() + columns - 1) / columns;
    const auto& first = run.steps.front();
    for (std::size_t layer = 0; layer < first.tokens_per_expert.size(); ++layer)
        for (std::size_t expert = 0; expert < first.tokens_per_expert[layer].size(); ++expert)
            plot.rows.push_back(expert == 0 ? "layer " + std::to_string(first.moe_layers[layer]) + ", expert 0" : "");
    plot.values.resize(plot.rows.size());
    for (std::size_t begin = 0; begin + each <= run.steps.size(); begin += each) {
        plot.x.push_back(static_cast<double>(run.steps[begin].step) + static_cast<double>(each - 1) / 2);
        std::size_t row = 0;
        for (std::size_t layer = 0; layer < first.tokens_per_expert.size(); ++layer) {
            std::vector<double> sums(first.tokens_per_expert[layer].size(), 0.0);
            for (std::size_t i = begin; i < begin + each; ++i)
                for (std::size_t e = 0; e < sums.size(); ++e)
                    sums[e] += static_cast<double>(run.steps[i].tokens_per_expert[layer][e]);
            const double mean = std::accumulate(sums.begin(), sums.end(), 0.0) / static_cast<double>(sums.size());
            for (const double sum : sums) plot.values[row++].push_back(mean > 0 ? sum / mean : nothing);
        }
    }
    return plot;
}

LinePlot underflow_plot(const RunRecord& run) {
    return by_tensor(run, "underflow, % of elements",
                     [](const ScaleStatistics& s) { return percent(s.underflowed, s.elements); });
}

LinePlot saturation_plot(const RunRecord& run) {
    return by_tensor(run, "at the largest magnitude, %",
                     [](const ScaleStatistics& s) { return percent(s.saturated, s.elements); });
}

LinePlot scale_plot(const RunRecord& run) {
    std::map<std::string, std::map<std::int64_t, std::pair<double, double>>> ranges;
    for (const StepMetrics& step : run.steps)
        for (const ScaleStatistics& s : step.scales) {
            if (!(s.smallest_scale > 0) || !std::isfinite(s.largest_scale)) continue;
            auto [found, is_new] = ranges[s.tensor].try_emplace(step.step, s.smallest_scale, s.largest_scale);
            found->second.first = std::min(found->second.first, s.smallest_scale);
            found->second.second = std::max(found->second.second, s.largest_scale);
        }
    LinePlot plot;
    plot.y_label = "log2 of the multiplier";
    std::size_t color = 1;
    for (const auto& [tensor, steps] : ranges) {
        Series low{"", colors[color % std::size(colors)], {}, {}},
            high{tensor, colors[color % std::size(colors)], {}, {}};
        ++color;
        for (const auto& [step, range] : steps) {
            low.x.push_back(static_cast<double>(step));
            low.y.push_back(std::log2(range.first));
            high.x.push_back(static_cast<double>(step));
            high.y.push_back(std::log2(range.second));
        }
        low.dashed = true;
        plot.series.push_back(std::move(high));
        plot.series.push_back(std::move(low));
    }
    return plot;
}

}  // namespace octet::train
