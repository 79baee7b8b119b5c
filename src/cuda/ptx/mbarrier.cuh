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

// The same on a barrier of another block of the cluster.
// NOTES: as it is, without `.release.cluster`, which ptxas makes a fence to the whole GPU. What it orders are reads by
// the tensor cores, which are done.
__device__ __forceinline__ void barrier_arrive_at(std::uint32_t cluster_address) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(cluster_address) : "memory");
}

// A warp arrives by one lane, after all have met. compute-sanitizer's racecheck follows the arriving lane alone, so for
// it every lane arrives (-DOCTET_EVERY_LANE_ARRIVES).
#ifdef OCTET_EVERY_LANE_ARRIVES
constexpr int warp_arrivals = 32;
#else
constexpr int warp_arrivals = 1;
#endif
__device__ __forceinline__ bool lane_arrives() { return warp_arrivals == 32 || threadIdx.x % 32 == 0; }
__device__ __forceinline__ void warp_arrive(Barrier* barrier) {
    __syncwarp();
    if (lane_arrives()) barrier_arrive(barrier);
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

// Whether the phase of this parity is complete, without waiting at all.
__device__ __forceinline__ bool barrier_test(Barrier* barrier, std::uint32_t parity) {
    std::uint32_t done;
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
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
