// octet info: what this build has and what this machine offers it; with --model, what a model needs.
#include <fmt/core.h>

#include <chrono>

#include "checks.hpp"
#include "commands.hpp"
#include "core/parallel.hpp"
#include "cpu/simd.hpp"
#include "linear/choice.hpp"
#include "machine.hpp"
#include "octet/device.hpp"
#include "octet/error.hpp"
#include "octet_build_info.hpp"
#include "train/checkpoint.hpp"
#include "train/config.hpp"
#include "train_progress.hpp"
#include "tune/table.hpp"

namespace octet::tool {
namespace {

int info(bool as_json) {
    const bool cuda = build_info::cuda[0] != '\0';
    if (as_json) {
        nlohmann::json out = stamp("octet info --json");
        out["simd"] = cpu::name(cpu::active_target());
        out["backends"] = cuda ? nlohmann::json{"reference", "cpu", "cuda"} : nlohmann::json{"reference", "cpu"};
        fmt::print("{}\n", out.dump(2));
        return 0;
    }
    fmt::print("octet      {} ({}), built by {}, {}\n", build_info::version, build_info::commit, build_info::compiler,
               build_info::build_type);
    fmt::print("cpu        {}, {} cores, {:.1f} GiB\n", cpu_name(), usable_cores(), host_memory_gib());
    fmt::print("backends   reference  the scalar specification\n");
    fmt::print("           cpu        Highway {}, using {}\n", build_info::highway, cpu::name(cpu::active_target()));
    fmt::print("           cuda       {}\n", cuda ? fmt::format("compiled in, CUDA {}, for sm_90a", build_info::cuda)
                                                  : std::string("not in this build"));
    for (const DeviceInfo& gpu : gpus())
        fmt::print("           {:<10} {}, {} multiprocessors, {:.1f} GiB, driver {}\n", to_string(gpu.device), gpu.name,
                   gpu.multiprocessors, static_cast<double>(gpu.memory_bytes) / (1 << 30), gpu.driver);
    if (cuda && gpus().empty()) fmt::print("                      no CUDA device or driver on this machine\n");
    if (cuda)
        fmt::print(
            "                      products: tensor cores of compute capability 9.0 for bf16, e4m3 (rowwise, "
            "blockwise,\n"
            "                      mx) and gradients in e5m2 (rowwise, blockwise), with rows of whole 16 bytes;\n"
            "                      a plain kernel for everything else\n");
    fmt::print("           hip        not in this build\n");
    fmt::print("tables     sm90       {} tuned classes; the defaults for all others\n",
               tune::table_for("sm90").entries().size());
    return 0;
}

// What the cost model of a GPU makes of a step of one expert product: {M, N, K, E}.
int info_step(const std::vector<std::int64_t>& shape, const std::string& recipe) {
    const std::int64_t m = shape[0], n = shape[1], k = shape[2], e = shape[3];
    constexpr std::int64_t most = std::int64_t{1} << 31;
    for (const std::int64_t size : shape)
        require(size >= 1 && size <= most, "--step was given ", m, ",", n, ",", k, ",", e,
                ", expected M,N,K,E from 1 to ", most, " each");
    fmt::print("{}", explain_step(sm90_rates, parse_recipe(recipe), {e, n, k}, m));
    return 0;
}

// What a model needs, computed from its description: nothing is allocated.
int info_model(const std::string& model, std::int64_t layers, bool as_json) {
    train::Config config = train::load_config(model);
    if (layers > 0) config.model = train::with_layers(config.model, layers);
    const train::ModelCounts counts = train::count(config.model);
    if (as_json) {
        const nlohmann::json out = {{"model", config.name},
                                    {"layers", config.model.layers},
                                    {"parameters", counts.parameters},
                                    {"active_parameters", counts.active_parameters},
                                    {"expert_parameters", counts.expert_parameters},
                                    {"forward_flops_per_token", counts.forward_flops_per_token},
                                    {"training_flops_per_token", counts.training_flops_per_token},
                                    {"weight_bytes", counts.weight_bytes},
                                    {"gradient_bytes", counts.gradient_bytes},
                                    {"optimizer_bytes", counts.optimizer_bytes}};
        fmt::print("{}\n", out.dump(2));
        return 0;
    }
    const auto bytes = [](std::int64_t value) { return bytes_text(static_cast<double>(value)); };
    const double all = static_cast<double>(counts.parameters);
    fmt::print("{}\n", train::to_toml(config));
    fmt::print("parameters         {:>14}  ({:.3f} B)\n", counts.parameters, all / 1e9);
    fmt::print("  in experts       {:>14}  ({:.1f}%)\n", counts.expert_parameters,
               100 * static_cast<double>(counts.expert_parameters) / all);
    fmt::print("  active a token   {:>14}  ({:.1f}%)\n", counts.active_parameters,
               100 * static_cast<double>(counts.active_parameters) / all);
    fmt::print("FLOPs a token      {:>14.3e}  forward\n", counts.forward_flops_per_token);
    fmt::print("                   {:>14.3e}  forward and backward\n", counts.training_flops_per_token);
    fmt::print("memory to train    {:>14}  weights {} + gradients {} + moments {}, all f32; activations besides\n",
               bytes(counts.training_bytes()), bytes(counts.weight_bytes), bytes(counts.gradient_bytes),
               bytes(counts.optimizer_bytes));
    fmt::print("a checkpoint       {:>14}\n", bytes(counts.weight_bytes + counts.optimizer_bytes));
    return 0;
}

int info_checkpoint(const std::string& folder) {
    const train::Checkpoint checkpoint(train::find_checkpoint(folder));
    checkpoint.verify();
    const train::CheckpointState& state = checkpoint.state();
    fmt::print("checkpoint  {}\n", checkpoint.folder().string());
    fmt::print("step        {} ({} tokens seen)\n", state.step, state.tokens_seen);
    fmt::print("recipe      {}, dense {}, activations {}\n", state.recipe, state.dense_recipe, state.activations);
    fmt::print("data        {} as {}, window {}, seed {}\n", state.data.path, state.data.tokenizer, state.data.position,
               state.data.seed);
    for (const auto& [name, file] : state.files)
        fmt::print("file        {:<22} {:>10}  xxh64 {}, as written\n", name,
                   bytes_text(static_cast<double>(file.bytes)), train::hex(file.checksum));
    return 0;
}

// A table for any architecture, also one that this build has no kernels for.
int info_table(const std::string& path) {
    const auto start = std::chrono::steady_clock::now();
    const tune::Table table = tune::Table::read(path);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    require_valid(table);
    fmt::print("{}: {} classes for {}, read in {:.2f} ms\n", path, table.entries().size(), table.architecture(),
               took.count());
    for (const tune::Entry& entry : table.entries())
        fmt::print("  {}: {}\n", to_string(entry.key), to_string(entry.configuration));
    return 0;
}

}  // namespace

void add_info(CLI::App& program, Chosen& chosen) {
    CLI::App* command = program.add_subcommand("info", "Devices, backends compiled in, and versions");
    auto json = std::make_shared<bool>(false);
    command->add_flag("--json", *json, "Print JSON");
    auto model = std::make_shared<std::string>();
    auto layers = std::make_shared<std::int64_t>(0);
    command->add_option("--model", *model,
                        "A preset or a TOML file: print its parameters, memory and FLOPs, without making it");
    command->add_option("--layers", *layers, "With --model: only so many of its layers")
        ->needs("--model")
        ->check(positive());
    auto checkpoint = std::make_shared<std::string>();
    command->add_option("--checkpoint", *checkpoint, "A run's folder or a checkpoint's: check every byte of it")
        ->excludes("--model");
    auto step = std::make_shared<std::vector<std::int64_t>>();
    auto recipe = std::make_shared<std::string>("fp8_rowwise");
    command
        ->add_option("--step", *step,
                     "M,N,K,E: which products of a step on a GPU run in 8 bits, and what each mix costs")
        ->delimiter(',')
        ->expected(4)
        ->excludes("--model");
    command->add_option("--recipe", *recipe, "With --step: the recipe")->needs("--step")->capture_default_str();
    auto table = std::make_shared<std::string>();
    command->add_option("--table", *table, "A tuning table (docs/tuning.md): check and print it")->excludes("--model");
    command->footer(
        "Examples:\n"
        "  octet info --table tuned/sm90.json\n"
        "  octet info --model deepseek-moe-16b\n"
        "  octet info --step 16640,8192,5120,64 --recipe fp8_rowwise:accumulation=fast\n"
        "  octet info --checkpoint out/tiny-fp8_rowwise");
    command->callback([=, &chosen] {
        chosen.run = [=] {
            if (!checkpoint->empty()) return info_checkpoint(*checkpoint);
            if (!table->empty()) return info_table(*table);
            if (!step->empty()) return info_step(*step, *recipe);
            return model->empty() ? info(*json) : info_model(*model, *layers, *json);
        };
    });
}

}  // namespace octet::tool
