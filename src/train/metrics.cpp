#include "train/metrics.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "octet/error.hpp"
#include "train/checkpoint_file.hpp"
#include "train/json_text.hpp"

namespace octet::train {
namespace {

using Json = nlohmann::json;

// JSON has no NaN and no infinity; a diverged run must still leave a readable file.
Json number(double value) {
    if (std::isfinite(value)) return value;
    return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

double to_number(const Json& value) {
    if (value.is_number()) return value.get<double>();
    const std::string text = value.is_string() ? value.get<std::string>() : "nan";
    const double infinity = std::numeric_limits<double>::infinity();
    return text == "inf" ? infinity : text == "-inf" ? -infinity : std::numeric_limits<double>::quiet_NaN();
}

Json to_json(const ScaleStatistics& s) {
    return {{"layer", s.layer},
            {"tensor", s.tensor},
            {"smallest_scale", number(s.smallest_scale)},
            {"largest_scale", number(s.largest_scale)},
            {"elements", s.elements},
            {"underflowed", s.underflowed},
            {"saturated", s.saturated}};
}

ScaleStatistics scale_statistics(const Json& in) {
    ScaleStatistics s;
    s.tensor = in.at("tensor").get<std::string>();
    s.layer = in.at("layer").get<std::int64_t>();
    s.smallest_scale = to_number(in.at("smallest_scale"));
    s.largest_scale = to_number(in.at("largest_scale"));
    s.elements = in.at("elements").get<std::int64_t>();
    s.underflowed = in.at("underflowed").get<std::int64_t>();
    s.saturated = in.at("saturated").get<std::int64_t>();
    return s;
}

RunDescription description_of(const Json& in) {
    RunDescription d;
    d.name = in.at("name").get<std::string>();
    d.config = in.at("config").get<std::string>();
    d.recipe = in.at("recipe").get<std::string>();
    d.dense_recipe = in.at("dense_recipe").get<std::string>();
    d.seed = in.at("seed").get<std::uint64_t>();
    d.data_seed = in.at("data_seed").get<std::uint64_t>();
    d.threads = in.at("threads").get<int>();
    d.data = in.at("data").get<std::string>();
    d.tokenizer = in.at("tokenizer").get<std::string>();
    d.training_tokens = in.at("training_tokens").get<std::int64_t>();
    d.evaluation_windows = in.at("evaluation_windows").get<std::int64_t>();
    d.parameters = in.at("parameters").get<std::int64_t>();
    d.steps = in.at("steps").get<std::int64_t>();
    d.tokens_per_step = in.at("tokens_per_step").get<std::int64_t>();
    d.unigram_entropy = to_number(in.at("unigram_entropy"));
    return d;
}

StepMetrics step_of(const Json& in) {
    StepMetrics s;
    s.step = in.at("step").get<std::int64_t>();
    s.loss = to_number(in.at("loss"));
    s.auxiliary_loss = to_number(in.at("auxiliary_loss"));
    s.gradient_norm = to_number(in.at("gradient_norm"));
    s.learning_rate = to_number(in.at("learning_rate"));
    s.tokens = in.at("tokens").get<std::int64_t>();
    s.seconds = to_number(in.at("seconds"));
    s.cast_seconds = to_number(in.at("cast_seconds"));
    s.product_seconds = to_number(in.at("product_seconds"));
    s.kept_bytes = in.at("kept_bytes").get<std::size_t>();
    s.moe_layers = in.at("moe_layers").get<std::vector<std::int64_t>>();
    s.tokens_per_expert = in.at("tokens_per_expert").get<std::vector<std::vector<std::int64_t>>>();
    if (in.contains("scales"))
        for (const Json& scale : in.at("scales")) s.scales.push_back(scale_statistics(scale));
    return s;
}

void add_line(RunRecord& record, const Json& entry) {
    const std::string kind = entry.at("kind").get<std::string>();
    if (kind == "start") record.description = description_of(entry);
    if (kind == "step") record.steps.push_back(step_of(entry));
    if (kind == "eval")
        record.evaluations.push_back({entry.at("step").get<std::int64_t>(), to_number(entry.at("loss")),
                                      entry.at("tokens").get<std::int64_t>()});
    if (kind == "note") record.notes.push_back(entry.at("text").get<std::string>());
}

// visit(line, its JSON, its step) for every line; one that ends in the middle, where a run was killed, is left out.
template <class Visit>
void each_line(std::istream& in, const std::filesystem::path& path, Visit&& visit) {
    constexpr std::int64_t no_step = std::numeric_limits<std::int64_t>::max();
    std::int64_t at = 0;
    for (std::string line; std::getline(in, line);) {
        ++at;
        const Json entry = Json::parse(line, nullptr, false);
        if (entry.is_discarded()) continue;
        try {
            visit(line, entry, entry.contains("step") ? entry.at("step").get<std::int64_t>() : no_step);
        } catch (const Json::exception& error) {
            fail(Status::io_error, "line ", at, " of '", path.string(), "' is not of a run's metrics: ", error.what(),
                 "; remove the line, or give another --out");
        }
    }
}

}  // namespace

double StepMetrics::imbalance() const {
    double worst = 1;
    for (const std::vector<std::int64_t>& layer : tokens_per_expert) {
        const auto total = std::accumulate(layer.begin(), layer.end(), std::int64_t{0});
        if (total == 0) continue;
        const auto busiest = static_cast<double>(*std::max_element(layer.begin(), layer.end()));
        worst = std::max(worst, busiest * static_cast<double>(layer.size()) / static_cast<double>(total));
    }
    return worst;
}

RunRecord read_metrics(const std::filesystem::path& path) {
    std::ifstream in(path);
    if (!in) fail(Status::io_error, "could not read the metrics '", path.string(), "': ", std::strerror(errno));
    RunRecord record;
    each_line(in, path, [&](const std::string&, const Json& entry, std::int64_t) { add_line(record, entry); });
    return record;
}

MetricsFile::MetricsFile(std::filesystem::path path, std::int64_t step) : path_(std::move(path)) {
    std::string kept;
    std::ifstream before(path_);
    if (step > 0)
        each_line(before, path_, [&](const std::string& line, const Json& entry, std::int64_t of_step) {
            RunRecord readable;  // now, and not in the report at the run's end
            add_line(readable, entry);
            const bool first_start = entry.at("kind") == "start" && kept.empty();
            if (first_start || of_step <= step) kept += line + "\n";
        });
    write_in_place(path_, kept);
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
    if (descriptor_ < 0) fail(Status::io_error, "could not open '", path_.string(), "': ", std::strerror(errno));
}

MetricsFile::~MetricsFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

bool MetricsFile::add(const RunDescription& d) {
    const Json out = {{"kind", "start"},
                      {"name", d.name},
                      {"config", d.config},
                      {"recipe", d.recipe},
                      {"dense_recipe", d.dense_recipe},
                      {"seed", d.seed},
                      {"data_seed", d.data_seed},
                      {"threads", d.threads},
                      {"data", d.data},
                      {"tokenizer", d.tokenizer},
                      {"training_tokens", d.training_tokens},
                      {"evaluation_windows", d.evaluation_windows},
                      {"parameters", d.parameters},
                      {"steps", d.steps},
                      {"tokens_per_step", d.tokens_per_step},
                      {"unigram_entropy", number(d.unigram_entropy)}};
    return write_line(json_text(out, one_line));
}

bool MetricsFile::add(const StepMetrics& s) {
    Json out = {{"kind", "step"},
                {"step", s.step},
                {"loss", number(s.loss)},
                {"auxiliary_loss", number(s.auxiliary_loss)},
                {"gradient_norm", number(s.gradient_norm)},
                {"learning_rate", number(s.learning_rate)},
                {"tokens", s.tokens},
                {"seconds", number(s.seconds)},
                {"cast_seconds", number(s.cast_seconds)},
                {"product_seconds", number(s.product_seconds)},
                {"kept_bytes", s.kept_bytes},
                {"moe_layers", s.moe_layers},
                {"tokens_per_expert", s.tokens_per_expert}};
    if (!s.scales.empty()) {
        out["scales"] = Json::array();
        for (const ScaleStatistics& scale : s.scales) out["scales"].push_back(to_json(scale));
    }
    return write_line(json_text(out, one_line));
}

bool MetricsFile::add(const EvalMetrics& e) {
    const Json out = {{"kind", "eval"}, {"step", e.step}, {"loss", number(e.loss)}, {"tokens", e.tokens}};
    return write_line(json_text(out, one_line));
}

bool MetricsFile::note(std::int64_t step, const std::string& text) {
    return write_line(json_text({{"kind", "note"}, {"step", step}, {"text", text}}, one_line));
}

bool MetricsFile::write_line(const std::string& line) {
    const std::string whole = line + "\n";
    return ::write(descriptor_, whole.data(), whole.size()) == static_cast<ssize_t>(whole.size());
}

}  // namespace octet::train
