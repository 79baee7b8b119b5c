// mxfp8 wgrad of two decoded operands: bf16 along padded tokens.
#include "cuda/launch/product_mx.cuh"

namespace octet::cuda {
namespace {

MxOperand gradients(const WeightGradientProduct& p) { return {"dy", p.dy, p.dy_scale, 1, p.n, p.dy_padded}; }
MxOperand activations(const WeightGradientProduct& p) { return {"a", p.a, p.a_scale, 1, p.k, p.a_padded}; }

template <Output output>
void launch_wgrad(const WeightGradientProduct& p, const ProductPlan& plan, cudaStream_t stream) {
    const MxOperand dy = gradients(p);
    const ProductMaps maps = {mx_decoded_map(behind(p.workspace, dy), activations(p), 128),
                              mx_decoded_map(p.workspace, dy, 32), mx_decoded_map(p.workspace, dy, plan.right_tile / 2),
                              make_output_map(p.output, p.dw, p.e, p.n, p.k)};
    launch_product<Element::bf16, Reduction::along_padded_tokens, output, Accumulation::fast>(
        maps, parameters_of(p, plan), plan, most_tiles(p, plan), stream);
}

}  // namespace

void launch_mx_decoded_wgrad(const WeightGradientProduct& p, const ProductPlan& plan, cudaStream_t stream) {
    decode_rows(gradients(p), p.workspace, stream);
    decode_rows(activations(p), behind(p.workspace, gradients(p)), stream);
    launch_output(p, plan, [&]<Output output>() { launch_wgrad<output>(p, plan, stream); });
}

}  // namespace octet::cuda
