// mxfp8 forward and dgrad.
#include "cuda/launch/product_mx.cuh"

namespace octet::cuda {
namespace {

// An operand as it comes: [batches, rows, K].
struct MxOperand {
    const char* name;
    const void *data, *exponents;
    std::int64_t batches, rows;
};

template <Output output, Rows tokens_lie>
void launch_token(const TokenGroupedProduct& p, const ProductPlan& plan, cudaStream_t stream) {
    const MxOperand tokens = {"a", p.a, p.a_scale, 1, p.m}, weights = {"w", p.w, p.w_scale, p.e, p.n};
    const auto& left = tokens_lie == Rows::left ? tokens : weights;
    const auto& right = tokens_lie == Rows::left ? weights : tokens;
    const auto right_map = [&](int box_rows) {
        return mx_decoded_map(p.workspace, right.batches, right.rows, p.k, box_rows);
    };
    const ProductMaps maps = {mx_left_map(left.name, left.data, left.batches, left.rows, p.k), right_map(32),
                              right_map(plan.right_tile / 2), make_output_map(p.output, p.out, 1, p.m, p.n)};
    void* large = behind_right(p.workspace, right.batches * right.rows * p.k);
    decode_rows(right.data, right.exponents, p.workspace, right.batches * right.rows, p.k, stream,
                {left.exponents, left.batches * left.rows * ((p.k + 31) / 32), large});
    ProductParameters parameters = parameters_of(p, plan);
    parameters.large_exponents = static_cast<const std::uint32_t*>(large);
    launch_product<Element::mx, Reduction::along_k, output, Accumulation::fast, Lies::along_reduction, tokens_lie>(
        maps, parameters, plan, most_tiles(p, plan), stream);
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
