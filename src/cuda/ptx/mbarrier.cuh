// mbarrier: arrivals and expected bytes, waited on by phase parity.
#pragma once

#include "cuda/ptx/arch.cuh"

namespace octet::cuda::ptx {

using Barrier = std::uint64_t;  // lives in shared memory, 8-byte aligned

__device__ __forceinline__ void barrier_init(Barrier* barrier, std::uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

// Makes the initialised barriers visible to the copy engine and to the other blocks of the cluster.
__device__ __forceinline__ void barrier_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(Barrier* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Arrives on the barrier at the same place in block `rank` of the cluster (which may be this block). It says "I have
// read", not "I have written": cluster-wide release order would cost a fence of the whole GPU at every arrival.
__device__ __forceinline__ void barrier_arrive_at(Barrier* barrier, std::uint32_t rank) {
    std::uint32_t remote;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address(barrier)), "r"(rank));
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(remote) : "memory");
}

__device__ __forceinline__ void barrier_arrive_expect(Barrier* barrier, std::uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ bool barrier_try_wait(Barrier* barrier, std::uint32_t parity) {
    std::uint32_t done;
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
    return done != 0;
}

// Returns once the phase of this parity is complete. A fresh barrier counts as having completed parity 1.
__device__ __forceinline__ void barrier_wait(Barrier* barrier, std::uint32_t parity) {
    while (!barrier_try_wait(barrier, parity)) {
    }
}

}  // namespace octet::cuda::ptx
