// A kernel that was launched with programmatic stream serialization starts while the one before it in the stream ends.
#pragma once

#include "cuda/ptx/arch.cuh"

namespace octet::cuda::ptx {

// Until the kernels before are done and what they wrote can be read; before the first access to global memory. At once
// where there is nothing to wait for.
__device__ __forceinline__ void await_previous_kernels() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// The next kernel may take the place of blocks that are done. It sees nothing of this one before all of it is.
__device__ __forceinline__ void let_next_kernel_start() { asm volatile("griddepcontrol.launch_dependents;"); }

}  // namespace octet::cuda::ptx
