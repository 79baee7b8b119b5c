// Asynchronous copies of single words, completing on an mbarrier.
#pragma once

#include "cuda/ptx/arch.cuh"
#include "cuda/ptx/mbarrier.cuh"

namespace octet::cuda::ptx {

// Copies one 32-bit word, or writes zero where `valid` is false (`from` is then not read).
__device__ __forceinline__ void copy_word(void* shared, const void* from, bool valid) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(shared)), "l"(from),
                 "r"(valid ? 4 : 0)
                 : "memory");
}

// Arrives on the barrier once all copies this thread has asked for are done. Counts as one of the barrier's arrivals.
__device__ __forceinline__ void copy_words_arrive(Barrier* barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}

}  // namespace octet::cuda::ptx
