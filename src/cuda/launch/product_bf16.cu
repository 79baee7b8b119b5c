// bf16 grouped products, the baseline of every recipe. The tensor cores' accumulation is f32 for bf16, so there is no
// promoted variant.
#include "cuda/launch/product_kernels.hpp"
#include "cuda/launch/product_launch.cuh"

namespace octet::cuda {
namespace {

CUtensorMap operand_map(const char* what, const void* data, std::int64_t batches, std::int64_t rows,
                        std::int64_t columns, int box_rows, std::int64_t pitch = 0) {
    return make_tensor_map(
        {what, data, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, batches, rows, columns, box_rows, 64, pitch});
}

template <Output output, Lies weights_lie>
void launch_token(const TokenGroupedProduct& p, const ProductPlan& plan, cudaStream_t stream) {
    const ProductMaps maps = {weights_lie == Lies::along_reduction
                                  ? operand_map("w", p.w, p.e, p.n, p.k, 128, p.w_pitch)
                                  // boxes of 64 columns x 64 steps
                                  : operand_map("w", p.w, p.e, p.k, p.n, 64, p.w_pitch),
                              operand_map("a", p.a, 1, p.m, p.k, 32, p.a_pitch),
                              operand_map("a", p.a, 1, p.m, p.k, plan.right_tile / 2, p.a_pitch),
                              make_output_map(p.output, p.out, 1, p.m, p.n)};
    launch_product<Element::bf16, Reduction::along_k, output, Accumulation::fast, weights_lie>(
        maps, parameters_of(p, plan), plan, most_tiles(p, plan), stream);
}

template <Output output>
void launch_token(const TokenGroupedProduct& p, const ProductPlan& plan, cudaStream_t stream) {
    p.weights == WeightLayout::along_reduction ? launch_token<output, Lies::along_reduction>(p, plan, stream)
                                               : launch_token<output, Lies::across_reduction>(p, plan, stream);
}

// Tokens are rows of both operands: boxes of 64 columns x 64 tokens.
template <Output output>
void launch_wgrad(const WeightGradientProduct& p, const ProductPlan& plan, cudaStream_t stream) {
    const CUtensorMap right = operand_map("dy", p.dy, 1, p.m, p.n, 64);
    const ProductMaps maps = {operand_map("a", p.a, 1, p.m, p.k, 64), right, right,
                              make_output_map(p.output, p.dw, p.e, p.n, p.k)};
    launch_product<Element::bf16, Reduction::along_tokens, output, Accumulation::fast, Lies::across_reduction>(
        maps, parameters_of(p, plan), plan, most_tiles(p, plan), stream);
}

}  // namespace

void launch_bf16_token(const TokenGroupedProduct& p, const ProductPlan& plan, cudaStream_t stream) {
    p.output == ProductOutput::bf16 ? launch_token<Output::bf16>(p, plan, stream)
                                    : launch_token<Output::f32>(p, plan, stream);
}

void launch_bf16_wgrad(const WeightGradientProduct& p, const ProductPlan& plan, cudaStream_t stream) {
    launch_output(p, plan, [&]<Output output>() { launch_wgrad<output>(p, plan, stream); });
}

}  // namespace octet::cuda
