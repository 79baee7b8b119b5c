// Which instruction set the SIMD kernels run with: compiled for several, chosen at run time.
//
// Every kernel file compiles itself once a target through Highway's foreach_target. Highway's own run-time dispatch
// lives in its shared library, which a relocatable program does not have, so the choice is made here and only
// Highway's headers are used.
#pragma once

#include <string_view>
#include <vector>

#include "octet/format.hpp"

// Assertions inside Highway's headers would need its library.
#define HWY_IS_DEBUG_BUILD 0
// The targets: AVX-512, AVX2 and SSE4 on x86-64 (every such machine since 2011), NEON on arm64.
#define HWY_DISABLED_TARGETS (HWY_AVX3_DL | HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#if defined(__x86_64__)
#define HWY_BASELINE_TARGETS HWY_SSE4
#endif

namespace octet::cpu {

enum class Target { baseline, avx2, avx512 };  // baseline: SSE4 or NEON

std::string_view name(Target target);
const std::vector<Target>& supported_targets();  // by this build and this machine, worst first
Target active_target();  // the best of them, unless a ForcedTarget lives; throws where there is none

// For tests: makes every kernel run with one target while it lives. Not for several at a time.
class ForcedTarget {
public:
    explicit ForcedTarget(Target target);
    ~ForcedTarget();
    ForcedTarget(const ForcedTarget&) = delete;
    ForcedTarget& operator=(const ForcedTarget&) = delete;
};

// One target's kernels for every input format (bf16, f32) and 8-bit format (e4m3, e4m3fnuz, e5m2).
template <class Kernels>
struct KernelTable {
    Kernels entries[2][3];
    const Kernels& of(Format input, Format data) const {
        return entries[input == Format::f32][data == Format::e4m3 ? 0 : data == Format::e4m3fnuz ? 1 : 2];
    }
};

// The active target's table; a target that was not compiled is null, the baseline never is.
template <class Table>
const Table& choose(const Table* baseline, const Table* avx2, const Table* avx512) {
    const Table* tables[] = {baseline, avx2, avx512};
    return *tables[static_cast<int>(active_target())];
}

}  // namespace octet::cpu

// After foreach_target, in the section that is compiled once: OCTET_CHOOSE(table) picks among N_AVX3::table and so on.
#define OCTET_CHOOSE(table) choose(&HWY_STATIC_DISPATCH(table), OCTET_AVX2(table), OCTET_AVX512(table))
