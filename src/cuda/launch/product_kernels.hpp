// The families of product kernels, one source file each (what product.cu chooses from).
#pragma once

#include "cuda/launch/product.hpp"

namespace octet::cuda {

void launch_rowwise_token(const TokenGroupedProduct& product, const ProductPlan& plan, cudaStream_t stream);
void launch_rowwise_wgrad(const WeightGradientProduct& product, const ProductPlan& plan, cudaStream_t stream);
void launch_bf16_token(const TokenGroupedProduct& product, const ProductPlan& plan, cudaStream_t stream);
void launch_bf16_wgrad(const WeightGradientProduct& product, const ProductPlan& plan, cudaStream_t stream);

}  // namespace octet::cuda
