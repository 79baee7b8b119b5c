// mxfp8 forward and dgrad.
#include "cuda/launch/product_mx.cuh"

namespace octet::cuda {
namespace {

template <Output output, Rows tokens_lie>
void launch_token(const TokenGroupedProduct& p, const ProductPlan& plan, cudaStream_t stream) {
    const MxOperand tokens = {"a", p.a, p.a_scale, 1, p.m, p.k, p.a_pitch};
    const MxOperand weights = {"w", p.w, p.w_scale, p.e, p.n, p.k, p.w_pitch};
    constexpr bool left = tokens_lie == Rows::left;
    launch_mx<Reduction::along_k, output, tokens_lie>(p, left ? tokens : weights, left ? weights : tokens,
                                                      make_output_map(p.output, p.out, 1, p.m, p.n), plan, stream);
}

template <Output output>
void launch_token(const TokenGroupedProduct& p, const ProductPlan& plan, cudaStream_t stream) {
    tokens_on(p) == Rows::left ? launch_token<output, Rows::left>(p, plan, stream)
                               : launch_token<output, Rows::right>(p, plan, stream);
}

}  // namespace

void launch_mx_token(const TokenGroupedProduct& p, const ProductPlan& plan, cudaStream_t stream) {
    p.output == ProductOutput::bf16 ? launch_token<Output::bf16>(p, plan, stream)
                                    : launch_token<Output::f32>(p, plan, stream);
}

}  // namespace octet::cuda
