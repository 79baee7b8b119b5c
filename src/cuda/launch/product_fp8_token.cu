// fp8_rowwise and fp8_blockwise, token-grouped (forward and dgrad): left = weights, right = tokens.
#include "cuda/launch/product_kernels.hpp"
#include "cuda/launch/product_launch.cuh"

namespace octet::cuda {
namespace {

template <Output output, Accumulation accumulation>
void launch_instance(const TokenGroupedProduct& p, const ProductPlan& plan, cudaStream_t stream) {
    const int tile = plan.right_tile;
    const auto map = [](const char* what, const void* data, std::int64_t batches, std::int64_t rows,
                        std::int64_t columns, int box_rows) {
        return make_tensor_map({what, data, CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, batches, rows, columns, box_rows, 128});
    };
    const ProductMaps maps = {map("w", p.w, p.e, p.n, p.k, 128), map("a", p.a, 1, p.m, p.k, 32),
                              map("a", p.a, 1, p.m, p.k, tile / 2), make_output_map(p.output, p.out, 1, p.m, p.n)};
    launch_product<Element::e4m3, Reduction::along_k, output, accumulation>(maps, parameters_of(p, plan), plan,
                                                                            most_tiles(p, tile), stream);
}

}  // namespace

void launch_fp8_token(const TokenGroupedProduct& p, const ProductPlan& plan, cudaStream_t stream) {
    const auto launch_accumulation = [&]<Accumulation accumulation>() {
        if (p.output == ProductOutput::bf16)
            launch_instance<Output::bf16, accumulation>(p, plan, stream);
        else
            launch_instance<Output::f32, accumulation>(p, plan, stream);
    };
    if (p.recipe == ProductRecipe::fp8_blockwise)
        launch_accumulation.template operator()<Accumulation::blocks>();
    else if (p.accumulation == ProductAccumulation::fast)
        launch_accumulation.template operator()<Accumulation::fast>();
    else
        launch_accumulation.template operator()<Accumulation::promoted>();
}

}  // namespace octet::cuda
