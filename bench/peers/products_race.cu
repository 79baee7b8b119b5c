// Small cases of every product kernel, for a sanitizer to watch: linked with products_capi.cu and the products, which
// for racecheck are built with -DOCTET_EVERY_LANE_ARRIVES (src/cuda/ptx/mbarrier.cuh says why).
//
//     compute-sanitizer --tool racecheck products_race
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

extern "C" const char* octet_token_product(int recipe, int accumulation, int output, const void* a, const float* sa,
                                           const void* w, const float* sw, const int* ends, void* out, long long m,
                                           long long n, long long k, long long e, int planned, int plan, int across,
                                           void* workspace, void* stream, long long a_pitch, long long w_pitch);
extern "C" const char* octet_wgrad_product(int recipe, int accumulation, int output, const void* dy, const float* sdy,
                                           const void* a, const float* sa, const int* ends, void* dw, long long m,
                                           long long n, long long k, long long e, long long dy_padded,
                                           long long a_padded, long long dy_alignment, long long a_alignment,
                                           int planned, int plan, void* workspace, void* tickets, void* stream);

namespace {

enum class Fill { e4m3, bf16, f32_scales, exponents };

void* filled(std::size_t bytes, Fill fill) {
    std::vector<unsigned char> values(bytes + 16);
    for (std::size_t i = 0; i + 4 <= values.size(); i += 4) {
        const float scale = 0.5f + static_cast<float>(std::rand() % 100) * 0.01f;
        for (std::size_t j = i; j < i + 4; ++j) {
            const int random = std::rand();
            values[j] = static_cast<unsigned char>(fill == Fill::e4m3        ? random & 0xB7
                                                   : fill == Fill::exponents ? 120 + random % 10
                                                   : j % 2                   ? 0x3F | (random & 0x80)
                                                                             : random);
        }
        if (fill == Fill::f32_scales) std::memcpy(&values[i], &scale, 4);
    }
    void* device = nullptr;
    if (cudaMalloc(&device, values.size()) != cudaSuccess) std::exit(2);
    cudaMemcpy(device, values.data(), values.size(), cudaMemcpyHostToDevice);
    return device;
}

int failures = 0;

void expect(const char* what, int recipe, int plan, const char* message) {
    const cudaError_t result = cudaDeviceSynchronize();
    if (message == nullptr && result == cudaSuccess) return;
    ++failures;
    std::printf("%s recipe %d plan %d: %s %s\n", what, recipe, plan, message ? message : "",
                cudaGetErrorString(result));
}

}  // namespace

int main() {
    constexpr long long m = 900, n = 336, k = 784, e = 5, padded = (m + e * 127) / 128 * 128;
    constexpr int rowwise = 0, bf16 = 1, blockwise = 2, mx = 3;
    const int ends[e] = {3, 3, 132, 133, 890};
    int* device_ends = nullptr;
    cudaMalloc(&device_ends, sizeof ends);
    cudaMemcpy(device_ends, ends, sizeof ends, cudaMemcpyHostToDevice);
    void* workspace = filled(2 * (m * k + e * n * k + (n + k) * padded), Fill::e4m3);
    void* counter = nullptr;
    cudaMalloc(&counter, sizeof(unsigned));
    cudaMemset(counter, 0, sizeof(unsigned));
    for (int recipe = rowwise; recipe <= mx; ++recipe) {
        const Fill elements = recipe == bf16 ? Fill::bf16 : Fill::e4m3,
                   scales = recipe == mx ? Fill::exponents : Fill::f32_scales;
        void *a = filled(m * k * 2, elements), *w = filled(e * n * k * 2, elements), *out = filled(m * n * 4, elements);
        void *dy = filled(n * padded * 2, elements), *at = filled(k * padded * 2, elements),
             *dw = filled(e * n * k * 4, Fill::f32_scales);
        const auto *sa = static_cast<const float*>(filled(m * k, scales)),
                   *sw = static_cast<const float*>(filled(e * n * k, scales)),
                   *sdy = static_cast<const float*>(filled(n * padded, scales)),
                   *sat = static_cast<const float*>(filled(k * padded, scales));
        const auto token = [&](int accumulation, int output, int plan, int across, long long columns) {
            expect("token", recipe, plan,
                   octet_token_product(recipe, accumulation, output, a, sa, w, sw, device_ends, out, m, columns, k, e,
                                       plan != 0, plan, across, workspace, nullptr, 0, 0));
        };
        const auto wgrad = [&](int accumulation, int output, long long rows, long long columns, int plan = 0) {
            const long long tokens = recipe == bf16 ? 0 : padded;
            for (void* tickets : {counter, static_cast<void*>(nullptr)})
                expect("wgrad", recipe, plan,
                       octet_wgrad_product(recipe, accumulation, output, dy, sdy, at, sat, device_ends, dw, m, rows,
                                           columns, e, tokens, tokens, 128, 128, plan != 0, plan, workspace, tickets,
                                           nullptr));
        };
        for (int accumulation = 0; accumulation < (recipe == rowwise ? 2 : 1); ++accumulation) {
            for (int output = 0; output < 2; ++output) token(accumulation, output, 0, 0, n);
            for (int output = 0; output < 3; ++output) wgrad(accumulation, output, 272, n);
        }
        wgrad(0, 2, 272, n, recipe == blockwise ? 224308 : 256308);  // added to in L2, as with many tokens
        if (recipe == bf16) token(0, 0, 0, 1, n);
        // K is no multiple of 64, so that blocks of rowwise products share tokens; these do not.
        if (recipe == rowwise || recipe == bf16) token(0, 0, 256308, 0, n);
        if (recipe == rowwise) token(1, 0, 192408, 0, n);
        if (recipe == rowwise) token(0, 0, 1256308, 0, n);  // they do, as with many tokens an expert
        if (recipe == blockwise) token(0, 0, 0, 0, 32);     // a cluster of which one block has nothing to do
        // mxfp8: a pass over the weights, or in wgrad over the activations, which are the smaller operand
        for (int output = 0; output < 2 && recipe == mx; ++output) {
            token(0, output, 0, 0, 32);
            wgrad(0, output, n, 272);
        }
    }
    std::printf("%d of the products failed\n", failures);
    return failures != 0;
}
