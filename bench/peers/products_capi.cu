// The grouped products behind plain C calls, for products_check.py: built as a shared library, called with the
// addresses of torch's tensors. Returns null, or a message that stays valid until the next call.
#include <chrono>
#include <exception>
#include <string>

#include "cuda/launch/product.hpp"
#include "cuda/launch/product_tensor_map.hpp"

namespace {
std::string message;
template <class Call>
const char* guarded(Call call) {
    try {
        call();
        return nullptr;
    } catch (const std::exception& error) {
        message = error.what();
        return message.c_str();
    }
}
}  // namespace

using namespace octet::cuda;

namespace {
// (cluster - 1) * 1000000 + right_tile * 1000 + slots * 100 + band
ProductPlan plan_of(int code) { return {code % 100, code / 1000 % 1000, code / 100 % 10, code / 1000000 + 1}; }
}  // namespace

// recipe: 0 fp8_rowwise, 1 bf16, 2 fp8_blockwise, 3 mxfp8 (its e8m0 scales come in place of the inverses).
// accumulation: 0 fast, 1 promoted. output: 0 bf16, 1 f32, 2 add_f32. planned 0: as the library chooses; otherwise
// band is a plan, see plan_of. across 1: w is [E, K, N]. workspace: of mxfp8. Pitches: elements from row to row of a
// and w.
extern "C" const char* octet_token_product(int recipe, int accumulation, int output, const void* a,
                                           const float* a_inverse, const void* w, const float* w_inverse,
                                           const int* ends, void* out, long long m, long long n, long long k,
                                           long long e, int planned, int band, int across, void* workspace,
                                           void* stream, long long a_pitch, long long w_pitch) {
    return guarded([&] {
        TokenGroupedProduct p{static_cast<ProductRecipe>(recipe),
                              static_cast<ProductAccumulation>(accumulation),
                              static_cast<ProductOutput>(output),
                              a,
                              a_inverse,
                              w,
                              w_inverse,
                              ends,
                              out,
                              m,
                              n,
                              k,
                              e,
                              a_inverse,
                              w_inverse,
                              static_cast<WeightLayout>(across)};
        p.workspace = workspace;
        p.a_pitch = a_pitch;
        p.w_pitch = w_pitch;
        if (planned == 0)
            launch(p, static_cast<cudaStream_t>(stream));
        else
            launch(p, plan_of(band), static_cast<cudaStream_t>(stream));
    });
}

extern "C" const char* octet_wgrad_product(int recipe, int accumulation, int output, const void* dy,
                                           const float* dy_inverse, const void* a, const float* a_inverse,
                                           const int* ends, void* dw, long long m, long long n, long long k,
                                           long long e, long long dy_padded, long long a_padded, long long dy_alignment,
                                           long long a_alignment, int planned, int band, void* workspace, void* tickets,
                                           void* stream) {
    return guarded([&] {
        WeightGradientProduct p{static_cast<ProductRecipe>(recipe),
                                static_cast<ProductAccumulation>(accumulation),
                                static_cast<ProductOutput>(output),
                                dy,
                                dy_inverse,
                                a,
                                a_inverse,
                                ends,
                                dw,
                                m,
                                n,
                                k,
                                e,
                                dy_padded,
                                a_padded,
                                dy_inverse,
                                a_inverse,
                                dy_alignment,
                                a_alignment};
        p.workspace = workspace;
        p.tickets = static_cast<unsigned*>(tickets);
        if (planned == 0)
            launch(p, static_cast<cudaStream_t>(stream));
        else
            launch(p, plan_of(band), static_cast<cudaStream_t>(stream));
    });
}

// Microseconds of the host for one launch: of the fp8_rowwise product of a[m, k] and w[e, n, k], and of one of its
// tensor maps.
extern "C" void octet_host_us(const void* a, const float* a_inverse, const void* w, const float* w_inverse,
                              const int* ends, void* out, long long m, long long n, long long k, long long e,
                              void* stream, double* launch_us, double* map_us) {
    using Clock = std::chrono::steady_clock;
    const auto us_of = [](int calls, auto call) {
        for (int i = 0; i < 20; ++i) call();
        const auto from = Clock::now();
        for (int i = 0; i < calls; ++i) call();
        return std::chrono::duration<double, std::micro>(Clock::now() - from).count() / calls;
    };
    TokenGroupedProduct p;
    p.a = a, p.a_inverse = a_inverse, p.w = w, p.w_inverse = w_inverse, p.ends = ends, p.out = out;
    p.m = m, p.n = n, p.k = k, p.e = e;
    cudaDeviceSynchronize();
    *launch_us = us_of(200, [&] { launch(p, static_cast<cudaStream_t>(stream)); });
    *map_us = us_of(200, [&] { make_tensor_map({"a", a, CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, 1, m, k, 32, 128}); });
}

// For an mxfp8 product: of tokens (P 0), or of a wgrad.
extern "C" long long octet_mx_workspace_bytes(long long m, long long n, long long k, long long e, long long padded) {
    TokenGroupedProduct token{ProductRecipe::mxfp8};
    WeightGradientProduct wgrad{ProductRecipe::mxfp8};
    token.m = wgrad.m = m, token.n = wgrad.n = n, token.k = wgrad.k = k, token.e = wgrad.e = e;
    wgrad.dy_padded = wgrad.a_padded = padded;
    return static_cast<long long>(padded == 0 ? workspace_bytes(token) : workspace_bytes(wgrad));
}
