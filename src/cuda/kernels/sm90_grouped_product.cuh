// Grouped matrix product on Hopper: out[right, left] = left_scale * right_scale * sum over the reduction of left .
// right.
//
//   forward, dgrad   left = weights of the group's expert    right = tokens                  reduction = K
//   wgrad            left = activations, transposed           right = gradients, transposed   reduction = the group's
//   tokens
//
// The weights, not the tokens, are the tensor cores' 64-row operand: their 64-row granularity then falls on N or K,
// which are multiples of 128 in practice, and a group of any size is cut into tiles whose width is any multiple of 32.
//
// One block a multiprocessor, resident (or two to a cluster, see ProductConfig); warpgroup 0 feeds and stores,
// warpgroups 1 and 2 multiply (64 left rows each).
#pragma once

#include "cuda/kernels/product_feed.cuh"
#include "cuda/kernels/product_multiply.cuh"
#include "cuda/kernels/product_store.cuh"
#include "cuda/ptx/dependent_launch.cuh"

namespace octet::cuda {

// left_map: box 128 bytes x 128 rows; right_map: box 128 bytes x 32 rows; right_full_map: box 128 bytes x right_tile/2
// rows (panels: box 64 columns x 64 steps of the reduction). out_map: box 128 bytes x 32 rows. All with the 128-byte
// swizzle.
template <class Config>
__global__ void __maxnreg__(Config::registers)
    sm90_grouped_product(const __grid_constant__ CUtensorMap left_map, const __grid_constant__ CUtensorMap right_map,
                         const __grid_constant__ CUtensorMap right_full_map,
                         const __grid_constant__ CUtensorMap out_map,
                         const __grid_constant__ ProductParameters parameters) {
    extern __shared__ __align__(1024) std::uint8_t shared_bytes[];
    if (ptx::shared_address(shared_bytes) % 1024 != 0) __trap();  // the swizzle would silently permute differently
    auto& storage = *reinterpret_cast<ProductStorage<Config>*>(shared_bytes);
    const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x / 32), 0);

    if (threadIdx.x == 0) {
        for (int slot = 0; slot < Config::slots; ++slot) {
            ptx::barrier_init(&storage.tiles_arrived[slot], Config::tile_arrivals);
            ptx::barrier_init(&storage.tiles_free[slot],
                              Config::cluster * 8 * ptx::warp_arrivals);  // multiplying warps
        }
        for (int slot = 0; slot < ProductStorage<Config>::tasks_ahead; ++slot) {
            ptx::barrier_init(&storage.task_posted[slot], 1);
            ptx::barrier_init(&storage.task_read[slot], Config::task_readers * ptx::warp_arrivals);
        }
        ptx::barrier_init(&storage.task_begun, 1);
        for (auto& output : storage.output) output.init();
        ptx::barrier_init_fence();
        ptx::tensor_map_prefetch(&left_map);
        ptx::tensor_map_prefetch(&right_map);
        ptx::tensor_map_prefetch(&right_full_map);
        ptx::tensor_map_prefetch(&out_map);
    }
    if constexpr (Config::cluster > 1)
        ptx::cluster_sync();
    else
        __syncthreads();
    ptx::await_previous_kernels();
    ptx::let_next_kernel_start();  // not sooner: a cast that runs beside this product reads what came before it

    if (warp < 4) {
        ptx::registers_shrink<Config::feed_registers>();
        if (warp == 1)
            post_tasks<Config>(storage, parameters);
        else if (warp >= 2)
            store_tiles<Config>(storage, parameters, &out_map, warp - 2);
        else
            feed<Config>(storage, {&left_map, &right_map, &right_full_map}, parameters);
    } else {
        ptx::registers_grow<Config::multiply_registers>();
        // Uniform over the warp, and known to be: the descriptors then live in uniform registers.
        const int half = __shfl_sync(~0u, warp / 4 - 1, 0);
        bool single_factor = false;
        if constexpr (Config::decoded) single_factor = no_large_exponents(parameters.large_exponents);
        Multiplier<Config>{storage, half, single_factor, {storage.output[half], storage.chunks[half]}}.run();
    }
    if constexpr (Config::cluster > 1) ptx::cluster_sync();  // nobody leaves while the other arrives on its barriers
}

}  // namespace octet::cuda
