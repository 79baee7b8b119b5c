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

template <class Config>
void launch_product(const ProductMaps& maps, const ProductParameters& parameters, std::int64_t most_tiles,
                    cudaStream_t stream) {
    using Storage = ProductStorage<Config>;
    static_assert(sizeof(Storage) <= 227 * 1024, "octet: shared memory of one block");
    const auto kernel = sm90_grouped_product<Config>;
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Storage)),
               "cudaFuncSetAttribute");
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

template <Element element, Reduction reduction, Output output, Accumulation accumulation,
          Lies left_lies = Lies::along_reduction>
void launch_product(const ProductMaps& maps, const ProductParameters& parameters, const ProductPlan& plan,
                    std::int64_t most_tiles, cudaStream_t stream) {
    const auto launch_with = [&]<int cluster, int right_tile, int slots>() {
        launch_product<ProductConfig<element, reduction, left_lies, output, accumulation, right_tile, cluster, slots>>(
            maps, parameters, most_tiles, stream);
    };
    const auto is = [&](int cluster, int right_tile, int slots) {
        return plan.cluster == cluster && plan.right_tile == right_tile && plan.slots == slots;
    };
    if constexpr (element == Element::mx) {
        if (is(1, 192, 3)) return launch_with.template operator()<1, 192, 3>();
    } else if constexpr (accumulation == Accumulation::blocks) {
        if (is(1, 160, 4)) return launch_with.template operator()<1, 160, 4>();
    } else if constexpr (accumulation == Accumulation::promoted) {
        if (is(1, 192, 4)) return launch_with.template operator()<1, 192, 4>();
    } else {
        if (is(1, 256, 3)) return launch_with.template operator()<1, 256, 3>();
        if constexpr (output == Output::bf16 && reduction == Reduction::along_k)
            if (is(1, 256, 4)) return launch_with.template operator()<1, 256, 4>();
        if constexpr (output == Output::bf16 && element == Element::e4m3)
            if (is(2, 256, 3)) return launch_with.template operator()<2, 256, 3>();
    }
    fail(Status::unsupported, "no product kernel was built for cluster ", plan.cluster, ", right tile ",
         plan.right_tile, ", slots ", plan.slots);
}

// Output map: boxes of 32 rows, 128 bytes wide.
inline CUtensorMap make_output_map(ProductOutput output, void* out, std::int64_t batches, std::int64_t rows,
                                   std::int64_t columns) {
    const bool bf16 = output == ProductOutput::bf16;
    return make_tensor_map({"output", out, bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
                            bf16 ? 2 : 4, batches, rows, columns, 32, bf16 ? 64 : 32});
}

inline ProductParameters parameters_of(const TokenGroupedProduct& p, const ProductPlan& plan) {
    return {{p.ends, static_cast<int>(p.e), static_cast<int>(p.m), static_cast<int>(p.n), 0, static_cast<int>(p.k),
             false, 1, plan.band},
            p.w_inverse,
            p.a_inverse,
            static_cast<const std::uint8_t*>(p.w_scale),
            static_cast<const std::uint8_t*>(p.a_scale),
            static_cast<int>(p.recipe == ProductRecipe::mxfp8 ? (p.k + 31) / 32 : (p.k + 127) / 128),
            p.out};
}

inline ProductParameters parameters_of(const WeightGradientProduct& p, const ProductPlan& plan) {
    return {{p.ends, static_cast<int>(p.e), static_cast<int>(p.m), static_cast<int>(p.k), static_cast<int>(p.n),
             static_cast<int>(p.recipe == ProductRecipe::bf16 ? p.m : p.padded), p.output == ProductOutput::add_f32,
             static_cast<int>(p.alignment), plan.band},
            p.a_inverse,
            p.dy_inverse,
            static_cast<const std::uint8_t*>(p.a_scale),
            static_cast<const std::uint8_t*>(p.dy_scale),
            static_cast<int>(p.recipe == ProductRecipe::mxfp8 ? p.padded / 32 : p.padded / 128),
            p.dw};
}

// The most tiles any split of the tokens can give.
inline std::int64_t most_tiles(const TokenGroupedProduct& p, int right_tile) {
    return (p.m / right_tile + std::min(p.m, p.e)) * ((p.n + 127) / 128);
}
inline std::int64_t most_tiles(const WeightGradientProduct& p, int right_tile) {
    return p.e * ((p.n + right_tile - 1) / right_tile) * ((p.k + 127) / 128);
}

}  // namespace octet::cuda
