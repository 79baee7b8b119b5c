// The storing warps of the Hopper product kernel.
#pragma once

#include "cuda/kernels/product_storage.cuh"

namespace octet::cuda {

// A warp of the feeding warpgroup for each multiplying one: fetches the tile's scales while it is multiplied, stores it
// after.
template <class Config>
__device__ void store_tiles(ProductStorage<Config>& storage, const ProductParameters& parameters,
                            const CUtensorMap* out_map, int half) {
    constexpr bool along_k = Config::reduction == Reduction::along_k;
    auto& shared = storage.output[half];
    const int lane = static_cast<int>(threadIdx.x % 32), left_extent = parameters.shape.left_extent;
    const int columns = Config::rows_left && !along_k ? parameters.shape.right_extent : left_extent;  // of the output
    OutputDrainer<typename Config::OutputLayout, Config::right_tile> drainer{shared, storage.chunks[half], out_map,
                                                                             parameters.out, columns};
    TaskReader<Config> tasks{storage};
    ProductTask task = tasks.next();
    // NOTES: one test of `blocks`, inside the loop. With another in front of it, ptxas 13.0 takes the first for all of
    // them and the warp never leaves.
    for (bool first = true;; first = false) {
        // Asked for before waiting on the engine, posted after: neither wait holds up the multiplying warpgroup.
        float left_scales[2], right_scales[Config::right_tile / 32];
        if (Config::scaled_rows && task.blocks >= 0) {
            const int scale_row = task.left_row + half * 64 + lane;
            const float* left =
                parameters.left_scales + static_cast<std::int64_t>(task.group) * left_extent + scale_row;
            const float* right = parameters.right_scales + task.right_row + lane +
                                 (along_k ? 0 : static_cast<std::int64_t>(task.group) * parameters.shape.right_extent);
#pragma unroll
            for (int i = 0; i < 2; ++i) left_scales[i] = scale_row + i * 32 < left_extent ? __ldg(left + i * 32) : 0;
#pragma unroll
            for (int i = 0; i < Config::right_tile / 32; ++i)
                right_scales[i] = lane + i * 32 < task.right_valid ? __ldg(right + i * 32) : 0;
        }
        if (!first) drainer.finish();
        if (task.blocks < 0) break;
        const int left_row = task.left_row + half * 64;
        if constexpr (Config::adds && !Config::columns_halved)
            drainer.fetch(task.right_width, left_row, task.right_row, task.group);
        if constexpr (Config::scaled_rows) {
            // The previous tile was staged, so its scales have been read.
#pragma unroll
            for (int i = 0; i < 2; ++i) shared.left_scales[lane + i * 32] = left_scales[i];
#pragma unroll
            for (int i = 0; i < Config::right_tile / 32; ++i) shared.right_scales[lane + i * 32] = right_scales[i];
            ptx::warp_arrive(&shared.scales_ready);
        }
        if constexpr (Config::columns_halved) {
            const int first = Config::first_columns(task.right_width), right_row = task.right_row + half * first;
            const int width = half == 0 ? first : task.right_width - first, lefts = width > 0 ? Config::left_tile : 0;
            for (int left = 0; Config::adds && left < lefts; left += 64)
                drainer.fetch(width, task.left_row + left, right_row, task.group, left / 64);
            for (int left = 0; left < lefts; left += 64) {
                if constexpr (!Config::adds) drainer.finish();
                drainer.template drain<true>(width, task.left_row + left, right_row, task.right_valid, task.group);
            }
        } else if constexpr (Config::rows_left)
            drainer.drain_columns(task.right_width, task.right_row, left_row,
                                  along_k ? task.left_valid - half * 64 : 64, along_k ? 0 : task.group);
        else
            drainer.template drain<!along_k>(task.right_width, left_row, task.right_row, task.right_valid,
                                             along_k ? 0 : task.group);
        task = tasks.next();
    }
    if (ptx::elect_lane()) ptx::store_wait_all();
}

}  // namespace octet::cuda
