// Launches one instance of the Hopper product kernel.
#pragma once

#include <algorithm>

#include "cuda/kernels/sm90_grouped_product.cuh"
#include "cuda/launch/product.hpp"
#include "cuda/launch/product_tensor_map.hpp"
#include "octet/error.hpp"

namespace octet::cuda {

struct ProductMaps {
    CUtensorMap left, right, right_full, out;
};

// Right rows of a tile: two sets of accumulators (promoted) leave room for fewer.
constexpr int right_tile_of(Accumulation accumulation) { return accumulation == Accumulation::fast ? 256 : 192; }

template <class Config>
void launch_product(const ProductMaps& maps, const ProductParameters& parameters, std::int64_t most_tiles, cudaStream_t stream) {
    using Storage = ProductStorage<Config>;
    static_assert(sizeof(Storage) <= 227 * 1024, "octet: shared memory of one block");
    const auto kernel = sm90_grouped_product<Config>;
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Storage)), "cudaFuncSetAttribute");
    const int blocks = hopper_multiprocessors() / Config::cluster * Config::cluster;
    const std::int64_t wanted = (most_tiles + Config::cluster - 1) / Config::cluster * Config::cluster;

    cudaLaunchAttribute cluster{};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {Config::cluster, 1, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(std::min<std::int64_t>(blocks, wanted)));
    config.blockDim = dim3(Config::threads);
    config.dynamicSmemBytes = sizeof(Storage);
    config.stream = stream;
    config.attrs = &cluster;
    config.numAttrs = 1;
    check_cuda(cudaLaunchKernelEx(&config, kernel, maps.left, maps.right, maps.right_full, maps.out, parameters),
               "launch of sm90_grouped_product");
}

template <Element element, Reduction reduction, Output output, Accumulation accumulation>
void launch_product(const ProductMaps& maps, const ProductParameters& parameters, const ProductPlan& plan,
                    std::int64_t most_tiles, cudaStream_t stream) {
    constexpr int right_tile = right_tile_of(accumulation);
    if (plan.cluster == 2)
        launch_product<ProductConfig<element, reduction, output, accumulation, right_tile, 2>>(maps, parameters, most_tiles, stream);
    else
        launch_product<ProductConfig<element, reduction, output, accumulation, right_tile, 1>>(maps, parameters, most_tiles, stream);
}

// Output map: boxes of 32 rows, 128 bytes wide.
inline CUtensorMap make_output_map(ProductOutput output, void* out, std::int64_t batches, std::int64_t rows, std::int64_t columns) {
    const bool bf16 = output == ProductOutput::bf16;
    return make_tensor_map({"output", out, bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
                            bf16 ? 2 : 4, batches, rows, columns, 32, bf16 ? 64 : 32});
}

inline ProductParameters parameters_of(const TokenGroupedProduct& p, const ProductPlan& plan) {
    return {{p.ends, static_cast<int>(p.e), static_cast<int>(p.m), static_cast<int>(p.n), 0, static_cast<int>(p.k), plan.band},
            p.w_inverse, p.a_inverse, p.out};
}

inline ProductParameters parameters_of(const WeightGradientProduct& p, const ProductPlan& plan) {
    return {{p.ends, static_cast<int>(p.e), static_cast<int>(p.m), static_cast<int>(p.k), static_cast<int>(p.n), 0, plan.band},
            p.a_inverse, p.dy_inverse, p.dw};
}

// The most tiles any split of the tokens can give.
inline std::int64_t most_tiles(const TokenGroupedProduct& p, int right_tile) {
    return (p.m / right_tile + std::min(p.m, p.e)) * ((p.n + 127) / 128);
}
inline std::int64_t most_tiles(const WeightGradientProduct& p, int right_tile) {
    return p.e * ((p.n + right_tile - 1) / right_tile) * ((p.k + 127) / 128);
}

}  // namespace octet::cuda
