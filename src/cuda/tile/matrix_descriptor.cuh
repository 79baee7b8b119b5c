// How the tensor cores find an operand in shared memory. All operands are stored by the copy engine with its 128-byte
// swizzle: lines of 128 bytes, eight lines an atom of 1024 bytes, 16-byte units permuted inside the atom.
#pragma once

#include "cuda/ptx/arch.cuh"

namespace octet::cuda {

// Rows of 128 bytes along the reduction (K-major), any number of them below each other. Moving `bytes` along the
// reduction inside the line is adding bytes / 16 to the descriptor.
__device__ __forceinline__ std::uint64_t k_major_descriptor(const void* first_row) {
    constexpr std::uint64_t swizzle_128 = 1ull << 62;
    constexpr std::uint64_t atom_to_atom = 1024 / 16;  // along the rows
    return swizzle_128 | atom_to_atom << 32 | 1ull << 16 | ((ptx::shared_address(first_row) & 0x3FFFFu) >> 4);
}

// Lines of 64 bf16 along the rows (or columns) of the product, one line a step of the reduction; 64-wide panels of
// `panel_bytes` beside each other. Moving 16 steps along the reduction is adding 2048 / 16 to the descriptor.
__device__ __forceinline__ std::uint64_t mn_major_descriptor(const void* first_line, std::uint32_t panel_bytes) {
    constexpr std::uint64_t swizzle_128 = 1ull << 62;
    constexpr std::uint64_t atom_to_atom = 1024 / 16;  // along the reduction
    return swizzle_128 | atom_to_atom << 32 | static_cast<std::uint64_t>(panel_bytes / 16) << 16 |
           ((ptx::shared_address(first_line) & 0x3FFFFu) >> 4);
}

}  // namespace octet::cuda
