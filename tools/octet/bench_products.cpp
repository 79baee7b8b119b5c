// octet bench products: the three grouped products of a training step and their casts, as a share of OpenBLAS's own
// dense f32 product of the same size, measured in the same run.
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
#include "octet/linear.hpp"
#include "table.hpp"

namespace octet::tool {
namespace {

using bench_cases::ProductShape;

struct ProductArguments {
    std::vector<std::string> cases{"cpu"};
    std::vector<std::string> recipes{"bf16", "fp8_rowwise", "fp8_blockwise", "mxfp8"};
    std::string split = "uneven";
    std::int64_t m = 0, n = 0, k = 0, e = 0;
    int threads = 0;
    bool full = false, quick = false;
    std::string json, command;
};

// One recipe's operands of one shape, and the calls that are timed.
struct Step {
    const ProductShape& shape;
    Recipe recipe;
    std::vector<std::int32_t> ends;
    Execution on;
    const Tensor &a, &w, &dy;
    Tensor &y, &da, &dw;  // shared by all recipes
    QuantizedTensor a_rows{}, a_columns{}, dy_rows{}, dy_columns{}, w_k{}, w_n{};

    Groups groups() const { return {ends.data(), shape.e, {}}; }
    std::int64_t alignment() const { return recipe.quantizes() ? token_alignment(recipe.scaling(), {}) : 1; }
    QuantizeOptions options(Format format) const {
        return {recipe.scaling(), format, recipe.scale_rounding, recipe.mx_mode};
    }
    bool fp8_wgrad() const { return recipe.quantizes() && recipe.wgrad == WgradPrecision::fp8; }

    void cast(const Tensor& x, std::int64_t features, Format format, QuantizedTensor& rows, QuantizedTensor& columns) {
        const QuantizeOptions how = options(format);
        const QuantizedView row_view = rows.reshape_rows(how, shape.m, features);
        if (!fp8_wgrad()) {
            quantize_rows(x, how, row_view, on);
            return;
        }
        quantize_pair(x, groups(), alignment(), how, row_view,
                      columns.reshape_columns(how, shape.m, shape.e, alignment(), features), on);
    }
    void cast_a() { cast(a, shape.k, recipe.format, a_rows, a_columns); }
    void cast_dy() { cast(dy, shape.n, recipe.gradient_format, dy_rows, dy_columns); }
    void cast_w() {
        const QuantizeOptions how = options(recipe.format);
        quantize_weights(w, how, w_k.reshape_weights(how, shape.e, shape.n, shape.k),
                         w_n.reshape_weights(how, shape.e, shape.k, shape.n), on);
    }
    void forward(const Groups& g, const Execution& where, Tensor& out) {
        recipe.quantizes() ? grouped_forward(a_rows.operand(), w_k.operand(), g, out, {}, where)
                           : grouped_forward(a.view(), w.view(), g, out, {}, where);
    }
    void dgrad(const Groups& g, const Execution& where, Tensor& out) {
        recipe.quantizes() ? grouped_dgrad(dy_rows.operand(), w_n.operand(), g, out, {}, where)
                           : grouped_dgrad(dy.view(), w.view(), g, out, {}, where);
    }
    void wgrad(const Groups& g, const Execution& where, Tensor& out) {
        fp8_wgrad() ? grouped_wgrad(dy_columns.operand(), a_columns.operand(), g, alignment(), out, {}, where)
                    : grouped_wgrad(dy.view(), a.view(), g, 1, out, {}, where);
    }
};

double relative_error(const Tensor& got, const Tensor& want, std::int64_t elements) {
    const ConstTensorView x(got.view().data, got.format(), {elements}), y(want.view().data, want.format(), {elements});
    double difference = 0, size = 0;
    for (std::int64_t i = 0; i < elements; ++i) {
        const double value = static_cast<double>(load(y, i)), d = static_cast<double>(load(x, i)) - value;
        difference += d * d;
        size += value * value;
    }
    return std::sqrt(difference / size);
}

// The first few tokens alone, against the reference: the operands are those that are timed.
void check_step(Step& step) {
    const auto few = std::min<std::int32_t>(4, step.ends.front());
    if (few == 0) return;
    const std::vector<std::int32_t> ends(step.ends.size(), few);
    const Groups groups{ends.data(), step.shape.e, {}};
    const Execution reference{Backend::reference};
    const auto check = [&](const char* what, Tensor& out, std::int64_t elements, std::int64_t reduction, auto&& call) {
        Tensor want(out.format(), out.extents());
        call(step.on, out);
        call(reference, want);
        const double error = relative_error(out, want, elements);
        const double rounding = out.format() == Format::bf16 ? 0x1p-8 : 0.0;
        if (!(error <= 1e-6 * std::sqrt(static_cast<double>(reduction)) + rounding))
            fail(Status::internal, what, " of ", to_string(step.recipe), " is off by ", error,
                 " from the reference; nothing was timed. Run 'octet verify'");
    };
    const ProductShape& s = step.shape;
    check("forward", step.y, few * s.n, s.k, [&](const Execution& on, Tensor& out) { step.forward(groups, on, out); });
    check("dgrad", step.da, few * s.k, s.n, [&](const Execution& on, Tensor& out) { step.dgrad(groups, on, out); });
    check("wgrad", step.dw, s.n * s.k, few, [&](const Execution& on, Tensor& out) { step.wgrad(groups, on, out); });
}

struct Report {
    Table table{{"case", "recipe", "what", "us", "spread", "GFLOP/s", "of BLAS", "vs bf16"}};
    nlohmann::json rows = nlohmann::json::array();

    // flops 0: a cast, which has none.
    void add(const ProductShape& shape, const std::string& split, const std::string& recipe, const std::string& op,
             const Timing& timing, double flops, double blas_gflops, double bf16_us) {
        const double gflops = flops / timing.us / 1e3;
        table.add({std::string(shape.name), recipe, op, fmt::format("{:.0f}", timing.us),
                   fmt::format("{:.0f}%", timing.spread_pct), flops > 0 ? fmt::format("{:.1f}", gflops) : "",
                   flops > 0 ? fmt::format("{:.0f}%", 100 * gflops / blas_gflops) : "",
                   bf16_us > 0 ? fmt::format("{:.2f}x", bf16_us / timing.us) : ""});
        nlohmann::json row = {{"op", op},          {"recipe", recipe}, {"M", shape.m},
                              {"N", shape.n},      {"K", shape.k},     {"E", shape.e},
                              {"split", split},    {"us", timing.us},  {"spread_pct", timing.spread_pct},
                              {"case", shape.name}};
        if (flops > 0) row.update({{"tflops", gflops / 1e3}, {"pct_blas", 100 * gflops / blas_gflops}});
        if (bf16_us > 0) row["vs"] = {{"bf16", bf16_us / timing.us}};
        rows.push_back(std::move(row));
    }
};

Timing sum(std::initializer_list<Timing> parts) {
    Timing total;
    for (const Timing& part : parts) {
        total.us += part.us;
        total.spread_pct = std::max(total.spread_pct, part.spread_pct);
    }
    return total;
}

void bench_shape(const ProductShape& shape, const ProductArguments& arguments, const TimingPlan& plan, Report& report) {
    const Execution on{.backend = Backend::cpu, .threads = arguments.threads};
    const Tensor a = random_bf16({shape.m, shape.k}, 1), dy = random_bf16({shape.m, shape.n}, 2);
    const Tensor w = random_bf16({shape.e, shape.n, shape.k}, 3);
    const double flops =
        2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k);
    Tensor dense_a(Format::f32, {shape.m, shape.k}), dense_w(Format::f32, {shape.n, shape.k});
    Tensor dense_y(Format::f32, {shape.m, shape.n});
    for (Tensor* tensor : {&dense_a, &dense_w})
        for (std::int64_t i = 0; i < tensor->elements(); ++i) tensor->as<float>()[i] = static_cast<float>(i % 7) - 3.0f;
    const auto dense = [&] {
        cpu::blas_dense(shape.m, shape.n, shape.k, dense_a.as<float>(), dense_w.as<float>(), dense_y.as<float>(),
                        arguments.threads);
    };
    // All recipes in turn, so that their ratios mean something on a machine that is not idle.
    Tensor y(Format::bf16, {shape.m, shape.n}), da(Format::bf16, {shape.m, shape.k});
    Tensor dw(Format::f32, {shape.e, shape.n, shape.k});
    const std::vector<std::int32_t> ends = split_ends(arguments.split, shape.m, shape.e);
    std::vector<std::unique_ptr<Step>> steps;
    std::vector<std::function<void()>> work{dense};
    for (const Recipe& recipe : parse_recipes(arguments.recipes)) {
        steps.push_back(std::unique_ptr<Step>(new Step{shape, recipe, ends, on, a, w, dy, y, da, dw}));
        Step& step = *steps.back();
        const bool casts = recipe.quantizes();
        const std::size_t first = work.size();
        work.push_back([&step, casts] { casts ? step.cast_a() : void(); });
        work.push_back([&step, casts] { casts ? step.cast_dy() : void(); });
        work.push_back([&step, casts] { casts ? step.cast_w() : void(); });
        for (std::size_t i = first; i < work.size(); ++i) work[i]();
        check_step(step);
        work.push_back([&step] { step.forward(step.groups(), step.on, step.y); });
        work.push_back([&step] { step.dgrad(step.groups(), step.on, step.da); });
        work.push_back([&step] { step.wgrad(step.groups(), step.on, step.dw); });
    }
    const std::vector<Timing> timings = time_in_turn(plan, work);
    const double blas = flops / timings[0].us / 1e3;
    report.add(shape, arguments.split, "f32", "BLAS, dense", timings[0], flops, blas, 0);
    double bf16[4] = {};  // forward, dgrad, wgrad, all: where bf16 is the first recipe
    for (std::size_t i = 0; i < steps.size(); ++i) {
        const Timing* t = &timings[1 + 6 * i];  // cast A, cast dY, cast W, forward, dgrad, wgrad
        const Recipe& recipe = steps[i]->recipe;
        const auto add = [&](const char* op, const Timing& timing, double f, double bf16_us) {
            report.add(shape, arguments.split, to_string(recipe), op, timing, f, blas, bf16_us);
        };
        add("forward", t[3], flops, bf16[0]);
        add("dgrad", t[4], flops, bf16[1]);
        add("wgrad", t[5], flops, bf16[2]);
        const Timing products = sum({t[3], t[4], t[5]});
        if (recipe.quantizes()) {
            add("cast A", t[0], 0, 0);
            add("cast dY", t[1], 0, 0);
            add("cast W", t[2], 0, 0);
            add("fwd_bwd", sum({t[0], t[1], t[2], products}), 3 * flops, bf16[3]);
            add("fwd_bwd_cached", sum({t[0], t[1], products}), 3 * flops, bf16[3]);
        } else {
            add("fwd_bwd", products, 3 * flops, 0);
            const double us[] = {t[3].us, t[4].us, t[5].us, products.us};
            std::copy_n(us, 4, bf16);
        }
    }
}

std::vector<ProductShape> shapes_of(const ProductArguments& arguments) {
    if (arguments.m > 0)
        return {{"given", "", arguments.m, arguments.n, arguments.k, std::max<std::int64_t>(arguments.e, 1)}};
    std::vector<ProductShape> shapes;
    for (const std::string& wanted : arguments.cases) {
        std::string known;
        const std::size_t before = shapes.size();
        for (const ProductShape& shape : bench_cases::product_shapes) {
            known += (known.empty() ? "" : ", ") + std::string(shape.name);
            if (wanted == shape.name || wanted == "all")
                shapes.push_back(arguments.full ? shape : bench_cases::scaled_down(shape));
        }
        require(shapes.size() > before, "unknown case '", wanted, "'; known: all, ", known);
    }
    return shapes;
}

int bench_products(const ProductArguments& arguments) {
    const std::vector<ProductShape> shapes = shapes_of(arguments);
    parse_recipes(arguments.recipes);  // an unknown one is refused before anything is measured
    const TimingPlan plan{arguments.quick ? 3 : 9, arguments.quick ? 2.0 : 15.0};
    const int threads = thread_count(arguments.threads);
    fmt::print(
        "{}, {} threads; OpenBLAS kernels: {}\n"
        "of BLAS: OpenBLAS's dense f32 product of the same M, N and K, timed in turn with the products{}\n\n",
        cpu_name(), threads, cpu::blas_kernels(),
        arguments.full ? "" : "; cases are scaled down, --full for real ones");
    Report report;
    {
        BenchProgress progress("cases", shapes.size());
        for (const ProductShape& shape : shapes) {
            bench_shape(shape, arguments, plan, report);
            progress.done_one();
        }
    }
    report.table.print();
    nlohmann::json results;
    results["stamp"] = stamp(arguments.command);
    results["stamp"].update({{"threads", threads}, {"blas", cpu::blas_kernels()}});
    results["rows"] = report.rows;
    write_results(arguments.json, results);
    return 0;
}

}  // namespace

void add_bench_products(CLI::App& bench, Chosen& chosen) {
    CLI::App* command =
        bench.add_subcommand("products", "Grouped products and casts: GFLOP/s, share of the BLAS, bf16 beside");
    auto arguments = std::make_shared<ProductArguments>();
    const auto size = CLI::Range(std::int64_t{1}, std::int64_t{1} << 24);
    command->add_option("--case", arguments->cases, "Named shapes, or all; an unknown one lists them")
        ->capture_default_str();
    command->add_option("--recipe", arguments->recipes, "Recipes; bf16 first gives the ratios to it")
        ->capture_default_str();
    command->add_option("--split", arguments->split, "Tokens of the experts")
        ->capture_default_str()
        ->check(CLI::IsMember({"even", "uneven", "skewed"}));
    auto* m = command->add_option("-M,--tokens", arguments->m, "Tokens: a shape of your own")->check(size);
    auto* n = command->add_option("-N,--out-features", arguments->n, "Out-features")->check(size)->needs(m);
    auto* k = command->add_option("-K,--in-features", arguments->k, "In-features")->check(size)->needs(m);
    m->needs(n)->needs(k);
    command->add_option("-E,--experts", arguments->e, "Experts")->check(CLI::Range(1, 4096))->needs(m);
    command->add_option("--threads", arguments->threads, "CPU threads; 0 is every core")
        ->capture_default_str()
        ->check(CLI::Range(0, 1024));
    command->add_flag("--full", arguments->full, "The named shapes as they are, not scaled down for a CPU");
    command->add_flag("--quick", arguments->quick, "Fewer repetitions");
    command->add_option("--json", arguments->json, "Also write the results to this file")->check(writable_file());
    command->callback([=, &chosen] {
        arguments->command = chosen.command_line;
        chosen.run = [=] { return bench_products(*arguments); };
    });
}

}  // namespace octet::tool
