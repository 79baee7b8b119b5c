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
void launch_product(const ProductMaps& maps, ProductParameters parameters, std::int64_t most_tiles,
                    cudaStream_t stream) {
    using Storage = ProductStorage<Config>;
    static_assert(sizeof(Storage) <= 227 * 1024, "octet: shared memory of one block");
    const auto kernel = sm90_grouped_product<Config>;
    const LaunchDevice device = launch_device();
    if (device.hopper_multiprocessors == 0)
        fail(Status::unsupported, "the Hopper products need compute capability 9.0, which device ", device.index,
             " does not have");
    static OncePerDevice prepared;
    prepared(device.index, [&] {
        check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Storage)),
                   "cudaFuncSetAttribute");
        // What the product leaves of shared memory is for a cast beside it, not for the first cache.
        check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                        cudaSharedmemCarveoutMaxShared),
                   "cudaFuncSetAttribute");
    });
    const auto clusters = static_cast<unsigned>(std::min<std::int64_t>(device.hopper_multiprocessors / Config::cluster,
                                                                       Config::Schedule::most_pieces * most_tiles));
    parameters.shape = Config::Schedule::fill_last_round(parameters.shape, static_cast<int>(clusters));
    // Its barriers are set up while the kernel before it ends: microseconds, but small products have few.
    cudaLaunchAttribute attributes[2]{};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim = {Config::cluster, 1, 1};
    cudaLaunchConfig_t launch{};
    launch.gridDim = clusters * Config::cluster;
    launch.blockDim = Config::threads;
    launch.dynamicSmemBytes = sizeof(Storage);
    launch.stream = stream;
    launch.attrs = attributes;
    launch.numAttrs = Config::cluster > 1 ? 2 : 1;
    check_cuda(cudaLaunchKernelEx(&launch, kernel, maps.left, maps.right, maps.right_full, maps.out, parameters),
               "launch of sm90_grouped_product");
}

template <Element element, Reduction reduction, Output output, Accumulation accumulation,
          Lies left_lies = Lies::along_reduction, Rows rows = Rows::right>
void launch_product(const ProductMaps& maps, const ProductParameters& parameters, const ProductPlan& plan,
                    std::int64_t most_tiles, cudaStream_t stream) {
    const auto launch_with = [&]<int right_tile, int slots, int cluster = 1>() {
        launch_product<
            ProductConfig<element, reduction, left_lies, output, accumulation, right_tile, slots, rows, cluster>>(
            maps, parameters, most_tiles, stream);
    };
    const auto is = [&](int right_tile, int slots, int cluster = 1) {
        return plan.right_tile == right_tile && plan.slots == slots && plan.cluster == cluster;
    };
    constexpr bool may_share = output == Output::bf16 && reduction == Reduction::along_k && rows == Rows::right &&
                               (element == Element::e4m3 || element == Element::e4m3_e5m2);
    if constexpr (output == Output::add_f32) {
        if (is(192, 3)) return launch_with.template operator()<192, 3>();
    } else if constexpr (output == Output::reduce_f32 && accumulation == Accumulation::promoted) {
        // Its tiles are no wider than those that leave room for the old one.
    } else if constexpr (accumulation == Accumulation::blocks) {
        constexpr int right_tile = reduction == Reduction::along_k ? 192 : 224;
        constexpr int slots = reduction == Reduction::along_k || output == Output::bf16 ? 4 : 3;
        constexpr int cluster = reduction == Reduction::along_k ? 2 : 1;
        if (is(right_tile, slots, cluster)) return launch_with.template operator()<right_tile, slots, cluster>();
    } else if constexpr (accumulation == Accumulation::promoted) {
        if (is(192, 4)) return launch_with.template operator()<192, 4>();
        if constexpr (may_share)
            if (is(192, 4, 2)) return launch_with.template operator()<192, 4, 2>();
    } else {
        if (is(256, 3)) return launch_with.template operator()<256, 3>();
        if constexpr (may_share) {
            if (is(256, 3, 2)) return launch_with.template operator()<256, 3, 2>();
            if (is(256, 4, 2)) return launch_with.template operator()<256, 4, 2>();
        }
        if constexpr (output == Output::bf16 && reduction == Reduction::along_k && rows == Rows::right)
            if (is(256, 4)) return launch_with.template operator()<256, 4>();
    }
    fail(Status::unsupported, "no product kernel was built for right tiles of ", plan.right_tile, ", ", plan.slots,
         " slots and clusters of ", plan.cluster);
}

// Calls launch.operator()<output>() with what a wgrad's output is to the kernel.
template <class Launch>
void launch_output(const WeightGradientProduct& p, const ProductPlan& plan, Launch launch) {
    switch (p.output) {
        case ProductOutput::bf16: return launch.template operator()<Output::bf16>();
        case ProductOutput::f32: return launch.template operator()<Output::f32>();
        case ProductOutput::add_f32:
            return plan.right_tile > 192 ? launch.template operator()<Output::reduce_f32>()
                                         : launch.template operator()<Output::add_f32>();
    }
}

// Output map: boxes of `box_rows` rows, 128 bytes wide.
inline CUtensorMap make_output_map(ProductOutput output, void* out, std::int64_t batches, std::int64_t rows,
                                   std::int64_t columns, int box_rows = 32) {
    const bool bf16 = output != ProductOutput::f32 && output != ProductOutput::add_f32;
    return make_tensor_map({"output", out, bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
                            bf16 ? 2 : 4, batches, rows, columns, box_rows, bf16 ? 64 : 32});
}

// The tokens are on the right, so that groups are cut into tiles of any width, but for
//   - fp8_blockwise: a scale for every token and block of the reduction, one for 128 x 128 weights. With the tokens as
//     columns every lane would read a scale for two of its accumulators, from shared memory that the tensor cores keep
//     busy already; as rows they are two scales a lane;
//   - mxfp8 whose weights are the smaller operand: a pass decodes the right one.
inline Rows tokens_on(const TokenGroupedProduct& p) {
    const bool left =
        p.recipe == ProductRecipe::fp8_blockwise || (p.recipe == ProductRecipe::mxfp8 && mx_decodes_weights(p));
    return left ? Rows::left : Rows::right;
}

inline ProductParameters parameters_of(const TokenGroupedProduct& p, const ProductPlan& plan) {
    const int k = static_cast<int>(p.k);
    const bool left = tokens_on(p) == Rows::left;
    return {
        {p.ends, static_cast<int>(p.e), static_cast<int>(p.m), static_cast<int>(p.n), 0, k, k, false, 1, 1, plan.band},
        left ? p.a_inverse : p.w_inverse,
        left ? p.w_inverse : p.a_inverse,
        static_cast<const std::uint8_t*>(left ? p.a_scale : p.w_scale),
        static_cast<int>(p.recipe == ProductRecipe::mxfp8 ? (p.k + 31) / 32 : (p.k + 127) / 128),
        p.out};
}

// The gradients are on the right, but for mxfp8 whose activations are the smaller operand.
inline Rows gradients_on(const WeightGradientProduct& p) {
    return p.recipe == ProductRecipe::mxfp8 && mx_gradients_left(p) ? Rows::left : Rows::right;
}

inline ProductParameters parameters_of(const WeightGradientProduct& p, const ProductPlan& plan) {
    const bool bf16 = p.recipe == ProductRecipe::bf16, left = gradients_on(p) == Rows::left;  // mxfp8: padded alike
    ProductParameters parameters = {
        {p.ends, static_cast<int>(p.e), static_cast<int>(p.m), static_cast<int>(left ? p.n : p.k),
         static_cast<int>(left ? p.k : p.n), static_cast<int>(bf16 ? p.m : p.a_padded),
         static_cast<int>(bf16 ? p.m : p.dy_padded), p.output == ProductOutput::add_f32,
         static_cast<int>(p.a_alignment), static_cast<int>(p.dy_alignment), plan.band},
        p.a_inverse,
        p.dy_inverse,
        static_cast<const std::uint8_t*>(left ? p.dy_scale : p.a_scale),
        static_cast<int>(p.recipe == ProductRecipe::mxfp8 ? p.a_padded / 32 : p.a_padded / 128),
        p.dw};
    parameters.tickets = p.tickets;
    return parameters;
}

// The most tiles any split of the tokens can give.
inline std::int64_t most_tiles(const TokenGroupedProduct& p, const ProductPlan& plan) {
    const bool left = tokens_on(p) == Rows::left;
    const std::int64_t token_tile = left ? 128 : plan.right_tile, weight_tile = left ? plan.right_tile : 128;
    return (p.m / token_tile + std::min(p.m, p.e)) * ((p.n + weight_tile - 1) / weight_tile);
}
inline std::int64_t most_tiles(const WeightGradientProduct& p, const ProductPlan& plan) {
    const bool left = gradients_on(p) == Rows::left;
    const std::int64_t right_rows = left ? p.k : p.n, left_rows = left ? p.n : p.k;
    return p.e * ((right_rows + plan.right_tile - 1) / plan.right_tile) * ((left_rows + 127) / 128);
}

}  // namespace octet::cuda
