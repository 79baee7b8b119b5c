// The AMD side of simt.hpp, for clang's own HIP mode: compiler built-ins only, no ROCm header. 64 lanes run together;
// a unit of 32 threads is one half of them, and shuffles stay inside it.
#pragma once

#include "gpu/simt.hpp"

extern "C" __device__ void __ockl_grid_sync();  // NOLINT(bugprone-reserved-identifier): of ROCm's device library

namespace octet::simt {

struct HipThread {
    // ---- where am I
    OCTET_GPU static int thread() { return static_cast<int>(__builtin_amdgcn_workitem_id_x()); }
    OCTET_GPU static int threads() { return static_cast<int>(__builtin_amdgcn_workgroup_size_x()); }
    OCTET_GPU static int thread_again() { return thread(); }
    OCTET_GPU static u32 keep(u32 value) { return value; }
    OCTET_GPU static u32 block() { return __builtin_amdgcn_workgroup_id_x(); }
    OCTET_GPU static u32 blocks() { return __builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x(); }

    // ---- together
    OCTET_GPU static u32 shuffle_xor(u32 value, int mask) {
        const int lane = static_cast<int>(__builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u)));
        return static_cast<u32>(__builtin_amdgcn_ds_bpermute((lane ^ mask) * 4, static_cast<int>(value)));
    }
    OCTET_GPU static u32 shuffle(u32 value, int lane) { return shuffle_xor(value, thread() % unit ^ lane); }
    OCTET_GPU static void barrier() {
        __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
        __builtin_amdgcn_s_barrier();
        __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
    }

    // ---- shared memory
    template <class T>
    OCTET_GPU static T load_shared(const T* from) {
        return *from;
    }
    template <class T, class V>
    OCTET_GPU static void store_shared(T* to, V value) {
        *to = value;
    }
    OCTET_GPU static void atomic_max_shared(u32* to, u32 value) {
        __hip_atomic_fetch_max(to, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
    }
    OCTET_GPU static u32 atomic_add_shared(u32* to, u32 value) {
        return __hip_atomic_fetch_add(to, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
    }
    template <class T>
    OCTET_GPU static const T& borrow_shared(const T* from) {
        return *from;
    }
    template <class RowOf>
    OCTET_GPU void load_transposed(RowOf row_of, u32 (&words)[4]) {
        load_transposed_by_elements(*this, row_of, words);
    }

    // ---- global memory
    OCTET_GPU static Vec16 load16(const void* from, Reuse reuse = Reuse::normal) {
        const auto* words = static_cast<const Words4*>(from);
        const Words4 v = reuse == Reuse::stream ? __builtin_nontemporal_load(words) : *words;
        return {{v[0], v[1], v[2], v[3]}};
    }
    // gfx942 copies no 16 bytes past its registers: a load, and a store once they are there.
    template <Line line = Line::this_part>
    OCTET_GPU static void copy_async(Vec16* to_shared, const void* from, bool inside) {
        *to_shared = inside ? load16(from) : Vec16{{0, 0, 0, 0}};
    }
    OCTET_GPU static void copy_async(Vec16* to_shared, const void* from, bool inside, Reuse) {
        copy_async(to_shared, from, inside);
    }
    OCTET_GPU static void commit_copies() {}
    template <int later>
    OCTET_GPU static void await_copies() {}
    OCTET_GPU static void prefetch(const void*) {}
    template <Reuse = Reuse::stream>
    OCTET_GPU static void store16(void* to, Vec16 v) {
        __builtin_nontemporal_store(Words4{v.word[0], v.word[1], v.word[2], v.word[3]}, static_cast<Words4*>(to));
    }
    template <Reuse = Reuse::stream>
    OCTET_GPU static void store8(void* to, Vec8 v) {
        __builtin_nontemporal_store(Words2{v.word[0], v.word[1]}, static_cast<Words2*>(to));
    }
    OCTET_GPU static void store16(void* to, Vec16 v, Reuse) { store16(to, v); }
    OCTET_GPU static void store8(void* to, Vec8 v, Reuse) { store8(to, v); }
    OCTET_GPU static void store8_if(bool inside, void* to, Vec8 v) {
        if (inside) store8(to, v);
    }
    template <class T>
    OCTET_GPU static T load(const T* from) {
        return *from;
    }
    template <class T>
    OCTET_GPU static T load_made(const T* from) {
        return *from;
    }
    template <class T>
    OCTET_GPU static void store(T* to, T value) {
        *to = value;
    }

    // ---- across blocks
    OCTET_GPU static u32 atomic_max(u32* to, u32 value) {
        return __hip_atomic_fetch_max(to, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    }
    OCTET_GPU static void await_answer(u32 answer) { asm volatile("" ::"v"(answer) : "memory"); }
    OCTET_GPU static u32 atomic_add(u32* to, u32 value) {
        return __hip_atomic_fetch_add(to, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    }
    OCTET_GPU static void admit_folds() {}
    // Two numbers a word: they compare as integers do.
    OCTET_GPU static void fold_max(u16* to, const u16* from_shared, i32 count) {
        for (i32 i = 2 * thread(); i < count; i += 2 * threads()) {
            u32* const word = reinterpret_cast<u32*>(to + i);
            const u32 low = from_shared[i], high = from_shared[i + 1];
            u32 there = load_fresh(word), larger;
            do {
                const u32 low_there = there & 0xFFFFu, high_there = there >> 16;
                larger = (low > low_there ? low : low_there) | (high > high_there ? high : high_there) << 16;
                if (larger == there) break;
            } while (!__hip_atomic_compare_exchange_strong(word, &there, larger, __ATOMIC_RELAXED, __ATOMIC_RELAXED,
                                                           __HIP_MEMORY_SCOPE_AGENT));
        }
    }
    OCTET_GPU static void await_folds_read() {}
    OCTET_GPU static void await_folds() {}
    OCTET_GPU static u16 load_fresh(const u16* from) {
        return __hip_atomic_load(from, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    }
    OCTET_GPU static void count_done(u32* counter) {
        __hip_atomic_fetch_add(counter, 1u, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
    }
    OCTET_GPU static void await_done(const u32* counter, u32 count) {
        while (__hip_atomic_load(counter, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) < count)
            __builtin_amdgcn_s_sleep(8);
    }
    OCTET_GPU static u32 load_fresh(const u32* from) {
        return __hip_atomic_load(from, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    }
    OCTET_GPU static Vec16 load_fresh16(const u32* from) {
        return {{load_fresh(from), load_fresh(from + 1), load_fresh(from + 2), load_fresh(from + 3)}};
    }
    OCTET_GPU static void store_fresh(u8* to, u8 value) {
        __hip_atomic_store(to, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    }
    OCTET_GPU static Vec16 await_bytes(const u32* from) {
        Vec16 v = load_fresh16(from);
        while (!all_bytes(v)) {
            __builtin_amdgcn_s_sleep(1);
            v = load_fresh16(from);
        }
        return v;
    }
    OCTET_GPU static void wait(const u32* counter, u32 count) {
        while (load_fresh(counter) < count) __builtin_amdgcn_s_sleep(1);
    }

    // ---- across all blocks of a launch that runs them together
    OCTET_GPU static u32 arrive_everywhere() {
        barrier();
        return 0;
    }
    OCTET_GPU static void await_everywhere(u32) { __ockl_grid_sync(); }

    // ---- across the kernels of one call: a stream's kernels follow each other
    OCTET_GPU static void await_earlier() {}
    OCTET_GPU static void admit_later() {}

    // ---- arithmetic
    // The larger magnitudes of two bf16 pairs.
    OCTET_GPU static u32 max_magnitude_bf16x2(u32 a, u32 b) {
        return __builtin_bit_cast(u32, __builtin_elementwise_max(__builtin_bit_cast(Halves, a & 0x7FFF7FFFu),
                                                                 __builtin_bit_cast(Halves, b & 0x7FFF7FFFu)));
    }
    // A selector has a nibble a byte of the result: 0-3 are a's, 4-7 b's. The instruction wants a byte each, and b
    // first.
    OCTET_GPU static u32 permute_bytes(u32 a, u32 b, u32 selector) {
        const u32 bytes =
            (selector & 0xFu) | (selector & 0xF0u) << 4 | (selector & 0xF00u) << 8 | (selector & 0xF000u) << 12;
        return __builtin_amdgcn_perm(b, a, bytes);
    }

    OCTET_GPU static float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
    OCTET_GPU static float product(float a, float b) { return a * b; }  // -ffp-contract=off
    OCTET_GPU static float reciprocal(float x) { return 1.0f / x; }
    OCTET_GPU static u32 encode_bf16x2(float first, float second) {
        return static_cast<u32>(BF16::encode(first)) | static_cast<u32>(BF16::encode(second)) << 16;
    }

    // In integers. gfx942 converts to e4m3fnuz, gfx950 to e4m3 and e5m2: to be used once a device is at hand to show
    // that their saturation and NaNs are Octet's.
    template <class Codec>
    OCTET_GPU static u32 encode2(float first, float second) {
        return static_cast<u32>(Codec::encode(first)) | static_cast<u32>(Codec::encode(second)) << 8;
    }
    template <class Codec>
    OCTET_GPU_RARE static u32 encode4(float a, float b, float c, float d) {
        return encode2<Codec>(a, b) | encode2<Codec>(c, d) << 16;
    }

private:
    using Words4 = u32 __attribute__((ext_vector_type(4)));
    using Words2 = u32 __attribute__((ext_vector_type(2)));
    using Halves = u16 __attribute__((ext_vector_type(2)));
};

OCTET_GPU float quotient(float dividend, float divisor) { return dividend / divisor; }

template <class Kernel>
__global__ void __attribute__((amdgpu_flat_work_group_size(Kernel::threads, Kernel::threads)))
entry(typename Kernel::Params params) {
    extern __shared__ __attribute__((aligned(16))) unsigned char memory[];
    HipThread thread;
    Kernel::run(thread, params, *reinterpret_cast<typename Kernel::Shared*>(memory));
}

}  // namespace octet::simt
