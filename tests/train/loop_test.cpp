#include "train/loop.hpp"

#include <gtest/gtest.h>

#include "octet/error.hpp"
#include "temporary_folder.hpp"
#include "train/checkpoint.hpp"
#include "train/report.hpp"
#include "train/report_summary.hpp"

namespace octet::train {
namespace {

using testing::error_of;
using testing::read_text;
using testing::TemporaryFolder;
using testing::write_text;

constexpr const char* toy = R"([model]
vocabulary = 256
layers = 2
hidden = 32
heads = 2
kv_heads = 1
head_dim = 16
sequence_length = 16
tied_head = true

[experts]
count = 4
per_token = 2
shared = 1
intermediate = 32

[router]
balance = "bias"

[training]
steps = 12
batch = 2
accumulate = 2
warmup_steps = 2
)";

struct Watched : RunObserver {
    std::vector<double> losses;
    std::vector<EvalMetrics> evaluations;
    std::vector<std::string> notes;
    std::int64_t stop_after = -1;
    void stepped(const StepMetrics& m) override { losses.push_back(m.loss); }
    void evaluated(const EvalMetrics& m) override { evaluations.push_back(m); }
    void noted(const std::string& text) override { notes.push_back(text); }
    RunResult follow(const RunOptions& options) {
        return run(options, *this, [&] { return static_cast<std::int64_t>(losses.size()) == stop_after; });
    }
};

class Loop : public ::testing::Test {
protected:
    TemporaryFolder folder;
    RunOptions options(const std::string& out, RecipeKind recipe = RecipeKind::fp8_rowwise) {
        std::string text;
        for (int i = 0; i < 100; ++i) text += "line " + std::to_string(i) + " of a text to be learnt\n";
        write_text(folder / "text.txt", text);
        RunOptions options;
        options.config = parse_config(toy, "toy");
        options.model.recipe = Recipe::of(recipe);
        options.model.threads = 1;
        options.corpus = {folder / "text.txt", "auto", 256, folder / "tokens"};
        options.folder = folder / out;
        options.eval_every = 5;
        options.eval_windows = 3;
        options.checkpoint_every = 4;
        options.observe_every = 6;
        return options;
    }
};

TEST_F(Loop, InterruptedAnywhereResumesToTheSameBits) {
    for (const RecipeKind recipe : {RecipeKind::bf16, RecipeKind::mxfp8}) {
        Watched whole;
        const std::string name = std::string(octet::name(recipe));
        EXPECT_EQ(whole.follow(options(name, recipe)).end, RunEnd::finished);
        ASSERT_EQ(whole.losses.size(), 12u);
        const std::string expected = read_text(folder / (name + "/checkpoints/step-00000012/model.safetensors"));
        for (const std::int64_t at : {1, 5, 11}) {
            const std::string out = name + std::to_string(at);
            Watched first, second;
            first.stop_after = at;
            const RunResult stopped = first.follow(options(out, recipe));
            EXPECT_EQ(stopped.end, RunEnd::interrupted);
            EXPECT_EQ(stopped.step, at);
            RunOptions again = options(out, recipe);
            again.start = Start::resume;
            EXPECT_EQ(second.follow(again).step, 12);
            first.losses.insert(first.losses.end(), second.losses.begin(), second.losses.end());
            EXPECT_EQ(first.losses, whole.losses) << out;
            EXPECT_EQ(read_text(folder / (out + "/checkpoints/step-00000012/model.safetensors")), expected) << out;
        }
    }
}

TEST_F(Loop, WritesDownWhatHappened) {
    Watched watched;
    watched.follow(options("run"));
    const RunRecord record = read_metrics(folder / "run/metrics.jsonl");
    ASSERT_EQ(record.steps.size(), 12u);
    for (std::size_t i = 0; i < 12; ++i) {
        const StepMetrics& step = record.steps[i];
        EXPECT_EQ(step.step, static_cast<std::int64_t>(i) + 1);
        EXPECT_EQ(step.loss, watched.losses[i]);  // the same bits, through text
        EXPECT_EQ(step.tokens, 2 * 2 * 16);
        EXPECT_GE(step.imbalance(), 1.0);
        EXPECT_EQ(step.scales.empty(), i != 0 && i != 5 && i != 11);
        ASSERT_EQ(step.tokens_per_expert.size(), 2u);
        std::int64_t routed = 0;
        for (const std::int64_t tokens : step.tokens_per_expert[0]) routed += tokens;
        EXPECT_EQ(routed, step.tokens * 2);
    }
    ASSERT_EQ(record.evaluations.size(), 3u);  // 5, 10 and the last
    EXPECT_EQ(record.evaluations[2].step, 12);
    EXPECT_EQ(record.evaluations[2].loss, watched.evaluations[2].loss);
    EXPECT_EQ(record.description.recipe, "fp8_rowwise");
    EXPECT_GT(record.description.unigram_entropy, 1.0);
    EXPECT_EQ(parse_config(read_text(folder / "run/config.toml"), "toy").model, parse_config(toy, "toy").model);
}

// The same windows in other portions: micro-batches of a step, and batches of an evaluation.
TEST_F(Loop, LossesAreMeansWhateverTheBatch) {
    std::vector<Watched> watched(2);
    for (const std::int64_t batch : {2, 4}) {
        RunOptions run = options("batch" + std::to_string(batch), RecipeKind::bf16);
        run.model.activations = Format::f32;
        run.config.training.steps = 2;
        run.config.training.batch = batch;
        run.config.training.accumulate = 4 / batch;
        run.eval_every = 1;
        watched[static_cast<std::size_t>(batch / 4)].follow(run);
    }
    for (std::size_t step = 0; step < 2; ++step) {
        EXPECT_NEAR(watched[0].losses[step], watched[1].losses[step], 1e-5);
        EXPECT_NEAR(watched[0].evaluations[step].loss, watched[1].evaluations[step].loss, 1e-5);
        EXPECT_EQ(watched[0].evaluations[step].tokens, 3 * 16);
    }
}

TEST_F(Loop, RefusesToGoOnWithOtherData) {
    const auto run_options = [&](Start start) {
        RunOptions run = options("run", RecipeKind::bf16);
        run.config.model.vocabulary = run.corpus.vocabulary = 65536;
        run.config.training.steps = 1;
        run.start = start;
        return run;
    };
    Watched watched;
    watched.follow(run_options(Start::fresh));
    RunOptions seed = run_options(Start::resume), tokens = seed, text = seed;
    seed.data_seed = 2;
    tokens.corpus.tokens = "u16";
    write_text(folder / "other.txt", read_text(folder / "text.txt") + "one line more\n");
    text.corpus.path = folder / "other.txt";
    for (const RunOptions& other : {seed, tokens, text})
        EXPECT_NE(error_of([&] { watched.follow(other); }).find("its position means nothing there"), std::string::npos);
    EXPECT_EQ(watched.follow(run_options(Start::resume)).step, 1);
}

TEST_F(Loop, RefusesARunThatIsThere) {
    Watched watched;
    watched.follow(options("run"));
    EXPECT_NE(error_of([&] { watched.follow(options("run")); }).find("has a run already"), std::string::npos);
    RunOptions anew = options("run");
    anew.start = Start::overwrite;
    anew.config.training.steps = 2;
    EXPECT_EQ(watched.follow(anew).step, 2);
    EXPECT_EQ(list_checkpoints(folder / "run/checkpoints").size(), 1u);
    const RunFolder held(folder / "held", Start::fresh);
    EXPECT_NE(error_of([&] { RunFolder(folder / "held", Start::fresh); }).find("another octet"), std::string::npos);
}

// A run that cannot begin removes nothing of the one that it was to take the place of.
TEST_F(Loop, OverwritesOnlyWhatItCanReplace) {
    Watched watched;
    watched.follow(options("run"));
    const std::string metrics = read_text(folder / "run/metrics.jsonl");
    RunOptions anew = options("run");
    anew.start = Start::overwrite;
    anew.model.activations = Format::e4m3;
    EXPECT_NE(error_of([&] { watched.follow(anew); }).find("activations of format e4m3"), std::string::npos);
    EXPECT_EQ(read_text(folder / "run/metrics.jsonl"), metrics);
    EXPECT_EQ(list_checkpoints(folder / "run/checkpoints").size(), 2u);
    anew = options("run");
    anew.start = Start::overwrite;
    anew.config.training.batch = std::int64_t{1} << 30;
    EXPECT_NE(error_of([&] { watched.follow(anew); }).find("tokens together"), std::string::npos);
    EXPECT_EQ(read_text(folder / "run/metrics.jsonl"), metrics);
}

// JSON is UTF-8 and a path may be any bytes.
TEST_F(Loop, TakesPathsThatAreNotUtf8) {
    RunOptions run = options("caf\xE9");
    run.config.training.steps = 2;
    std::filesystem::rename(folder / "text.txt", folder / "t\xE9xt.txt");
    run.corpus.path = folder / "t\xE9xt.txt";
    Watched watched;
    EXPECT_EQ(watched.follow(run).end, RunEnd::finished);
    run.config.training.steps = 4;
    run.start = Start::resume;
    EXPECT_EQ(watched.follow(run).step, 4);
    EXPECT_NE(read_metrics(folder / "caf\xE9/metrics.jsonl").description.data.find("t\xEF\xBF\xBDxt"),
              std::string::npos);
}

TEST_F(Loop, AKilledLineIsLeftOut) {
    Watched watched;
    watched.follow(options("run"));
    std::string text = read_text(folder / "run/metrics.jsonl");
    write_text(folder / "run/metrics.jsonl", text + "{\"kind\": \"step\", \"st");
    EXPECT_EQ(read_metrics(folder / "run/metrics.jsonl").steps.size(), 12u);
    { const MetricsFile kept(folder / "run/metrics.jsonl", 7); }
    EXPECT_EQ(read_metrics(folder / "run/metrics.jsonl").steps.size(), 7u);
    EXPECT_EQ(read_metrics(folder / "run/metrics.jsonl").evaluations.size(), 1u);
    EXPECT_EQ(read_metrics(folder / "run/metrics.jsonl").description.name, "toy");
}

TEST_F(Loop, RefusesABatchThat32BitsCannotCount) {
    Watched watched;
    RunOptions run = options("run");
    run.config.training.batch = (std::int64_t{1} << 31) - 1;
    const std::string error = error_of([&] { watched.follow(run); });
    EXPECT_NE(error.find("give a smaller --batch"), std::string::npos) << error;
    EXPECT_FALSE(std::filesystem::exists(folder / "run"));
}

// Known when a run is resumed, and not after all of its steps.
TEST_F(Loop, ADamagedLineIsSaidBeforeAnythingBegins) {
    Watched watched;
    watched.stop_after = 4;
    watched.follow(options("run"));
    const std::string text = read_text(folder / "run/metrics.jsonl");
    for (const char* bad :
         {"{\"kind\": 5}", "{\"kind\": \"step\", \"step\": 3}", "{\"kind\": \"step\", \"step\": \"x\"}", "[1]"}) {
        write_text(folder / "run/metrics.jsonl", bad + ("\n" + text));
        RunOptions again = options("run");
        again.start = Start::resume;
        const std::string error = error_of([&] { watched.follow(again); });
        EXPECT_NE(error.find("line 1 of "), std::string::npos) << bad << ": " << error;
        EXPECT_EQ(watched.losses.size(), 4u);
        EXPECT_EQ(read_text(folder / "run/metrics.jsonl"), bad + ("\n" + text));
    }
}

TEST_F(Loop, ReportsCompareWithBf16) {
    Watched watched;
    watched.follow(options("a", RecipeKind::bf16));
    watched.follow(options("b", RecipeKind::fp8_rowwise));
    const std::vector<RunRecord> runs = write_report(folder / "report.html", {folder / "a", folder / "b"});
    const std::vector<RunSummary> summaries = summarize(runs);
    EXPECT_EQ(summaries[0].train_gap_percent, 0.0);
    EXPECT_NEAR(summaries[1].train_gap_percent, 100 * (summaries[1].train_loss / summaries[0].train_loss - 1), 1e-9);
    EXPECT_GT(summaries[0].kept_bytes, 0.0);
    EXPECT_GT(summaries[1].kept_bytes, 0.0);
    const std::string page = read_text(folder / "report.html");
    EXPECT_NE(page.find("fp8_rowwise"), std::string::npos);
    EXPECT_NE(page.find("</html>"), std::string::npos);
}

}  // namespace
}  // namespace octet::train
