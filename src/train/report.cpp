#include "train/report.hpp"

#include <algorithm>
#include <cmath>

#include "train/checkpoint_file.hpp"
#include "train/report_curves.hpp"
#include "train/report_plot.hpp"
#include "train/report_summary.hpp"
#include "train/report_text.hpp"

namespace octet::train {
namespace {

constexpr const char* style = R"css(
body{font:15px/1.5 system-ui,sans-serif;max-width:980px;margin:2em auto;padding:0 1em;color:#222;background:#fff}
h1{font-size:1.6em;margin-bottom:.2em} h2{font-size:1.2em;margin-top:2em;border-bottom:1px solid #ddd} h3{font-size:1em}
table{border-collapse:collapse;margin:1em 0;font-variant-numeric:tabular-nums} td,th{padding:.25em .8em;text-align:right}
th{border-bottom:2px solid #bbb;font-weight:600} td{border-bottom:1px solid #eee} td:first-child,th:first-child{text-align:left}
img{max-width:100%;height:auto;display:block;margin:.5em 0} p.note{color:#666;font-size:.92em;margin:.2em 0}
.warm{background:#fde68a} .hot{background:#fca5a5} pre{background:#f6f6f6;padding:.8em;overflow:auto;font-size:.85em}
details{margin:.6em 0} .missing{background:#fff7ed;border:1px solid #fdba74;padding:.5em .8em}
)css";

std::string value_or_dash(const char* format, double value) {
    return std::isfinite(value) ? formatted(format, value) : "-";
}

std::string row(const std::vector<std::string>& cells, const char* tag = "td") {
    std::string out = "<tr>";
    for (const std::string& cell : cells) out += formatted("<%s>%s</%s>", tag, cell.c_str(), tag);
    return out + "</tr>\n";
}

template <class Plot>
std::string picture(const Plot& plot, const std::string& title, const std::string& note) {
    const std::string svg = draw(plot);
    if (svg.empty()) return "";
    return "<h3>" + escaped(title) + "</h3><p class=note>" + escaped(note) + "</p><img alt=\"" + escaped(title) +
           "\" src=\"data:image/svg+xml;base64," + base64(svg) + "\">\n";
}

std::string summary_table(const std::vector<RunRecord>& runs) {
    std::string out = "<table>" + row({"recipe", "steps", "train loss", "eval loss", "train gap", "eval gap",
                                       "tokens/s", "casts", "products", "rest", "kept for backward"},
                                      "th");
    for (const RunSummary& s : summarize(runs))
        out += row({escaped(s.recipe), formatted("%lld", static_cast<long long>(s.step)),
                    value_or_dash("%.4f", s.train_loss), value_or_dash("%.4f", s.eval_loss),
                    value_or_dash("%+.2f%%", s.train_gap_percent), value_or_dash("%+.2f%%", s.eval_gap_percent),
                    value_or_dash("%.0f", s.tokens_per_second), formatted("%.1f%%", 100 * s.cast_share),
                    formatted("%.1f%%", 100 * s.product_share),
                    formatted("%.1f%%", 100 * (1 - s.cast_share - s.product_share)),
                    formatted("%.2f MiB", s.kept_bytes / 1048576)});
    return out + "</table>\n";
}

// The last observed step of a run in 8 bits: what each layer's tensors look like to the quantizer.
std::string scale_table(const RunRecord& run) {
    const auto last = std::find_if(run.steps.rbegin(), run.steps.rend(),
                                   [](const StepMetrics& step) { return !step.scales.empty(); });
    if (last == run.steps.rend()) return "";
    std::vector<ScaleStatistics> scales = last->scales;
    std::stable_sort(scales.begin(), scales.end(),
                     [](const ScaleStatistics& a, const ScaleStatistics& b) { return a.layer < b.layer; });
    std::string out =
        formatted("<details><summary>Every layer at step %lld</summary><table>", static_cast<long long>(last->step)) +
        row({"layer", "tensor", "multipliers, log2", "underflow", "at the largest magnitude"}, "th");
    for (const ScaleStatistics& s : scales) {
        const double elements = static_cast<double>(std::max<std::int64_t>(s.elements, 1));
        const double under = 100 * static_cast<double>(s.underflowed) / elements;
        const double over = 100 * static_cast<double>(s.saturated) / elements;
        const auto cell = [](double percent, double warm, double hot) {
            return formatted("<td class=\"%s\">%.3f%%</td>",
                             percent >= hot    ? "hot"
                             : percent >= warm ? "warm"
                                               : "",
                             percent);
        };
        out += formatted("<tr><td>%lld</td><td>%s</td><td>%.1f to %.1f</td>", static_cast<long long>(s.layer),
                         escaped(s.tensor).c_str(), std::log2(s.smallest_scale), std::log2(s.largest_scale)) +
               cell(under, 2, 10) + cell(over, 5, 20) + "</tr>\n";
    }
    return out + "</table></details>\n";
}

std::string what_it_is(const std::vector<RunRecord>& runs) {
    const RunDescription& d = runs.front().description;
    return "<p>Model <b>" + escaped(d.name) + "</b>, " + formatted("%.2f", static_cast<double>(d.parameters) / 1e6) +
           " million parameters, " + formatted("%lld", static_cast<long long>(d.steps)) + " steps of " +
           formatted("%lld", static_cast<long long>(d.tokens_per_step)) + " tokens from <code>" + escaped(d.data) +
           "</code> (" + escaped(d.tokenizer) + "), seed " + std::to_string(d.seed) +
           (runs.size() > 1 ? "; every run has the same first weights and the same batches" : "") +
           ". A model that knows how frequent each token is and nothing else would reach a loss of <b>" +
           formatted("%.4f", d.unigram_entropy) + "</b>, the corpus's unigram entropy.</p>\n";
}

std::string sections(const std::vector<RunRecord>& runs) {
    std::string out = "<h2>Loss</h2>\n";
    out += picture(train_loss_plot(runs), "Training loss", "A running mean; the same batches in every run.");
    out += picture(eval_loss_plot(runs), "Evaluation loss", "On text that is never trained on.");
    out += picture(gap_plot(runs), "Gap to bf16", "How far each loss is above that of the bf16 run at the same step.");
    out += picture(gradient_norm_plot(runs), "Gradient norm", "Before clipping; a running mean.");
    out += "<h2>Speed</h2>\n";
    out += picture(speed_plot(runs), "Tokens a second", "Evaluations and checkpoints are not counted.");
    out += "<h2>Experts</h2>\n";
    out += picture(balance_plot(runs), "Balance",
                   "Tokens of the busiest expert over the mean, in the worst layer; 1 is even.");
    for (const RunRecord& run : runs)
        out += picture(load_plot(run), "Expert load, " + run.description.recipe,
                       "One row an expert: white is the mean, red is more, blue is less.");
    for (const RunRecord& run : runs) {
        const bool observed = std::any_of(run.steps.begin(), run.steps.end(),
                                          [](const StepMetrics& step) { return !step.scales.empty(); });
        if (!observed) continue;
        out += "<h2>In 8 bits: " + escaped(run.description.recipe) + "</h2>\n";
        out += picture(underflow_plot(run), "Underflow",
                       "Elements that were not zero and became zero, in the worst layer.");
        out += picture(saturation_plot(run), "Saturation",
                       "Elements at the format's largest magnitude, in the worst layer.");
        out += picture(scale_plot(run), "Scales", "Largest (line) and smallest (dashed) multiplier over all layers.");
        out += scale_table(run);
    }
    return out;
}

}  // namespace

std::string report_html(const std::vector<RunRecord>& runs) {
    std::string title = "Octet: training report";
    std::string out =
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
        "<meta name=\"viewport\" content=\"width=device-width\"><title>" +
        title + "</title><style>" + style + "</style></head><body>\n<h1>" + title + "</h1>\n";
    if (runs.empty()) return out + "<p>There are no runs.</p></body></html>\n";
    out += what_it_is(runs) + summary_table(runs);
    out += formatted(
        "<p class=note>Train loss is the mean of the last %zu steps. The gap is to bf16. Tokens/s is of the "
        "median step.</p>\n",
        final_steps);
    if (!has_gnuplot())
        out += "<p class=missing>The pictures are left out: gnuplot was not found when this report was made.</p>\n";
    out += sections(runs);
    for (const RunRecord& run : runs) {
        out += "<details><summary>Configuration of " + escaped(run.description.recipe) + "</summary><pre>" +
               escaped(run.description.config) + "</pre>";
        for (const std::string& note : run.notes) out += "<p class=note>" + escaped(note) + "</p>";
        out += "</details>\n";
    }
    return out + "</body></html>\n";
}

std::vector<RunRecord> write_report(const std::filesystem::path& file,
                                    const std::vector<std::filesystem::path>& run_folders) {
    std::vector<RunRecord> runs;
    runs.reserve(run_folders.size());
    for (const std::filesystem::path& folder : run_folders) runs.push_back(read_metrics(folder / "metrics.jsonl"));
    write_in_place(file, report_html(runs));
    return runs;
}

}  // namespace octet::train
