// The generic grouped product: every recipe, any shape.
#include <algorithm>

#include "cuda/kernels/generic_grouped_product.cuh"
#include "cuda/launch/product_kernels.hpp"
#include "cuda/launch/product_tensor_map.hpp"
#include "octet/error.hpp"

namespace octet::cuda {
namespace {

constexpr int all = 1 << 30;  // a scale for every step

std::int64_t blocks(std::int64_t extent, int block) { return (extent + block - 1) / block; }

template <Reduction reduction>
void launch_generic(const GenericOperand& left, const GenericOperand& right, const ProductShape& shape, void* out,
                    ProductOutput output, std::int64_t most_tiles, cudaStream_t stream) {
    int device = 0, count = 0;
    check_cuda(cudaGetDevice(&device), "cudaGetDevice");
    check_cuda(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
    const auto grid = static_cast<unsigned>(std::min<std::int64_t>(most_tiles, 8 * count));
    generic_grouped_product<reduction>
        <<<grid, generic_threads, 0, stream>>>(left, right, shape, out, static_cast<GenericOutput>(output));
    check_cuda(cudaGetLastError(), "launch of generic_grouped_product");
}
static_assert(static_cast<int>(GenericOutput::add_f32) == static_cast<int>(ProductOutput::add_f32) &&
              static_cast<int>(GenericOutput::bf16) == static_cast<int>(ProductOutput::bf16));

}  // namespace

void launch_generic_token(const TokenGroupedProduct& p, cudaStream_t stream) {
    const auto format = p.recipe == ProductRecipe::bf16 ? GenericFormat::bf16 : GenericFormat::e4m3;
    GenericOperand w{p.w, format, p.n * p.k, p.k, 1, nullptr, GenericScale::none, 0, 0, 0, 1, all};
    GenericOperand a{p.a, format, 0, p.k, 1, nullptr, GenericScale::none, 0, 0, 0, 1, all};
    const auto scaled = [](GenericOperand& operand, const void* scales, GenericScale scale, std::int64_t group_stride,
                           std::int64_t row_stride, std::int64_t block_stride, int rows, int steps) {
        operand.scales = scales;
        operand.scale_format = scale;
        operand.scale_group_stride = group_stride;
        operand.scale_row_stride = row_stride;
        operand.scale_block_stride = block_stride;
        operand.scale_rows = rows;
        operand.scale_steps = steps;
    };
    if (p.recipe == ProductRecipe::fp8_rowwise) {
        scaled(w, p.w_inverse, GenericScale::f32, p.n, 1, 0, 1, all);
        scaled(a, p.a_inverse, GenericScale::f32, 0, 1, 0, 1, all);
    } else if (p.recipe == ProductRecipe::fp8_blockwise) {
        scaled(w, p.w_inverse, GenericScale::f32, blocks(p.n, 128) * blocks(p.k, 128), blocks(p.k, 128), 1, 128, 128);
        scaled(a, p.a_inverse, GenericScale::f32, 0, 1, p.m, 1, 128);
    } else if (p.recipe == ProductRecipe::mxfp8) {
        scaled(w, p.w_scale, GenericScale::e8m0, p.n * blocks(p.k, 32), blocks(p.k, 32), 1, 1, 32);
        scaled(a, p.a_scale, GenericScale::e8m0, 0, blocks(p.k, 32), 1, 1, 32);
    }
    const ProductShape shape = {
        p.ends, static_cast<int>(p.e), static_cast<int>(p.m), static_cast<int>(p.n), 0, static_cast<int>(p.k), false,
        16};
    const std::int64_t most_tiles = (p.m / generic_tile + std::min(p.m, p.e)) * blocks(p.n, generic_tile);
    launch_generic<Reduction::along_k>(w, a, shape, p.out, p.output, most_tiles, stream);
}

void launch_generic_wgrad(const WeightGradientProduct& p, cudaStream_t stream) {
    const bool bf16 = p.recipe == ProductRecipe::bf16;
    const bool adds = p.output == ProductOutput::add_f32;
    const std::int64_t most_tiles = p.e * blocks(p.n, generic_tile) * blocks(p.k, generic_tile);
    if (bf16) {  // tokens are rows
        const GenericOperand a{p.a, GenericFormat::bf16, 0, 1, p.k, nullptr, GenericScale::none, 0, 0, 0, 1, all};
        const GenericOperand dy{p.dy, GenericFormat::bf16, 0, 1, p.n, nullptr, GenericScale::none, 0, 0, 0, 1, all};
        const ProductShape shape = {p.ends,
                                    static_cast<int>(p.e),
                                    static_cast<int>(p.m),
                                    static_cast<int>(p.k),
                                    static_cast<int>(p.n),
                                    static_cast<int>(p.m),
                                    adds,
                                    16};
        return launch_generic<Reduction::along_tokens>(a, dy, shape, p.dw, p.output, most_tiles, stream);
    }
    const auto operand = [&](const void* data, const float* inverse, const void* scale, std::int64_t rows) {
        GenericOperand made{data, GenericFormat::e4m3, 0, p.padded, 1, inverse, GenericScale::f32, rows, 1, 0, 1, all};
        if (p.recipe == ProductRecipe::fp8_rowwise) return made;
        const bool mx = p.recipe == ProductRecipe::mxfp8;
        made.scales = mx ? scale : inverse;
        made.scale_format = mx ? GenericScale::e8m0 : GenericScale::f32;
        made.scale_group_stride = 0;  // blocks are counted from the start of the buffer; groups start on a block
        made.scale_steps = mx ? 32 : 128;
        made.scale_row_stride = mx ? p.padded / 32 : 1;
        made.scale_block_stride = mx ? 1 : rows;
        return made;
    };
    const ProductShape shape = {p.ends,
                                static_cast<int>(p.e),
                                static_cast<int>(p.m),
                                static_cast<int>(p.k),
                                static_cast<int>(p.n),
                                static_cast<int>(p.padded),
                                adds,
                                16};
    launch_generic<Reduction::along_padded_tokens>(operand(p.a, p.a_inverse, p.a_scale, p.k),
                                                   operand(p.dy, p.dy_inverse, p.dy_scale, p.n), shape, p.dw, p.output,
                                                   most_tiles, stream);
}

}  // namespace octet::cuda
