// How the tensor cores find an operand in shared memory. All operands are stored by the copy engine with its 128-byte
// swizzle: lines of 128 bytes, eight lines an atom of 1024 bytes, 16-byte units permuted inside the atom.
#pragma once

#include "cuda/ptx/arch.cuh"

namespace octet::cuda {

// The upper word of every descriptor: the 128-byte swizzle, and 1024 bytes from atom to atom (along the rows; where
// lines run along the rows, along the reduction).
constexpr std::uint32_t descriptor_upper = 1u << 30 | 1024 / 16;

// Rows of 128 bytes along the reduction (K-major), any number of them below each other. Moving `bytes` along the
// reduction inside the line is adding bytes / 16 to the descriptor.
__device__ __forceinline__ std::uint64_t k_major_descriptor(const void* first_row) {
    return std::uint64_t{descriptor_upper} << 32 | 1ull << 16 | ((ptx::shared_address(first_row) & 0x3FFFFu) >> 4);
}

// Lines of 64 bf16 along the rows (or columns) of the product, one line a step of the reduction; 64-wide panels of
// `panel_bytes` beside each other. Moving 16 steps along the reduction is adding 2048 / 16 to the descriptor.
__device__ __forceinline__ std::uint64_t mn_major_descriptor(const void* first_line, std::uint32_t panel_bytes) {
    return std::uint64_t{descriptor_upper} << 32 | static_cast<std::uint64_t>(panel_bytes / 16) << 16 |
           ((ptx::shared_address(first_line) & 0x3FFFFu) >> 4);
}

}  // namespace octet::cuda
