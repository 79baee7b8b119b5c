// Bandwidths on the nine shapes, over group counts, and of a small tensor.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <functional>
#include <thread>

#include "octet_build_info.hpp"
#include "quantizers/quantizers.hpp"

namespace octet::quantizers {
namespace {

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
    double freed = 0;  // bytes, since it was waited for

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

    // The driver clears what was freed behind one's back, at some 450 GB/s, and times are 7% longer meanwhile.
    void settle() {
        checked(cudaStreamSynchronize(stream), "the benchmark");
        std::this_thread::sleep_for(std::chrono::duration<double>(0.002 + freed / 300e9));
        freed = 0;
    }

    double report(const char* op, const char* recipe, const Shape& s, double bytes, const std::function<void()>& f) {
        double spread = 0;
        const double us = time(f, &spread), gbps = bytes / us / 1e3;
        std::fprintf(json,
                     "%s\n  {\"op\": \"%s\", \"recipe\": \"%s\", \"M\": %lld, \"N\": %lld, \"K\": %lld, \"E\": %lld, "
                     "\"split\": \"uneven\", \"us\": %.2f, \"spread_pct\": %.1f, \"gbps\": %.0f, \"pct_copy\": %.1f}",
                     first ? "" : ",", op, recipe, (long long)s.m, (long long)s.n, (long long)s.k, (long long)s.e, us,
                     spread, gbps, 100 * gbps / copy_gbps);
        first = false;
        return 100 * gbps / copy_gbps;
    }
};

}  // namespace

int bench(const char* file, const gpu::QuantizerTuning& tuning, bool every) {
    Bench b;
    b.tuning = tuning;
    b.json = std::fopen(file, "w");
    if (b.json == nullptr) {
        std::printf("%s cannot be written\n", file);
        return 1;
    }
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
    char date[32] = "";
    const std::time_t now = std::time(nullptr);
    std::strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
    std::fprintf(b.json,
                 "{\"stamp\": {\"gpu\": \"%s\", \"driver\": \"CUDA %d.%d\", \"cuda\": \"%d.%d\", \"commit\": \"%s\", "
                 "\"date\": \"%s\", \"command\": \"quantizers_device bench\", \"copy_gbps\": %.0f},\n \"rows\": [",
                 properties.name, driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10,
                 build_info::commit, date, b.copy_gbps);
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
                     weights = normal_bf16(s.e * s.n * s.k, 3);
        const UnevenGroups uneven(s.m, s.e, 16, static_cast<unsigned>(s.e));
        const Groups groups = uneven.groups;
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
                b.settle();
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
            b.freed += 3 * (mk + mn);
            b.settle();
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
            b.freed += 3 * w;
        }
        if (every)
            for (const Scaling scaling : {Scaling::mx, Scaling::blockwise}) {
                QuantizeOptions o;
                o.scaling = scaling;
                if (scaling == Scaling::blockwise) o.scale_rounding = ScaleRounding::exact;
                Quantized rows = rows_of(o, s.m, s.k), columns = tokens_of(o, s.k, s.m, s.e, alignment);
                const double scale = scaling == Scaling::mx ? 1.0 / 32 : 4.0 / 128;
                b.settle();
                line(b.report("pair", scaling == Scaling::mx ? "mxfp8" : "fp8_blockwise", s, mk * (4 + 2 * scale), [&] {
                    cuda::Runner r(on, b.tuning);
                    Q::pair(r, av, groups, alignment, o, rows.view, columns.view);
                }));
            }
        std::printf("\n");
        b.freed += 3 * (mk + mn + w);
    }
    if (every) {  // equal bytes, other group counts; and a small tensor
        const i64 m = 32768, k = 4096;
        DeviceBuffer a = normal_bf16(m * k, 1), workspace(cuda::token_workspace_bytes(m, k, 512));
        b.settle();
        std::printf("[32768, 4096] by groups:\n");
        for (const i64 e : {1, 4, 16, 64, 128, 512}) {
            const Shape s{m, 0, k, e};
            const UnevenGroups uneven(m, e, 1, static_cast<unsigned>(e)), by_eights(m, e, 8, static_cast<unsigned>(e));
            const Groups groups = uneven.groups;
            const ConstTensorView av(a.data(), Format::bf16, {m, k}, gpu0), at(a.data(), Format::bf16, {k, m}, gpu0);
            const Execution on{.stream = b.stream, .workspace = workspace.data(), .workspace_bytes = workspace.bytes()};
            QuantizeOptions o;
            Quantized rows = rows_of(o, m, k), columns = tokens_of(o, k, m, e, 16);
            const double mk = static_cast<double>(m * k);
            std::printf("  %4lld groups: columns %.1f", (long long)e,
                        b.report("columns", "fp8_rowwise", s, mk * 3, [&] {
                            cuda::Runner r(on, b.tuning);
                            Q::columns(r, av, {}, groups, 16, o, columns.view, {});
                        }));
            std::printf(", pair %.1f", b.report("pair", "fp8_rowwise", s, mk * 4, [&] {
                cuda::Runner r(on, b.tuning);
                Q::pair(r, av, groups, 16, o, rows.view, columns.view);
            }));
            std::printf(", transposed %.1f\n", b.report("transposed", "fp8_rowwise", s, mk * 3, [&] {
                cuda::Runner r(on, b.tuning);
                Q::transposed(r, at, by_eights.groups, 16, o, columns.view);
            }));
        }
        const i64 sm = 512, sk = 2048, e = 8;
        const UnevenGroups uneven(sm, e, 1, 8), by_eights(sm, e, 8, 8);
        const Groups groups = uneven.groups;
        const ConstTensorView av(a.data(), Format::bf16, {sm, sk}, gpu0), at(a.data(), Format::bf16, {sk, sm}, gpu0);
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
        std::printf(", pair %.1f", b.time([&] {
            cuda::Runner r(on, b.tuning);
            Q::pair(r, av, groups, 16, o, rows.view, columns.view);
        }));
        std::printf(", transposed %.1f\n", b.time([&] {
            cuda::Runner r(on, b.tuning);
            Q::transposed(r, at, by_eights.groups, 16, o, columns.view);
        }));
    }
    std::fprintf(b.json, "\n ]}\n");
    std::fclose(b.json);
    return 0;
}

// One launch of each main kernel on one shape, for a profiler.
int once(const gpu::QuantizerTuning& tuning) {
    const i64 m = 16640, k = 5120, e = 16;
    DeviceBuffer a = normal_bf16(m * k, 1), workspace(cuda::token_workspace_bytes(m, k, e));
    const UnevenGroups uneven(m, e, 16, 16);
    const Groups groups = uneven.groups;
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

}  // namespace octet::quantizers
