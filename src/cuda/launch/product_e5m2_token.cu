// fp8 dgrad from e5m2 gradients.
#include "cuda/launch/product_fp8.cuh"

namespace octet::cuda {

void launch_e5m2_token(const TokenGroupedProduct& p, const ProductPlan& plan, cudaStream_t stream) {
    launch_fp8_as<Element::e4m3_e5m2>(p, plan, stream);
}

}  // namespace octet::cuda
