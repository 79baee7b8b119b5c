// Every header under ptx/ includes this one: code for another architecture does not compile, so a kernel can never be
// an empty shell that runs and does nothing.
#pragma once

#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#error \
    "octet: this kernel needs -gencode=arch=compute_90a,code=sm_90a (Hopper); it was compiled for another architecture"
#endif

#include <cstdint>

namespace octet::cuda::ptx {

// The 32-bit address that shared-memory instructions take.
__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

}  // namespace octet::cuda::ptx
