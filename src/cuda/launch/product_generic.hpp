// The generic grouped product: any shape, strides, formats and GPU; slow. It serves what the Hopper kernel cannot take.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace octet::cuda {

enum class GenericFormat { e4m3, e4m3fnuz, e5m2, bf16, f32 };
enum class GenericScale { none, f32, e8m0 };
enum class GenericOutput { bf16, f32, add_f32, add_bf16 };
enum class GenericReduction {
    along_k,
    along_tokens,
    along_padded_tokens
};  // as Reduction in schedule/product_tasks.cuh

// Element (group, row, step), row along the output and step along the reduction. Strides in elements.
struct GenericOperand {
    const void* data = nullptr;
    GenericFormat format = GenericFormat::bf16;
    std::int64_t group_stride = 0, row_stride = 0, step_stride = 0;
    const void* scales = nullptr;
    GenericScale scale_format = GenericScale::none;
    std::int64_t scale_group_stride = 0, scale_row_stride = 0, scale_block_stride = 0;
    int scale_rows = 1, scale_steps = 1 << 30;  // rows and steps that share a scale
};

// out[right, left] = sum over the reduction of left . right: weights or activations on the left, tokens or gradients on
// the right.
struct GenericProduct {
    GenericReduction reduction = GenericReduction::along_k;
    GenericOperand left{}, right{};
    const std::int32_t* ends = nullptr;  // [E], device
    std::int64_t experts = 0;
    std::int64_t tokens = 0;                               // rows that the offsets may reach
    std::int64_t left_extent = 0;                          // columns of the output
    std::int64_t right_extent = 0;                         // wgrad: rows of a group's output
    std::int64_t left_reduce = 0, right_reduce = 0;        // K, or the tokens (or padded columns) of each operand
    std::int64_t left_alignment = 1, right_alignment = 1;  // of the groups' first columns, along_padded_tokens
    void* out = nullptr;
    GenericOutput output = GenericOutput::bf16;
    std::int64_t out_group_stride = 0, out_row_stride = 0;
};

void launch(const GenericProduct& product, cudaStream_t stream);

}  // namespace octet::cuda
