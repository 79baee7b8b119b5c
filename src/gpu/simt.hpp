// What a portable GPU kernel may use: threads, shuffles, a block barrier, shared memory, 16-byte accesses, copies to
// shared memory that are awaited later, order-free atomics and 8-bit converts. A kernel is a struct
//
//     struct Kernel {
//         static constexpr int threads = 256;
//         static constexpr int blocks_per_core = 4;  // that registers should allow at once
//         struct Params { ... };                     // passed by value
//         struct Shared { ... };                     // one block's shared memory, plain arrays
//         template <class Thread>
//         OCTET_GPU static void run(Thread& t, const Params& p, Shared& s);
//     };
//
// and reaches everything below through `t`, so that the same source runs on a GPU (simt_cuda.hpp, simt_hip.hpp) and on
// a machine without one (tests/emulator, which checks every shared-memory access and every barrier).
//
// A kernel must not ask how wide a warp is. Shuffles reach 16 lanes away at most, so that any 32 neighbouring threads
// work together on 32-wide and on 64-wide hardware alike.
#pragma once

#include <cstdint>

#include "octet/format.hpp"

#if defined(__HIPCC__) && !defined(__device__)  // clang alone, without ROCm's headers
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#endif

#if defined(__CUDACC__) || defined(__HIPCC__)
#define OCTET_GPU __device__ __forceinline__
#define OCTET_GPU_RARE __device__ __noinline__  // kept out of the hot path's registers
#define OCTET_UNROLL _Pragma("unroll")
#define OCTET_ROLLED _Pragma("unroll 1")  // little code, few registers
#else
#define OCTET_GPU inline
#define OCTET_GPU_RARE inline
#define OCTET_UNROLL
#define OCTET_ROLLED
#endif

namespace octet::simt {

using i32 = std::int32_t;
using i64 = std::int64_t;
using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

struct alignas(16) Vec16 {  // 16 bytes: one wide load or store
    u32 word[4];
};
struct alignas(8) Vec8 {
    u32 word[2];
};

// No byte is zero.
OCTET_GPU bool all_bytes(const Vec16& v) {
    u32 missing = 0;
    OCTET_UNROLL
    for (int i = 0; i < 4; ++i) missing |= (v.word[i] - 0x01010101u) & ~v.word[i];
    return (missing & 0x80808080u) == 0;
}

// Threads that shuffle with each other.
inline constexpr int unit = 32;

// How long the memory system should hold on to what is read or written.
enum class Reuse {
    normal,
    stream,  // not read again soon: leave the caches to others
    last,    // written: the last to leave them
    kept,    // written, and read again soon: likewise
};

// Whether the rest of a line of memory, of which a part is asked for, is wanted soon, by whomever.
enum class Line { this_part, rest_soon };

// What load_transposed does where the hardware has no instruction for it: `unit` neighbouring threads take part.
template <class Thread, class RowOf>
OCTET_GPU void load_transposed_by_elements(Thread& t, RowOf row_of, u32 (&words)[4]) {
    const int lane = t.thread() % unit;
    for (int matrix = 0; matrix < 4; ++matrix) {
        const auto element = [&](int row) {
            const Vec16* line = row_of(8 * matrix + row);
            return static_cast<u32>(t.load_shared(reinterpret_cast<const u16*>(line) + lane / 4));
        };
        words[matrix] = element(lane % 4 * 2) | element(lane % 4 * 2 + 1) << 16;
    }
}

}  // namespace octet::simt

#if defined(__CUDACC__)
#include "gpu/simt_cuda.hpp"
#elif defined(__HIPCC__)
#include "gpu/simt_hip.hpp"
#else
namespace octet::simt {
inline float quotient(float dividend, float divisor) { return dividend / divisor; }
}  // namespace octet::simt
#endif
