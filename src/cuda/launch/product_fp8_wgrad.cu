// fp8_rowwise and fp8_blockwise wgrad: left = activations [K, P], right = gradients [N, P], tokens contiguous in both.
#include "cuda/launch/product_kernels.hpp"
#include "cuda/launch/product_launch.cuh"

namespace octet::cuda {
namespace {

template <Output output, Accumulation accumulation>
void launch_instance(const WeightGradientProduct& p, const ProductPlan& plan, cudaStream_t stream) {
    const int tile = plan.right_tile;
    const auto map = [&](const char* what, const void* data, std::int64_t rows, int box_rows) {
        return make_tensor_map({what, data, CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, 1, rows, p.padded, box_rows, 128});
    };
    const ProductMaps maps = {map("a", p.a, p.k, 128), map("dy", p.dy, p.n, 32), map("dy", p.dy, p.n, tile / 2),
                              make_output_map(p.output, p.dw, p.e, p.n, p.k)};
    launch_product<Element::e4m3, Reduction::along_padded_tokens, output, accumulation>(
        maps, parameters_of(p, plan), plan, most_tiles(p, tile), stream);
}

template <Accumulation accumulation>
void launch_output(const WeightGradientProduct& p, const ProductPlan& plan, cudaStream_t stream) {
    switch (p.output) {
        case ProductOutput::bf16: return launch_instance<Output::bf16, accumulation>(p, plan, stream);
        case ProductOutput::f32: return launch_instance<Output::f32, accumulation>(p, plan, stream);
        case ProductOutput::add_f32: return launch_instance<Output::add_f32, accumulation>(p, plan, stream);
    }
}

}  // namespace

void launch_fp8_wgrad(const WeightGradientProduct& p, const ProductPlan& plan, cudaStream_t stream) {
    if (p.recipe == ProductRecipe::fp8_blockwise)
        launch_output<Accumulation::blocks>(p, plan, stream);
    else if (p.accumulation == ProductAccumulation::fast)
        launch_output<Accumulation::fast>(p, plan, stream);
    else
        launch_output<Accumulation::promoted>(p, plan, stream);
}

}  // namespace octet::cuda
