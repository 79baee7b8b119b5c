// Clusters: blocks that run at the same time and reach each other's shared memory.
#pragma once

#include "cuda/ptx/arch.cuh"

namespace octet::cuda::ptx {

// Of this block in its cluster.
__device__ __forceinline__ int cluster_rank() {
    std::uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return static_cast<int>(rank);
}

// All threads of all blocks of the cluster.
__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
}

// Where the block of that rank has what lies at `pointer` in this one.
__device__ __forceinline__ std::uint32_t cluster_address(const void* pointer, int rank) {
    std::uint32_t address;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(pointer)), "r"(rank));
    return address;
}

}  // namespace octet::cuda::ptx
