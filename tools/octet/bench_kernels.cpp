// octet bench kernels: bandwidth of every quantizer on the bytes it must move, as a share of this machine's copy.
#include <fmt/core.h>

#include <cstring>

#include "bench.hpp"
#include "bench_device.hpp"
#include "bench_shapes.hpp"
#include "checks.hpp"
#include "core/parallel.hpp"
#include "machine.hpp"
#include "octet/error.hpp"
#include "octet/memory.hpp"
#include "octet/quantize.hpp"
#include "table.hpp"
#include "three_pass.hpp"
#include "timing.hpp"

namespace octet::tool {
namespace {

struct KernelArguments {
    std::string device = "cpu";
    std::int64_t m = 16640, k = 5120, n = 2048, groups = 16;
    std::int64_t weight_e = 64, weight_n = 1408, weight_k = 2048;
    int threads = 0;
    bool quick = false, sweeps = false;
    std::vector<std::string> ops;
    std::string json, peers;
    std::string command;
};

// The machine's copy bandwidth, counting bytes read and written, with the same threads.
double copy_gbps(int threads, const TimingPlan& plan) {
    const std::int64_t bytes = std::int64_t{256} << 20;
    Buffer from(static_cast<std::size_t>(bytes)), to(static_cast<std::size_t>(bytes));
    std::memset(from.data(), 1, from.bytes());
    std::memset(to.data(), 2, to.bytes());
    // One long copy a thread: short ones would go through the caches and read what they are about to overwrite.
    const std::int64_t share = bytes / thread_count(threads);
    const Timing timing = time_median(plan, [&] {
        parallel_for(threads, bytes, share, [&](std::int64_t begin, std::int64_t end) {
            std::memcpy(to.as<char>() + begin, from.as<char>() + begin, static_cast<std::size_t>(end - begin));
        });
    });
    return 2.0 * static_cast<double>(bytes) / timing.us / 1e3;
}

// A quantized operand that owns its parts, rowwise, blockwise or mx.
struct Quantized {
    Tensor data, scale, inverse;
    bool mx = false;

    Quantized(const QuantizeOptions& options, Extents data_shape, Extents scale_shape)
        : data(options.format, data_shape),
          scale(options.scaling == Scaling::mx ? Format::e8m0 : Format::f32, scale_shape),
          mx(options.scaling == Scaling::mx) {
        if (!mx) inverse = Tensor(Format::f32, scale_shape);
        std::memset(data.as<char>(), 0xA5, data.bytes());  // touched, so that page faults are not timed
    }
    QuantizedView view() { return {data.view(), scale.view(), mx ? TensorView{} : inverse.view()}; }
    std::int64_t bytes() const { return static_cast<std::int64_t>(data.bytes() + scale.bytes() + inverse.bytes()); }
    bool operator==(const Quantized& other) const {
        const auto same = [](const Tensor& a, const Tensor& b) {
            return a.bytes() == b.bytes() && std::memcmp(a.as<char>(), b.as<char>(), a.bytes()) == 0;
        };
        return same(data, other.data) && same(scale, other.scale) && same(inverse, other.inverse);
    }
};

struct Bench {
    const KernelArguments& arguments;
    TimingPlan plan;
    double copy;
    Table table{{"operation", "scaling", "shape", "us", "spread", "GB/s", "of copy", "vs three passes"}};
    BenchProgress* progress = nullptr;
    nlohmann::json rows = nlohmann::json::array();

    // bytes: what must be read and written. three_pass_us: 0 where there is no plain twin.
    void add(const std::string& op, Scaling scaling, const std::string& shape, nlohmann::json fields,
             const Timing& timing, std::int64_t bytes, double three_pass_us) {
        const double gbps = static_cast<double>(bytes) / timing.us / 1e3;
        table.add({op, std::string(name(scaling)), shape, fmt::format("{:.0f}", timing.us),
                   fmt::format("{:.0f}%", timing.spread_pct), fmt::format("{:.2f}", gbps),
                   fmt::format("{:.0f}%", 100 * gbps / copy),
                   three_pass_us > 0 ? fmt::format("{:.1f}x", three_pass_us / timing.us) : ""});
        fields.update({{"op", op},
                       {"recipe", scaling == Scaling::mx ? "mxfp8" : "fp8_" + std::string(name(scaling))},
                       {"us", timing.us},
                       {"spread_pct", timing.spread_pct},
                       {"gbps", gbps},
                       {"pct_copy", 100 * gbps / copy}});
        if (three_pass_us > 0) fields["vs"] = {{"three_pass", three_pass_us / timing.us}};
        rows.push_back(std::move(fields));
        progress->done_one();
    }
};

[[noreturn]] void wrong(const char* op) {
    fail(Status::internal, op, " does not agree with the plain three passes; nothing was timed. Run 'octet verify'");
}

std::vector<QuantizeOptions> all_scalings() {
    std::vector<QuantizeOptions> list(3);
    list[1].scaling = Scaling::blockwise;
    list[1].scale_rounding = ScaleRounding::exact;
    list[2].scaling = Scaling::mx;
    return list;
}

void bench_tokens(Bench& bench, const Execution& on) {
    const KernelArguments& a = bench.arguments;
    const std::int64_t m = a.m, k = a.k, n = a.n, g = a.groups, alignment = 128, padded = padded_bound(m, g, alignment);
    const Tensor x = random_bf16({m, k}, 1), y = random_bf16({m, n}, 2);
    const std::vector<std::int32_t> ends = split_ends("uneven", m, g);
    const Groups groups{ends.data(), g, {}};
    const std::string shape = fmt::format("{}x{}", m, k), grouped = fmt::format("{}, {} groups", shape, g);
    const nlohmann::json fields = {{"M", m}, {"K", k}, {"E", g}, {"split", "uneven"}};
    for (const QuantizeOptions& options : all_scalings()) {
        const std::int64_t block = block_of(options.scaling);
        const bool rowwise = options.scaling == Scaling::rowwise;
        const auto rows_like = [&] {
            return Quantized(options, {m, k}, rowwise ? Extents{m} : Extents{m, ceil_div(k, block)});
        };
        const auto columns_like = [&](std::int64_t features) {
            return Quantized(options, {features, padded},
                             rowwise ? Extents{g, features} : Extents{features, padded / block});
        };
        const std::int64_t read = 2 * m * k;
        Quantized rows = rows_like(), columns = columns_like(k);
        double plain_rows = 0, plain_columns = 0;
        if (rowwise) {  // the plain twins, which also are the check before timing
            Buffer scratch(static_cast<std::size_t>(m * k) * sizeof(float));
            Quantized twin = rows_like();
            plain_rows =
                time_median(bench.plan, [&] { three_pass_rows(x, twin.view(), scratch.as<float>(), a.threads); }).us;
            quantize_rows(x, options, rows.view(), on);
            if (!(twin == rows)) wrong("quantize_rows");
            Quantized twin_columns = columns_like(k);
            plain_columns =
                time_median(bench.plan, [&] {
                    three_pass_columns(x, groups, alignment, twin_columns.view(), scratch.as<float>(), a.threads);
                }).us;
            quantize_columns(x, groups, alignment, options, columns.view(), on);
            if (!(twin_columns == columns)) wrong("quantize_columns");
        }
        bench.add("rows", options.scaling, shape, fields,
                  time_median(bench.plan, [&] { quantize_rows(x, options, rows.view(), on); }), read + rows.bytes(),
                  plain_rows);
        bench.add("columns", options.scaling, grouped, fields,
                  time_median(bench.plan, [&] { quantize_columns(x, groups, alignment, options, columns.view(), on); }),
                  read + columns.bytes(), plain_columns);
        bench.add("pair", options.scaling, grouped, fields,
                  time_median(bench.plan,
                              [&] { quantize_pair(x, groups, alignment, options, rows.view(), columns.view(), on); }),
                  read + rows.bytes() + columns.bytes(), plain_rows + plain_columns);
        Quantized other = columns_like(n);
        nlohmann::json dual_fields = fields;
        dual_fields["N"] = n;
        bench.add(
            "columns, dual", options.scaling, fmt::format("{} and {}x{}", shape, m, n), dual_fields,
            time_median(
                bench.plan,
                [&] { quantize_columns_dual(x, y, groups, alignment, options, columns.view(), other.view(), on); }),
            read + 2 * m * n + columns.bytes() + other.bytes(), 0);
        const Tensor transposed = random_bf16({k, m}, 3);
        bench.add("transposed", options.scaling, fmt::format("{}x{}, {} groups", k, m, g), fields,
                  time_median(bench.plan,
                              [&] { quantize_transposed(transposed, groups, alignment, options, columns.view(), on); }),
                  read + columns.bytes(), 0);
    }
}

void bench_weights(Bench& bench, const Execution& on) {
    const KernelArguments& a = bench.arguments;
    const std::int64_t e = a.weight_e, n = a.weight_n, k = a.weight_k;
    const Tensor w = random_bf16({e, n, k}, 4);
    const std::string shape = fmt::format("{}x{}x{}", e, n, k);
    const nlohmann::json fields = {{"E", e}, {"N", n}, {"K", k}};
    for (const QuantizeOptions& options : all_scalings()) {
        const std::int64_t block = block_of(options.scaling);
        const auto scales = [&](std::int64_t rows, std::int64_t columns) {
            if (options.scaling == Scaling::rowwise) return Extents{e, rows};
            if (options.scaling == Scaling::blockwise)
                return Extents{e, ceil_div(rows, block), ceil_div(columns, block)};
            return Extents{e, rows, ceil_div(columns, block)};
        };
        Quantized along_k(options, {e, n, k}, scales(n, k)), along_n(options, {e, k, n}, scales(k, n));
        const std::int64_t read = 2 * e * n * k;
        bench.add("weights along K", options.scaling, shape, fields,
                  time_median(bench.plan, [&] { quantize_weights(w, options, along_k.view(), {}, on); }),
                  read + along_k.bytes(), 0);
        bench.add("weights along N", options.scaling, shape, fields,
                  time_median(bench.plan, [&] { quantize_weights(w, options, {}, along_n.view(), on); }),
                  read + along_n.bytes(), 0);
        bench.add("weights both ways", options.scaling, shape, fields,
                  time_median(bench.plan, [&] { quantize_weights(w, options, along_k.view(), along_n.view(), on); }),
                  read + along_k.bytes() + along_n.bytes(), 0);
    }
}

int bench_kernels(KernelArguments arguments) {
    if (arguments.device != "cpu")
        return bench_device_kernels({arguments.device, arguments.json, arguments.peers, arguments.command,
                                     arguments.ops, arguments.quick, arguments.sweeps});
    require(
        arguments.ops.empty() && arguments.peers.empty() && !arguments.sweeps,
        "--op, --peers or --sweeps was given, which a GPU's benchmark has; name one with --device, or leave them out");
    if (arguments.quick) {
        arguments.m = std::min<std::int64_t>(arguments.m, 4160);
        arguments.k = std::min<std::int64_t>(arguments.k, 2048);
        arguments.n = 1408;
        arguments.weight_e = std::min<std::int64_t>(arguments.weight_e, 8);
    }
    const TimingPlan plan{arguments.quick ? 5 : 11, arguments.quick ? 0.5 : 3.0};
    const Execution on{.backend = Backend::cpu, .threads = arguments.threads};
    const int threads = thread_count(arguments.threads);
    const double copy = copy_gbps(arguments.threads, plan);
    fmt::print(
        "{}, {} threads; copy {:.1f} GB/s (read and written, measured in this run)\n"
        "bf16 to e4m3; bytes counted: the input read once, each output written once\n\n",
        cpu_name(), threads, copy);
    Bench bench{arguments, plan, copy};
    {
        BenchProgress progress("kernels", 24);  // in three scalings, five along tokens and three of weights
        bench.progress = &progress;
        bench_tokens(bench, on);
        bench_weights(bench, on);
    }
    bench.table.print();
    nlohmann::json results;
    results["stamp"] = stamp(arguments.command);
    results["stamp"]["threads"] = threads;
    results["stamp"]["copy_gbps"] = copy;
    results["rows"] = bench.rows;
    write_results(arguments.json, results);
    return 0;
}

}  // namespace

void add_bench_kernels(CLI::App& bench, Chosen& chosen) {
    CLI::App* command =
        bench.add_subcommand("kernels", "Quantizers: GB/s, share of copy bandwidth, ratio to three plain passes");
    auto arguments = std::make_shared<KernelArguments>();
    const auto size = CLI::Range(std::int64_t{1}, std::int64_t{1} << 24);
    command->add_option("--device", arguments->device, "The device to measure: cpu, cuda or cuda:N")
        ->capture_default_str();
    command->add_option("--threads", arguments->threads, "CPU threads; 0 is every core")
        ->capture_default_str()
        ->check(CLI::Range(0, 1024));
    command->add_option("--tokens", arguments->m, "Tokens (rows)")->capture_default_str()->check(size);
    command->add_option("--features", arguments->k, "Features (columns)")->capture_default_str()->check(size);
    command->add_option("--groups", arguments->groups, "Token groups, uneven")->capture_default_str()->check(size);
    command->add_option("--experts", arguments->weight_e, "Experts of the weights")->capture_default_str()->check(size);
    command->add_flag("--quick", arguments->quick, "At most 4160 x 2048, fewer repetitions: seconds, not minutes");
    command->add_flag("--sweeps", arguments->sweeps, "On a GPU: also over group counts and over tokens, for plots");
    command->add_option("--op", arguments->ops, "On a GPU: only these operations (may be repeated)");
    command->add_option("--peers", arguments->peers, "On a GPU: times of others, from bench/peers/kernels.py")
        ->check(CLI::ExistingFile);
    command->add_option("--json", arguments->json, "Also write the results to this file")->check(writable_file());
    command->footer(
        "On a GPU the shapes are those of bench/cases/shapes.hpp, and --tokens, --features, --groups, --experts and\n"
        "--threads do not count. bench/plot_kernels draws what --sweeps measured.");
    command->callback([=, &chosen] {
        arguments->command = chosen.command_line;
        chosen.run = [=] { return bench_kernels(*arguments); };
    });
}

}  // namespace octet::tool
