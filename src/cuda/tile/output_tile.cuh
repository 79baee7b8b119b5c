// From accumulators to memory: scale, round, transpose through shared memory, store.
#pragma once

#include "cuda/ptx/bulk_tensor.cuh"
#include "cuda/ptx/warp.cuh"

namespace octet::cuda {

enum class Output {
    bf16,
    f32,
    add_f32,  // added to what is in memory, one addition an element
};

// A warpgroup owns out[right, left] for 64 left and `Width` right indices: accumulator rows are left, columns are right, and
// the output is contiguous along left. Chunks of the tile pass through two staging buffers of 8 KB, laid out as the
// copy engine's 128-byte swizzle wants them; while the engine drains one, the next is written.
//   bf16: 64 right x 64 left, lines of 128 bytes          f32: two panels of 32 right x 32 left, lines of 128 bytes
template <Output output>
struct OutputTile {
    static constexpr int chunk_bytes = 8192;
    static constexpr int buffers = 2;
    static constexpr int box_right = 32;  // right rows of one engine store
    static constexpr int chunk_right = output == Output::bf16 ? 64 : 32;
    static constexpr int element_bytes = output == Output::bf16 ? 2 : 4;
    static constexpr int line_left = 128 / element_bytes;  // left indices of one line

    std::uint8_t* staging;      // [buffers][chunk_bytes], 1024-aligned, this warpgroup's
    const float* right_scales;  // [Width] shared, this warpgroup's
    int barrier;                // named barrier of this warpgroup
    int turn = 0;               // staging buffer to use next

    __device__ __forceinline__ void sync() const { ptx::named_sync(barrier, 128); }

    // left_scale: of accumulator rows lane/4 and lane/4 + 8 of this warp. `map`: out, box line_left x 32 x 1.
    // Rows from right_valid on belong to somebody else: where the map does not clip them (clipped_by_map false), a box
    // that would touch them is stored line by line.
    template <int Width, bool clipped_by_map>
    __device__ __forceinline__ void store(const float (&acc)[Width / 2], float left_scale_0, float left_scale_8,
                                          const CUtensorMap* map, void* out, int left_row, int left_extent,
                                          int right_row, int right_valid, int batch) {
        const int thread = static_cast<int>(threadIdx.x % 128);
#pragma unroll
        for (int first = 0; first < Width; first += chunk_right) {
            constexpr int last_width = Width % chunk_right == 0 ? chunk_right : Width % chunk_right;
            const int width = first + chunk_right <= Width ? chunk_right : last_width;
            std::uint8_t* buffer = staging + turn * chunk_bytes;
            turn ^= 1;
            if (thread == 0) ptx::store_wait_read<buffers - 1>();
            sync();
#pragma unroll
            for (int column = 0; column < width; column += 16)
                stage<Width>(acc, first + column, ptx::shared_address(buffer), column, left_scale_0, left_scale_8);
            ptx::shared_to_async_fence();
            sync();
#pragma unroll
            for (int box = 0; box < width; box += box_right) {
                const int right = first + box;
                if (clipped_by_map || right + box_right <= right_valid) {
                    if (thread == 0) send(map, buffer + box * 128, left_row, left_extent, right_row + right, batch);
                } else {
                    copy_lines(buffer + box * 128, out, left_row, left_extent, right_row + right, right_valid - right);
                }
            }
            if (thread == 0) ptx::store_commit();
        }
    }

private:
    // 16 columns of accumulators, from column `from`, into lines `line`.. of the buffer.
    template <int Width>
    __device__ __forceinline__ void stage(const float (&acc)[Width / 2], int from, std::uint32_t buffer, int line,
                                          float left_scale_0, float left_scale_8) const {
        const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32 % 4);
        const float2 s0 = *reinterpret_cast<const float2*>(right_scales + from + 2 * (lane % 4));
        const float2 s1 = *reinterpret_cast<const float2*>(right_scales + from + 8 + 2 * (lane % 4));
        const float* a = acc + from / 2;
        const float v[8] = {a[0] * left_scale_0 * s0.x, a[1] * left_scale_0 * s0.y, a[2] * left_scale_8 * s0.x,
                            a[3] * left_scale_8 * s0.y, a[4] * left_scale_0 * s1.x, a[5] * left_scale_0 * s1.y,
                            a[6] * left_scale_8 * s1.x, a[7] * left_scale_8 * s1.y};
        if constexpr (output == Output::bf16) {
            // Matrices: left 0-7 and 8-15 of the first eight columns, then of the second eight.
            const int matrix = lane / 8, row = line + matrix / 2 * 8 + lane % 8, unit = 2 * warp + matrix % 2;
            ptx::store_matrices_transposed(buffer + row * 128 + ((unit ^ (lane % 8)) << 4), ptx::bf16_pair(v[0], v[1]),
                                           ptx::bf16_pair(v[2], v[3]), ptx::bf16_pair(v[4], v[5]),
                                           ptx::bf16_pair(v[6], v[7]));
        } else {
            // The four lanes of equal lane/4 write lines 2 apart, so the swizzle gives each its own banks.
            const std::uint32_t panel = buffer + warp / 2 * 4096;
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const int row = line + i / 4 * 8 + 2 * (lane % 4) + i % 2;
                const int left = warp % 2 * 16 + i / 2 % 2 * 8 + lane / 4;
                ptx::store_shared(panel + row * 128 + (((left / 4) ^ (row % 8)) << 4) + left % 4 * 4, v[i]);
            }
        }
    }

    __device__ __forceinline__ static void send(const CUtensorMap* map, const std::uint8_t* lines, int left_row,
                                                int left_extent, int right_row, int batch) {
        if (left_row >= left_extent) return;
        if constexpr (output == Output::bf16) {
            ptx::tensor_store(map, lines, left_row, right_row, batch);
        } else {
#pragma unroll
            for (int panel = 0; panel < 2; ++panel) {
                const int left = left_row + panel * line_left;
                if (left >= left_extent) break;
                if constexpr (output == Output::f32)
                    ptx::tensor_store(map, lines + panel * 4096, left, right_row, batch);
                else
                    ptx::tensor_reduce_add(map, lines + panel * 4096, left, right_row, batch);
            }
        }
    }

    // out: [rows, left_extent], left_extent a multiple of 16 bytes. Only for boxes cut by the end of a group.
    __device__ __forceinline__ static void copy_lines(const std::uint8_t* lines, void* out, int left_row, int left_extent,
                                                      int right_row, int right_valid) {
        constexpr int panels = output == Output::bf16 ? 1 : 2, unit_left = 16 / element_bytes;
        const int thread = static_cast<int>(threadIdx.x % 128), unit = thread % 8;
#pragma unroll
        for (int panel = 0; panel < panels; ++panel) {
#pragma unroll
            for (int row = thread / 8; row < box_right; row += 16) {
                const int left = left_row + panel * line_left + unit * unit_left;
                if (row >= right_valid || left >= left_extent) continue;
                const uint4 value = *reinterpret_cast<const uint4*>(lines + panel * 4096 + row * 128 + ((unit ^ (row % 8)) << 4));
                const std::int64_t element = static_cast<std::int64_t>(right_row + row) * left_extent + left;
                *reinterpret_cast<uint4*>(static_cast<std::uint8_t*>(out) + element * element_bytes) = value;
            }
        }
    }
};

}  // namespace octet::cuda
