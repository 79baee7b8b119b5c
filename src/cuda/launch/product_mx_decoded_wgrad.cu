// mxfp8 wgrad of two decoded operands: bf16 along padded tokens.
#include "cuda/launch/product_mx.cuh"

namespace octet::cuda {
namespace {

template <Output output>
void launch_wgrad(const WeightGradientProduct& p, const ProductPlan& plan, cudaStream_t stream) {
    const void* a = behind_right(p.workspace, p.n * p.dy_padded);
    const ProductMaps maps = {mx_decoded_map(a, 1, p.k, p.a_padded, 128),
                              mx_decoded_map(p.workspace, 1, p.n, p.dy_padded, 32),
                              mx_decoded_map(p.workspace, 1, p.n, p.dy_padded, plan.right_tile / 2),
                              make_output_map(p.output, p.dw, p.e, p.n, p.k)};
    launch_product<Element::bf16, Reduction::along_padded_tokens, output, Accumulation::fast>(
        maps, parameters_of(p, plan), plan, most_tiles(p, plan), stream);
}

}  // namespace

void launch_mx_decoded_wgrad(const WeightGradientProduct& p, const ProductPlan& plan, cudaStream_t stream) {
    decode_rows(p.dy, p.dy_scale, p.workspace, p.n, p.dy_padded, stream);
    decode_rows(p.a, p.a_scale, behind_right(p.workspace, p.n * p.dy_padded), p.k, p.a_padded, stream);
    launch_output(p, plan, [&]<Output output>() { launch_wgrad<output>(p, plan, stream); });
}

}  // namespace octet::cuda
