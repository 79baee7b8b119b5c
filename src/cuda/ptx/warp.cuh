// Warp and warpgroup instructions: register budgets, named barriers, matrix stores.
#pragma once

#include "cuda/ptx/arch.cuh"

namespace octet::cuda::ptx {

// Executed by all four warps of a warpgroup, once, at the start of its role.
template <int Registers>
__device__ __forceinline__ void registers_grow() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
__device__ __forceinline__ void registers_shrink() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}

// Barrier `name` (1-15; 0 is __syncthreads) among `threads` threads.
__device__ __forceinline__ void named_sync(int name, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(name), "r"(threads) : "memory");
}

// Counts towards barrier `name` without waiting for it.
__device__ __forceinline__ void named_arrive(int name, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(name), "r"(threads) : "memory");
}

// True in one lane of the warp, always the same one. Instructions of the copy engine are then issued as they are;
// behind a test of the lane's number ptxas puts each into a loop over the lanes, 75 clocks long.
__device__ __forceinline__ bool elect_lane() {
    std::uint32_t elected;
    asm volatile(
        "{\n.reg .pred p;\n"
        "elect.sync _|p, 0xffffffff;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(elected)
        :
        : "memory");
    return elected != 0;
}

// Stores four 8x8 matrices of 16-bit values. Lane l gives the address of row l%8 of matrix l/8 and holds, of each
// matrix, the elements (l/4, 2*(l%4)) and (l/4, 2*(l%4)+1).
__device__ __forceinline__ void store_matrices(std::uint32_t row_address, std::uint32_t m0, std::uint32_t m1,
                                               std::uint32_t m2, std::uint32_t m3) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row_address), "r"(m0),
                 "r"(m1), "r"(m2), "r"(m3)
                 : "memory");
}

// Stores four 8x8 matrices of 16-bit values transposed. Lane l gives the address of row l%8 of matrix l/8 and holds, of
// each matrix, the pair (l/4, 2*(l%4)) and (l/4, 2*(l%4)+1), which land in rows 2*(l%4) and 2*(l%4)+1, column l/4.
__device__ __forceinline__ void store_matrices_transposed(std::uint32_t row_address, std::uint32_t m0, std::uint32_t m1,
                                                          std::uint32_t m2, std::uint32_t m3) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row_address), "r"(m0),
                 "r"(m1), "r"(m2), "r"(m3)
                 : "memory");
}

// Loads four 8x8 matrices of 16-bit values. Lane l gives the address of row l%8 of matrix l/8 and gets, of each matrix,
// the 32 bits at row l/4, columns 2*(l%4) and the next one.
__device__ __forceinline__ void load_matrices(std::uint32_t row_address, std::uint32_t (&m)[4]) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(row_address)
                 : "memory");
}

__device__ __forceinline__ void store_shared(std::uint32_t address, float value) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}

__device__ __forceinline__ float load_shared(std::uint32_t address) {
    float value;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
    return value;
}

// Two floats to a pair of bf16, nearest even, `low` in the low half.
__device__ __forceinline__ std::uint32_t bf16_pair(float low, float high) {
    std::uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

// Sums of eight bf16, nearest even.
__device__ __forceinline__ uint4 add_bf16(uint4 x, uint4 y) {
    const auto pair = [](std::uint32_t a, std::uint32_t b) {
        std::uint32_t sum;
        asm("add.rn.bf16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
        return sum;
    };
    return {pair(x.x, y.x), pair(x.y, y.y), pair(x.z, y.z), pair(x.w, y.w)};
}

}  // namespace octet::cuda::ptx
