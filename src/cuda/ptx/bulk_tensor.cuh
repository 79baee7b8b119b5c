// The bulk tensor copy engine (TMA). Coordinates are in elements, innermost first; every map here has three axes.
#pragma once

#include <cuda.h>

#include "cuda/ptx/arch.cuh"
#include "cuda/ptx/mbarrier.cuh"

namespace octet::cuda::ptx {

__device__ __forceinline__ void tensor_map_prefetch(const CUtensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

__device__ __forceinline__ void tensor_load(void* shared, const CUtensorMap* map, Barrier* arrived, int x, int y,
                                            int z) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::
            "r"(shared_address(shared)),
        "l"(map), "r"(shared_address(arrived)), "r"(x), "r"(y), "r"(z)
        : "memory");
}

// To the same place in all blocks of the cluster that have a bit in `blocks`, and to the barriers there.
__device__ __forceinline__ void tensor_load_to(std::uint16_t blocks, void* shared, const CUtensorMap* map,
                                               Barrier* arrived, int x, int y, int z) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, "
        "{%3, %4, %5}], [%2], %6;" ::"r"(shared_address(shared)),
        "l"(map), "r"(shared_address(arrived)), "r"(x), "r"(y), "r"(z), "h"(blocks)
        : "memory");
}

__device__ __forceinline__ void tensor_store(const CUtensorMap* map, const void* shared, int x, int y, int z) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
                 "r"(shared_address(shared)), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

// Adds the shared tile to what is in memory, in the map's element type.
__device__ __forceinline__ void tensor_reduce_add(const CUtensorMap* map, const void* shared, int x, int y, int z) {
    asm volatile(
        "cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
        "r"(shared_address(shared)), "r"(x), "r"(y), "r"(z)
        : "memory");
}

__device__ __forceinline__ void store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Until at most `Pending` of this thread's groups still have to read shared memory.
template <int Pending>
__device__ __forceinline__ void store_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}

// Until all of this thread's groups are done.
__device__ __forceinline__ void store_wait_all() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// Orders this thread's ordinary shared-memory writes before what the copy engine or the tensor cores do next.
__device__ __forceinline__ void shared_to_async_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

}  // namespace octet::cuda::ptx
