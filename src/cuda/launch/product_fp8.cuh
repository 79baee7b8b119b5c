// fp8_rowwise and fp8_blockwise products of one pair of element types.
#pragma once

#include "cuda/launch/product_kernels.hpp"
#include "cuda/launch/product_launch.cuh"

namespace octet::cuda {

// Token-grouped (forward and dgrad): left = weights, right = tokens; blockwise the other way round.
template <Element element, Output output, Accumulation accumulation>
void launch_fp8_instance(const TokenGroupedProduct& p, const ProductPlan& plan, cudaStream_t stream) {
    const int tile = plan.right_tile;
    const auto map = [&](const char* what, const void* data, std::int64_t batches, std::int64_t rows, int box_rows,
                         std::int64_t pitch) {
        return make_tensor_map(
            {what, data, CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, batches, rows, p.k, box_rows, 128, pitch});
    };
    const auto tokens = [&](int box_rows) { return map("a", p.a, 1, p.m, box_rows, p.a_pitch); };
    const auto weights = [&](int box_rows) { return map("w", p.w, p.e, p.n, box_rows, p.w_pitch); };
    const CUtensorMap out = make_output_map(p.output, p.out, 1, p.m, p.n);
    const ProductMaps maps = accumulation == Accumulation::blocks
                                 ? ProductMaps{tokens(128), weights(32), weights(tile / 2), out}
                                 : ProductMaps{weights(128), tokens(32), tokens(tile / 2), out};
    constexpr Rows tokens_lie = accumulation == Accumulation::blocks ? Rows::left : Rows::right;
    launch_product<element, Reduction::along_k, output, accumulation, Lies::along_reduction, tokens_lie>(
        maps, parameters_of(p, plan), plan, most_tiles(p, plan), stream);
}

template <Element element>
void launch_fp8_as(const TokenGroupedProduct& p, const ProductPlan& plan, cudaStream_t stream) {
    const auto launch_accumulation = [&]<Accumulation accumulation>() {
        if (p.output == ProductOutput::bf16)
            launch_fp8_instance<element, Output::bf16, accumulation>(p, plan, stream);
        else if (p.output == ProductOutput::add_bf16)
            launch_fp8_instance<element, Output::reduce_bf16, accumulation>(p, plan, stream);
        else
            launch_fp8_instance<element, Output::f32, accumulation>(p, plan, stream);
    };
    if (p.recipe == ProductRecipe::fp8_blockwise)
        launch_accumulation.template operator()<Accumulation::blocks>();
    else if (p.accumulation == ProductAccumulation::fast)
        launch_accumulation.template operator()<Accumulation::fast>();
    else
        launch_accumulation.template operator()<Accumulation::promoted>();
}

// wgrad: left = activations [K, P], right = gradients [N, P], tokens contiguous in both.
template <Element element, Output output, Accumulation accumulation>
void launch_fp8_instance(const WeightGradientProduct& p, const ProductPlan& plan, cudaStream_t stream) {
    constexpr int stored_rows = accumulation == Accumulation::blocks ? 16 : 32;
    const auto map = [](const char* what, const void* data, std::int64_t rows, std::int64_t columns, int box_rows) {
        return make_tensor_map({what, data, CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, 1, rows, columns, box_rows, 128});
    };
    const ProductMaps maps = {map("a", p.a, p.k, p.a_padded, 128), map("dy", p.dy, p.n, p.dy_padded, 32),
                              map("dy", p.dy, p.n, p.dy_padded, plan.right_tile / 2),
                              make_output_map(p.output, p.dw, p.e, p.n, p.k, stored_rows)};
    launch_product<element, Reduction::along_padded_tokens, output, accumulation>(maps, parameters_of(p, plan), plan,
                                                                                  most_tiles(p, plan), stream);
}

template <Element element, Accumulation accumulation>
void launch_fp8_output(const WeightGradientProduct& p, const ProductPlan& plan, cudaStream_t stream) {
    launch_output(p, plan,
                  [&]<Output output>() { launch_fp8_instance<element, output, accumulation>(p, plan, stream); });
}

template <Element element>
void launch_fp8_as(const WeightGradientProduct& p, const ProductPlan& plan, cudaStream_t stream) {
    if (p.recipe == ProductRecipe::fp8_blockwise)
        launch_fp8_output<element, Accumulation::blocks>(p, plan, stream);
    else if (p.accumulation == ProductAccumulation::fast)
        launch_fp8_output<element, Accumulation::fast>(p, plan, stream);
    else
        launch_fp8_output<element, Accumulation::promoted>(p, plan, stream);
}

}  // namespace octet::cuda
