#include "cpu/simd.hpp"

#include <algorithm>
#include <atomic>

#include "octet/error.hpp"

namespace octet::cpu {
namespace {

constexpr int not_forced = -1;
std::atomic<int> forced{not_forced};

std::vector<Target> find_targets() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool sse4 = __builtin_cpu_supports("sse4.1") && __builtin_cpu_supports("sse4.2") &&
                      __builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul");
    const bool avx2 = sse4 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                      __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    std::vector<Target> found;
    if (sse4) found.push_back(Target::baseline);
    if (avx2) found.push_back(Target::avx2);
    if (avx512) found.push_back(Target::avx512);
    return found;
#else
    return {Target::baseline};
#endif
}

}  // namespace

std::string_view name(Target target) {
    switch (target) {
        case Target::baseline: return "baseline";
        case Target::avx2: return "avx2";
        case Target::avx512: return "avx512";
    }
    return "?";
}

const std::vector<Target>& supported_targets() {
    static const std::vector<Target> targets = find_targets();
    return targets;
}

Target active_target() {
    const int value = forced.load(std::memory_order_relaxed);
    if (value != not_forced) return static_cast<Target>(value);
    if (supported_targets().empty())
        fail(Status::unsupported,
             "this processor has no SSE4.2 with AES, which the CPU backend needs; use the reference backend");
    return supported_targets().back();
}

ForcedTarget::ForcedTarget(Target target) {
    const auto& targets = supported_targets();
    require(std::find(targets.begin(), targets.end(), target) != targets.end(), "target ", name(target),
            " is not supported by this build and machine");
    forced = static_cast<int>(target);
}

ForcedTarget::~ForcedTarget() { forced = not_forced; }

}  // namespace octet::cpu
