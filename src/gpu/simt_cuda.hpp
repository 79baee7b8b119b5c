// The CUDA side of simt.hpp.
#pragma once

#include <cooperative_groups.h>

#include <type_traits>
#include <utility>

#include "gpu/simt.hpp"

namespace octet::simt {

struct CudaThread {
    // ---- where am I
    OCTET_GPU static int thread() { return static_cast<int>(threadIdx.x); }
    OCTET_GPU static int threads() { return static_cast<int>(blockDim.x); }
    // As thread(), read anew: what follows from it is worked out again, and takes no registers in between.
    OCTET_GPU static int thread_again() {
        int thread;
        asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
        return thread;
    }
    // Worked out once, where it would be again each time that it is needed.
    OCTET_GPU static u32 keep(u32 value) {
        asm volatile("" : "+r"(value));
        return value;
    }
    OCTET_GPU static u32 block() { return blockIdx.x; }
    OCTET_GPU static u32 blocks() { return gridDim.x; }

    // ---- together
    OCTET_GPU static u32 shuffle_xor(u32 value, int mask) { return __shfl_xor_sync(0xFFFFFFFFu, value, mask, unit); }
    // The value of a lane of the unit.
    OCTET_GPU static u32 shuffle(u32 value, int lane) { return __shfl_sync(0xFFFFFFFFu, value, lane, unit); }
    OCTET_GPU static void barrier() { __syncthreads(); }

    // ---- shared memory
    template <class T>
    OCTET_GPU static T load_shared(const T* from) {
        return *from;
    }
    template <class T, class V>
    OCTET_GPU static void store_shared(T* to, V value) {
        *to = value;
    }

    // Four matrices of 8 x 8 16-bit elements, transposed: row_of(lane) is row lane % 8 of matrix lane / 8, and a lane
    // gets of each matrix rows 2 (lane % 4) and the next one of column lane / 4, the first in the lower half.
    template <class RowOf>
    OCTET_GPU static void load_transposed(RowOf row_of, u32 (&words)[4]) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                     : "r"(static_cast<u32>(__cvta_generic_to_shared(row_of(thread() % unit))))
                     : "memory");
    }

    // A maximum with what lies there, in any order with others'.
    OCTET_GPU static void atomic_max_shared(u32* to, u32 value) {
        asm volatile("red.shared.max.u32 [%0], %1;" ::"r"(static_cast<u32>(__cvta_generic_to_shared(to))), "r"(value)
                     : "memory");
    }

    // Adds to what lies there, and gives what was there before.
    OCTET_GPU static u32 atomic_add_shared(u32* to, u32 value) {
        u32 before;
        asm volatile("atom.shared.add.u32 %0, [%1], %2;"
                     : "=r"(before)
                     : "r"(static_cast<u32>(__cvta_generic_to_shared(to))), "r"(value)
                     : "memory");
        return before;
    }

    // Shared memory to read in place, more than once: const T& x = t.borrow_shared(&s.x);
    template <class T>
    OCTET_GPU static const T& borrow_shared(const T* from) {
        return *from;
    }

    // ---- global memory
    OCTET_GPU static Vec16 load16(const void* from) {
        Vec16 v;
        asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                     : "l"(__cvta_generic_to_global(from)));
        return v;
    }
    OCTET_GPU static Vec16 load16(const void* from, Reuse reuse) {
        u64 first_to_go, normal;
        asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(first_to_go));
        asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(normal));
        Vec16 v;
        asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                     : "l"(__cvta_generic_to_global(from)), "l"(reuse == Reuse::stream ? first_to_go : normal));
        return v;
    }
    // 16 bytes to shared memory, past the registers; zeros where `inside` is not set, and nothing is read. They are
    // there for the thread that asked, once it has awaited them.
    template <Line line = Line::this_part>
    OCTET_GPU static void copy_async(Vec16* to_shared, const void* from, bool inside) {
        const u32 to = static_cast<u32>(__cvta_generic_to_shared(to_shared));
        const auto at = __cvta_generic_to_global(from);
        const int bytes = inside ? 16 : 0;
        if constexpr (line == Line::rest_soon)
            asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(at), "r"(bytes)
                         : "memory");
        else
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(at), "r"(bytes) : "memory");
    }
    OCTET_GPU static void copy_async(Vec16* to_shared, const void* from, bool inside, Reuse reuse) {
        asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(
                         static_cast<u32>(__cvta_generic_to_shared(to_shared))),
                     "l"(__cvta_generic_to_global(from)), "r"(inside ? 16 : 0),
                     "l"(reuse == Reuse::stream ? first_to_go() : normal_to_go())
                     : "memory");
    }
    OCTET_GPU static void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
    // Waits for the copies of all commits but the last `later`.
    template <int later>
    OCTET_GPU static void await_copies() {
        asm volatile("cp.async.wait_group %0;" ::"n"(later) : "memory");
    }
    // The 128 bytes around `at` will be wanted.
    OCTET_GPU static void prefetch(const void* at) {
        asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(at)));
    }
    // Reuse::last goes to memory many lines at a time, which is up to 12% faster where a kernel writes as much as it
    // reads. But whoever reads much again, in this kernel or the next, has less of L2 for it: so half of the lines are.
    template <Reuse reuse = Reuse::stream>
    OCTET_GPU static void store16(void* to, Vec16 v) {
        if constexpr (reuse == Reuse::last)
            asm volatile(
                "st.global.L2::cache_hint.v4.u32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(__cvta_generic_to_global(to)),
                "r"(v.word[0]), "r"(v.word[1]), "r"(v.word[2]), "r"(v.word[3]), "l"(half_last_to_go())
                : "memory");
        else
            __stcs(static_cast<uint4*>(to), make_uint4(v.word[0], v.word[1], v.word[2], v.word[3]));
    }
    template <Reuse reuse = Reuse::stream>
    OCTET_GPU static void store8(void* to, Vec8 v) {
        if constexpr (reuse == Reuse::last)
            asm volatile("st.global.L2::cache_hint.v2.u32 [%0], {%1, %2}, %3;" ::"l"(__cvta_generic_to_global(to)),
                         "r"(v.word[0]), "r"(v.word[1]), "l"(half_last_to_go())
                         : "memory");
        else
            __stcs(static_cast<uint2*>(to), make_uint2(v.word[0], v.word[1]));
    }
    // Reuse that is known at run time alone.
    OCTET_GPU static void store16(void* to, Vec16 v, Reuse reuse) {
        asm volatile("st.global.L2::cache_hint.v4.u32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(__cvta_generic_to_global(to)),
                     "r"(v.word[0]), "r"(v.word[1]), "r"(v.word[2]), "r"(v.word[3]), "l"(policy_of(reuse))
                     : "memory");
    }
    OCTET_GPU static void store8(void* to, Vec8 v, Reuse reuse) {
        asm volatile("st.global.L2::cache_hint.v2.u32 [%0], {%1, %2}, %3;" ::"l"(__cvta_generic_to_global(to)),
                     "r"(v.word[0]), "r"(v.word[1]), "l"(policy_of(reuse))
                     : "memory");
    }
    OCTET_GPU static u64 policy_of(Reuse reuse) {
        return reuse == Reuse::kept     ? all_last_to_go()
               : reuse == Reuse::last   ? half_last_to_go()
               : reuse == Reuse::stream ? first_to_go()
                                        : normal_to_go();
    }
    // The same as Reuse::last, where `inside` is set: no branch, so that addresses follow from each other.
    OCTET_GPU static void store8_if(bool inside, void* to, Vec8 v) {
        asm volatile(
            "{ .reg .pred inside; setp.ne.u32 inside, %4, 0;"
            " @inside st.global.L2::cache_hint.v2.u32 [%0], {%1, %2}, %3; }" ::"l"(__cvta_generic_to_global(to)),
            "r"(v.word[0]), "r"(v.word[1]), "l"(half_last_to_go()), "r"(static_cast<u32>(inside))
            : "memory");
    }
    // What createpolicy.fractional.L2::evict_last.b64 gives for 0.5. As a constant it costs a store nothing; what that
    // instruction gives is brought to it anew each time.
    OCTET_GPU static u64 half_last_to_go() { return 0x1470'0000'0000'0000u; }
    // Likewise of evict_last, evict_first and evict_normal for 1.
    OCTET_GPU static u64 all_last_to_go() { return 0x14F0'0000'0000'0000u; }
    OCTET_GPU static u64 first_to_go() { return 0x12F0'0000'0000'0000u; }
    OCTET_GPU static u64 normal_to_go() { return 0x16F0'0000'0000'0000u; }
    template <class T>
    OCTET_GPU static T load(const T* from) {
        return __ldg(from);
    }
    // What an earlier kernel of the call wrote, once it has been awaited: load() may be moved up past that.
    template <class T>
    OCTET_GPU static T load_made(const T* from) {
        static_assert(sizeof(T) == 1 || sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
        const auto at = __cvta_generic_to_global(from);
        if constexpr (sizeof(T) == 1) {
            u32 v;
            asm volatile("ld.global.u8 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
            return static_cast<T>(v);
        } else if constexpr (sizeof(T) == 4) {
            u32 v;
            asm volatile("ld.global.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
            return std::bit_cast<T>(v);
        } else if constexpr (sizeof(T) == 8) {
            u64 v;
            asm volatile("ld.global.u64 %0, [%1];" : "=l"(v) : "l"(at) : "memory");
            return std::bit_cast<T>(v);
        } else {
            Vec16 v;
            asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                         : "l"(at)
                         : "memory");
            return std::bit_cast<T>(v);
        }
    }
    template <class T>
    OCTET_GPU static void store(T* to, T value) {
        *to = value;
    }

    // ---- across blocks. Maxima and counts come out the same in any order.
    // The answer is what was there before: once it is awaited, the atomic is done.
    OCTET_GPU static u32 atomic_max(u32* to, u32 value) { return atomicMax(to, value); }
    OCTET_GPU static void await_answer(u32 answer) {  // something that needs it; magnitudes have no sign
        asm volatile("{ .reg .pred never; setp.eq.u32 never, %0, 0xFFFFFFFF; @never trap; }" ::"r"(answer) : "memory");
    }
    OCTET_GPU static u32 atomic_add(u32* to, u32 value) { return atomicAdd(to, value); }
    // Folds numbers of shared memory into those of all blocks, the larger of two, behind the threads' backs: bf16,
    // positive or zero and finite, in whole eights that start on 16 bytes. All threads call each of these: admit_folds
    // once they have written and before a barrier, fold_max after it; await_folds_read, and a barrier, before anybody
    // writes there again; await_folds at last.
    OCTET_GPU static void admit_folds() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
    OCTET_GPU static void fold_max(u16* to, const u16* from_shared, i32 count) {
        if (thread() != 0) return;
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.max.bf16 [%0], [%1], %2;" ::"l"(
                         __cvta_generic_to_global(to)),
                     "r"(static_cast<u32>(__cvta_generic_to_shared(from_shared))), "r"(count * 2)
                     : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
    OCTET_GPU static void await_folds_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
    OCTET_GPU static void await_folds() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
    // What atomics of other blocks left: past this multiprocessor's own cache.
    OCTET_GPU static u32 load_fresh(const u32* from) {
        u32 value;
        asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];"
                     : "=r"(value)
                     : "l"(__cvta_generic_to_global(from))
                     : "memory");
        return value;
    }
    OCTET_GPU static Vec16 load_fresh16(const u32* from) {
        Vec16 v;
        asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                     : "l"(__cvta_generic_to_global(from))
                     : "memory");
        return v;
    }
    // For other blocks to see.
    OCTET_GPU static void store_fresh(u8* to, u8 value) {
        asm volatile("st.relaxed.gpu.global.u8 [%0], %1;" ::"l"(__cvta_generic_to_global(to)), "r"(u32{value})
                     : "memory");
    }
    // Waits until none of 16 bytes is zero.
    OCTET_GPU static Vec16 await_bytes(const u32* from) {
        Vec16 v = load_fresh16(from);
        while (!all_bytes(v)) v = load_fresh16(from);
        return v;
    }
    OCTET_GPU static u16 load_fresh(const u16* from) {
        u16 value;
        asm volatile("ld.relaxed.gpu.global.u16 %0, [%1];"
                     : "=h"(value)
                     : "l"(__cvta_generic_to_global(from))
                     : "memory");
        return value;
    }
    // Counts the block as done, by one of its threads: what all of them stored before a barrier, and folded, is there
    // for whoever has awaited the count, and then for its block, after a barrier.
    OCTET_GPU static void count_done(u32* counter) {
        __threadfence();
        atomicAdd(counter, 1u);
    }
    OCTET_GPU static void await_done(const u32* counter, u32 count) {
        while (true) {
            u32 value;
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                         : "=r"(value)
                         : "l"(__cvta_generic_to_global(counter))
                         : "memory");
            if (value >= count) return;
            __nanosleep(200);
        }
    }
    OCTET_GPU static void wait(const u32* counter, u32 count) {
        while (load_fresh(counter) < count) {
        }
    }

    // ---- across all blocks of a launch that runs them together: a barrier in two parts. What a block stored before it
    // arrived is there for those who have awaited all. Either part is a barrier of the block.
    OCTET_GPU static u32 arrive_everywhere() { return cooperative_groups::this_grid().barrier_arrive(); }
    OCTET_GPU static void await_everywhere(u32 arrival) {
        cooperative_groups::this_grid().barrier_wait(std::move(arrival));
    }

    // ---- across the kernels of one call, where the launch lets them overlap
    OCTET_GPU static void await_earlier() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
    OCTET_GPU static void admit_later() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

    // ---- arithmetic
    // The larger magnitudes of two bf16 pairs, NaN above all, each with a sign that means nothing.
    OCTET_GPU static u32 max_magnitude_bf16x2(u32 a, u32 b) {
        u32 larger;
        asm("max.NaN.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
        return larger;
    }
    OCTET_GPU static u32 permute_bytes(u32 a, u32 b, u32 selector) { return __byte_perm(a, b, selector); }

    // What core/swiglu.hpp asks of arithmetic.
    OCTET_GPU static float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
    OCTET_GPU static float product(float a, float b) { return __fmul_rn(a, b); }
    // Between 1 and 2^126 one step of Newton from the hardware's estimate rounds correctly: every mantissa was tried
    // (bench/cases/reciprocal_device.cu).
    OCTET_GPU static float reciprocal(float x) {
        float estimate;
        asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(estimate) : "f"(x));
        return __fmaf_rn(estimate, __fmaf_rn(-x, estimate, 1.0f), estimate);
    }
    // Two elements to bf16, the first in the lower half.
    OCTET_GPU static u32 encode_bf16x2(float first, float second) {
        u32 pair;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
        return pair;
    }

    // Two and four elements to 8 bits, the first in the lowest byte.
    template <class Codec>
    OCTET_GPU static u32 encode2(float first, float second) {
        if constexpr (std::is_same_v<Codec, E4M3>) {
            u16 pair;
            asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(second), "f"(first));
            return pair;
        } else if constexpr (std::is_same_v<Codec, E5M2>) {
            u16 pair;
            asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(second), "f"(first));
            return pair;
        } else {
            return static_cast<u32>(Codec::encode(first)) | static_cast<u32>(Codec::encode(second)) << 8;
        }
    }
    template <class Codec>
    OCTET_GPU static u32 encode4(float a, float b, float c, float d) {
        if constexpr (std::is_same_v<Codec, E4M3> || std::is_same_v<Codec, E5M2>) {
            return encode2<Codec>(a, b) | encode2<Codec>(c, d) << 16;
        } else {
            return encode4_in_integers<Codec>(a, b, c, d);
        }
    }
    // For formats this hardware has no instruction for: one copy of the code, since there is much of it.
    template <class Codec>
    OCTET_GPU_RARE static u32 encode4_in_integers(float a, float b, float c, float d) {
        return encode2<Codec>(a, b) | encode2<Codec>(c, d) << 16;
    }
};

// A quotient as division rounds it, without division's branches: for dividends of a few hundred, and divisors from
// 1e-12 on that are finite. Every one was tried (bench/cases/reciprocal_device.cu).
OCTET_GPU float quotient(float dividend, float divisor) {
    const float shrink = divisor < 0x1p64f ? 1.0f : 0x1p-64f;  // a reciprocal must not fall below normal numbers
    const float small = divisor * shrink;
    float estimate;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(estimate) : "f"(small));
    const float reciprocal = __fmaf_rn(estimate, __fmaf_rn(-small, estimate, 1.0f), estimate);
    const float near = __fmul_rn(dividend, reciprocal);
    return __fmul_rn(__fmaf_rn(reciprocal, __fmaf_rn(-small, near, dividend), near), shrink);
}

template <class Kernel>
__global__ void __launch_bounds__(Kernel::threads, Kernel::blocks_per_core)
    entry(const __grid_constant__ typename Kernel::Params params) {
    extern __shared__ __align__(16) unsigned char memory[];
    CudaThread thread;
    Kernel::run(thread, params, *reinterpret_cast<typename Kernel::Shared*>(memory));
}

}  // namespace octet::simt
