// octet train: train a Mixture-of-Experts language model, or its twins in several recipes.
#include <fmt/core.h>

#include <cmath>

#include "commands.hpp"
#include "octet/error.hpp"
#include "table.hpp"
#include "train/report.hpp"
#include "train/report_plot.hpp"
#include "train/report_summary.hpp"
#include "train/signal.hpp"
#include "train_arguments.hpp"
#include "train_progress.hpp"

namespace octet::tool {
namespace {

namespace fs = std::filesystem;
constexpr int exit_interrupted = 130;  // what a shell gives a program that Ctrl-C ended

std::string gap(double percent) { return std::isfinite(percent) ? fmt::format("{:+.2f}%", percent) : "-"; }

void print_summary(const std::vector<train::RunRecord>& runs) {
    Table table(
        {"recipe", "train loss", "eval loss", "gap to bf16 (train)", "(eval)", "tokens/s", "kept for backward"});
    for (const train::RunSummary& s : train::summarize(runs))
        table.add({s.recipe, fmt::format("{:.4f}", s.train_loss), fmt::format("{:.4f}", s.eval_loss),
                   gap(s.train_gap_percent), gap(s.eval_gap_percent), fmt::format("{:.0f}", s.tokens_per_second),
                   bytes_text(s.kept_bytes)});
    fmt::print("\n");
    table.print();
    fmt::print("\nunigram entropy of the corpus: {:.4f} nats a token (what knowing frequencies alone would reach)\n",
               runs.front().description.unigram_entropy);
}

// A report that cannot be written must not hide what the runs came to.
void write_and_say(const fs::path& file, const std::vector<fs::path>& folders) {
    std::vector<train::RunRecord> runs;
    runs.reserve(folders.size());
    for (const fs::path& folder : folders) runs.push_back(train::read_metrics(folder / "metrics.jsonl"));
    print_summary(runs);
    try {
        train::write_report(file, folders);
        fmt::print("report: {}{}\n", fs::absolute(file).string(),
                   train::has_gnuplot() ? "" : "  (tables only: gnuplot was not found; Debian: gnuplot-nox)");
    } catch (const Error& error) {
        fmt::print("report: not written: {}\n", error.what());
    }
}

int train_model(const TrainArguments& arguments) {
    const std::vector<Recipe> recipes = recipes_of(arguments);
    const fs::path folder = folder_of(arguments);
    const train::InterruptGuard guard;
    std::vector<train::RunOptions> runs;
    runs.reserve(recipes.size());
    for (const Recipe& recipe : recipes)  // all of them are checked before the first begins
        runs.push_back(run_options(arguments, recipe, arguments.compare.empty() ? folder : folder / to_string(recipe)));
    std::vector<fs::path> folders;
    bool complete = true, interrupted = false;
    for (const train::RunOptions& options : runs) {
        if (interrupted) break;
        Progress progress(to_string(options.model.recipe), arguments.log_every);
        train::RunResult result;
        try {
            result = train::run(options, progress, train::InterruptGuard::requested);
        } catch (const Error&) {  // a recipe that diverged is one more thing to show beside those that did not
            if (!folders.empty()) write_and_say(folder / "report.html", folders);
            throw;
        }
        folders.push_back(options.folder);
        complete = complete && result.last_checkpoint_written;
        interrupted = result.end == train::RunEnd::interrupted;
        if (interrupted && result.checkpoint)
            progress.noted(fmt::format("stopped after step {}, with {}; go on with --resume", result.step,
                                       result.checkpoint->string()));
    }
    write_and_say(folder / "report.html", folders);
    return interrupted ? exit_interrupted : complete ? 0 : 1;
}

}  // namespace

void add_train(CLI::App& program, Chosen& chosen) {
    CLI::App* command = program.add_subcommand("train", "Train a Mixture-of-Experts language model in 8 bits");
    auto arguments = std::make_shared<TrainArguments>();
    add_train_options(*command, *arguments);
    command->footer(
        "Examples:\n"
        "  octet train                                     preset tiny, fp8_rowwise, a minute or two\n"
        "  octet train --compare bf16,fp8_rowwise,mxfp8    the same model three times, and one report\n"
        "  octet train my.toml --data book.txt --recipe mxfp8 --steps 5000 --out runs/book\n"
        "  octet train my.toml --data book.txt --recipe mxfp8 --steps 5000 --out runs/book --resume\n"
        "  octet train deepseek-moe-16b --layers 2 --data tokens.bin --tokens u32\n"
        "A run's folder has config.toml, metrics.jsonl (everything, a line a step), checkpoints/ (safetensors) and\n"
        "report.html. Ctrl-C writes a checkpoint and stops; a second one stops at once. The exit code is 0 when the\n"
        "run is complete, 130 when it was interrupted, 1 when its last checkpoint could not be written, 2 for errors.\n"
        "The line shows: loss in nats a token, norm of the gradients before clipping, learning rate, speed, where the\n"
        "time goes (casts to 8 bits, products, the rest), balance (the busiest expert's tokens over the mean).");
    command->callback([=, &chosen] { chosen.run = [=] { return train_model(*arguments); }; });
}

}  // namespace octet::tool
