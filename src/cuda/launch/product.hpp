// Grouped matrix products on CUDA: what a caller fills in and launches. All pointers are device pointers; nothing is read by
// the host, so every launch can be captured in a graph and replayed with other group sizes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace octet::cuda {

enum class ProductRecipe { fp8_rowwise, bf16 };
enum class ProductOutput { bf16, f32, add_f32 };
enum class ProductAccumulation { fast, promoted };

// How the Hopper kernel cuts the work. A pure function of the shape and the group count: choose_plan().
struct ProductPlan {
    int cluster = 2;  // blocks that share their right rows: 1 or 2
    int band = 8;     // right tiles in a band of the tile order
};

// out[M, N] = a[M, K] . w[E, N, K]^T, every row with its group's expert. Forward as it stands; dgrad with the roles
// dA[M, K] = dY[M, N] . wt[E, K, N]^T, that is with N and K exchanged and the weights quantized along N.
struct TokenGroupedProduct {
    ProductRecipe recipe = ProductRecipe::fp8_rowwise;
    ProductAccumulation accumulation = ProductAccumulation::fast;
    ProductOutput output = ProductOutput::bf16;  // bf16 or f32
    const void* a = nullptr;          // [M, K] e4m3 or bf16, K contiguous
    const float* a_inverse = nullptr; // [M], fp8 only
    const void* w = nullptr;          // [E, N, K] e4m3 or bf16, K contiguous
    const float* w_inverse = nullptr; // [E, N], fp8 only
    const std::int32_t* ends = nullptr;  // [E] cumulative end offsets
    void* out = nullptr;              // [M, N]; rows past the last offset are not touched
    std::int64_t m = 0, n = 0, k = 0, e = 0;
};

// dw[E, N, K] = sum over the tokens of each group of dy^T . a
//   fp8: from operands quantized along tokens and stored transposed. Group g starts at column start_g, start_0 = 0,
//        start_{g+1} = start_g + round_up(rows_g, 128); columns of a group past its rows are zero.
//   bf16: from dy and a as they are.
struct WeightGradientProduct {
    ProductRecipe recipe = ProductRecipe::fp8_rowwise;
    ProductAccumulation accumulation = ProductAccumulation::fast;
    ProductOutput output = ProductOutput::bf16;
    const void* dy = nullptr;          // fp8: [N, P] e4m3, tokens contiguous; bf16: [M, N]
    const float* dy_inverse = nullptr; // [E, N], fp8 only
    const void* a = nullptr;           // fp8: [K, P] e4m3, tokens contiguous; bf16: [M, K]
    const float* a_inverse = nullptr;  // [E, K], fp8 only
    const std::int32_t* ends = nullptr;  // [E] cumulative end offsets
    void* dw = nullptr;                // [E, N, K]; an empty group's part becomes zero (add_f32: is left as it is)
    std::int64_t m = 0, n = 0, k = 0, e = 0;
    std::int64_t padded = 0;           // P: columns of dy and a, a multiple of 16; fp8 only
};

ProductPlan choose_plan(const TokenGroupedProduct& product);
ProductPlan choose_plan(const WeightGradientProduct& product);

// Throw octet::Error before launching when the shape, the alignment or the device is not one the kernel takes.
void launch(const TokenGroupedProduct& product, cudaStream_t stream);
void launch(const TokenGroupedProduct& product, const ProductPlan& plan, cudaStream_t stream);
void launch(const WeightGradientProduct& product, cudaStream_t stream);
void launch(const WeightGradientProduct& product, const ProductPlan& plan, cudaStream_t stream);

}  // namespace octet::cuda
