// metrics.jsonl: one JSON object a line, everything a run measured. The report is drawn from it, and so can be any
// other picture.
//
//   {"kind": "start", "config", "recipe", "unigram_entropy", ...}     once, and again at every resume
//   {"kind": "step", "step", "loss", "gradient_norm", ...}            every optimizer step
//   {"kind": "eval", "step", "loss", "tokens"}
//   {"kind": "note", "step", "text"}                                  a checkpoint, a failure to write one, ...
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "train/model.hpp"

namespace octet::train {

struct StepMetrics {
    std::int64_t step = 0;  // counts from 1: how many have been taken
    double loss = 0, auxiliary_loss = 0, gradient_norm = 0, learning_rate = 0;
    std::int64_t tokens = 0;  // of this step
    double seconds = 0, cast_seconds = 0, product_seconds = 0;
    std::size_t kept_bytes = 0;                                  // for backward, of one micro-batch
    std::vector<std::int64_t> moe_layers{};                      // which layers have experts
    std::vector<std::vector<std::int64_t>> tokens_per_expert{};  // [moe_layers][E]
    std::vector<ScaleStatistics> scales{};                       // of observed steps

    double tokens_per_second() const { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }
    double cast_share() const { return seconds > 0 ? cast_seconds / seconds : 0; }
    double product_share() const { return seconds > 0 ? product_seconds / seconds : 0; }
    // The busiest expert's tokens over the mean, in the layer where that is worst; 1 is perfect balance.
    double imbalance() const;
};

struct EvalMetrics {
    std::int64_t step = 0;
    double loss = 0;
    std::int64_t tokens = 0;
};

// What a run is, for its own file and for the report.
struct RunDescription {
    std::string name{};    // of the configuration
    std::string config{};  // TOML
    std::string recipe{}, dense_recipe{};
    std::uint64_t seed = 0, data_seed = 0;
    int threads = 0;
    std::string data{}, tokenizer{};
    std::int64_t training_tokens = 0, evaluation_windows = 0, parameters = 0;
    std::int64_t steps = 0, tokens_per_step = 0;
    double unigram_entropy = 0;  // nats a token
};

struct RunRecord {
    RunDescription description{};
    std::vector<StepMetrics> steps{};
    std::vector<EvalMetrics> evaluations{};
    std::vector<std::string> notes{};
};

RunRecord read_metrics(const std::filesystem::path& path);  // a line cut short by a kill is left out

class MetricsFile {
public:
    // Keeps what is known up to `step` of a file that is there, and drops the rest: a resumed run writes it again.
    MetricsFile(std::filesystem::path path, std::int64_t step);
    ~MetricsFile();
    MetricsFile(const MetricsFile&) = delete;
    MetricsFile& operator=(const MetricsFile&) = delete;

    // False when the line could not be written (a full disk): a reason to say so, not to stop.
    bool add(const RunDescription& description);
    bool add(const StepMetrics& step);
    bool add(const EvalMetrics& evaluation);
    bool note(std::int64_t step, const std::string& text);

private:
    bool write_line(const std::string& line);
    std::filesystem::path path_;
    int descriptor_ = -1;
};

}  // namespace octet::train
