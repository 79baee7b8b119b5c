// octet bench: the parts that its kinds share; each kind is a file of its own.
#include "bench.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include "bench_shapes.hpp"
#include "commands.hpp"
#include "train/checkpoint_file.hpp"
#include "train/json_text.hpp"
#include "train_progress.hpp"

namespace octet::tool {

BenchProgress::BenchProgress(const char* what, std::size_t total)
    : what_(what), total_(total), live_(isatty(STDERR_FILENO) != 0) {
    show();
}

BenchProgress::~BenchProgress() {
    if (live_) fmt::print(stderr, "\r\033[K");
}

void BenchProgress::done_one() {
    ++done_;
    show();
}

void BenchProgress::show() const {
    if (!live_) return;
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin_;
    const double left = took.count() * static_cast<double>(total_ - done_) / static_cast<double>(done_);
    fmt::print(stderr, "\r{} of {} {} measured{}\033[K", done_, total_, what_,
               done_ > 0 ? ", " + clock_time(left) + " left" : "");
}

void write_results(const std::string& path, const nlohmann::json& results) {
    if (path.empty()) return;
    train::write_in_place(path, train::json_text(results, 1) + "\n");
    fmt::print("\nresults: {}\n", path);
}

void add_bench(CLI::App& program, Chosen& chosen) {
    CLI::App* command =
        program.add_subcommand("bench", "Measure kernels, products or the layer; each is checked before it is timed");
    command->require_subcommand(1);
    add_bench_kernels(*command, chosen);
    add_bench_products(*command, chosen);
    add_bench_layer(*command, chosen);
}

}  // namespace octet::tool
