// mxfp8 grouped products: e4m3 rows and their exponents are decoded to bf16 in shared memory and multiplied as bf16.
#include "cuda/launch/product_kernels.hpp"
#include "cuda/launch/product_launch.cuh"

namespace octet::cuda {
namespace {

CUtensorMap operand_map(const char* what, const void* data, std::int64_t batches, std::int64_t rows,
                        std::int64_t columns, int box_rows) {
    return make_tensor_map({what, data, CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, batches, rows, columns, box_rows, 64});
}

template <Output output>
void launch_token(const TokenGroupedProduct& p, const ProductPlan& plan, cudaStream_t stream) {
    const ProductMaps maps = {operand_map("w", p.w, p.e, p.n, p.k, 128), operand_map("a", p.a, 1, p.m, p.k, 32),
                              operand_map("a", p.a, 1, p.m, p.k, plan.right_tile / 2),
                              make_output_map(p.output, p.out, 1, p.m, p.n)};
    launch_product<Element::mx, Reduction::along_k, output, Accumulation::fast>(maps, parameters_of(p, plan), plan,
                                                                                most_tiles(p, plan.right_tile), stream);
}

template <Output output>
void launch_wgrad(const WeightGradientProduct& p, const ProductPlan& plan, cudaStream_t stream) {
    const ProductMaps maps = {operand_map("a", p.a, 1, p.k, p.a_padded, 128),
                              operand_map("dy", p.dy, 1, p.n, p.dy_padded, 32),
                              operand_map("dy", p.dy, 1, p.n, p.dy_padded, plan.right_tile / 2),
                              make_output_map(p.output, p.dw, p.e, p.n, p.k)};
    launch_product<Element::mx, Reduction::along_padded_tokens, output, Accumulation::fast>(
        maps, parameters_of(p, plan), plan, most_tiles(p, plan.right_tile), stream);
}

}  // namespace

void launch_mx_token(const TokenGroupedProduct& p, const ProductPlan& plan, cudaStream_t stream) {
    p.output == ProductOutput::bf16 ? launch_token<Output::bf16>(p, plan, stream)
                                    : launch_token<Output::f32>(p, plan, stream);
}

void launch_mx_wgrad(const WeightGradientProduct& p, const ProductPlan& plan, cudaStream_t stream) {
    switch (p.output) {
        case ProductOutput::bf16: return launch_wgrad<Output::bf16>(p, plan, stream);
        case ProductOutput::f32: return launch_wgrad<Output::f32>(p, plan, stream);
        case ProductOutput::add_f32: return launch_wgrad<Output::add_f32>(p, plan, stream);
    }
}

}  // namespace octet::cuda
