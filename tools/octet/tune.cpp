// octet tune: sweeps the configurations of every operation over the benchmark's shapes, and writes a table.
#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <map>

#include "checks.hpp"
#include "commands.hpp"
#include "device_case.hpp"
#include "octet/error.hpp"
#include "table.hpp"
#include "train/checkpoint_file.hpp"
#include "train_progress.hpp"
#include "tune/spaces.hpp"
#include "verify.hpp"

namespace octet::tool {
namespace {

struct TuneArguments {
    std::string device = "cuda", architecture = "sm90", table, out = "tuned/sm90.json";
    std::vector<std::string> ops, shapes;
    int rounds = 9;
    double margin = 1.5;
};

// What has been tuned so far, by key: the shape it was tuned on and the outcome.
struct Tuned {
    std::string shape;
    tune::SweepResult result;
};

int tune_device(const TuneArguments& arguments) {
    std::vector<std::string> shapes;
    for (const bench_cases::ProductShape& shape : bench_cases::product_shapes)
        if (shape.name != "cpu") shapes.emplace_back(shape.name);
    const std::string unwritable = writable_file()(arguments.out);  // the default too
    if (!unwritable.empty()) fail(Status::io_error, unwritable, "; name another file with --out");
    require_known("shape", arguments.shapes, shapes);
    require_known("operation", arguments.ops, device_op_names());
    if (!arguments.table.empty()) {
        tune::Table table = tune::Table::read(arguments.table);
        require(table.architecture() == arguments.architecture, "'", arguments.table, "' is a table for ",
                table.architecture(), ", expected one for ", arguments.architecture);
        require_valid(table);
        tune::use_table(std::move(table));
    }
    const Device device = parse_device(arguments.device);
    require(device.kind != DeviceKind::cpu, "--device ", arguments.device,
            " was given, and the CPU's kernels have no configurations to choose from; give a GPU, such as cuda:0");
    const tune::Table& incumbents = tune::table_for(arguments.architecture);
    check_before_timing(device, 2);
    DeviceStopwatch stopwatch(device);
    const bool live = isatty(STDERR_FILENO) != 0;
    std::map<tune::Key, Tuned> tuned;
    const std::vector<std::string>& wanted = arguments.shapes.empty() ? shapes : arguments.shapes;
    std::size_t begun = 0;
    for (const bench_cases::ProductShape& shape : bench_cases::product_shapes) {
        const std::string shape_name(shape.name);
        if (std::find(wanted.begin(), wanted.end(), shape_name) == wanted.end()) continue;
        ++begun;
        const DeviceShape tensors(stopwatch, device, shape);
        for (const DeviceCase& c : tensors.cases()) {
            const tune::Space space = tune::space_of(c.tuned_as);
            const auto& ops = arguments.ops;
            if (space.parameters.empty() || (!ops.empty() && std::find(ops.begin(), ops.end(), c.op) == ops.end()))
                continue;
            const tune::Key key = tune::key_of(c.tuned_as, c.tokens, c.features, c.groups);
            if (tuned.contains(key)) continue;  // the first shape of a class stands for it
            const KernelTuning* table_choice = incumbents.find(c.tuned_as, c.tokens, c.features, c.groups);
            const auto timer = [&](const tune::Configuration& configuration) {
                const KernelTuning choice{configuration};
                Execution on = tensors.execution();
                on.tuning = &choice;
                return stopwatch.us([&] { c.call(on); });
            };
            tune::SweepOptions options{arguments.rounds, arguments.margin, {}};
            if (live)
                options.progress = [&](const tune::Progress& progress) {
                    fmt::print(stderr, "\rshape {} of {}, {}, {}: {}/{}, {} left for it\033[K", begun, wanted.size(),
                               shape_name, c.tuned_as, progress.done, progress.total,
                               clock_time(progress.seconds_left));
                };
            const tune::Configuration incumbent = table_choice ? table_choice->configuration : tune::Configuration{};
            timer(incumbent);  // warm up
            const tune::SweepResult result = tune::sweep(space, incumbent, timer, options);
            for (const tune::Failure& failure : result.failures)
                fmt::print("{}{}, {}: {} was skipped: {}\n", live ? "\r" : "", shape_name, c.tuned_as,
                           to_string(failure.configuration), failure.why);
            tuned[key] = {shape_name, result};
        }
        if (!live) fmt::print("{} done\n", shape_name);
    }
    if (live) fmt::print(stderr, "\r\033[K");

    Table table({"class", "in force", "us", "best", "us", "gain", "margin"});
    std::vector<tune::Entry> entries;
    for (const tune::Entry& entry : incumbents.entries())
        if (!tuned.contains(entry.key)) entries.push_back(entry);
    int changes = 0;
    for (const auto& [key, outcome] : tuned) {
        const tune::SweepResult& r = outcome.result;
        if (!r.chosen.empty()) entries.push_back({key, r.chosen});
        if (!r.changes()) continue;
        ++changes;
        table.add({to_string(key), to_string(r.incumbent), fmt::format("{:.1f}", r.incumbent_us), to_string(r.chosen),
                   fmt::format("{:.1f}", r.chosen_us), fmt::format("{:.1f}%", r.gain_pct()),
                   fmt::format("{:.1f}%", r.margin_pct)});
    }
    if (changes > 0) table.print();
    fmt::print("\n{} of {} classes change; the others keep what they have\n", changes, tuned.size());
    train::write_in_place(arguments.out, tune::Table(arguments.architecture, std::move(entries)).to_json());
    fmt::print("table: {}\n", arguments.out);
    return 0;
}

}  // namespace

void add_tune(CLI::App& program, Chosen& chosen) {
    CLI::App* command = program.add_subcommand("tune", "Sweep kernel configurations on this device and write a table");
    auto arguments = std::make_shared<TuneArguments>();
    command->add_option("--device", arguments->device, "The GPU to tune for")->capture_default_str();
    command->add_option("--table", arguments->table, "The table in force; the library's own without it")
        ->check(CLI::ExistingFile);
    command->add_option("--out", arguments->out, "Where to write the table")->capture_default_str();
    command->add_option("--op", arguments->ops, "Only these operations (may be repeated)");
    command->add_option("--shape", arguments->shapes, "Only these shapes (may be repeated)");
    command->add_option("--rounds", arguments->rounds, "Times every configuration is measured")
        ->capture_default_str()
        ->check(CLI::Range(3, 1000));
    command->add_option("--margin", arguments->margin, "Least gain that counts, in percent; more where noise is more")
        ->capture_default_str()
        ->check(CLI::Range(0.0, 100.0));
    command->footer(
        "What is in force is kept unless it is beaten by more than the noise, twice. docs/tuning.md has the format.\n"
        "Nothing is tuned at run time: review the table, commit it as tuned/<architecture>.json, and build.");
    command->callback([=, &chosen] { chosen.run = [=] { return tune_device(*arguments); }; });
}

}  // namespace octet::tool
