// Warpgroup matrix multiply-accumulate: d[64, n] (+)= a[64, k] . b[n, k]^T, both operands in shared memory, f32 accumulators.
// Lane l of warp w holds, for every 8 columns j, d[4j], d[4j+1] of row 16w + l/4, columns 8j + 2*(l%4) and the next one,
// and d[4j+2], d[4j+3] of the row 8 below.
#pragma once

#include "cuda/ptx/arch.cuh"

namespace octet::cuda::ptx {

// Before the first product that reads registers or shared memory written by this warpgroup.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int Pending>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

// Keeps the compiler from moving reads or writes of an accumulator across the asynchronous product.
template <int Count>
__device__ __forceinline__ void wgmma_hold(float (&d)[Count]) {
#pragma unroll
    for (int i = 0; i < Count; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// Operand lists: OCTET_WGMMA_R<i> names the first 16*(i+1) registers, OCTET_WGMMA_D<i> binds them.
#define OCTET_WGMMA_R0 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define OCTET_WGMMA_R1 OCTET_WGMMA_R0 ", " "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define OCTET_WGMMA_R2 OCTET_WGMMA_R1 ", " "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define OCTET_WGMMA_R3 OCTET_WGMMA_R2 ", " "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define OCTET_WGMMA_R4 OCTET_WGMMA_R3 ", " "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define OCTET_WGMMA_R5 OCTET_WGMMA_R4 ", " "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define OCTET_WGMMA_R6 OCTET_WGMMA_R5 ", " "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define OCTET_WGMMA_R7 OCTET_WGMMA_R6 ", " "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define OCTET_WGMMA_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define OCTET_WGMMA_16(d, i) OCTET_WGMMA_4(d, i), OCTET_WGMMA_4(d, i + 4), OCTET_WGMMA_4(d, i + 8), OCTET_WGMMA_4(d, i + 12)
#define OCTET_WGMMA_D0(d) OCTET_WGMMA_16(d, 0)
#define OCTET_WGMMA_D1(d) OCTET_WGMMA_D0(d), OCTET_WGMMA_16(d, 16)
#define OCTET_WGMMA_D2(d) OCTET_WGMMA_D1(d), OCTET_WGMMA_16(d, 32)
#define OCTET_WGMMA_D3(d) OCTET_WGMMA_D2(d), OCTET_WGMMA_16(d, 48)
#define OCTET_WGMMA_D4(d) OCTET_WGMMA_D3(d), OCTET_WGMMA_16(d, 64)
#define OCTET_WGMMA_D5(d) OCTET_WGMMA_D4(d), OCTET_WGMMA_16(d, 80)
#define OCTET_WGMMA_D6(d) OCTET_WGMMA_D5(d), OCTET_WGMMA_16(d, 96)
#define OCTET_WGMMA_D7(d) OCTET_WGMMA_D6(d), OCTET_WGMMA_16(d, 112)

// One instruction: A, B and P are the operand numbers of the two descriptors and of the "accumulate" predicate.
#define OCTET_WGMMA(SHAPE_AND_TYPES, TAIL, REGISTERS, BINDINGS, A, B, P)                                          \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P ", 0;\nwgmma.mma_async.sync.aligned." SHAPE_AND_TYPES    \
                 " {" REGISTERS "}, " A ", " B ", p, 1, 1" TAIL ";\n}"                                           \
                 : BINDINGS                                                                                      \
                 : "l"(a), "l"(b), "r"(accumulate)                                                               \
                 : "memory")

// a, b: e4m3, both K-major.
template <int N>
__device__ __forceinline__ void wgmma_e4m3(float (&d)[N / 2], std::uint64_t a, std::uint64_t b, int accumulate) {
    static_assert(N % 32 == 0 && N >= 32 && N <= 256, "octet: this width has no instruction here");
    if constexpr (N == 32) OCTET_WGMMA("m64n32k32.f32.e4m3.e4m3", "", OCTET_WGMMA_R0, OCTET_WGMMA_D0(d), "%16", "%17", "%18");
    else if constexpr (N == 64) OCTET_WGMMA("m64n64k32.f32.e4m3.e4m3", "", OCTET_WGMMA_R1, OCTET_WGMMA_D1(d), "%32", "%33", "%34");
    else if constexpr (N == 96) OCTET_WGMMA("m64n96k32.f32.e4m3.e4m3", "", OCTET_WGMMA_R2, OCTET_WGMMA_D2(d), "%48", "%49", "%50");
    else if constexpr (N == 128) OCTET_WGMMA("m64n128k32.f32.e4m3.e4m3", "", OCTET_WGMMA_R3, OCTET_WGMMA_D3(d), "%64", "%65", "%66");
    else if constexpr (N == 160) OCTET_WGMMA("m64n160k32.f32.e4m3.e4m3", "", OCTET_WGMMA_R4, OCTET_WGMMA_D4(d), "%80", "%81", "%82");
    else if constexpr (N == 192) OCTET_WGMMA("m64n192k32.f32.e4m3.e4m3", "", OCTET_WGMMA_R5, OCTET_WGMMA_D5(d), "%96", "%97", "%98");
    else if constexpr (N == 224) OCTET_WGMMA("m64n224k32.f32.e4m3.e4m3", "", OCTET_WGMMA_R6, OCTET_WGMMA_D6(d), "%112", "%113", "%114");
    else if constexpr (N == 256) OCTET_WGMMA("m64n256k32.f32.e4m3.e4m3", "", OCTET_WGMMA_R7, OCTET_WGMMA_D7(d), "%128", "%129", "%130");
}

// a, b: bf16. TransposedA, TransposedB: 0 when the operand is K-major in shared memory, 1 when its rows (or columns) are contiguous.
template <int N, int TransposedA, int TransposedB>
__device__ __forceinline__ void wgmma_bf16(float (&d)[N / 2], std::uint64_t a, std::uint64_t b, int accumulate) {
    static_assert(N % 32 == 0 && N >= 32 && N <= 256, "octet: this width has no instruction here");
    static_assert(TransposedA == TransposedB, "octet: mixed orientations are not used");
    if constexpr (TransposedA == 0) {
        if constexpr (N == 32) OCTET_WGMMA("m64n32k16.f32.bf16.bf16", ", 0, 0", OCTET_WGMMA_R0, OCTET_WGMMA_D0(d), "%16", "%17", "%18");
        else if constexpr (N == 64) OCTET_WGMMA("m64n64k16.f32.bf16.bf16", ", 0, 0", OCTET_WGMMA_R1, OCTET_WGMMA_D1(d), "%32", "%33", "%34");
        else if constexpr (N == 96) OCTET_WGMMA("m64n96k16.f32.bf16.bf16", ", 0, 0", OCTET_WGMMA_R2, OCTET_WGMMA_D2(d), "%48", "%49", "%50");
        else if constexpr (N == 128) OCTET_WGMMA("m64n128k16.f32.bf16.bf16", ", 0, 0", OCTET_WGMMA_R3, OCTET_WGMMA_D3(d), "%64", "%65", "%66");
        else if constexpr (N == 160) OCTET_WGMMA("m64n160k16.f32.bf16.bf16", ", 0, 0", OCTET_WGMMA_R4, OCTET_WGMMA_D4(d), "%80", "%81", "%82");
        else if constexpr (N == 192) OCTET_WGMMA("m64n192k16.f32.bf16.bf16", ", 0, 0", OCTET_WGMMA_R5, OCTET_WGMMA_D5(d), "%96", "%97", "%98");
        else if constexpr (N == 224) OCTET_WGMMA("m64n224k16.f32.bf16.bf16", ", 0, 0", OCTET_WGMMA_R6, OCTET_WGMMA_D6(d), "%112", "%113", "%114");
        else if constexpr (N == 256) OCTET_WGMMA("m64n256k16.f32.bf16.bf16", ", 0, 0", OCTET_WGMMA_R7, OCTET_WGMMA_D7(d), "%128", "%129", "%130");
    } else {
        if constexpr (N == 32) OCTET_WGMMA("m64n32k16.f32.bf16.bf16", ", 1, 1", OCTET_WGMMA_R0, OCTET_WGMMA_D0(d), "%16", "%17", "%18");
        else if constexpr (N == 64) OCTET_WGMMA("m64n64k16.f32.bf16.bf16", ", 1, 1", OCTET_WGMMA_R1, OCTET_WGMMA_D1(d), "%32", "%33", "%34");
        else if constexpr (N == 96) OCTET_WGMMA("m64n96k16.f32.bf16.bf16", ", 1, 1", OCTET_WGMMA_R2, OCTET_WGMMA_D2(d), "%48", "%49", "%50");
        else if constexpr (N == 128) OCTET_WGMMA("m64n128k16.f32.bf16.bf16", ", 1, 1", OCTET_WGMMA_R3, OCTET_WGMMA_D3(d), "%64", "%65", "%66");
        else if constexpr (N == 160) OCTET_WGMMA("m64n160k16.f32.bf16.bf16", ", 1, 1", OCTET_WGMMA_R4, OCTET_WGMMA_D4(d), "%80", "%81", "%82");
        else if constexpr (N == 192) OCTET_WGMMA("m64n192k16.f32.bf16.bf16", ", 1, 1", OCTET_WGMMA_R5, OCTET_WGMMA_D5(d), "%96", "%97", "%98");
        else if constexpr (N == 224) OCTET_WGMMA("m64n224k16.f32.bf16.bf16", ", 1, 1", OCTET_WGMMA_R6, OCTET_WGMMA_D6(d), "%112", "%113", "%114");
        else if constexpr (N == 256) OCTET_WGMMA("m64n256k16.f32.bf16.bf16", ", 1, 1", OCTET_WGMMA_R7, OCTET_WGMMA_D7(d), "%128", "%129", "%130");
    }
}

#undef OCTET_WGMMA
#undef OCTET_WGMMA_4
#undef OCTET_WGMMA_16
#undef OCTET_WGMMA_R0
#undef OCTET_WGMMA_D0
#undef OCTET_WGMMA_R1
#undef OCTET_WGMMA_D1
#undef OCTET_WGMMA_R2
#undef OCTET_WGMMA_D2
#undef OCTET_WGMMA_R3
#undef OCTET_WGMMA_D3
#undef OCTET_WGMMA_R4
#undef OCTET_WGMMA_D4
#undef OCTET_WGMMA_R5
#undef OCTET_WGMMA_D5
#undef OCTET_WGMMA_R6
#undef OCTET_WGMMA_D6
#undef OCTET_WGMMA_R7
#undef OCTET_WGMMA_D7

}  // namespace octet::cuda::ptx
