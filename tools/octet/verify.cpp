// octet verify: every operation of a backend against the scalar oracle, byte for byte.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "checks.hpp"
#include "commands.hpp"
#include "octet/device.hpp"
#include "octet/error.hpp"
#include "op_case.hpp"
#include "product_case.hpp"
#include "table.hpp"
#include "token_case.hpp"
#include "train_progress.hpp"
#include "verify.hpp"

namespace octet::tool {
namespace {

struct VerifyArguments {
    std::string device = "cpu";
    std::uint64_t seed = 1;
    int cases = 100;
    int threads = 0;
    int repeat = 1;
    std::vector<std::string> ops;
};

constexpr unsigned char poison = 0xA5;
const std::string linear_op =
    "grouped_linear";  // forward and backward of the layer, every recipe and mix of precisions

std::vector<Tensor> poisoned_outputs(const OpCase& op_case) {
    std::vector<Tensor> outputs;
    for (const Tensor& like : op_case.outputs) {
        outputs.emplace_back(like.format(), like.extents());
        std::fill_n(outputs.back().as<std::uint8_t>(), outputs.back().bytes(), poison);
    }
    return outputs;
}

// Makes the case's call into poisoned outputs on a device, and brings them back. Called `repeat` times, each into fresh
// poison, it must give the same bits each time.
std::vector<Tensor> outputs_of(const OpCase& op_case, Device device, Execution on, int repeat = 1) {
    std::vector<Tensor> outputs = poisoned_outputs(op_case);
    std::vector<DeviceMemory> memory;
    const auto on_device = [&](const void* from, std::size_t bytes) {
        memory.emplace_back(device, bytes);
        memory.back().upload(from, bytes);
        return memory.back().data();
    };
    std::vector<ConstTensorView> input_views;
    std::vector<TensorView> output_views;
    for (const Tensor& input : op_case.inputs)
        input_views.emplace_back(on_device(input.as<char>(), input.bytes()), input.format(), input.extents(), device);
    const std::size_t first_output = memory.size();
    for (const Tensor& output : outputs)
        output_views.emplace_back(on_device(output.as<char>(), output.bytes()), output.format(), output.extents(),
                                  device);
    const auto count = static_cast<std::int64_t>(op_case.ends.size());
    const void* ends = on_device(op_case.ends.data(), op_case.ends.size() * sizeof(std::int32_t));
    LaterCasts later;
    DeviceMemory workspace;
    if (op_case.halves_workspace > 0) {
        workspace = DeviceMemory(device, op_case.halves_workspace);
        on.workspace = workspace.data();
        on.workspace_bytes = op_case.halves_workspace;
        on.later = &later;
    }
    const auto call_into = [&](std::vector<Tensor>& results) {
        op_case.call(input_views, output_views, {static_cast<const std::int32_t*>(ends), count, device}, on);
        later.run(on.stream);
        synchronize(device);
        for (std::size_t i = 0; i < results.size(); ++i)
            memory[first_output + i].download(results[i].as<char>(), results[i].bytes());
    };
    call_into(outputs);
    for (int repetition = 1; repetition < repeat; ++repetition) {
        std::vector<Tensor> again = poisoned_outputs(op_case);
        for (std::size_t i = 0; i < again.size(); ++i)
            memory[first_output + i].upload(again[i].as<char>(), again[i].bytes());
        call_into(again);
        for (std::size_t i = 0; i < again.size(); ++i)
            if (!std::equal(again[i].as<char>(), again[i].as<char>() + again[i].bytes(), outputs[i].as<char>()))
                fail(Status::internal, "call ", repetition + 1, " gave other bits in output ", i, " than the first");
    }
    return outputs;
}

// An empty string when the backend agrees with the oracle; otherwise what differs.
std::string check(const OpCase& op_case, Device device, const Execution& on, int repeat) {
    const std::vector<Tensor> expected = outputs_of(op_case, {}, {.backend = Backend::reference});
    std::vector<Tensor> given;
    try {
        given = outputs_of(op_case, device, on, repeat);
    } catch (const std::exception& error) {
        return fmt::format("it failed: {}", error.what());
    }
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const std::int64_t at = first_difference(expected[i], given[i]);
        if (at < 0) continue;
        std::string bytes;
        const std::int64_t size = bytes_of(expected[i].format());
        for (const Tensor* tensor : {static_cast<const Tensor*>(&given[i]), &expected[i]}) {
            bytes += bytes.empty() ? "" : ", expected ";
            for (std::int64_t b = size; b-- > 0;)
                bytes += fmt::format("{:02x}", tensor->as<std::uint8_t>()[at * size + b]);
        }
        return fmt::format("output {} ({} {}), element {}: 0x{}", i, name(expected[i].format()),
                           to_string(expected[i].extents()), at, bytes);
    }
    return "";
}

// The same for a product, whose f32 accumulation has a bound and not one result. "skip" where the backend says that it
// does not serve the combination.
std::string check_product(const std::string& op, Random& random, Device device, const Execution& on, int repeat,
                          std::string& text) {
    const ProductCase product = random_product_case(op, random);
    text = product.op_case.text;
    const std::vector<Tensor> expected = outputs_of(product.op_case, {}, {.backend = Backend::reference});
    std::vector<Tensor> given;
    try {
        given = outputs_of(product.op_case, device, on, repeat);
    } catch (const Error& error) {
        if (error.status() == Status::unsupported) return "skip";
        return fmt::format("it failed: {}", error.what());
    }
    return compare_products(product, device, given[0], expected[0], poison);
}

bool is_one_of(const std::string& op, const std::vector<std::string>& names) {
    return std::find(names.begin(), names.end(), op) != names.end();
}

std::string check_any(const std::string& op, Random& random, Device device, const Execution& on, int repeat,
                      std::string& text) {
    if (op == linear_op) return check_linear(random, device, on, text);
    if (is_one_of(op, product_op_names())) return check_product(op, random, device, on, repeat, text);
    const OpCase op_case = is_one_of(op, token_op_names()) ? random_token_case(op, random) : random_case(op, random);
    text = op_case.text;
    return check(op_case, device, on, repeat);
}

std::vector<std::string> known_ops() {
    std::vector<std::string> ops = op_names();
    for (const std::vector<std::string>& more : {token_op_names(), product_op_names(), {linear_op}})
        ops.insert(ops.end(), more.begin(), more.end());
    return ops;
}

// What was asked for, or everything there is.
std::vector<std::string> chosen_ops(const std::vector<std::string>& asked) {
    const std::vector<std::string> known = known_ops();
    require_known("operation", asked, known);
    return asked.empty() ? known : asked;
}

int verify(const VerifyArguments& arguments) {
    const Device device = parse_device(arguments.device);
    const std::vector<std::string> ops = chosen_ops(arguments.ops);
    const bool live = isatty(STDERR_FILENO);
    Table table({"operation", "cases", "wrong", "not served", "seconds"});
    std::vector<std::string> failures;
    int total = 0, wrong_total = 0, skipped_total = 0;
    const auto now = [] { return std::chrono::steady_clock::now(); };
    const auto since = [&](auto begin) { return std::chrono::duration<double>(now() - begin).count(); };
    const auto start = now();
    const double all = static_cast<double>(ops.size()) * arguments.cases;
    for (const std::string& op : ops) {
        const auto begin = now();
        int wrong = 0, skipped = 0;
        for (int i = 0; i < arguments.cases; ++i) {
            if (live && i % 10 == 0) {  // operations differ, so the time left is a guess that gets better
                const double done = total + i;
                fmt::print(stderr, "\r{} {}/{}, {:.0f}% of all, {} left\033[K", op, i, arguments.cases,
                           100 * done / all, done > 0 ? clock_time(since(start) * (all - done) / done) : "?");
            }
            // Each case has its own seed, so that it can be run again alone.
            Random random(arguments.seed * 1'000'003 + static_cast<std::uint64_t>(i));
            Execution on;  // automatic: the device's own backend
            on.threads = arguments.threads ? arguments.threads : 1 + i % 3;
            std::string text;
            const std::string difference = check_any(op, random, device, on, arguments.repeat, text);
            if (difference == "skip") ++skipped;
            if (difference.empty() || difference == "skip") continue;
            ++wrong;
            if (failures.size() < 10)
                failures.push_back(fmt::format("{} (seed {}, case {}, {} threads): {}\n    {}", op, arguments.seed, i,
                                               on.threads, text, difference));
        }
        table.add({op, std::to_string(arguments.cases), std::to_string(wrong), skipped ? std::to_string(skipped) : "",
                   fmt::format("{:.2f}", since(begin))});
        total += arguments.cases;
        wrong_total += wrong;
        skipped_total += skipped;
    }
    if (live) fmt::print(stderr, "\r\033[K");
    table.print();
    for (const std::string& failure : failures) fmt::print("\nwrong: {}\n", failure);
    fmt::print(
        "\n{} of {} cases agree with the scalar oracle (seed {}, device {}): quantizers, layouts, permutation and "
        "SwiGLU byte for byte, "
        "products within their bound\n",
        total - wrong_total - skipped_total, total - skipped_total, arguments.seed, arguments.device);
    if (skipped_total > 0)
        fmt::print("{} product cases were refused as not served by this device, and are not counted\n", skipped_total);
    return wrong_total == 0 ? 0 : 1;
}

}  // namespace

void check_before_timing(Device device, int cases) {
    std::vector<std::string> ops = op_names(), tokens = token_op_names();
    ops.insert(ops.end(), tokens.begin(), tokens.end());
    for (const std::string& op : ops)
        for (int i = 0; i < cases; ++i) {
            Random random(static_cast<std::uint64_t>(7919 + i));
            std::string text;
            const std::string difference = check_any(op, random, device, {}, 1, text);
            if (!difference.empty())
                fail(Status::internal, op, " (", text, ") does not agree with the scalar oracle: ", difference,
                     "; nothing was timed. Run 'octet verify'");
        }
}

void add_verify(CLI::App& program, Chosen& chosen) {
    CLI::App* command =
        program.add_subcommand("verify", "Check every operation on this device against the scalar oracle");
    auto arguments = std::make_shared<VerifyArguments>();
    command->add_option("--device", arguments->device, "The device to check: cpu, cuda or cuda:N")
        ->capture_default_str();
    command->add_option("--seed", arguments->seed, "Seed of the random cases; a failure names the seed that repeats it")
        ->capture_default_str();
    command->add_option("--cases", arguments->cases, "Random cases an operation")
        ->capture_default_str()
        ->check(CLI::Range(1, 1000000));
    command->add_option("--threads", arguments->threads, "CPU threads; 0 tries one to three in turn")
        ->capture_default_str()
        ->check(CLI::Range(0, 1024));
    command->add_option("--repeat", arguments->repeat, "Make each call this often: all must give the same bits")
        ->capture_default_str()
        ->check(CLI::Range(1, 1000000));
    command->add_option("--op", arguments->ops, "Only these operations (may be repeated)");
    command->footer(
        "Random shapes, groups, options and values, NaN, infinity, zeros and subnormals among them; outputs are\n"
        "poisoned beforehand. The exit code is 0 when every byte agrees and 1 when one does not.");
    command->callback([=, &chosen] { chosen.run = [=] { return verify(*arguments); }; });
}

}  // namespace octet::tool
