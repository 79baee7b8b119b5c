// Warpgroup matrix multiply-accumulate: d[64, n] (+)= a[64, k] . b[n, k]^T, operands in shared memory (a also in
// registers), f32 accumulators. Lane l of warp w holds, for every 8 columns j, d[4j], d[4j+1] of row 16w + l/4, columns
// 8j + 2*(l%4) and the next one, and d[4j+2], d[4j+3] of the row 8 below.
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

// The same for an operand in registers, which the product reads until it has been waited for.
template <int Count>
__device__ __forceinline__ void wgmma_hold(std::uint32_t (&a)[Count]) {
#pragma unroll
    for (int i = 0; i < Count; ++i) asm volatile("" : "+r"(a[i])::"memory");
}

// Operand lists: OCTET_WGMMA_R<i> names the first 16*(i+1) registers, OCTET_WGMMA_D<i> binds them; 112 is the width of
// 56 registers.
#define OCTET_WGMMA_R0 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define OCTET_WGMMA_R1 \
    OCTET_WGMMA_R0     \
    ", "               \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define OCTET_WGMMA_R2 \
    OCTET_WGMMA_R1     \
    ", "               \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define OCTET_WGMMA_R3 \
    OCTET_WGMMA_R2     \
    ", "               \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define OCTET_WGMMA_R112 \
    OCTET_WGMMA_R2       \
    ", "                 \
    "%48, %49, %50, %51, %52, %53, %54, %55"
#define OCTET_WGMMA_R4 \
    OCTET_WGMMA_R3     \
    ", "               \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define OCTET_WGMMA_R5 \
    OCTET_WGMMA_R4     \
    ", "               \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define OCTET_WGMMA_R6 \
    OCTET_WGMMA_R5     \
    ", "               \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define OCTET_WGMMA_R7 \
    OCTET_WGMMA_R6     \
    ", "               \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define OCTET_WGMMA_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define OCTET_WGMMA_16(d, i) \
    OCTET_WGMMA_4(d, i), OCTET_WGMMA_4(d, i + 4), OCTET_WGMMA_4(d, i + 8), OCTET_WGMMA_4(d, i + 12)
#define OCTET_WGMMA_D0(d) OCTET_WGMMA_16(d, 0)
#define OCTET_WGMMA_D1(d) OCTET_WGMMA_D0(d), OCTET_WGMMA_16(d, 16)
#define OCTET_WGMMA_D2(d) OCTET_WGMMA_D1(d), OCTET_WGMMA_16(d, 32)
#define OCTET_WGMMA_D3(d) OCTET_WGMMA_D2(d), OCTET_WGMMA_16(d, 48)
#define OCTET_WGMMA_D112(d) OCTET_WGMMA_D2(d), OCTET_WGMMA_4(d, 48), OCTET_WGMMA_4(d, 52)
#define OCTET_WGMMA_D4(d) OCTET_WGMMA_D3(d), OCTET_WGMMA_16(d, 64)
#define OCTET_WGMMA_D5(d) OCTET_WGMMA_D4(d), OCTET_WGMMA_16(d, 80)
#define OCTET_WGMMA_D6(d) OCTET_WGMMA_D5(d), OCTET_WGMMA_16(d, 96)
#define OCTET_WGMMA_D7(d) OCTET_WGMMA_D6(d), OCTET_WGMMA_16(d, 112)

// One instruction: A and B name its operands, the last argument binds them. Without `Accumulate` the old accumulators
// are not read, but ptxas puts the new ones in their registers.
#define OCTET_WGMMA_ASM(SHAPE_AND_TYPES, TAIL, REGISTERS, BINDINGS, A, B, KEEP, ...)                            \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " KEEP ", 0;\nwgmma.mma_async.sync.aligned." SHAPE_AND_TYPES \
                 " {" REGISTERS "}, " A ", " B ", p, 1, 1" TAIL ";\n}"                                          \
                 : BINDINGS:__VA_ARGS__                                                                         \
                 : "memory")
#define OCTET_WGMMA(SHAPE_AND_TYPES, TAIL, I, A, B, ...)                                                           \
    do {                                                                                                           \
        if constexpr (Accumulate)                                                                                  \
            OCTET_WGMMA_ASM(SHAPE_AND_TYPES, TAIL, OCTET_WGMMA_R##I, OCTET_WGMMA_D##I(d), A, B, "1", __VA_ARGS__); \
        else                                                                                                       \
            OCTET_WGMMA_ASM(SHAPE_AND_TYPES, TAIL, OCTET_WGMMA_R##I, OCTET_WGMMA_D##I(d), A, B, "0", __VA_ARGS__); \
    } while (0)

// The instruction of width N. a: in shared memory, by its descriptor.
#define OCTET_WGMMA_SHARED(TYPES, TAIL)                                                                \
    do {                                                                                               \
        if constexpr (N == 32) OCTET_WGMMA("m64n32" TYPES, TAIL, 0, "%16", "%17", "l"(a), "l"(b));     \
        if constexpr (N == 64) OCTET_WGMMA("m64n64" TYPES, TAIL, 1, "%32", "%33", "l"(a), "l"(b));     \
        if constexpr (N == 96) OCTET_WGMMA("m64n96" TYPES, TAIL, 2, "%48", "%49", "l"(a), "l"(b));     \
        if constexpr (N == 112) OCTET_WGMMA("m64n112" TYPES, TAIL, 112, "%56", "%57", "l"(a), "l"(b)); \
        if constexpr (N == 128) OCTET_WGMMA("m64n128" TYPES, TAIL, 3, "%64", "%65", "l"(a), "l"(b));   \
        if constexpr (N == 160) OCTET_WGMMA("m64n160" TYPES, TAIL, 4, "%80", "%81", "l"(a), "l"(b));   \
        if constexpr (N == 192) OCTET_WGMMA("m64n192" TYPES, TAIL, 5, "%96", "%97", "l"(a), "l"(b));   \
        if constexpr (N == 224) OCTET_WGMMA("m64n224" TYPES, TAIL, 6, "%112", "%113", "l"(a), "l"(b)); \
        if constexpr (N == 256) OCTET_WGMMA("m64n256" TYPES, TAIL, 7, "%128", "%129", "l"(a), "l"(b)); \
    } while (0)
// a: four registers.
#define OCTET_WGMMA_FOUR "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)
#define OCTET_WGMMA_REGISTERS(TYPES, TAIL)                                                                            \
    do {                                                                                                              \
        if constexpr (N == 32) OCTET_WGMMA("m64n32" TYPES, TAIL, 0, "{%16, %17, %18, %19}", "%20", OCTET_WGMMA_FOUR); \
        if constexpr (N == 64) OCTET_WGMMA("m64n64" TYPES, TAIL, 1, "{%32, %33, %34, %35}", "%36", OCTET_WGMMA_FOUR); \
        if constexpr (N == 96) OCTET_WGMMA("m64n96" TYPES, TAIL, 2, "{%48, %49, %50, %51}", "%52", OCTET_WGMMA_FOUR); \
        if constexpr (N == 128)                                                                                       \
            OCTET_WGMMA("m64n128" TYPES, TAIL, 3, "{%64, %65, %66, %67}", "%68", OCTET_WGMMA_FOUR);                   \
        if constexpr (N == 160)                                                                                       \
            OCTET_WGMMA("m64n160" TYPES, TAIL, 4, "{%80, %81, %82, %83}", "%84", OCTET_WGMMA_FOUR);                   \
        if constexpr (N == 192)                                                                                       \
            OCTET_WGMMA("m64n192" TYPES, TAIL, 5, "{%96, %97, %98, %99}", "%100", OCTET_WGMMA_FOUR);                  \
        if constexpr (N == 224)                                                                                       \
            OCTET_WGMMA("m64n224" TYPES, TAIL, 6, "{%112, %113, %114, %115}", "%116", OCTET_WGMMA_FOUR);              \
        if constexpr (N == 256)                                                                                       \
            OCTET_WGMMA("m64n256" TYPES, TAIL, 7, "{%128, %129, %130, %131}", "%132", OCTET_WGMMA_FOUR);              \
    } while (0)

// a, b: e4m3, or one of them e5m2; both K-major.
template <int N, bool LeftIsE5m2, bool RightIsE5m2, bool Accumulate>
__device__ __forceinline__ void wgmma_fp8(float (&d)[N / 2], std::uint64_t a, std::uint64_t b) {
    static_assert((N % 32 == 0 && N >= 32 && N <= 256) || N == 112, "octet: this width has no instruction here");
    static_assert(!(LeftIsE5m2 && RightIsE5m2), "octet: this pair of elements has no instruction here");
    if constexpr (LeftIsE5m2)
        OCTET_WGMMA_SHARED("k32.f32.e5m2.e4m3", "");
    else if constexpr (RightIsE5m2)
        OCTET_WGMMA_SHARED("k32.f32.e4m3.e5m2", "");
    else
        OCTET_WGMMA_SHARED("k32.f32.e4m3.e4m3", "");
}

// a, b: bf16. Transposed: false where the operand is K-major in shared memory, true where its rows (a) or columns (b)
// are contiguous.
template <int N, bool TransposedA, bool TransposedB, bool Accumulate>
__device__ __forceinline__ void wgmma_bf16(float (&d)[N / 2], std::uint64_t a, std::uint64_t b) {
    static_assert(N % 32 == 0 && N >= 32 && N <= 256, "octet: this width has no instruction here");
    static_assert(TransposedA || !TransposedB, "octet: this pair of layouts has no instruction here");
    if constexpr (!TransposedA)
        OCTET_WGMMA_SHARED("k16.f32.bf16.bf16", ", 0, 0");
    else if constexpr (!TransposedB)
        OCTET_WGMMA_SHARED("k16.f32.bf16.bf16", ", 1, 0");
    else
        OCTET_WGMMA_SHARED("k16.f32.bf16.bf16", ", 1, 1");
}

// a: 64 x 16 bf16 in registers: lane l of warp w holds a[0] of row 16w + l/4, columns 2*(l%4) and the next one, a[1] of
// the row 8 below, a[2] and a[3] of the columns 8 further on. b: bf16, K-major.
template <int N, bool Accumulate>
__device__ __forceinline__ void wgmma_bf16(float (&d)[N / 2], const std::uint32_t* a, std::uint64_t b) {
    static_assert(N % 32 == 0 && N >= 32 && N <= 256, "octet: this width has no instruction here");
    OCTET_WGMMA_REGISTERS("k16.f32.bf16.bf16", ", 0");
}

#undef OCTET_WGMMA_REGISTERS
#undef OCTET_WGMMA_FOUR
#undef OCTET_WGMMA_SHARED
#undef OCTET_WGMMA
#undef OCTET_WGMMA_ASM
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
#undef OCTET_WGMMA_R112
#undef OCTET_WGMMA_D112
#undef OCTET_WGMMA_R4
#undef OCTET_WGMMA_D4
#undef OCTET_WGMMA_R5
#undef OCTET_WGMMA_D5
#undef OCTET_WGMMA_R6
#undef OCTET_WGMMA_D6
#undef OCTET_WGMMA_R7
#undef OCTET_WGMMA_D7

}  // namespace octet::cuda::ptx
