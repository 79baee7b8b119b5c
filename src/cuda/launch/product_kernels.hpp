// The families of product kernels, one source file each (what product.cu chooses from).
#pragma once

#include "cuda/launch/product.hpp"

namespace octet::cuda {

// mxfp8's workspace: the decoded right operand, its rows on whole lines of 128 bytes; what is found in the left one's
// exponents; and these by words of four, where their rows are no whole words.
constexpr std::int64_t mx_look_bytes = 512;
constexpr std::int64_t mx_decoded_pitch(std::int64_t columns) { return (columns + 63) / 64 * 64; }
constexpr std::int64_t mx_packed_bytes(std::int64_t rows, std::int64_t columns) {
    const std::int64_t blocks = (columns + 31) / 32;
    return blocks % 4 == 0 ? 0 : rows * ((blocks + 3) / 4 * 4);
}

void launch_fp8_token(const TokenGroupedProduct& product, const ProductPlan& plan, cudaStream_t stream);
void launch_fp8_wgrad(const WeightGradientProduct& product, const ProductPlan& plan, cudaStream_t stream);
void launch_e5m2_token(const TokenGroupedProduct& product, const ProductPlan& plan, cudaStream_t stream);
void launch_e5m2_wgrad(const WeightGradientProduct& product, const ProductPlan& plan, cudaStream_t stream);
void launch_bf16_token(const TokenGroupedProduct& product, const ProductPlan& plan, cudaStream_t stream);
void launch_bf16_wgrad(const WeightGradientProduct& product, const ProductPlan& plan, cudaStream_t stream);
void launch_mx_token(const TokenGroupedProduct& product, const ProductPlan& plan, cudaStream_t stream);
void launch_mx_wgrad(const WeightGradientProduct& product, const ProductPlan& plan, cudaStream_t stream);
void launch_mx_decoded_wgrad(const WeightGradientProduct& product, const ProductPlan& plan, cudaStream_t stream);

}  // namespace octet::cuda
