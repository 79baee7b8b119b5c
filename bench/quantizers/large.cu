// Full-size shapes, more than 2^31 elements, repetition, graphs.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <thread>

#include "octet/memory.hpp"
#include "quantizers/quantizers.hpp"
#include "reference/quantize.hpp"

namespace octet::quantizers {
namespace {

int failed(const char* what, const char* part) {
    std::printf("FAILED %s: %s\n", what, part);
    return 1;
}

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
            failures += failed(what, ("column data, feature " + std::to_string(f)).c_str());
    std::vector<float> got_scale(static_cast<std::size_t>(count * k));
    checked(cudaMemcpy(got_scale.data(), columns.scale.as<float>() + static_cast<i64>(from) * k, got_scale.size() * 4,
                       cudaMemcpyDeviceToHost),
            "cudaMemcpy");
    if (std::memcmp(got_scale.data(), scale.as<float>(), got_scale.size() * 4) != 0)
        failures += failed(what, "column scales");
    if (rows) {
        std::vector<unsigned char> got_rows(static_cast<std::size_t>(m * k));
        checked(cudaMemcpy(got_rows.data(), rows->data.as<unsigned char>() + begin * k, got_rows.size(),
                           cudaMemcpyDeviceToHost),
                "cudaMemcpy");
        if (std::memcmp(got_rows.data(), row_data.as<unsigned char>(), got_rows.size()) != 0)
            failures += failed(what, "row data");
        std::vector<float> got_row_scale(static_cast<std::size_t>(m));
        checked(cudaMemcpy(got_row_scale.data(), rows->scale.as<float>() + begin, got_row_scale.size() * 4,
                           cudaMemcpyDeviceToHost),
                "cudaMemcpy");
        if (std::memcmp(got_row_scale.data(), row_scale.as<float>(), got_row_scale.size() * 4) != 0)
            failures += failed(what, "row scales");
    }
    if (!failures)
        std::printf("ok: %s, groups %zu to %zu (%lld rows x %lld)\n", what, from, to, (long long)m, (long long)k);
    std::fflush(stdout);
    return failures;
}

// More than 2^31 elements of tokens, in halves.
int check_halves(const QuantizeOptions& options) {
    const i64 m = 525000, k = 4128, alignment = 16;
    const std::vector<std::int32_t> ends = {200, 300000, 300001, 300001, 515000, 525000};  // the last crosses 2^31
    const i64 count = static_cast<i64>(ends.size());
    DeviceBuffer x = normal_bf16(m * k, 8), device_ends(ends.size() * 4),
                 workspace(cuda::token_workspace_bytes(m, k, count));
    device_ends.upload(ends.data(), ends.size() * 4);
    Quantized rows = rows_of(options, m, k), columns = tokens_of(options, k, m, count, alignment);
    columns.data.fill(0x11);
    const unsigned long long untouched = hash_of(columns.data);
    LaterCasts later;
    const Execution on{.workspace = workspace.data(), .workspace_bytes = workspace.bytes(), .later = &later};
    cuda::quantize_pair({x.data(), Format::bf16, {m, k}, gpu0}, {device_ends.as<std::int32_t>(), count, gpu0},
                        alignment, options, rows.view, columns.view, on);
    checked(cudaDeviceSynchronize(), "the first half");
    if (hash_of(columns.data) != untouched)
        return failed("more than 2^31 elements in halves", "columns were made in the first");
    later.run(nullptr);
    checked(cudaDeviceSynchronize(), "quantize_pair in halves");
    return check_groups("more than 2^31 elements in halves", x, k, ends, alignment, options, &rows, columns,
                        ends.size() - 1, ends.size());
}

// As many of weights, in two visits: the last expert.
int check_visits(const QuantizeOptions& options) {
    const i64 experts = 1040, n = 512, k = 4096, size = n * k;
    DeviceBuffer w = normal_bf16(experts * size, 9), workspace(cuda::weight_workspace_bytes(experts, n, k));
    Quantized along_k = weights_of(options, experts, n, k), along_n = weights_of(options, experts, k, n);
    along_k.data.fill(0x11);
    along_n.data.fill(0x11);
    const ConstTensorView view(w.data(), Format::bf16, {experts, n, k}, gpu0);
    if (!cuda::keeps_maxima(view, options))
        return failed("more than 2^31 weights in two visits", "they keep no maxima");
    Execution on{.workspace = workspace.data(), .workspace_bytes = workspace.bytes(), .visit = WeightVisit::first};
    cuda::quantize_weights(view, options, along_k.view, {}, on);
    on.visit = WeightVisit::second;
    cuda::quantize_weights(view, options, {}, along_n.view, on);
    checked(cudaDeviceSynchronize(), "quantize_weights in two visits");

    Tensor last(Format::bf16, {1, n, k}), data_k(options.format, {1, n, k}), scale_k(Format::f32, {1, n}),
        data_n(options.format, {1, k, n}), scale_n(Format::f32, {1, k});
    const auto download = [&](void* to, const DeviceBuffer& from, std::size_t bytes) {  // the last expert's
        checked(cudaMemcpy(to, from.as<unsigned char>() + static_cast<std::size_t>(experts - 1) * bytes, bytes,
                           cudaMemcpyDeviceToHost),
                "cudaMemcpy");
    };
    download(last.as<unsigned char>(), w, last.bytes());
    reference::quantize_weights(last, options, {data_k, scale_k, {}}, {data_n, scale_n, {}}, {});
    int failures = 0;
    const auto compare = [&](const char* what, const Tensor& expected, const DeviceBuffer& given) {
        std::vector<unsigned char> got(expected.bytes());
        download(got.data(), given, got.size());
        if (std::memcmp(got.data(), expected.as<unsigned char>(), got.size()) != 0)
            failures += failed("more than 2^31 weights in two visits", what);
    };
    compare("data along k", data_k, along_k.data);
    compare("scales along k", scale_k, along_k.scale);
    compare("data along n", data_n, along_n.data);
    compare("scales along n", scale_n, along_n.scale);
    if (!failures) std::printf("ok: more than 2^31 weights in two visits, the last expert\n");
    std::fflush(stdout);
    return failures;
}

// Repetition, and a graph replayed with other groups, of which `from` to `to` are compared with the reference.
int check_again(i64 m, i64 k, i64 count, std::size_t from, std::size_t to) {
    int failures = 0;
    const QuantizeOptions options;
    const i64 alignment = 128;
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
    // Each call has columns of its own. Poisoned before each round: all outputs, and what the one before left in the
    // workspace. On the stream, which waits for no other.
    Quantized alone = tokens_of(options, k, m, count, alignment);
    const auto poison = [&] {
        const auto fill = [&](const DeviceBuffer& buffer, int byte) {
            checked(cudaMemsetAsync(buffer.data(), byte, buffer.bytes(), stream), "cudaMemsetAsync");
        };
        for (const Quantized* out : {&rows, &columns, &alone}) {
            fill(out->data, 0x11);
            fill(out->scale, 0x11);
        }
        fill(workspace, 0xCD);
    };
    for (int i = 0; i < 100; ++i) {  // the columns of a pair, and alone
        poison();
        cuda::quantize_pair(view, groups, alignment, options, rows.view, columns.view, on);
        checked(cudaStreamSynchronize(stream), "quantize_pair");
        cuda::quantize_columns(view, groups, alignment, options, alone.view, on);
        checked(cudaStreamSynchronize(stream), "quantize_columns");
        const unsigned long long now[4] = {hash_of(rows.data), hash_of(rows.scale), hash_of(columns.data),
                                           hash_of(columns.scale)};
        if (i == 0) std::memcpy(first, now, sizeof now);
        differing += std::memcmp(first, now, sizeof now) != 0 || hash_of(alone.data) != first[2] ||
                     hash_of(alone.scale) != first[3];
    }
    std::printf("%s: 100 repetitions of pair and of columns (%lld rows x %lld), %d differ\n",
                differing ? "FAILED" : "ok", static_cast<long long>(m), static_cast<long long>(k), differing);
    failures += differing != 0;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    checked(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    cuda::quantize_pair(view, groups, alignment, options, rows.view, columns.view, on);
    cuda::quantize_columns(view, groups, alignment, options, alone.view, {.stream = stream});  // from the stream's pool
    checked(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    checked(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    for (unsigned seed = 11; seed < 14; ++seed) {
        host_ends = uneven_ends(m, count, 1, seed);
        ends.upload(host_ends.data(), host_ends.size() * 4);
        poison();
        checked(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
        checked(cudaStreamSynchronize(stream), "the graph");
        failures += check_groups("graph with other groups, pair", x, k, host_ends, alignment, options, &rows, columns,
                                 from, to) +
                    check_groups("graph with other groups, columns", x, k, host_ends, alignment, options, nullptr,
                                 alone, from, to);
    }
    return failures;
}

}  // namespace

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
    failures += check_halves(options) + check_visits(options);
    // By tiles, which leave notes, and by columns out of rows, which begin while other rows are cast.
    failures += check_again(16640, 2048, 16, 0, 16) + check_again(16640, 5120, 4, 1, 2);
    return failures;
}

}  // namespace octet::quantizers
