// fp8 wgrad, e4m3.
#include "cuda/launch/product_fp8.cuh"

namespace octet::cuda {

void launch_fp8_wgrad(const WeightGradientProduct& p, const ProductPlan& plan, cudaStream_t stream) {
    launch_fp8_as<Element::e4m3>(p, plan, stream);
}

}  // namespace octet::cuda
