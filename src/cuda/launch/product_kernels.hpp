// The families of product kernels, one source file each (what product.cu chooses from).
#pragma once

#include "cuda/launch/product.hpp"

namespace octet::cuda {

constexpr std::int64_t mx_look_bytes = 512;  // what is found in the exponents of an operand that no pass decodes

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
