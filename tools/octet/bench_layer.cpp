// octet bench layer: a Mixture-of-Experts layer forward and backward, and where its time goes.
#include <fmt/core.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>

#include "../../bench/cases/shapes.hpp"
#include "bench.hpp"
#include "bench_shapes.hpp"
#include "checks.hpp"
#include "core/element.hpp"
#include "core/parallel.hpp"
#include "cpu/product_blas.hpp"
#include "machine.hpp"
#include "octet/error.hpp"
#include "octet/moe.hpp"
#include "table.hpp"

namespace octet::tool {
namespace {

using bench_cases::LayerShape;

struct LayerArguments {
    std::vector<std::string> cases{"deepseek-16b"};
    std::vector<std::string> recipes{"bf16", "fp8_rowwise", "fp8_blockwise", "mxfp8"};
    std::string split = "uneven";
    std::int64_t tokens = 0;
    int threads = 0;
    bool full = false, quick = false;
    std::string json, command;
};

void fill(TensorView view, std::uint64_t seed, float sigma) {
    parallel_for(0, view.extents.elements(), 1 << 18, [&](std::int64_t begin, std::int64_t end) {
        std::mt19937_64 random(seed + static_cast<std::uint64_t>(begin));
        std::normal_distribution<float> normal(0.0f, sigma);
        const TensorView flat(view.data, view.format, {view.extents.elements()});
        for (std::int64_t i = begin; i < end; ++i) store(flat, normal(random), i);
    });
}

MoeOptions options_of(const LayerShape& shape, const Recipe& recipe) {
    MoeOptions options;
    options.hidden = shape.hidden;
    options.expert_hidden = shape.expert_hidden;
    options.shared_hidden = shape.shared_hidden;
    options.router = {
        .experts = shape.experts, .top_k = shape.top_k, .score = RouterScore::sigmoid, .balance = RouterBalance::bias};
    options.recipe = recipe;
    return options;
}

// The choice is steered by the router's bias: none, or falling from the first expert to the last.
void set_split(MoeLayer& layer, const std::string& split) {
    const auto bias = layer.balance_bias();
    for (std::size_t e = 0; e < bias.size(); ++e) bias[e] = split == "skewed" ? 0.3f / static_cast<float>(e + 1) : 0.0f;
}

struct Layer {
    MoeLayer layer;
    MoeKept kept;
    MoeWorkspace workspace{};
    Tensor y, dx;
    Layer(const MoeOptions& options, std::int64_t tokens, const std::string& split)
        : layer(options),
          kept(options),
          y(Format::bf16, {tokens, options.hidden}),
          dx(Format::bf16, {tokens, options.hidden}) {
        std::uint64_t seed = 10;
        for (const Parameter& parameter : layer.parameters())
            fill(parameter.value, seed++, 1.0f / std::sqrt(static_cast<float>(options.hidden)));
        layer.weights_changed();
        set_split(layer, split);
    }
};

// Multiplications and additions of the experts' products, forward and backward.
double flops_of(const LayerShape& shape) {
    const double routed = static_cast<double>(shape.tokens * shape.top_k * shape.expert_hidden);
    const double shared = static_cast<double>(shape.tokens * shape.shared_hidden);
    return 3.0 * 2.0 * 3.0 * static_cast<double>(shape.hidden) * (routed + shared);
}

// An 8-bit layer must be what the bf16 one is, but for its rounding; NaN fails.
void check_output(const Tensor& got, const Tensor& want, const Recipe& recipe) {
    double difference = 0, size = 0;
    for (std::int64_t i = 0; i < got.elements(); ++i) {
        const double x = static_cast<double>(BF16::decode(got.as<std::uint16_t>()[i]));
        const double y = static_cast<double>(BF16::decode(want.as<std::uint16_t>()[i]));
        difference += (x - y) * (x - y);
        size += y * y;
    }
    if (!(std::sqrt(difference / size) <= 0.15))
        fail(Status::internal, "the output of ", to_string(recipe), " is off by ", std::sqrt(difference / size),
             " from bf16; nothing was timed");
}

void bench_shape(const LayerShape& shape, const LayerArguments& arguments, Table& table, nlohmann::json& rows) {
    const Execution on{.backend = Backend::cpu, .threads = arguments.threads};
    const TimingPlan plan{arguments.quick ? 3 : 7, arguments.quick ? 3.0 : 20.0};
    Tensor x(Format::bf16, {shape.tokens, shape.hidden}), dy(Format::bf16, {shape.tokens, shape.hidden});
    fill(x, 1, 1.0f);
    fill(dy, 2, 1.0f);
    // The ceiling: one dense product of the size of all routed rows times gate and up.
    const std::int64_t m = shape.tokens * shape.top_k, n = 2 * shape.expert_hidden, k = shape.hidden;
    Tensor a(Format::f32, {m, k}), w(Format::f32, {n, k}), c(Format::f32, {m, n});
    fill(a, 3, 1.0f);
    fill(w, 4, 1.0f);
    const double dense_flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);

    Layer plain(options_of(shape, Recipe::of(RecipeKind::bf16)), shape.tokens, arguments.split);
    plain.layer.forward(x, plain.y, nullptr, plain.workspace, on);
    double bf16_us = 0;
    for (const Recipe& recipe : parse_recipes(arguments.recipes)) {
        Layer own(options_of(shape, recipe), shape.tokens, arguments.split);
        own.layer.forward(x, own.y, nullptr, own.workspace, on);
        check_output(own.y, plain.y, recipe);
        int steps = 0;
        const auto step = [&] {
            own.layer.weights_changed();  // as after an optimizer step: the weights are cast in every one
            own.layer.forward(x, own.y, &own.kept, own.workspace, on);
            own.layer.backward(dy, own.kept, own.dx, 1.0f, own.workspace, on);
            ++steps;
        };
        const auto dense = [&] {
            cpu::blas_dense(m, n, k, a.as<float>(), w.as<float>(), c.as<float>(), arguments.threads);
        };
        step();
        own.layer.reset_report();
        steps = 0;
        const std::vector<Timing> timings = time_in_turn(plan, {dense, step});
        const Timing& t = timings[1];
        const MoeReport report = own.layer.report();
        const double blas = dense_flops / timings[0].us / 1e3, gflops = flops_of(shape) / t.us / 1e3;
        const auto ms = [&](double seconds) { return 1e3 * seconds / steps; };
        if (recipe.kind == RecipeKind::bf16) bf16_us = t.us;
        table.add({std::string(shape.name), to_string(recipe), fmt::format("{:.1f}", t.us / 1e3),
                   fmt::format("{:.0f}%", t.spread_pct),
                   fmt::format("{:.0f}", 1e6 * static_cast<double>(shape.tokens) / t.us), fmt::format("{:.1f}", gflops),
                   fmt::format("{:.0f}%", 100 * gflops / blas), fmt::format("{:.1f}", ms(report.linear.cast_seconds)),
                   fmt::format("{:.1f}", ms(report.linear.product_seconds)),
                   fmt::format("{:.1f}", ms(report.permutation_seconds)),
                   fmt::format("{:.1f}", ms(report.activation_seconds)),
                   fmt::format("{:.1f}", ms(report.router_seconds)),
                   fmt::format("{:.1f}", static_cast<double>(report.kept_bytes) / 1048576.0),
                   bf16_us > 0 ? fmt::format("{:.2f}x", bf16_us / t.us) : ""});
        nlohmann::json row = {{"op", "layer_fwd_bwd"},
                              {"case", shape.name},
                              {"recipe", to_string(recipe)},
                              {"M", m},
                              {"N", n},
                              {"K", k},
                              {"E", shape.experts},
                              {"split", arguments.split},
                              {"us", t.us},
                              {"spread_pct", t.spread_pct},
                              {"tflops", gflops / 1e3},
                              {"pct_blas", 100 * gflops / blas},
                              {"tokens_per_second", 1e6 * static_cast<double>(shape.tokens) / t.us},
                              {"cast_ms", ms(report.linear.cast_seconds)},
                              {"product_ms", ms(report.linear.product_seconds)},
                              {"permutation_ms", ms(report.permutation_seconds)},
                              {"activation_ms", ms(report.activation_seconds)},
                              {"router_ms", ms(report.router_seconds)},
                              {"kept_bytes", report.kept_bytes}};
        if (bf16_us > 0) row["vs"] = {{"bf16", bf16_us / t.us}};
        rows.push_back(std::move(row));
    }
}

std::vector<LayerShape> shapes_of(const LayerArguments& arguments) {
    std::vector<LayerShape> shapes;
    for (const std::string& wanted : arguments.cases) {
        std::string known;
        const std::size_t before = shapes.size();
        for (const LayerShape& shape : bench_cases::layer_shapes) {
            known += (known.empty() ? "" : ", ") + std::string(shape.name);
            if (wanted != shape.name && wanted != "all") continue;
            shapes.push_back(arguments.full ? shape : bench_cases::scaled_down(shape));
            if (arguments.tokens > 0) shapes.back().tokens = arguments.tokens;
        }
        require(shapes.size() > before, "unknown case '", wanted, "'; known: all, ", known);
    }
    return shapes;
}

int bench_layer(const LayerArguments& arguments) {
    const std::vector<LayerShape> shapes = shapes_of(arguments);
    parse_recipes(arguments.recipes);  // an unknown one is refused before anything is measured
    const int threads = thread_count(arguments.threads);
    fmt::print("{}, {} threads; OpenBLAS kernels: {}\n", cpu_name(), threads, cpu::blas_kernels());
    for (const LayerShape& s : shapes)
        fmt::print("{}: {} tokens, hidden {}, {} experts of {}, top {}, shared {}\n", s.name, s.tokens, s.hidden,
                   s.experts, s.expert_hidden, s.top_k, s.shared_hidden);
    fmt::print("forward and backward, weights cast in every step; times in ms{}\n\n",
               arguments.full ? "" : "; cases are scaled down, --full for real ones");
    Table table({"case", "recipe", "step", "spread", "tokens/s", "GFLOP/s", "of BLAS", "casts", "products", "permute",
                 "SwiGLU", "router", "kept MiB", "vs bf16"});
    nlohmann::json results;
    results["stamp"] = stamp(arguments.command);
    results["stamp"].update({{"threads", threads}, {"blas", cpu::blas_kernels()}});
    results["rows"] = nlohmann::json::array();
    {
        BenchProgress progress("cases", shapes.size());
        for (const LayerShape& shape : shapes) {
            bench_shape(shape, arguments, table, results["rows"]);
            progress.done_one();
        }
    }
    table.print();
    write_results(arguments.json, results);
    return 0;
}

}  // namespace

void add_bench_layer(CLI::App& bench, Chosen& chosen) {
    CLI::App* command = bench.add_subcommand("layer", "A Mixture-of-Experts layer: time, and its split; bf16 beside");
    auto arguments = std::make_shared<LayerArguments>();
    command->add_option("--case", arguments->cases, "Named layers, or all; an unknown one lists them")
        ->capture_default_str();
    command->add_option("--recipe", arguments->recipes, "Recipes; bf16 first gives the ratios to it")
        ->capture_default_str();
    command->add_option("--split", arguments->split, "How the router spreads tokens")
        ->capture_default_str()
        ->check(CLI::IsMember({"uneven", "skewed"}));
    command->add_option("--tokens", arguments->tokens, "Tokens, instead of the case's")
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24));
    command->add_option("--threads", arguments->threads, "CPU threads; 0 is every core")
        ->capture_default_str()
        ->check(CLI::Range(0, 1024));
    command->add_flag("--full", arguments->full, "The named layers as they are, not scaled down for a CPU");
    command->add_flag("--quick", arguments->quick, "Fewer repetitions");
    command->add_option("--json", arguments->json, "Also write the results to this file")->check(writable_file());
    command->callback([=, &chosen] {
        arguments->command = chosen.command_line;
        chosen.run = [=] { return bench_layer(*arguments); };
    });
}

}  // namespace octet::tool
