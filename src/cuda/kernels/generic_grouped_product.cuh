// Grouped product for every shape, recipe and GPU: plain f32 arithmetic, one element decoded at a time. It serves what
// the Hopper kernel cannot take (rows that are not a multiple of 16 bytes, gaps, other formats, other GPUs). Same roles
// as there: out[right, left], tokens or gradients on the right, weights or activations on the left.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include "cuda/launch/product_generic.hpp"
#include "cuda/schedule/product_tasks.cuh"

namespace octet::cuda {

__device__ inline float decode_scale(const GenericOperand& operand, std::int64_t index) {
    if (operand.scale_format == GenericScale::f32) return static_cast<const float*>(operand.scales)[index];
    const unsigned exponent = static_cast<const unsigned char*>(operand.scales)[index];
    // 2^-127 is subnormal in f32; 255 is NaN.
    return __uint_as_float(exponent == 0 ? 0x00400000u : exponent == 255 ? 0x7FC00000u : exponent << 23);
}

// fnuz: bias 8, no infinity, no -0; its code for -0 is NaN.
__device__ inline float decode_e4m3fnuz(unsigned byte) {
    if (byte == 0x80) return __uint_as_float(0x7FC00000u);
    const unsigned exponent = byte >> 3 & 15, mantissa = byte & 7;
    const float magnitude = exponent == 0 ? static_cast<float>(mantissa) * 0x1p-10f
                                          : static_cast<float>(8 + mantissa) * __uint_as_float((exponent + 116) << 23);
    return byte & 0x80 ? -magnitude : magnitude;
}

__device__ inline float decode_element(const void* data, GenericFormat format, std::int64_t index) {
    if (format == GenericFormat::f32) return static_cast<const float*>(data)[index];
    if (format == GenericFormat::bf16) return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[index]);
    const auto byte = static_cast<const __nv_fp8_storage_t*>(data)[index];
    if (format == GenericFormat::e4m3fnuz) return decode_e4m3fnuz(byte);
    return __half2float(__half(__nv_cvt_fp8_to_halfraw(byte, format == GenericFormat::e4m3 ? __NV_E4M3 : __NV_E5M2)));
}

__device__ inline float load_element(const GenericOperand& operand, int group, int row, int step) {
    const std::int64_t index = group * operand.group_stride + row * operand.row_stride + step * operand.step_stride;
    const float value = decode_element(operand.data, operand.format, index);
    if (operand.scale_format == GenericScale::none) return value;
    return value * decode_scale(operand, group * operand.scale_group_stride +
                                             row / operand.scale_rows * operand.scale_row_stride +
                                             step / operand.scale_steps * operand.scale_block_stride);
}

constexpr int generic_tile = 64, generic_steps = 16, generic_threads = 256;

template <Reduction reduction>
__global__ void __launch_bounds__(generic_threads)
    generic_grouped_product(const __grid_constant__ GenericProduct product,
                            const __grid_constant__ ProductShape shape) {
    __shared__ float left_tile[generic_steps][generic_tile + 1], right_tile[generic_steps][generic_tile + 1];
    const int thread = static_cast<int>(threadIdx.x), x = thread % 16,
              y = thread / 16;  // left and right of this thread, + 16 i
    ProductSchedule<reduction, generic_tile, generic_tile, generic_steps> schedule(shape);
    for (int round = 0;; ++round) {
        const ProductTask task = schedule.task(round, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
        if (task.blocks < 0) return;

        // Steps beside each other in memory go to threads beside each other.
        const auto fill = [&](float(&into)[generic_steps][generic_tile + 1], const GenericOperand& operand,
                              int first_row, int rows, int first_step, int steps) {
            for (int i = thread; i < generic_tile * generic_steps; i += generic_threads) {
                const int row = operand.step_stride == 1 ? i / generic_steps : i % generic_tile;
                const int step = operand.step_stride == 1 ? i % generic_steps : i / generic_tile;
                into[step][row] = row < rows && step < steps
                                      ? load_element(operand, task.group, first_row + row, first_step + step)
                                      : 0.0f;
            }
        };
        // Never past the operands, whatever the offsets say.
        const int length =
            min(task.reduce_length, min(shape.left_reduce - task.left_first, shape.right_reduce - task.right_first));
        float acc[4][4] = {};  // [right][left]
        for (int done = 0; done < length; done += generic_steps) {
            const int steps = length - done;
            __syncthreads();
            fill(left_tile, product.left, task.left_row, shape.left_extent - task.left_row, task.left_first + done,
                 steps);
            fill(right_tile, product.right, task.right_row, task.right_valid, task.right_first + done, steps);
            __syncthreads();
#pragma unroll
            for (int step = 0; step < generic_steps; ++step)
#pragma unroll
                for (int i = 0; i < 4; ++i)
#pragma unroll
                    for (int j = 0; j < 4; ++j) acc[i][j] += right_tile[step][y + 16 * i] * left_tile[step][x + 16 * j];
        }
        const std::int64_t first = (reduction == Reduction::along_k ? 0 : task.group * product.out_group_stride) +
                                   task.right_row * product.out_row_stride;
        for (int i = 0; i < 4; ++i) {
            for (int j = 0; j < 4; ++j) {
                const int row = y + 16 * i, column = task.left_row + x + 16 * j;
                if (row >= task.right_valid || column >= shape.left_extent) continue;
                const std::int64_t index = first + row * product.out_row_stride + column;
                const __nv_bfloat16 rounded = __float2bfloat16_rn(acc[i][j]);
                auto* const halves = static_cast<__nv_bfloat16*>(product.out);
                if (product.output == GenericOutput::bf16)
                    halves[index] = rounded;
                else if (product.output == GenericOutput::add_bf16)
                    halves[index] = __float2bfloat16_rn(__bfloat162float(halves[index]) + __bfloat162float(rounded));
                else if (product.output == GenericOutput::f32)
                    static_cast<float*>(product.out)[index] = acc[i][j];
                else
                    static_cast<float*>(product.out)[index] += acc[i][j];
            }
        }
    }
}

}  // namespace octet::cuda
