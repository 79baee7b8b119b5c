// Grouped matrix products on Hopper: what a caller fills in and launches. All pointers are device pointers; nothing is
// read by the host, so every launch can be captured in a graph and replayed with other group sizes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace octet::cuda {

enum class ProductRecipe { fp8_rowwise, bf16, fp8_blockwise, mxfp8 };
enum class ProductOutput { bf16, f32, add_f32, add_bf16 };  // add: to what is there, bf16 after rounding
enum class ProductAccumulation { fast, promoted };          // of fp8_rowwise; every other recipe accumulates in f32

// 8-bit elements of the two sides. Gradients may be e5m2; weights and activations are e4m3.
enum class ProductElements { e4m3, e5m2_gradients };

// How the weights of a token-grouped product lie: the reduction contiguous, or (bf16) the output's columns.
enum class WeightLayout { along_reduction, across_reduction };

// What serves a product: the Hopper kernel, or the generic one (product_generic.hpp: any shape and GPU; slow).
enum class ProductKernel { hopper, generic };
const char* name(ProductKernel kernel);

// How the Hopper kernel cuts the work. A pure function of the shape and the group count: choose_plan().
struct ProductPlan {
    int band = 16;         // right tiles in a band of the tile order; fp8_blockwise forward: token tiles, two at a time
    int right_tile = 256;  // most right rows of a tile
    int slots = 4;         // pipeline depth, in blocks of 128 bytes of the reduction
    int cluster = 1;       // blocks that load right rows for each other; fp8, tokens
};

// out[M, N] = a[M, K] . w[E, N, K]^T, every row with its group's expert. Forward as it stands; dgrad with the roles
// dA[M, K] = dY[M, N] . wt[E, K, N]^T, that is with N and K exchanged and the weights quantized along N, or, bf16, the
// weights of forward as they are: across_reduction.
struct TokenGroupedProduct {
    ProductRecipe recipe = ProductRecipe::fp8_rowwise;
    ProductAccumulation accumulation = ProductAccumulation::fast;
    ProductOutput output = ProductOutput::bf16;  // bf16 or f32; fp8_rowwise and fp8_blockwise: or add_bf16
    const void* a = nullptr;                     // [M, K] e4m3 or bf16, K contiguous
    const float* a_inverse = nullptr;            // rowwise [M]; blockwise [ceil(K/128), M]: tokens contiguous
    const void* w = nullptr;                     // [E, N, K] e4m3 or bf16, K contiguous; across_reduction: [E, K, N]
    const float* w_inverse = nullptr;            // rowwise [E, N]; blockwise [E, ceil(N/128), ceil(K/128)]
    const std::int32_t* ends = nullptr;          // [E] cumulative end offsets
    void* out = nullptr;                         // [M, N]; rows past the last offset are not touched
    std::int64_t m = 0, n = 0, k = 0, e = 0;
    const void* a_scale = nullptr;  // mxfp8 [M, ceil(K/32)] e8m0
    const void* w_scale = nullptr;  // mxfp8 [E, N, ceil(K/32)] e8m0
    WeightLayout weights = WeightLayout::along_reduction;
    ProductElements elements = ProductElements::e4m3;  // fp8_rowwise and fp8_blockwise; e5m2_gradients: a is e5m2
    void* workspace = nullptr;                         // workspace_bytes()
    // Elements from row to row of a and of w; 0: they follow each other. The copy engine fetches lines of 128 bytes: at
    // full speed rows start on multiples of that.
    std::int64_t a_pitch = 0, w_pitch = 0;
};

// dw[E, N, K] = sum over the tokens of each group of dy^T . a
//   fp8: from operands quantized along tokens and stored transposed. Group g starts at column start_g, start_0 = 0,
//        start_{g+1} = start_g + round_up(rows_g, its alignment); columns between a group's rows and the next start are
//        zero.
//   bf16: from dy and a as they are.
struct WeightGradientProduct {
    ProductRecipe recipe = ProductRecipe::fp8_rowwise;
    ProductAccumulation accumulation = ProductAccumulation::fast;
    ProductOutput output = ProductOutput::bf16;
    const void* dy = nullptr;            // fp8: [N, P] e4m3, tokens contiguous; bf16: [M, N]
    const float* dy_inverse = nullptr;   // rowwise [E, N]; blockwise [P/128, N]
    const void* a = nullptr;             // fp8: [K, P] e4m3, tokens contiguous; bf16: [M, K]
    const float* a_inverse = nullptr;    // rowwise [E, K]; blockwise [P/128, K]
    const std::int32_t* ends = nullptr;  // [E] cumulative end offsets
    void* dw = nullptr;                  // [E, N, K]; an empty group's part becomes zero (add_f32: is left as it is)
    std::int64_t m = 0, n = 0, k = 0, e = 0;
    std::int64_t dy_padded = 0, a_padded = 0;  // P: columns of dy and of a; not bf16
    const void* dy_scale = nullptr;            // mxfp8 [N, P/32] e8m0
    const void* a_scale = nullptr;             // mxfp8 [K, P/32] e8m0
    std::int64_t dy_alignment = 128,
                 a_alignment = 128;                    // not bf16; fp8_blockwise: multiples of 128, mxfp8: of 32; equal
    ProductElements elements = ProductElements::e4m3;  // fp8_rowwise and fp8_blockwise; e5m2_gradients: dy is e5m2
    void* workspace = nullptr;                         // workspace_bytes()
    unsigned* tickets = nullptr;  // zero, and zero again behind the product, or null: what blocks share tiles by, where
                                  // groups differ much
};

// Of the current device and the product's recipe, shape and alignment.
ProductKernel choose_kernel(const TokenGroupedProduct& product);
ProductKernel choose_kernel(const WeightGradientProduct& product);

// Of the Hopper kernel.
ProductPlan choose_plan(const TokenGroupedProduct& product);
ProductPlan choose_plan(const WeightGradientProduct& product);

// mxfp8: the pass before forward or dgrad is over the weights, not the tokens; the other operand is decoded on the way
// to the tensor cores.
bool mx_decodes_weights(const TokenGroupedProduct& product);
// mxfp8: the activations are decoded before wgrad, as the gradients are, not on the way to the tensor cores.
bool mx_decodes_activations(const WeightGradientProduct& product);
// mxfp8: the pass before wgrad is over the activations alone, and the gradients are decoded on the way.
bool mx_gradients_left(const WeightGradientProduct& product);

// What the Hopper kernel works in, on a multiple of 16 bytes; 0 but for mxfp8.
std::size_t workspace_bytes(const TokenGroupedProduct& product);
std::size_t workspace_bytes(const WeightGradientProduct& product);

// With choose_plan(). Throw octet::Error before launching what the Hopper kernel cannot take.
void launch(const TokenGroupedProduct& product, cudaStream_t stream);
void launch(const WeightGradientProduct& product, cudaStream_t stream);

// The Hopper kernel with this plan (for tuning); throw octet::Error when it cannot take the shape, the alignment or the
// device.
void launch(const TokenGroupedProduct& product, const ProductPlan& plan, cudaStream_t stream);
void launch(const WeightGradientProduct& product, const ProductPlan& plan, cudaStream_t stream);

}  // namespace octet::cuda
