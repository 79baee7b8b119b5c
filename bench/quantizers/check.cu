// Random cases of every operation against the scalar reference.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <mutex>
#include <string>
#include <thread>

#include "op_case.hpp"
#include "quantizers/quantizers.hpp"
#include "reference/quantize.hpp"
#include "tune/setting.hpp"

// The public calls that op_case.cpp makes, unchecked: by the reference, or by CUDA.
namespace octet {
#define OCTET_CALL(name, parameters, arguments) \
    void name parameters {                      \
        if (on.backend == Backend::reference)   \
            reference::name arguments;          \
        else                                    \
            cuda::name arguments;               \
    }
OCTET_CALL(quantize_rows, (ConstTensorView x, const QuantizeOptions& o, QuantizedView out, const Execution& on),
           (x, o, out, on))
OCTET_CALL(quantize_columns,
           (ConstTensorView x, Groups g, std::int64_t a, const QuantizeOptions& o, QuantizedView out,
            const Execution& on),
           (x, g, a, o, out, on))
OCTET_CALL(quantize_columns_dual,
           (ConstTensorView x, ConstTensorView y, Groups g, std::int64_t a, const QuantizeOptions& o, QuantizedView p,
            QuantizedView q, const Execution& on),
           (x, y, g, a, o, p, q, on))
OCTET_CALL(quantize_pair,
           (ConstTensorView x, Groups g, std::int64_t a, const QuantizeOptions& o, QuantizedView p, QuantizedView q,
            const Execution& on),
           (x, g, a, o, p, q, on))
OCTET_CALL(quantize_transposed,
           (ConstTensorView x, Groups g, std::int64_t a, const QuantizeOptions& o, QuantizedView out,
            const Execution& on),
           (x, g, a, o, out, on))
OCTET_CALL(quantize_weights,
           (ConstTensorView w, const QuantizeOptions& o, QuantizedView p, QuantizedView q, const Execution& on),
           (w, o, p, q, on))
OCTET_CALL(dequantize_rows, (ConstQuantizedView q, const QuantizeOptions& o, TensorView x, const Execution& on),
           (q, o, x, on))
OCTET_CALL(dequantize_columns,
           (ConstQuantizedView q, Groups g, std::int64_t a, const QuantizeOptions& o, TensorView x,
            const Execution& on),
           (q, g, a, o, x, on))
OCTET_CALL(dequantize_transposed,
           (ConstQuantizedView q, Groups g, std::int64_t a, const QuantizeOptions& o, TensorView x,
            const Execution& on),
           (q, g, a, o, x, on))
OCTET_CALL(dequantize_weights,
           (ConstQuantizedView q, WeightOrientation w, const QuantizeOptions& o, TensorView x, const Execution& on),
           (q, w, o, x, on))
OCTET_CALL(pad_groups,
           (ConstTensorView x, Groups g, std::int64_t a, TensorView p, std::int32_t* e, const Execution& on),
           (x, g, a, p, e, on))
OCTET_CALL(unpad_groups, (ConstTensorView p, Groups g, std::int64_t a, TensorView x, const Execution& on),
           (p, g, a, x, on))
OCTET_CALL(swizzle_scales, (ConstTensorView s, TensorView b, const Execution& on), (s, b, on))
OCTET_CALL(unswizzle_scales, (ConstTensorView b, TensorView s, const Execution& on), (b, s, on))
OCTET_CALL(swizzle_group_scales, (ConstTensorView s, Groups g, TensorView b, const Execution& on), (s, g, b, on))
OCTET_CALL(unswizzle_group_scales, (ConstTensorView b, Groups g, TensorView s, const Execution& on), (b, g, s, on))
}  // namespace octet

namespace octet::quantizers {
namespace {

struct OnDevice {
    std::vector<DeviceBuffer> inputs, outputs;
    DeviceBuffer ends;
    std::vector<ConstTensorView> input_views;
    std::vector<TensorView> output_views;
    Groups groups;

    explicit OnDevice(const tool::OpCase& op_case) {
        for (const Tensor& input : op_case.inputs) {
            inputs.emplace_back(input.bytes());
            inputs.back().upload(input.as<unsigned char>(), input.bytes());
            input_views.emplace_back(inputs.back().data(), input.format(), input.extents(), gpu0);
        }
        for (const Tensor& like : op_case.outputs) {
            outputs.emplace_back(like.bytes());
            outputs.back().fill(0xA5);
            output_views.emplace_back(outputs.back().data(), like.format(), like.extents(), gpu0);
        }
        ends = DeviceBuffer(op_case.ends.size() * 4);
        ends.upload(op_case.ends.data(), op_case.ends.size() * 4);
        groups = {ends.as<std::int32_t>(), static_cast<i64>(op_case.ends.size()), gpu0};
        checked(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    }
};

// The cases are small, which is for strips and, where they fit, whole columns: of eight, one is done in strips alone,
// one in tiles, one in tall tiles, one in tiles that leave no notes, one in tiles and by whole rows, one in strips of
// groups by their rows, as far as blocks do not all begin at once, and one with columns out of quantized rows.
const KernelTuning in_tiles{{{"strip_rows", 0}, {"strip_tokens", 0}, {"whole_rows", 0}}},
    in_tall_tiles{{{"strip_rows", 0}, {"strip_tokens", 0}, {"tall_tiles", 1}}},
    without_notes{{{"strip_rows", 0}, {"strip_tokens", 0}, {"noted_rows", 0}}},
    with_notes{{{"strip_rows", 0}, {"strip_tokens", 0}, {"from_rows", 0}, {"noted_rows", 1 << 20}}},
    by_whole_rows{{{"strip_rows", 0}, {"strip_tokens", 0}, {"whole_rows", 8}}},
    by_ranks{{{"strip_tokens", 64}, {"ranked_rows", 0}, {"tile_blocks", 1}}}, in_strips{{{"whole_columns", 0}}},
    from_rows{{{"strip_rows", 0}, {"strip_tokens", 0}, {"from_rows", 1}}};
const KernelTuning* tuning_of(std::uint64_t number) {
    const KernelTuning* const tunings[] = {nullptr,        &in_tiles, &in_tall_tiles, &without_notes,
                                           &by_whole_rows, &by_ranks, &in_strips,     &from_rows};
    return tunings[number % std::size(tunings)];
}

std::string check_case(const tool::OpCase& op_case, cudaStream_t stream, const KernelTuning* tuning) {
    std::vector<Tensor> expected;
    std::vector<TensorView> views;
    std::vector<ConstTensorView> inputs;
    for (const Tensor& input : op_case.inputs) inputs.push_back(input.view());
    for (const Tensor& like : op_case.outputs) {
        expected.emplace_back(like.format(), like.extents());
        std::memset(expected.back().as<unsigned char>(), 0xA5, expected.back().bytes());
    }
    for (Tensor& tensor : expected) views.push_back(tensor.view());
    op_case.call(inputs, views, {op_case.ends.data(), static_cast<i64>(op_case.ends.size()), {}},
                 {.backend = Backend::reference});
    OnDevice device(op_case);
    Execution on{.backend = Backend::cuda, .stream = stream, .tuning = tuning};
    LaterCasts later;
    const DeviceBuffer workspace(op_case.halves_workspace);
    if (op_case.halves_workspace > 0) {
        on.workspace = workspace.data();
        on.workspace_bytes = op_case.halves_workspace;
        on.later = &later;
    }
    op_case.call(device.input_views, device.output_views, device.groups, on);
    later.run(stream);
    checked(cudaStreamSynchronize(stream), "the operation");
    for (std::size_t i = 0; i < expected.size(); ++i) {
        Tensor given(expected[i].format(), expected[i].extents());
        device.outputs[i].download(given.as<unsigned char>(), given.bytes());
        const i64 at = tool::first_difference(expected[i], given);
        if (at >= 0)
            return op_case.op + " (" + op_case.text + "): output " + std::to_string(i) + " differs at " +
                   std::to_string(at);
    }
    return "";
}

// Rows of a tensor already transposed, in groups for teams of every width, and longer than their registers: the longest
// group among empty ones, which take the kernels for short groups, or alone.
std::string check_long_group(i64 tokens, bool among_empty, const KernelTuning* tuning, cudaStream_t stream) {
    const i64 features = 20, alignment = 16, count = among_empty ? tokens / 512 + 2 : 1;
    tool::OpCase c;
    c.op = "quantize_transposed";
    c.text = std::to_string(tokens) + " tokens, " + std::to_string(count) + " groups";
    c.ends.assign(static_cast<std::size_t>(count), 0);
    c.ends.back() = static_cast<std::int32_t>(tokens);
    tool::Random random(static_cast<std::uint64_t>(tokens));
    Tensor x(Format::bf16, {features, tokens + 16});  // the last ones are nobody's
    std::normal_distribution<float> normal;
    for (i64 i = 0; i < x.elements(); ++i) x.as<std::uint16_t>()[i] = BF16::encode(normal(random));
    c.inputs.push_back(std::move(x));
    QuantizeOptions options;
    options.scale_rounding = among_empty ? ScaleRounding::exact : ScaleRounding::power_of_two;
    c.outputs.emplace_back(options.format, Extents{features, padded_bound(tokens + 16, count, alignment)});
    c.outputs.emplace_back(Format::f32, Extents{count, features});
    c.outputs.emplace_back(Format::f32, Extents{count, features});
    c.call = [=](std::span<const ConstTensorView> in, std::span<const TensorView> out, Groups groups,
                 const Execution& on) {
        quantize_transposed(in[0], groups, alignment, options, {out[0], out[1], out[2]}, on);
    };
    return check_case(c, stream, tuning);
}

// Columns of a group of so many tokens among short ones, which are taken in strips.
std::string check_long_strips(i64 tokens, i64 features, Scaling scaling, const KernelTuning* tuning,
                              cudaStream_t stream) {
    const i64 alignment = 128, count = tokens / 256 + 8, before = 3, rows = tokens + (count - 1) * 64;
    tool::OpCase c;
    c.op = "quantize_columns";
    c.text = std::to_string(tokens) + " of " + std::to_string(rows) + " tokens, " + std::string(name(scaling));
    for (i64 g = 0; g < count; ++g)
        c.ends.push_back(static_cast<std::int32_t>(64 * (g + 1) + (g < before ? 0 : tokens - 64)));
    tool::Random random(static_cast<std::uint64_t>(tokens));
    Tensor x(Format::bf16, {rows, features});
    std::normal_distribution<float> normal;
    for (i64 i = 0; i < x.elements(); ++i) x.as<std::uint16_t>()[i] = BF16::encode(normal(random));
    c.inputs.push_back(std::move(x));
    QuantizeOptions options;
    options.scaling = scaling;
    const i64 padded = padded_bound(rows, count, alignment), block = block_of(scaling);
    const Extents scales = block == 0 ? Extents{count, features} : Extents{features, padded / block};
    c.outputs.emplace_back(options.format, Extents{features, padded});
    c.outputs.emplace_back(scaling == Scaling::mx ? Format::e8m0 : Format::f32, scales);
    c.call = [=](std::span<const ConstTensorView> in, std::span<const TensorView> out, Groups groups,
                 const Execution& on) {
        quantize_columns(in[0], groups, alignment, options, {out[0], out[1], {}}, on);
    };
    return check_case(c, stream, tuning);
}

// Columns of a tensor that is small enough to be taken whole, with rows or a second tensor beside them.
std::string check_small_tensor(i64 tokens, i64 features, i64 count, i64 alignment, bool with_rows) {
    tool::Random random(static_cast<std::uint64_t>(tokens + features + count + alignment));
    tool::OpCase c;
    c.op = with_rows ? "quantize_pair" : "quantize_columns_dual";
    c.text = "[" + std::to_string(tokens) + ", " + std::to_string(features) + "], " + std::to_string(count) +
             " groups, alignment " + std::to_string(alignment);
    for (i64 g = 0; g < count; ++g) c.ends.push_back(static_cast<std::int32_t>(random() % (tokens + 1)));
    std::sort(c.ends.begin(), c.ends.end());  // rows past the last one are nobody's
    const i64 widths[] = {features, with_rows ? 0 : 40};
    std::normal_distribution<float> normal;
    for (const i64 width : widths) {
        if (width == 0) continue;
        Tensor x(Format::bf16, {tokens, width});
        const float odd[] = {NAN, INFINITY, 0.0f, 1e-39f, -3e38f};
        for (i64 i = 0; i < x.elements(); ++i)
            x.as<std::uint16_t>()[i] = BF16::encode(random() % 500 == 0 ? odd[random() % 5] : normal(random));
        c.inputs.push_back(std::move(x));
    }
    QuantizeOptions options;
    options.scale_rounding = count % 2 ? ScaleRounding::exact : ScaleRounding::power_of_two;
    const auto add = [&](const Extents& data, const Extents& scale) {
        c.outputs.emplace_back(options.format, data);
        c.outputs.emplace_back(Format::f32, scale);
        c.outputs.emplace_back(Format::f32, scale);
    };
    if (with_rows) add({tokens, features}, {tokens});
    for (const i64 width : widths)
        if (width > 0) add({width, padded_bound(tokens, count, alignment)}, {count, width});
    c.call = [=](std::span<const ConstTensorView> in, std::span<const TensorView> out, Groups groups,
                 const Execution& on) {
        const QuantizedView first{out[0], out[1], out[2]}, second{out[3], out[4], out[5]};
        if (with_rows)
            quantize_pair(in[0], groups, alignment, options, first, second, on);
        else
            quantize_columns_dual(in[0], in[1], groups, alignment, options, first, second, on);
    };
    return check_case(c, nullptr, nullptr);
}

std::vector<std::int32_t> random_ends(i64 tokens, i64 count) {
    tool::Random random(static_cast<std::uint64_t>(tokens + count));
    std::vector<std::int32_t> ends(static_cast<std::size_t>(count));
    for (std::int32_t& end : ends) end = static_cast<std::int32_t>(random() % (tokens + 1));
    std::sort(ends.begin(), ends.end());
    return ends;
}

// A pair of rows and columns whose scales are near each other and far apart.
std::string check_scattered(i64 tokens, i64 features, const std::vector<std::int32_t>& ends, i64 alignment,
                            Format format, const KernelTuning& tuning) {
    const i64 count = static_cast<i64>(ends.size());
    tool::Random random(static_cast<std::uint64_t>(tokens + features + count + alignment));
    tool::OpCase c;
    c.op = "quantize_pair";
    c.text = "[" + std::to_string(tokens) + ", " + std::to_string(features) + "], " + std::to_string(count) +
             " groups, alignment " + std::to_string(alignment) + (&tuning == &from_rows ? ", out of rows" : ", notes");
    c.ends = ends;
    const auto powers = [&](i64 size, int near) {
        std::vector<float> all(static_cast<std::size_t>(size));
        for (float& power : all) {
            const int most = random() % 50 == 0 ? 12 : near;
            power = std::ldexp(1.0f, static_cast<int>(random() % (2 * most + 1)) - most);
        }
        return all;
    };
    const int near = static_cast<int>(count % 3);
    const std::vector<float> of_row = powers(tokens, near), of_column = powers(features, near);
    Tensor x(Format::bf16, {tokens, features});
    std::normal_distribution<float> normal;
    const float odd[] = {NAN, INFINITY, 0.0f, 1e-39f, -3e38f};
    for (i64 i = 0; i < x.elements(); ++i) {
        const auto row = static_cast<std::size_t>(i / features), column = static_cast<std::size_t>(i % features);
        const float value = random() % 100000 == 0 ? odd[random() % 5] : row % 97 == 5 ? 0.0f : normal(random);
        x.as<std::uint16_t>()[i] = BF16::encode(value * of_row[row] * of_column[column]);
    }
    c.inputs.push_back(std::move(x));
    QuantizeOptions options;
    options.format = format;
    const i64 padded = padded_bound(tokens, count, alignment);
    for (const auto& [data, scale] : {std::pair<Extents, Extents>{{tokens, features}, {tokens}},
                                      std::pair<Extents, Extents>{{features, padded}, {count, features}}}) {
        c.outputs.emplace_back(options.format, data);
        c.outputs.emplace_back(Format::f32, scale);
        c.outputs.emplace_back(Format::f32, scale);
    }
    c.call = [=](std::span<const ConstTensorView> in, std::span<const TensorView> out, Groups groups,
                 const Execution& on) {
        quantize_pair(in[0], groups, alignment, options, {out[0], out[1], out[2]}, {out[3], out[4], out[5]}, on);
    };
    return check_case(c, nullptr, &tuning);
}

// Counts cases, and prints those that fail.
class Tally {
public:
    explicit Tally(const char* name) : name_(name) {}
    void operator()(const std::string& error) {
        ++cases_;
        if (error.empty()) return;
        ++failures_;
        std::printf("FAILED %s\n", error.c_str());
    }
    int report() const {
        std::printf("%s: %d cases, %d failures\n", name_, cases_, failures_);
        return failures_;
    }

private:
    const char* name_;
    int cases_ = 0, failures_ = 0;
};

int check_columns_from_rows(const std::vector<i64>& lengths) {
    Tally tally("columns out of rows");
    for (const i64 tokens : lengths)
        for (const i64 count : {1, 2, 3, 7, 40})
            for (const i64 alignment : {16, 128})
                for (const Format format : {Format::e4m3, Format::e5m2})
                    tally(check_scattered(tokens, 16 * (1 + (tokens + count) % 40), random_ends(tokens, count),
                                          alignment, format, from_rows));
    return tally.report();
}

// Rows as wide as tiles with notes take, and groups of more tiles than are read at once: random ones, and one of most
// tokens, whose tiles all blocks hold (of few features) or read twice.
int check_notes(const std::vector<i64>& lengths) {
    Tally tally("notes");
    for (const i64 tokens : lengths) {
        for (const i64 groups : {1, 2, 7, 40})
            for (const i64 features : {1400, 2040, 2048})
                tally(check_scattered(tokens, features, random_ends(tokens, groups), groups == 2 ? 16 : 128,
                                      Format::e4m3, with_notes));
        const auto end = static_cast<std::int32_t>(tokens), first = end / 20;
        for (const i64 features : {72, 2048})
            tally(check_scattered(tokens, features, {0, first, end - first, end - first, end}, 128, Format::e4m3,
                                  with_notes));
    }
    return tally.report();
}

int check_small_tensors() {
    Tally tally("small tensors");
    for (const i64 tokens : {1, 31, 64, 200, 512, 1000, 1024})
        for (const i64 count : {1, 2, 8, 63, 64})
            for (const i64 alignment : {16, 48, 128})
                for (const bool with_rows : {false, true}) {
                    const i64 features = 8 * (1 + (tokens + count + alignment) % 40);
                    tally(check_small_tensor(tokens, features, count, alignment, with_rows));
                }
    return tally.report();
}

int check_long_groups(const std::vector<i64>& lengths) {
    Tally tally("long groups");
    for (const i64 tokens : lengths) {
        tally(check_long_group(tokens, false, nullptr, nullptr));
        for (const KernelTuning* tuning : {&in_tiles, &by_whole_rows})
            tally(check_long_group(tokens, true, tuning, nullptr));
        for (const Scaling scaling : {Scaling::rowwise, Scaling::blockwise, Scaling::mx})
            tally(check_long_strips(tokens, 200, scaling, nullptr, nullptr));
        tally(check_long_strips(tokens, 200, Scaling::rowwise, &in_tall_tiles, nullptr));
    }
    tally(check_long_strips(2045, 4488, Scaling::rowwise, nullptr, nullptr));  // so wide that strips are not narrow
    return tally.report();
}

}  // namespace

int check(double seconds) {
    std::mutex mutex;
    int failures = check_long_groups({104, 248, 504, 509, 1016, 2040, 2045, 4096, 8000, 12304, 16400, 32768, 40000}) +
                   check_small_tensors() + check_columns_from_rows({1, 100, 129, 1000, 5000}) +
                   check_notes({1, 300, 2400, 12000}),
        cases = 0;
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::thread> threads;
    for (unsigned worker = 0; worker < 14; ++worker)
        threads.emplace_back([&, worker] {
            cudaStream_t stream;
            checked(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
            const auto names = tool::op_names();
            for (std::uint64_t round = worker;; round += 14) {
                if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > seconds) break;
                tool::Random random(round);
                std::string error;
                const std::string& name = names[round % names.size()];
                try {
                    error = check_case(tool::random_case(name, random), stream, tuning_of(round / names.size()));
                } catch (const std::exception& e) {
                    error = name + ": " + e.what();
                }
                const std::lock_guard lock(mutex);
                ++cases;
                if (!error.empty() && ++failures <= 20)
                    std::printf("FAILED seed %llu: %s\n", (unsigned long long)round, error.c_str());
            }
        });
    for (auto& thread : threads) thread.join();
    std::printf("check: %d random cases, %d failures\n", cases, failures);
    return failures;
}

// Few launches of every kernel, for compute-sanitizer.
int small() {
    int failures = check_long_groups({504, 2040, 4096, 8000, 16400, 32768}) + check_small_tensors() +
                   check_columns_from_rows({129, 1000}) + check_notes({300});
    for (const std::string& name : tool::op_names())
        for (std::uint64_t seed = 1; seed <= 8; ++seed) {
            tool::Random random(seed);
            const std::string error = check_case(tool::random_case(name, random), nullptr, tuning_of(seed));
            if (error.empty()) continue;
            ++failures;
            std::printf("FAILED %s\n", error.c_str());
        }
    std::printf("small: %d failures\n", failures);
    return failures;
}

}  // namespace octet::quantizers
