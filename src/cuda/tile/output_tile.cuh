// From accumulators to memory: scale, round and transpose into shared memory (the multiplying warpgroup), then store (a
// warp of its own, so that nobody who multiplies waits for the copy engine).
#pragma once

#include "cuda/ptx/bulk_tensor.cuh"
#include "cuda/ptx/warp.cuh"
#include "cuda/tile/ring.cuh"

namespace octet::cuda {

enum class Output {
    bf16,
    f32,
    // Added to what is in memory, one addition an element:
    add_f32,      // the old tile is read while the new one is multiplied. For many tiles of little work
    reduce_f32,   // the copy engine adds in L2. For long reductions: it needs no room for the old tile
    reduce_bf16,  // the same, the new tile rounded before
};
constexpr bool writes_bf16(Output output) { return output == Output::bf16 || output == Output::reduce_bf16; }

// A warpgroup owns out[right, left] for 64 left indices and the tile's right indices: accumulator rows are left,
// columns are right, and the output is contiguous along left. It passes through shared memory laid out as the copy
// engine's 128-byte swizzle wants it: lines of 128 bytes, a line a right index; bf16 has one panel of 64 left, f32 two
// panels of 32. With room for a whole tile it is staged at once and drains while the next tile is multiplied; with
// less, in chunks.
template <Output output_, int staging_bytes_, int buffers_, int box_right_ = 32>
struct OutputLayout {
    static constexpr Output output = output_;
    static constexpr bool adds = output == Output::add_f32;
    static constexpr int staging_bytes = staging_bytes_;
    static constexpr int buffers = buffers_;
    static constexpr bool reduces = output == Output::reduce_f32 || output == Output::reduce_bf16;
    static constexpr int element_bytes = writes_bf16(output) ? 2 : 4;
    static constexpr int line_left = 128 / element_bytes;  // left indices of one line
    static constexpr int panels = 64 / line_left;
    static constexpr int box_right = box_right_;  // right rows of one engine store
    static constexpr int chunk_bytes = staging_bytes / buffers;
    static constexpr int chunk_right = chunk_bytes / (panels * 128);
    static constexpr int panel_bytes = chunk_right * 128;
    static_assert(chunk_right % box_right == 0 && chunk_bytes % 1024 == 0);
};

// Where the accumulator rows are the output's rows: chunks of 64 rows by 64 columns, the output being contiguous along
// the columns.
template <Output output, int right_tile>
using RowOutputLayout =
    std::conditional_t<writes_bf16(output), OutputLayout<output, right_tile / 64 * 8192, right_tile / 64>,
                       OutputLayout<output, 16384, 1>>;

// Where a warpgroup has half of the tile's columns, 64 left indices at a time; added to, the old ones of all 128.
template <Output output, int right_tile, int buffers = output == Output::add_f32 ? 2 : 1>
using HalvedOutputLayout =
    OutputLayout<output, buffers * right_tile / 2 * (writes_bf16(output) ? 128 : 256), buffers, 16>;

// Staging buffers of one multiplying warpgroup.
template <class Layout>
struct alignas(1024) OutputChunks {
    std::uint8_t bytes[Layout::buffers][Layout::chunk_bytes];
};

// What else a multiplying warpgroup and its storing warp share.
template <class Layout, int right_tile>
struct OutputStorage {
    alignas(16) float right_scales[right_tile];
    float left_scales[64];
    ptx::Barrier scales_ready, staged[Layout::buffers],
        drained[Layout::buffers];  // adds: drained and the old tile is in

    __device__ void init() {
        ptx::barrier_init(&scales_ready, ptx::warp_arrivals);
        for (int buffer = 0; buffer < Layout::buffers; ++buffer) {
            ptx::barrier_init(&staged[buffer], 4 * ptx::warp_arrivals);  // warps of the warpgroup
            ptx::barrier_init(&drained[buffer], Layout::adds ? 1 : ptx::warp_arrivals);
        }
    }
};

// The multiplying warpgroup's side.
template <class Layout, int right_tile, bool scaled>
struct OutputStager {
    OutputStorage<Layout, right_tile>& storage;
    OutputChunks<Layout>& chunks;
    RingPosition<Layout::buffers> position{};
    std::uint32_t scales_phase = 0;

    template <int Width>
    __device__ __forceinline__ void stage(const float (&acc)[Width / 2]) {
        const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32 % 4);
        float left_0 = 1, left_8 = 1;
        if constexpr (scaled) {
            ptx::barrier_wait(&storage.scales_ready, scales_phase);
            scales_phase ^= 1;
            left_0 = storage.left_scales[warp * 16 + lane / 4];
            left_8 = storage.left_scales[warp * 16 + lane / 4 + 8];
        }
        // Scales of the next 32 columns are read while these are converted.
        float2 scales[4], next[4];
        read_scales<Width>(0, scales);
#pragma unroll
        for (int column = 0; column < Width; column += 32) {
            if (column % Layout::chunk_right == 0)
                ptx::barrier_wait(&storage.drained[position.slot], Layout::adds ? position.phase : position.phase ^ 1);
            if (column + 32 < Width) read_scales<Width>(column + 32, next);
            const std::uint32_t chunk = ptx::shared_address(chunks.bytes[position.slot]);
            write<Width>(acc, column, chunk, scales[0], scales[1], left_0, left_8);
            if (column + 16 < Width) write<Width>(acc, column + 16, chunk, scales[2], scales[3], left_0, left_8);
            if ((column + 32) % Layout::chunk_right == 0 || column + 32 >= Width) {
                ptx::shared_to_async_fence();
                ptx::warp_arrive(&storage.staged[position.slot]);
                position.advance();
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) scales[i] = next[i];
        }
    }

    // Accumulator rows are the output's rows.
    template <int Width>
    __device__ __forceinline__ void stage_rows(const float (&acc)[Width / 2]) {
        static_assert(!scaled && Layout::chunk_right == 64);
        constexpr bool whole = Layout::buffers * 64 >= right_tile;  // one fence for all: each is 150 clocks
        RingPosition<Layout::buffers> filled = position;
#pragma unroll
        for (int first = 0; first < Width; first += 64) {
            ptx::barrier_wait(&storage.drained[filled.slot], filled.phase ^ 1);
            const std::uint32_t chunk = ptx::shared_address(chunks.bytes[filled.slot]);
#pragma unroll
            for (int column = first; column < first + 64 && column < Width; column += 16)
                write_rows(&acc[column / 2], column - first, chunk);
            filled.advance();
            if (whole && first + 64 < Width) continue;
            ptx::shared_to_async_fence();
            __syncwarp();
            for (int chunk_first = whole ? 0 : first; chunk_first <= first; chunk_first += 64) {
                if (ptx::lane_arrives()) ptx::barrier_arrive(&storage.staged[position.slot]);
                position.advance();
            }
        }
    }

    // In place of stage_rows where there is no row to store.
    __device__ __forceinline__ void pass_over_rows(int width) {
        for (int first = 0; first < width; first += 64) {
            ptx::barrier_wait(&storage.drained[position.slot], position.phase ^ 1);
            ptx::warp_arrive(&storage.staged[position.slot]);
            position.advance();
        }
    }

private:
    // 16 columns of accumulators at `column` of a chunk.
    __device__ __forceinline__ static void write_rows(const float* v, int column, std::uint32_t chunk) {
        const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32 % 4);
        if constexpr (writes_bf16(Layout::output)) {
            // Matrices: rows 0-7 and 8-15 of the first eight columns, then of the second eight.
            const int matrix = lane / 8, row = warp * 16 + matrix % 2 * 8 + lane % 8, unit = column / 8 + matrix / 2;
            ptx::store_matrices(chunk + row * 128 + ((unit ^ (lane % 8)) << 4), ptx::bf16_pair(v[0], v[1]),
                                ptx::bf16_pair(v[2], v[3]), ptx::bf16_pair(v[4], v[5]), ptx::bf16_pair(v[6], v[7]));
        } else {
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const int row = warp * 16 + i / 2 % 2 * 8 + lane / 4;
                const int left = (column + i / 4 * 8) % 32 + 2 * (lane % 4) + i % 2;
                const std::uint32_t panel = chunk + column / 32 * Layout::panel_bytes;
                ptx::store_shared(panel + row * 128 + (((left / 4) ^ (row % 8)) << 4) + left % 4 * 4, v[i]);
            }
        }
    }

    template <int Width>
    __device__ __forceinline__ void read_scales(int column, float2 (&scales)[4]) const {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if constexpr (scaled)
                scales[i] =
                    *reinterpret_cast<const float2*>(storage.right_scales + column + 8 * i + 2 * (threadIdx.x % 4));
            else
                scales[i] = {1, 1};
        }
    }

    // 16 columns of accumulators, from `column` on, into lines of the chunk.
    template <int Width>
    __device__ __forceinline__ void write(const float (&acc)[Width / 2], int column, std::uint32_t chunk, float2 s0,
                                          float2 s1, float left_0, float left_8) const {
        const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32 % 4);
        const int line = column % Layout::chunk_right;
        float v[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            v[i] = acc[column / 2 + i];
            if constexpr (scaled) {
                const float2 right = i < 4 ? s0 : s1;
                v[i] = v[i] * (i / 2 % 2 ? left_8 : left_0) * (i % 2 ? right.y : right.x);
            }
        }
        if constexpr (writes_bf16(Layout::output)) {
            // Matrices: left 0-7 and 8-15 of the first eight columns, then of the second eight.
            const int matrix = lane / 8, row = line + matrix / 2 * 8 + lane % 8, unit = 2 * warp + matrix % 2;
            ptx::store_matrices_transposed(chunk + row * 128 + ((unit ^ (lane % 8)) << 4), ptx::bf16_pair(v[0], v[1]),
                                           ptx::bf16_pair(v[2], v[3]), ptx::bf16_pair(v[4], v[5]),
                                           ptx::bf16_pair(v[6], v[7]));
        } else {
            // The four lanes of equal lane/4 write lines 2 apart, so the swizzle gives each its own banks.
            const std::uint32_t panel = chunk + warp / 2 * Layout::panel_bytes;
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const int row = line + i / 4 * 8 + 2 * (lane % 4) + i % 2;
                const int left = warp % 2 * 16 + i / 2 % 2 * 8 + lane / 4;
                const std::uint32_t place = panel + row * 128 + (((left / 4) ^ (row % 8)) << 4) + left % 4 * 4;
                ptx::store_shared(place, Layout::adds ? ptx::load_shared(place) + v[i] : v[i]);
            }
        }
    }
};

// The storing warp's side: one tile, out[right_row .. + right_valid, left_row .. + 64] of batch `batch`.
template <class Layout, int right_tile>
struct OutputDrainer {
    OutputStorage<Layout, right_tile>& storage;
    const OutputChunks<Layout>& chunks;
    const CUtensorMap* map;  // box line_left x 32 x 1
    void* out;               // [rows, left_extent], left_extent a multiple of 16 bytes
    int left_extent;
    RingPosition<Layout::buffers> position{};
    int pending = -1;  // buffer that the engine may still be reading

    // Adds: asks for the old tile, or what of it goes into a buffer, once the engine has read what that held before.
    __device__ void fetch(int width, int left_row, int right_row, int batch, int buffer = 0) const {
        if (!ptx::elect_lane()) return;
        ptx::Barrier* arrived = &storage.drained[buffer];
        const int panels = min(Layout::panels, (left_extent - left_row + Layout::line_left - 1) / Layout::line_left);
        ptx::barrier_arrive_expect(arrived, max(panels, 0) * width * 128);
        for (int panel = 0; panel < panels; ++panel)
            for (int right = 0; right < width; right += Layout::box_right)
                ptx::tensor_load(
                    const_cast<std::uint8_t*>(chunks.bytes[buffer]) + panel * Layout::panel_bytes + right * 128, map,
                    arrived, left_row + panel * Layout::line_left, right_row + right, batch);
    }

    // Rows from right_valid on belong to somebody else. Where the map clips them (clipped) all is left to the engine;
    // where it does not, a box that would touch them is stored line by line.
    template <bool clipped>
    __device__ void drain(int width, int left_row, int right_row, int right_valid, int batch) {
        for (int first = 0; first < width; first += Layout::chunk_right) {
            ptx::barrier_wait(&storage.staged[position.slot], position.phase);
            const std::uint8_t* chunk = chunks.bytes[position.slot];
            for (int box = 0; box < Layout::chunk_right && first + box < width; box += Layout::box_right) {
                const int right = first + box;
                if (clipped || right + Layout::box_right <= right_valid) {
                    if (ptx::elect_lane()) send(chunk + box * 128, left_row, right_row + right, batch);
                } else {
                    copy_lines(chunk + box * 128, left_row, right_row + right, right_valid - right);
                }
            }
            __syncwarp();
            if (ptx::elect_lane()) ptx::store_commit();
            if (Layout::buffers > 1 && !Layout::adds && pending >= 0) {
                if (ptx::elect_lane()) ptx::store_wait_read<1>();
                ptx::warp_arrive(&storage.drained[pending]);
            }
            pending = position.slot;
            position.advance();
        }
    }

    // out[row .. + rows, column .. + width] of batch `batch`, staged by stage_rows; rows from there on belong to
    // somebody else, or are clipped by the map.
    __device__ void drain_columns(int width, int column, int row, int rows, int batch) {
        for (int first = 0; first < width; first += 64) {
            ptx::barrier_wait(&storage.staged[position.slot], position.phase);
            const std::uint8_t* chunk = chunks.bytes[position.slot];
            for (int box = 0; box < 64 && box < rows; box += Layout::box_right) {
                if (box + Layout::box_right <= rows) {
                    if (ptx::elect_lane()) send(chunk + box * 128, column + first, row + box, batch);
                } else {
                    copy_lines(chunk + box * 128, column + first, row + box, rows - box);
                }
            }
            __syncwarp();
            if (ptx::elect_lane()) ptx::store_commit();
            if (Layout::buffers > 1 && pending >= 0) {
                if (ptx::elect_lane()) ptx::store_wait_read<1>();
                ptx::warp_arrive(&storage.drained[pending]);
            }
            pending = position.slot;
            position.advance();
            if constexpr (Layout::buffers == 1) finish();
        }
    }

    // Waits until the engine has read the last chunk, and gives its buffer back.
    __device__ void finish() {
        if (pending >= 0) {
            if (ptx::elect_lane()) ptx::store_wait_read<0>();
            if constexpr (!Layout::adds) ptx::warp_arrive(&storage.drained[pending]);
        }
        pending = -1;
    }

private:
    __device__ __forceinline__ void send(const std::uint8_t* lines, int left_row, int right_row, int batch) const {
#pragma unroll
        for (int panel = 0; panel < Layout::panels; ++panel) {
            const int left = left_row + panel * Layout::line_left;
            if (left >= left_extent) break;
            if constexpr (Layout::reduces)
                ptx::tensor_reduce_add(map, lines + panel * Layout::panel_bytes, left, right_row, batch);
            else
                ptx::tensor_store(map, lines + panel * Layout::panel_bytes, left, right_row, batch);
        }
    }

    __device__ __forceinline__ void copy_lines(const std::uint8_t* lines, int left_row, int right_row,
                                               int right_valid) const {
        constexpr int unit_left = 16 / Layout::element_bytes;
        const int lane = static_cast<int>(threadIdx.x % 32), unit = lane % 8;
        for (int panel = 0; panel < Layout::panels; ++panel) {
            for (int row = lane / 8; row < Layout::box_right; row += 4) {
                const int left = left_row + panel * Layout::line_left + unit * unit_left;
                if (row >= right_valid || left >= left_extent) continue;
                const uint4 value = *reinterpret_cast<const uint4*>(lines + panel * Layout::panel_bytes + row * 128 +
                                                                    ((unit ^ (row % 8)) << 4));
                const std::int64_t element = static_cast<std::int64_t>(right_row + row) * left_extent + left;
                auto* place =
                    reinterpret_cast<uint4*>(static_cast<std::uint8_t*>(out) + element * Layout::element_bytes);
                if constexpr (Layout::output == Output::reduce_bf16)
                    *place = ptx::add_bf16(*place, value);
                else
                    *place = value;
            }
        }
    }
};

}  // namespace octet::cuda
