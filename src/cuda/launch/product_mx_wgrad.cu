// mxfp8 wgrad.
#include "cuda/launch/product_mx.cuh"

namespace octet::cuda {
namespace {

template <Output output>
void launch_wgrad(const WeightGradientProduct& p, const ProductPlan& plan, cudaStream_t stream) {
    const ProductMaps maps = {mx_left_map("a", p.a, 1, p.k, p.a_padded),
                              mx_decoded_map(p.workspace, 1, p.n, p.dy_padded, 32),
                              mx_decoded_map(p.workspace, 1, p.n, p.dy_padded, plan.right_tile / 2),
                              make_output_map(p.output, p.dw, p.e, p.n, p.k)};
    void* large = behind_right(p.workspace, p.n * p.dy_padded);
    decode_rows(p.dy, p.dy_scale, p.workspace, p.n, p.dy_padded, stream, {p.a_scale, p.k * (p.a_padded / 32), large});
    ProductParameters parameters = parameters_of(p, plan);
    parameters.large_exponents = static_cast<const std::uint32_t*>(large);
    launch_product<Element::mx, Reduction::along_padded_tokens, output, Accumulation::fast>(
        maps, parameters, plan, most_tiles(p, plan), stream);
}

}  // namespace

void launch_mx_wgrad(const WeightGradientProduct& p, const ProductPlan& plan, cudaStream_t stream) {
    if (mx_decodes_activations(p)) return launch_mx_decoded_wgrad(p, plan, stream);
    launch_output(p, plan, [&]<Output output>() { launch_wgrad<output>(p, plan, stream); });
}

}  // namespace octet::cuda
