// The CUDA quantizers on a device, without the rest of the library: checks against the scalar reference, then
// bandwidth.
//
//     quantizers_device check [seconds]     random cases of every operation, from several threads at once
//     quantizers_device large               full-size shapes, more than 2^31 elements, repetition, graphs
//     quantizers_device bench FILE [key=value ...]   the nine shapes; keys are QuantizerTuning's
//     quantizers_device small               few launches of every kernel, for compute-sanitizer
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "../../tools/octet/op_case.hpp"
#include "cuda/launch/quantize.hpp"
#include "cuda/launch/quantize_runner.cuh"
#include "reference/quantize.hpp"

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

namespace {

using namespace octet;
using cuda::checked;
using cuda::DeviceBuffer;
using i64 = std::int64_t;

constexpr Device gpu0{DeviceKind::cuda, 0};

// ---------------------------------------------------------------- comparing

bool same_element(Format format, const unsigned char* a, const unsigned char* b) {
    if (std::memcmp(a, b, static_cast<std::size_t>(bytes_of(format))) == 0) return true;
    if (format == Format::f32) {
        float x, y;
        std::memcpy(&x, a, 4);
        std::memcpy(&y, b, 4);
        return std::isnan(x) && std::isnan(y);
    }
    if (format == Format::bf16) {
        std::uint16_t x, y;
        std::memcpy(&x, a, 2);
        std::memcpy(&y, b, 2);
        return std::isnan(BF16::decode(x)) && std::isnan(BF16::decode(y));
    }
    if (!is_fp8(format)) return false;
    return with_fp8(format, [&](auto codec) { return codec.is_nan(*a) && codec.is_nan(*b); });
}

i64 first_difference(const Tensor& a, const Tensor& b) {
    const i64 size = bytes_of(a.format());
    const auto *x = a.as<unsigned char>(), *y = b.as<unsigned char>();
    if (std::memcmp(x, y, a.bytes()) == 0) return -1;
    for (i64 i = 0; i < a.elements(); ++i)
        if (!same_element(a.format(), x + i * size, y + i * size)) return i;
    return -1;
}

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

std::string check_case(const tool::OpCase& op_case, cudaStream_t stream) {
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
    op_case.call(device.input_views, device.output_views, device.groups, {.backend = Backend::cuda, .stream = stream});
    checked(cudaStreamSynchronize(stream), "the operation");
    for (std::size_t i = 0; i < expected.size(); ++i) {
        Tensor given(expected[i].format(), expected[i].extents());
        device.outputs[i].download(given.as<unsigned char>(), given.bytes());
        const i64 at = first_difference(expected[i], given);
        if (at >= 0)
            return op_case.op + " (" + op_case.text + "): output " + std::to_string(i) + " differs at " +
                   std::to_string(at);
    }
    return "";
}

int check(double seconds) {
    std::mutex mutex;
    int failures = 0, cases = 0;
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
                    error = check_case(tool::random_case(name, random), stream);
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

// ---------------------------------------------------------------- data on the device

__global__ void fill_normal(std::uint16_t* x, i64 count, std::uint32_t seed) {
    for (i64 i = blockIdx.x * static_cast<i64>(blockDim.x) + threadIdx.x; i < count;
         i += static_cast<i64>(gridDim.x) * blockDim.x) {
        std::uint64_t h = (static_cast<std::uint64_t>(i) + seed) * 0x9E3779B97F4A7C15ull;
        h ^= h >> 31;
        h *= 0xBF58476D1CE4E5B9ull;
        h ^= h >> 29;
        const float u = (static_cast<float>(h >> 40) + 0.5f) * 0x1p-24f,
                    v = static_cast<float>(h & 0xFFFFFFu) * 0x1p-24f;
        x[i] = BF16::encode(sqrtf(-2.0f * logf(u)) * cospif(2.0f * v));
    }
}

__global__ void hash_words(const std::uint32_t* x, i64 count, unsigned long long* out) {
    unsigned long long sum = 0;
    for (i64 i = blockIdx.x * static_cast<i64>(blockDim.x) + threadIdx.x; i < count;
         i += static_cast<i64>(gridDim.x) * blockDim.x)
        sum += (static_cast<unsigned long long>(x[i]) + 0x9E37u) *
               (2 * static_cast<unsigned long long>(i) + 0x9E3779B97F4A7C15ull);
    atomicAdd(out, sum);
}

__global__ void read_all(const uint4* x, i64 count, unsigned* out) {
    unsigned sum = 0;
    for (i64 i = blockIdx.x * static_cast<i64>(blockDim.x) + threadIdx.x; i < count;
         i += static_cast<i64>(gridDim.x) * blockDim.x) {
        const uint4 v = x[i];
        sum ^= v.x ^ v.y ^ v.z ^ v.w;
    }
    if (sum == 0x12345678u) *out = sum;
}

__global__ void copy_all(const uint4* from, uint4* to, i64 count) {
    const i64 step = static_cast<i64>(gridDim.x) * blockDim.x;
    i64 i = blockIdx.x * static_cast<i64>(blockDim.x) + threadIdx.x;
    for (; i + 3 * step < count; i += 4 * step) {
        const uint4 a = __ldcs(from + i), b = __ldcs(from + i + step), c = __ldcs(from + i + 2 * step),
                    d = __ldcs(from + i + 3 * step);
        __stcs(to + i, a);
        __stcs(to + i + step, b);
        __stcs(to + i + 2 * step, c);
        __stcs(to + i + 3 * step, d);
    }
    for (; i < count; i += step) to[i] = from[i];
}

DeviceBuffer normal_bf16(i64 count, std::uint32_t seed) {
    DeviceBuffer x(static_cast<std::size_t>(count) * 2);
    fill_normal<<<2112, 256>>>(x.as<std::uint16_t>(), count, seed);
    checked(cudaGetLastError(), "fill_normal");
    return x;
}

unsigned long long hash_of(const DeviceBuffer& x) {
    static DeviceBuffer sum(8);
    sum.fill(0);
    hash_words<<<1056, 256>>>(x.as<std::uint32_t>(), static_cast<i64>(x.bytes() / 4), sum.as<unsigned long long>());
    unsigned long long value = 0;
    sum.download(&value, 8);
    return value;
}

std::vector<std::int32_t> uneven_ends(i64 tokens, i64 count, i64 align, unsigned seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> weight(0.5, 1.5);
    std::vector<double> w(static_cast<std::size_t>(count));
    double sum = 0;
    for (double& value : w) sum += value = weight(random);
    std::vector<std::int32_t> ends;
    i64 end = 0;
    for (const double value : w)
        ends.push_back(static_cast<std::int32_t>(
            end += static_cast<i64>(value / sum * static_cast<double>(tokens) / static_cast<double>(align)) * align));
    ends.back() = static_cast<std::int32_t>(tokens);
    return ends;
}

// A quantized operand on the device, with room for any layout.
struct Quantized {
    DeviceBuffer data, scale, inverse;
    QuantizedView view;
    Quantized() = default;
    Quantized(const QuantizeOptions& options, Extents data_shape, Extents scale_shape)
        : data(static_cast<std::size_t>(data_shape.elements())),
          scale(static_cast<std::size_t>(scale_shape.elements()) * 4),
          inverse(static_cast<std::size_t>(scale_shape.elements()) * 4) {
        const bool mx = options.scaling == Scaling::mx;
        view.data = {data.data(), options.format, data_shape, gpu0};
        view.scale = {scale.data(), mx ? Format::e8m0 : Format::f32, scale_shape, gpu0};
        if (!mx) view.inverse = {inverse.data(), Format::f32, scale_shape, gpu0};
        if (options.scaling == Scaling::blockwise) view.scale.data = nullptr;  // products read the inverse alone
    }
};

Quantized rows_of(const QuantizeOptions& o, i64 m, i64 k) {
    const i64 b = block_of(o.scaling);
    return {o, {m, k}, b ? Extents{m, ceil_div(k, b)} : Extents{m}};
}
Quantized tokens_of(const QuantizeOptions& o, i64 features, i64 m, i64 groups, i64 alignment) {
    const i64 b = block_of(o.scaling), p = padded_bound(m, groups, alignment);
    return {o, {features, p}, b ? Extents{features, p / b} : Extents{groups, features}};
}
Quantized weights_of(const QuantizeOptions& o, i64 e, i64 rows, i64 columns) {
    const i64 b = block_of(o.scaling);
    return {o,
            {e, rows, columns},
            b == 0 ? Extents{e, rows}
                   : Extents{e, o.scaling == Scaling::mx ? rows : ceil_div(rows, b), ceil_div(columns, b)}};
}

// ---------------------------------------------------------------- large

// Groups `from` to `to` of a pair, made on the device, against the reference on those rows alone.
int check_groups(const char* what, const DeviceBuffer& x, i64 k, const std::vector<std::int32_t>& ends, i64 alignment,
                 const QuantizeOptions& options, const Quantized* rows, const Quantized& columns, std::size_t from,
                 std::size_t to) {
    i64 begin = 0, padded = 0;
    for (std::size_t g = 0; g < from; ++g) {
        padded += round_up(ends[g] - begin, alignment);
        begin = ends[g];
    }
    std::vector<std::int32_t> local;
    for (std::size_t g = from; g < to; ++g) local.push_back(static_cast<std::int32_t>(ends[g] - begin));
    const i64 m = local.back(), count = static_cast<i64>(local.size()), p = padded_bound(m, count, alignment);
    Tensor part(Format::bf16, {m, k});
    checked(cudaMemcpy(part.as<unsigned char>(), x.as<unsigned char>() + begin * k * 2, part.bytes(),
                       cudaMemcpyDeviceToHost),
            "cudaMemcpy");
    Tensor row_data(options.format, {m, k}), row_scale(Format::f32, {m}), data(options.format, {k, p}),
        scale(Format::f32, {count, k});
    std::vector<std::thread> threads;
    std::vector<int> bad(16);
    threads.emplace_back([&] {
        if (rows) reference::quantize_rows(part, options, {row_data, row_scale, {}}, {});
    });
    // Columns are independent: the reference does a slice of them a thread.
    for (int s = 0; s < 15; ++s)
        threads.emplace_back([&, s] {
            const i64 k0 = k * s / 15, k1 = k * (s + 1) / 15;
            ConstTensorView xs(part.as<std::uint16_t>() + k0, Format::bf16, {{m, k1 - k0}, {k, 1}});
            reference::quantize_columns(
                xs, {local.data(), count, {}}, alignment, options,
                {TensorView(data.as<unsigned char>() + k0 * p, options.format, {{k1 - k0, p}, {p, 1}}),
                 TensorView(scale.as<float>() + k0, Format::f32, {{count, k1 - k0}, {k, 1}}),
                 {}},
                {});
        });
    for (auto& thread : threads) thread.join();
    int failures = 0;
    const i64 ld = columns.view.data.stride(0);
    i64 used = 0, previous = 0;
    for (const std::int32_t end : local) {
        used += round_up(end - previous, alignment);
        previous = end;
    }
    std::vector<unsigned char> got(static_cast<std::size_t>(k * used));
    checked(cudaMemcpy2D(got.data(), static_cast<std::size_t>(used), columns.data.as<unsigned char>() + padded,
                         static_cast<std::size_t>(ld), static_cast<std::size_t>(used), static_cast<std::size_t>(k),
                         cudaMemcpyDeviceToHost),
            "cudaMemcpy2D");
    for (i64 f = 0; f < k && !failures; ++f)
        if (std::memcmp(got.data() + f * used, data.as<unsigned char>() + f * p, static_cast<std::size_t>(used)) != 0)
            failures += std::printf("FAILED %s: column data, feature %lld\n", what, (long long)f) > 0;
    std::vector<float> got_scale(static_cast<std::size_t>(count * k));
    checked(cudaMemcpy(got_scale.data(), columns.scale.as<float>() + static_cast<i64>(from) * k, got_scale.size() * 4,
                       cudaMemcpyDeviceToHost),
            "cudaMemcpy");
    if (std::memcmp(got_scale.data(), scale.as<float>(), got_scale.size() * 4) != 0)
        failures += std::printf("FAILED %s: column scales\n", what) > 0;
    if (rows) {
        std::vector<unsigned char> got_rows(static_cast<std::size_t>(m * k));
        checked(cudaMemcpy(got_rows.data(), rows->data.as<unsigned char>() + begin * k, got_rows.size(),
                           cudaMemcpyDeviceToHost),
                "cudaMemcpy");
        if (std::memcmp(got_rows.data(), row_data.as<unsigned char>(), got_rows.size()) != 0)
            failures += std::printf("FAILED %s: row data\n", what) > 0;
    }
    if (!failures)
        std::printf("ok: %s, groups %zu to %zu (%lld rows x %lld)\n", what, from, to, (long long)m, (long long)k);
    std::fflush(stdout);
    return failures;
}

int large() {
    int failures = 0;
    const QuantizeOptions options;
    const auto run_both = [&](const char* what, i64 m, i64 k, const std::vector<std::int32_t>& ends, i64 alignment,
                              std::size_t from, std::size_t to) {
        const i64 count = static_cast<i64>(ends.size());
        DeviceBuffer x = normal_bf16(m * k, 7), device_ends(ends.size() * 4);
        device_ends.upload(ends.data(), ends.size() * 4);
        const Groups groups{device_ends.as<std::int32_t>(), count, gpu0};
        Quantized rows = rows_of(options, m, k), columns = tokens_of(options, k, m, count, alignment);
        const ConstTensorView view(x.data(), Format::bf16, {m, k}, gpu0);
        cuda::quantize_pair(view, groups, alignment, options, rows.view, columns.view, {});
        checked(cudaDeviceSynchronize(), "quantize_pair");
        failures += check_groups((std::string(what) + " pair").c_str(), x, k, ends, alignment, options, &rows, columns,
                                 from, to);
        columns.data.fill(0x11);
        columns.scale.fill(0x11);
        cuda::quantize_columns(view, groups, alignment, options, columns.view, {});
        checked(cudaDeviceSynchronize(), "quantize_columns");
        failures += check_groups((std::string(what) + " columns").c_str(), x, k, ends, alignment, options, nullptr,
                                 columns, from, to);
    };
    run_both("one group", 9000, 1500, {9000}, 16, 0, 1);
    run_both("one group, two visits", 50000, 264, {50000}, 128, 0, 1);
    run_both("uneven groups", 9000, 2048, uneven_ends(9000, 7, 1, 3), 16, 0, 7);
    run_both("512 groups", 20000, 1408, uneven_ends(20000, 512, 1, 6), 16, 0, 512);
    run_both("many groups", 8000, 1408, uneven_ends(8000, 200, 1, 4), 128, 0, 200);
    {
        std::vector<std::int32_t> ends = {200, 300000, 300001, 300001, 524700, 525000};
        run_both("more than 2^31 elements", 525000, 4104, ends, 16, 4, 6);
    }
    // Repetition, and a graph replayed with other groups.
    const i64 m = 16640, k = 2048, count = 16, alignment = 128;
    DeviceBuffer x = normal_bf16(m * k, 9), ends(count * 4), workspace(cuda::token_workspace_bytes(m, k, count));
    const Groups groups{ends.as<std::int32_t>(), count, gpu0};
    auto host_ends = uneven_ends(m, count, 1, 5);
    ends.upload(host_ends.data(), host_ends.size() * 4);
    Quantized rows = rows_of(options, m, k), columns = tokens_of(options, k, m, count, alignment);
    const ConstTensorView view(x.data(), Format::bf16, {m, k}, gpu0);
    cudaStream_t stream;
    checked(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    const Execution on{.stream = stream, .workspace = workspace.data(), .workspace_bytes = workspace.bytes()};
    unsigned long long first[4] = {};
    int differing = 0;
    for (int i = 0; i < 100; ++i) {  // the columns of a pair, and alone
        columns.data.fill(0x11);
        cuda::quantize_pair(view, groups, alignment, options, rows.view, columns.view, on);
        checked(cudaStreamSynchronize(stream), "quantize_pair");
        const unsigned long long now[4] = {hash_of(rows.data), hash_of(rows.scale), hash_of(columns.data),
                                           hash_of(columns.scale)};
        if (i == 0) std::memcpy(first, now, sizeof now);
        columns.data.fill(0x11);
        cuda::quantize_columns(view, groups, alignment, options, columns.view, on);
        checked(cudaStreamSynchronize(stream), "quantize_columns");
        differing += std::memcmp(first, now, sizeof now) != 0 || hash_of(columns.data) != first[2] ||
                     hash_of(columns.scale) != first[3];
    }
    std::printf("%s: 100 repetitions of pair and of columns, %d differ\n", differing ? "FAILED" : "ok", differing);
    failures += differing != 0;
    columns.data.fill(0);
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    checked(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    cuda::quantize_pair(view, groups, alignment, options, rows.view, columns.view, on);
    cuda::quantize_columns(view, groups, alignment, options, columns.view,
                           {.stream = stream});  // from the stream's pool
    checked(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    checked(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    for (unsigned seed = 11; seed < 14; ++seed) {
        host_ends = uneven_ends(m, count, 1, seed);
        ends.upload(host_ends.data(), host_ends.size() * 4);
        checked(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
        checked(cudaStreamSynchronize(stream), "the graph");
        failures += check_groups("graph with other groups", x, k, host_ends, alignment, options, &rows, columns, 0,
                                 static_cast<std::size_t>(count));
    }
    return failures;
}

// ---------------------------------------------------------------- bench

struct Shape {
    i64 m, n, k, e;
};
constexpr Shape shapes[] = {{16640, 8192, 5120, 1},  {16640, 8192, 5120, 4},  {16640, 8192, 5120, 16},
                            {16640, 8192, 5120, 64}, {16640, 1408, 2048, 64}, {98304, 1408, 2048, 64},
                            {98304, 2816, 2048, 8},  {32768, 2048, 7168, 8},  {32768, 4096, 7168, 8}};

struct Bench {
    cudaStream_t stream{};
    DeviceBuffer flush{std::size_t{256} << 20}, sink{4}, workspace;
    gpu::QuantizerTuning tuning;
    std::FILE* json = nullptr;
    double copy_gbps = 0;
    bool first = true;
    int repetitions = 9;

    Bench() { checked(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate"); }

    // Median time in microseconds, caches cold.
    double time(const std::function<void()>& f, double* spread = nullptr) {
        std::vector<cudaEvent_t> events(static_cast<std::size_t>(2 * repetitions));
        for (auto& event : events) checked(cudaEventCreate(&event), "cudaEventCreate");
        f();
        f();
        for (int i = 0; i < repetitions; ++i) {
            read_all<<<1056, 256, 0, stream>>>(flush.as<uint4>(), static_cast<i64>(flush.bytes() / 16),
                                               sink.as<unsigned>());
            checked(cudaEventRecord(events[static_cast<std::size_t>(2 * i)], stream), "cudaEventRecord");
            f();
            checked(cudaEventRecord(events[static_cast<std::size_t>(2 * i + 1)], stream), "cudaEventRecord");
        }
        checked(cudaStreamSynchronize(stream), "the benchmark");
        std::vector<double> us;
        for (int i = 0; i < repetitions; ++i) {
            float ms = 0;
            checked(cudaEventElapsedTime(&ms, events[static_cast<std::size_t>(2 * i)],
                                         events[static_cast<std::size_t>(2 * i + 1)]),
                    "cudaEventElapsedTime");
            us.push_back(ms * 1000.0);
        }
        for (auto& event : events) cudaEventDestroy(event);
        std::sort(us.begin(), us.end());
        if (spread) *spread = 100.0 * (us[us.size() * 3 / 4] - us[us.size() / 4]) / us[us.size() / 2];
        return us[us.size() / 2];
    }

    double report(const char* op, const char* recipe, const Shape& s, double bytes, const std::function<void()>& f) {
        double spread = 0;
        const double us = time(f, &spread), gbps = bytes / us / 1e3;
        std::fprintf(json,
                     "%s\n  {\"op\": \"%s\", \"recipe\": \"%s\", \"M\": %lld, \"N\": %lld, \"K\": %lld, \"E\": %lld, "
                     "\"us\": %.2f, \"spread_pct\": %.1f, \"gbps\": %.0f, \"pct_copy\": %.1f}",
                     first ? "" : ",", op, recipe, (long long)s.m, (long long)s.n, (long long)s.k, (long long)s.e, us,
                     spread, gbps, 100 * gbps / copy_gbps);
        first = false;
        return 100 * gbps / copy_gbps;
    }
};

int bench(const char* file, const gpu::QuantizerTuning& tuning, bool every) {
    Bench b;
    b.tuning = tuning;
    b.json = std::fopen(file, "w");
    {
        const std::size_t bytes = std::size_t{1} << 30;
        DeviceBuffer from(bytes), to(bytes);
        from.fill(1);
        const double us = b.time([&] {
            checked(cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyDeviceToDevice, b.stream), "copy");
        });
        b.copy_gbps = 2.0 * static_cast<double>(bytes) / us / 1e3;
        const double ours = b.time([&] {
            copy_all<<<132 * 8, 256, 0, b.stream>>>(from.as<uint4>(), to.as<uint4>(), static_cast<i64>(bytes / 16));
        });
        std::printf("copy %.0f GB/s (cudaMemcpy), %.0f (a kernel)\n", b.copy_gbps,
                    2.0 * static_cast<double>(bytes) / ours / 1e3);
    }
    cudaDeviceProp properties;
    checked(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    std::fprintf(b.json,
                 "{\"stamp\": {\"gpu\": \"%s\", \"driver_cuda\": %d, \"cuda\": %d, \"copy_gbps\": %.0f},\n \"rows\": [",
                 properties.name, driver, runtime, b.copy_gbps);
    const char* headings[] = {"rows",   "columns", "dual",    "pair",    "transp",  "W fwd", "W dgrad", "W both",
                              "mxrows", "mxcols",  "mxWboth", "blkrows", "blkcols", "blkW",  "mxpair",  "blkpair"};
    std::printf("%-26s", "percent of copy");
    for (const char* heading : headings) std::printf("%8s", heading);
    std::printf("\n");
    using Q = cuda::Quantizers<E4M3>;
    for (const Shape& s : shapes) {
        const double mk = static_cast<double>(s.m) * static_cast<double>(s.k),
                     mn = static_cast<double>(s.m) * static_cast<double>(s.n);
        const double w = static_cast<double>(s.e) * static_cast<double>(s.n) * static_cast<double>(s.k);
        const i64 alignment = 128;
        DeviceBuffer a = normal_bf16(s.m * s.k, 1), dy = normal_bf16(s.m * s.n, 2),
                     weights = normal_bf16(s.e * s.n * s.k, 3), ends(static_cast<std::size_t>(s.e) * 4);
        const auto host_ends = uneven_ends(s.m, s.e, 16, static_cast<unsigned>(s.e));
        ends.upload(host_ends.data(), host_ends.size() * 4);
        const Groups groups{ends.as<std::int32_t>(), s.e, gpu0};
        DeviceBuffer workspace(
            std::max(cuda::token_workspace_bytes(s.m, s.k + s.n, s.e), cuda::weight_workspace_bytes(s.e, s.n, s.k)));
        const ConstTensorView av(a.data(), Format::bf16, {s.m, s.k}, gpu0),
            dyv(dy.data(), Format::bf16, {s.m, s.n}, gpu0), dyt(dy.data(), Format::bf16, {s.n, s.m}, gpu0),
            wv(weights.data(), Format::bf16, {s.e, s.n, s.k}, gpu0);
        const Execution on{.stream = b.stream, .workspace = workspace.data(), .workspace_bytes = workspace.bytes()};
        std::printf("%6lld %5lld %5lld %3lld     ", (long long)s.m, (long long)s.n, (long long)s.k, (long long)s.e);
        const auto line = [&](double percent) {
            std::printf("%8.1f", percent);
            std::fflush(stdout);
        };
        for (const Scaling scaling : {Scaling::rowwise, Scaling::mx, Scaling::blockwise}) {
            if (!every && scaling != Scaling::rowwise) continue;
            QuantizeOptions o;
            o.scaling = scaling;
            if (scaling == Scaling::blockwise) o.scale_rounding = ScaleRounding::exact;
            const char* recipe = scaling == Scaling::rowwise ? "fp8_rowwise"
                                 : scaling == Scaling::mx    ? "mxfp8"
                                                             : "fp8_blockwise";
            const double rowwise_scale = scaling == Scaling::mx          ? 1.0 / 32
                                         : scaling == Scaling::blockwise ? 4.0 / 128
                                                                         : 0;
            {
                Quantized rows = rows_of(o, s.m, s.k), columns = tokens_of(o, s.k, s.m, s.e, alignment),
                          columns1 = tokens_of(o, s.n, s.m, s.e, alignment);
                line(b.report("rows", recipe, s, mk * (3 + rowwise_scale), [&] {
                    cuda::Runner r(on, b.tuning);
                    Q::rows(r, av, o, rows.view);
                }));
                line(b.report("columns", recipe, s, mk * (3 + rowwise_scale), [&] {
                    cuda::Runner r(on, b.tuning);
                    Q::columns(r, av, {}, groups, alignment, o, columns.view, {});
                }));
                if (scaling == Scaling::rowwise)
                    line(b.report("columns_dual", recipe, s, (mk + mn) * 3, [&] {
                        cuda::Runner r(on, b.tuning);
                        Q::columns(r, dyv, av, groups, alignment, o, columns1.view, columns.view);
                    }));
                if (scaling == Scaling::rowwise) {
                    line(b.report("pair", recipe, s, mk * 4, [&] {
                        cuda::Runner r(on, b.tuning);
                        Q::pair(r, av, groups, alignment, o, rows.view, columns.view);
                    }));
                    line(b.report("transposed", recipe, s, mn * 3, [&] {
                        cuda::Runner r(on, b.tuning);
                        Q::transposed(r, dyt, groups, alignment, o, columns1.view);
                    }));
                }
            }
            Quantized along_k = weights_of(o, s.e, s.n, s.k), along_n = weights_of(o, s.e, s.k, s.n);
            if (scaling == Scaling::rowwise) {
                line(b.report("weights_along_k", recipe, s, w * 3, [&] {
                    cuda::Runner r(on, b.tuning);
                    Q::weights(r, wv, o, along_k.view, {});
                }));
                line(b.report("weights_along_n", recipe, s, w * 3, [&] {
                    cuda::Runner r(on, b.tuning);
                    Q::weights(r, wv, o, {}, along_n.view);
                }));
            }
            line(b.report("weights_both", recipe, s, w * (4 + (scaling == Scaling::mx ? 2.0 / 32 : 0)), [&] {
                cuda::Runner r(on, b.tuning);
                Q::weights(r, wv, o, along_k.view, along_n.view);
            }));
        }
        if (every)
            for (const Scaling scaling : {Scaling::mx, Scaling::blockwise}) {
                QuantizeOptions o;
                o.scaling = scaling;
                if (scaling == Scaling::blockwise) o.scale_rounding = ScaleRounding::exact;
                Quantized rows = rows_of(o, s.m, s.k), columns = tokens_of(o, s.k, s.m, s.e, alignment);
                const double scale = scaling == Scaling::mx ? 1.0 / 32 : 4.0 / 128;
                line(b.report("pair", scaling == Scaling::mx ? "mxfp8" : "fp8_blockwise", s, mk * (4 + 2 * scale), [&] {
                    cuda::Runner r(on, b.tuning);
                    Q::pair(r, av, groups, alignment, o, rows.view, columns.view);
                }));
            }
        std::printf("\n");
    }
    if (every) {  // equal bytes, other group counts; and a small tensor
        const i64 m = 32768, k = 4096;
        DeviceBuffer a = normal_bf16(m * k, 1), workspace(cuda::token_workspace_bytes(m, k, 512));
        std::printf("[32768, 4096] by groups:\n");
        for (const i64 e : {1, 4, 16, 64, 128, 512}) {
            const Shape s{m, 0, k, e};
            DeviceBuffer ends(static_cast<std::size_t>(e) * 4);
            const auto host_ends = uneven_ends(m, e, 1, static_cast<unsigned>(e));
            ends.upload(host_ends.data(), host_ends.size() * 4);
            const Groups groups{ends.as<std::int32_t>(), e, gpu0};
            const ConstTensorView av(a.data(), Format::bf16, {m, k}, gpu0);
            const Execution on{.stream = b.stream, .workspace = workspace.data(), .workspace_bytes = workspace.bytes()};
            QuantizeOptions o;
            Quantized rows = rows_of(o, m, k), columns = tokens_of(o, k, m, e, 16);
            const double mk = static_cast<double>(m * k);
            std::printf("  %4lld groups: columns %.1f", (long long)e,
                        b.report("columns", "fp8_rowwise", s, mk * 3, [&] {
                            cuda::Runner r(on, b.tuning);
                            Q::columns(r, av, {}, groups, 16, o, columns.view, {});
                        }));
            std::printf(", pair %.1f\n", b.report("pair", "fp8_rowwise", s, mk * 4, [&] {
                cuda::Runner r(on, b.tuning);
                Q::pair(r, av, groups, 16, o, rows.view, columns.view);
            }));
        }
        const i64 sm = 512, sk = 2048, e = 8;
        DeviceBuffer ends(static_cast<std::size_t>(e) * 4);
        const auto host_ends = uneven_ends(sm, e, 1, 8);
        ends.upload(host_ends.data(), host_ends.size() * 4);
        const Groups groups{ends.as<std::int32_t>(), e, gpu0};
        const ConstTensorView av(a.data(), Format::bf16, {sm, sk}, gpu0);
        const Execution on{.stream = b.stream, .workspace = workspace.data(), .workspace_bytes = workspace.bytes()};
        QuantizeOptions o;
        Quantized rows = rows_of(o, sm, sk), columns = tokens_of(o, sk, sm, e, 16);
        b.repetitions = 51;
        std::printf("[512, 2048], us: nothing %.1f",
                    b.time([&] { read_all<<<1, 32, 0, b.stream>>>(nullptr, 0, nullptr); }));
        std::printf(", rows %.1f", b.time([&] {
            cuda::Runner r(on, b.tuning);
            Q::rows(r, av, o, rows.view);
        }));
        std::printf(", columns %.1f", b.time([&] {
            cuda::Runner r(on, b.tuning);
            Q::columns(r, av, {}, groups, 16, o, columns.view, {});
        }));
        std::printf(", pair %.1f\n", b.time([&] {
            cuda::Runner r(on, b.tuning);
            Q::pair(r, av, groups, 16, o, rows.view, columns.view);
        }));
    }
    std::fprintf(b.json, "\n ]}\n");
    std::fclose(b.json);
    return 0;
}

int small() {
    int failures = 0;
    for (const std::string& name : tool::op_names())
        for (std::uint64_t seed = 1; seed <= 6; ++seed) {
            tool::Random random(seed);
            const std::string error = check_case(tool::random_case(name, random), nullptr);
            if (!error.empty()) failures += std::printf("FAILED %s\n", error.c_str()) > 0;
        }
    std::printf("small: %d failures\n", failures);
    return failures;
}

// One launch of each main kernel on one shape, for a profiler.
int once(const gpu::QuantizerTuning& tuning) {
    const i64 m = 16640, k = 5120, e = 16;
    DeviceBuffer a = normal_bf16(m * k, 1), ends(static_cast<std::size_t>(e) * 4),
                 workspace(cuda::token_workspace_bytes(m, k, e));
    const auto host_ends = uneven_ends(m, e, 16, 16);
    ends.upload(host_ends.data(), host_ends.size() * 4);
    const Groups groups{ends.as<std::int32_t>(), e, gpu0};
    const ConstTensorView av(a.data(), Format::bf16, {m, k}, gpu0);
    const Execution on{.workspace = workspace.data(), .workspace_bytes = workspace.bytes()};
    using Q = cuda::Quantizers<E4M3>;
    for (const Scaling scaling : {Scaling::rowwise, Scaling::mx}) {
        QuantizeOptions o;
        o.scaling = scaling;
        Quantized rows = rows_of(o, m, k), columns = tokens_of(o, k, m, e, 128);
        cuda::Runner r(on, tuning);
        Q::rows(r, av, o, rows.view);
        Q::columns(r, av, {}, groups, 128, o, columns.view, {});
        Q::pair(r, av, groups, 128, o, rows.view, columns.view);
    }
    checked(cudaDeviceSynchronize(), "once");
    return 0;
}

}  // namespace

int main(int argc, char** argv) try {
    const std::string what = argc > 1 ? argv[1] : "";
    gpu::QuantizerTuning tuning;
    bool every = true;
    for (int i = 2; i < argc; ++i) {
        int value = 0;
        const auto key = [&](const char* name) {
            return std::sscanf(argv[i], (std::string(name) + "=%d").c_str(), &value) == 1;
        };
        if (key("rows_vectors")) tuning.rows_vectors = value;
        if (key("fused_tiles")) tuning.fused_tiles = value;
        if (key("short_groups")) tuning.short_groups = value;
        if (key("tile_blocks")) tuning.tile_blocks = value;
        if (key("every")) every = value != 0;
    }
    if (what == "check") return check(argc > 2 ? std::atof(argv[2]) : 10) != 0;
    if (what == "large") return large() != 0;
    if (what == "small") return small() != 0;
    if (what == "once") return once(tuning);
    if (what == "bench" && argc > 2) return bench(argv[2], tuning, every);
    std::printf("usage: quantizers_device check [seconds] | large | small | once | bench FILE [key=value ...]\n");
    return 2;
} catch (const std::exception& error) {
    std::printf("FAILED: %s\n", error.what());
    return 1;
}
