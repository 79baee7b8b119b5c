// octet bench kernels --device cuda: every quantizer, the permutation and SwiGLU on device memory, by events, caches
// cold, as a share of the copy bandwidth measured in the same run.
#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "bench.hpp"
#include "bench_device.hpp"
#include "checks.hpp"
#include "device_case.hpp"
#include "machine.hpp"
#include "octet/error.hpp"
#include "table.hpp"
#include "timing.hpp"
#include "tune/table.hpp"
#include "verify.hpp"

namespace octet::tool {
namespace {

using bench_cases::ProductShape;

std::string case_name(const std::string& op, const std::string& recipe, std::int64_t m, std::int64_t n, std::int64_t k,
                      std::int64_t e) {
    return fmt::format("{} {} {} {} {} {}", op, recipe, m, n, k, e);
}

// Other people's times, by case and by name: {"rows": [{"op", "recipe", "M", "N", "K", "E", "peer", "us"}]}.
using Peers = std::map<std::string, std::map<std::string, double>>;
bool is_peer_row(const nlohmann::json& row) {
    const auto all = [&](std::initializer_list<const char*> names, auto is) {
        return std::all_of(names.begin(), names.end(),
                           [&](const char* name) { return row.contains(name) && is(row[name]); });
    };
    return row.is_object() && all({"op", "recipe", "peer"}, [](const auto& value) { return value.is_string(); }) &&
           all({"M", "N", "K", "E", "us"}, [](const auto& value) { return value.is_number(); });
}
Peers read_peers(const std::string& path) {
    Peers peers;
    if (path.empty()) return peers;
    std::ifstream file(path);
    const nlohmann::json json = nlohmann::json::parse(file, nullptr, false);
    const bool rows = json.is_object() && json.contains("rows") && json["rows"].is_array();
    if (!file || !rows || !std::all_of(json["rows"].begin(), json["rows"].end(), is_peer_row))
        fail(Status::io_error, "could not read the peers' times from '", path, "'; bench/peers/kernels.py writes them");
    for (const auto& row : json["rows"])
        peers[case_name(row.value("op", ""), row.value("recipe", ""), row.value("M", 0), row.value("N", 0),
                        row.value("K", 0), row.value("E", 0))][row.value("peer", "peer")] = row.value("us", 0.0);
    return peers;
}

struct Report {
    double copy_gbps;
    Peers peers;
    Table table{{"operation", "recipe", "M, N, K, E", "us", "spread", "GB/s", "of copy", "vs peer"}};
    nlohmann::json rows = nlohmann::json::array();

    void add(const DeviceCase& c, const ProductShape& s, const Timing& timing, const char* sweep) {
        const double gbps = c.bytes / timing.us / 1e3, share = 100 * gbps / copy_gbps;
        nlohmann::json row = {{"op", c.op},        {"recipe", c.recipe},
                              {"M", s.m},          {"N", s.n},
                              {"K", s.k},          {"E", s.e},
                              {"split", "uneven"}, {"us", timing.us},
                              {"gbps", gbps},      {"spread_pct", timing.spread_pct},
                              {"pct_copy", share}};
        std::string versus;
        const auto found = peers.find(case_name(c.op, c.recipe, s.m, s.n, s.k, s.e));
        if (found != peers.end())
            for (const auto& [peer, us] : found->second) {
                row["vs"][peer] = us / timing.us;
                versus += fmt::format("{}{} {:.1f}x", versus.empty() ? "" : ", ", peer, us / timing.us);
            }
        if (sweep != nullptr) row["sweep"] = sweep;
        table.add({c.op, c.recipe, fmt::format("{}, {}, {}, {}", s.m, s.n, s.k, s.e), fmt::format("{:.1f}", timing.us),
                   fmt::format("{:.1f}%", timing.spread_pct), fmt::format("{:.0f}", gbps),
                   fmt::format("{:.0f}%", share), versus});
        rows.push_back(std::move(row));
    }
};

// All cases of a shape in turn, round after round.
void bench_shape(DeviceStopwatch& stopwatch, Device device, const ProductShape& shape, int repetitions,
                 const std::function<bool(const DeviceCase&)>& wanted, const char* sweep, Report& report) {
    const DeviceShape tensors(stopwatch, device, shape);
    const Execution on = tensors.execution();
    std::vector<const DeviceCase*> cases;
    for (const DeviceCase& c : tensors.cases())
        if (wanted(c)) cases.push_back(&c);
    std::vector<std::vector<double>> us(cases.size());
    for (const DeviceCase* c : cases) c->call(on);  // warm up
    synchronize(device);
    for (int i = 0; i < repetitions; ++i)
        for (std::size_t j = 0; j < cases.size(); ++j) us[j].push_back(stopwatch.us([&] { cases[j]->call(on); }));
    for (std::size_t j = 0; j < cases.size(); ++j) report.add(*cases[j], shape, timing_of(us[j]), sweep);
}

// Equal bytes in other numbers of token groups, and of experts; and other numbers of tokens: what the plots show.
void bench_sweeps(DeviceStopwatch& stopwatch, Device device, int repetitions,
                  const std::function<bool(const DeviceCase&)>& wanted, Report& report) {
    const auto of_weights = [&](const DeviceCase& c) { return wanted(c) && c.op.rfind("weights", 0) == 0; };
    const auto of_tokens = [&](const DeviceCase& c) { return wanted(c) && c.op.rfind("weights", 0) != 0; };
    constexpr std::int64_t rows = 32768, n = 2048, k = 4096;
    for (const std::int64_t e : {1, 4, 16, 64, 128}) {
        bench_shape(stopwatch, device, {"sweep", "", rows, n, k, e}, repetitions, of_tokens, "E", report);
        bench_shape(stopwatch, device, {"sweep", "", 512, rows / e, k, e}, repetitions, of_weights, "E", report);
    }
    for (const std::int64_t m : {512, 2048, 8192, 32768, 131072})
        bench_shape(stopwatch, device, {"sweep", "", m, n, k, 16}, repetitions, of_tokens, "M", report);
}

// How much of a kernel's speed depends on the number of groups, or of experts, at equal bytes.
void print_spread_over_groups(const nlohmann::json& rows) {
    std::map<std::pair<std::string, std::string>, std::pair<double, double>> least_and_most;
    for (const auto& row : rows) {
        if (row.value("sweep", "") != "E") continue;
        const double share = row["pct_copy"];
        auto& [least, most] = least_and_most.try_emplace({row["op"], row["recipe"]}, share, share).first->second;
        least = std::min(least, share);
        most = std::max(most, share);
    }
    Table table({"1 to 128 groups or experts, equal bytes", "recipe", "slowest", "fastest", "apart"});
    for (const auto& [kernel, shares] : least_and_most)
        table.add({kernel.first, kernel.second, fmt::format("{:.0f}%", shares.first),
                   fmt::format("{:.0f}%", shares.second),
                   fmt::format("{:.1f}%", 100 * (1 - shares.first / shares.second))});
    fmt::print("\n");
    table.print();
}

}  // namespace

int bench_device_kernels(const DeviceBenchArguments& arguments) {
    const Device device = parse_device(arguments.device);
    const auto wanted = [&](const DeviceCase& c) {
        return arguments.ops.empty() ||
               std::find(arguments.ops.begin(), arguments.ops.end(), c.op) != arguments.ops.end();
    };
    Peers peers = read_peers(arguments.peers);
    require_known("operation", arguments.ops, device_op_names());
    check_before_timing(device, arguments.quick ? 2 : 6);
    DeviceStopwatch stopwatch(device);
    const int repetitions = arguments.quick ? 5 : 15;
    std::vector<double> copies;
    for (int i = 0; i < repetitions + 2; ++i) copies.push_back(stopwatch.copy_us(std::size_t{1} << 30));
    const double copy = 2.0 * static_cast<double>(std::size_t{1} << 30) / timing_of(copies).us / 1e3;
    const std::vector<DeviceInfo> present = gpus();
    const DeviceInfo& gpu = present.at(static_cast<std::size_t>(device.index));
    fmt::print(
        "{}, driver {}; copy {:.0f} GB/s (read and written, measured in this run)\n"
        "bf16 to e4m3; bytes counted: each input read once, each output written once; caches cold\n\n",
        gpu.name, gpu.driver, copy);
    Report report{copy, std::move(peers)};
    for (const ProductShape& shape : bench_cases::product_shapes) {
        if (shape.name == "cpu") continue;
        if (arguments.quick && shape.name != "llama4-e16" && shape.name != "deepseek-16b") continue;
        bench_shape(stopwatch, device, shape, repetitions, wanted, nullptr, report);
    }
    if (arguments.sweeps) bench_sweeps(stopwatch, device, repetitions, wanted, report);
    report.table.print();
    if (arguments.sweeps) print_spread_over_groups(report.rows);
    nlohmann::json results;
    results["stamp"] = stamp(arguments.command);
    results["stamp"].update({{"gpu", gpu.name},
                             {"driver", gpu.driver},
                             {"copy_gbps", copy},
                             {"table", fmt::format("sm90, {} entries", tune::table_for("sm90").entries().size())}});
    results["rows"] = report.rows;
    write_results(arguments.json, results);
    return 0;
}

}  // namespace octet::tool
