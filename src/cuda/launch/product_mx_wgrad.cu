// mxfp8 wgrad.
#include "cuda/launch/product_mx.cuh"

namespace octet::cuda {
namespace {

template <Output output, Rows gradients_lie>
void launch_wgrad(const WeightGradientProduct& p, const ProductPlan& plan, cudaStream_t stream) {
    const MxOperand gradients = {"dy", p.dy, p.dy_scale, 1, p.n, p.dy_padded},
                    activations = {"a", p.a, p.a_scale, 1, p.k, p.a_padded};
    constexpr bool left = gradients_lie == Rows::left;
    launch_mx<Reduction::along_padded_tokens, output, gradients_lie>(
        p, left ? gradients : activations, left ? activations : gradients,
        make_output_map(p.output, p.dw, p.e, p.n, p.k), plan, stream);
}

}  // namespace

void launch_mx_wgrad(const WeightGradientProduct& p, const ProductPlan& plan, cudaStream_t stream) {
    if (mx_decodes_activations(p)) return launch_mx_decoded_wgrad(p, plan, stream);
    if (gradients_on(p) == Rows::right)
        return launch_output(p, plan, [&]<Output output>() { launch_wgrad<output, Rows::right>(p, plan, stream); });
    p.output == ProductOutput::bf16 ? launch_wgrad<Output::bf16, Rows::left>(p, plan, stream)
                                    : launch_wgrad<Output::f32, Rows::left>(p, plan, stream);
}

}  // namespace octet::cuda
