// mxfp8 forward and dgrad.
#include "cuda/launch/product_mx.cuh"

namespace octet::cuda {
namespace {

template <Output output>
void launch_token(const TokenGroupedProduct& p, const ProductPlan& plan, cudaStream_t stream) {
    const ProductMaps maps = {mx_left_map("w", p.w, p.e, p.n, p.k), mx_decoded_map(p.workspace, p.m, p.k, 32),
                              mx_decoded_map(p.workspace, p.m, p.k, plan.right_tile / 2),
                              make_output_map(p.output, p.out, 1, p.m, p.n)};
    void* large = behind_right(p.workspace, p.m * p.k);
    decode_rows(p.a, p.a_scale, p.workspace, p.m, p.k, stream, {p.w_scale, p.e * p.n * ((p.k + 31) / 32), large});
    ProductParameters parameters = parameters_of(p, plan);
    parameters.large_exponents = static_cast<const std::uint32_t*>(large);
    launch_product<Element::mx, Reduction::along_k, output, Accumulation::fast>(maps, parameters, plan,
                                                                                most_tiles(p, plan), stream);
}

}  // namespace

void launch_mx_token(const TokenGroupedProduct& p, const ProductPlan& plan, cudaStream_t stream) {
    if (mx_decodes_left(p)) {
        decode_rows(p.a, p.a_scale, p.workspace, p.m, p.k, stream);
        TokenGroupedProduct decoded = p;
        decoded.recipe = ProductRecipe::bf16;
        decoded.a = p.workspace;
        decoded.w = behind_right(p.workspace, p.m * p.k);
        decode_rows(p.w, p.w_scale, behind_right(p.workspace, p.m * p.k), p.e * p.n, p.k, stream);
        return launch_bf16_token(decoded, plan, stream);
    }
    p.output == ProductOutput::bf16 ? launch_token<Output::bf16>(p, plan, stream)
                                    : launch_token<Output::f32>(p, plan, stream);
}

}  // namespace octet::cuda
