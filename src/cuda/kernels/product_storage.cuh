// What one instance of the Hopper product kernel is made of: its configuration, its arguments and its shared memory.
#pragma once

#include <type_traits>

#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/schedule/product_tasks.cuh"
#include "cuda/tile/output_tile.cuh"
#include "cuda/tile/ring.cuh"

namespace octet::cuda {

enum class Element {
    e4m3,
    e4m3_e5m2,  // e4m3, and e5m2 for gradients
    bf16,
    mx,  // e4m3 in blocks of 32 with a power of two each: left decoded on the way to the tensor cores, right before
};
enum class Accumulation {
    fast,      // in the tensor cores, through the whole reduction
    promoted,  // added to f32 registers after every 128 bytes of the reduction
    blocks,    // the same, each 128 with its own scales (fp8_blockwise)
};

// How an operand lies in memory.
enum class Lies {
    along_reduction,   // the reduction is contiguous
    across_reduction,  // the rows of the product are; the tensor cores transpose, 16-bit elements only
};

// Which operand has the rows of the output: tokens in forward and dgrad, gradients in wgrad.
enum class Rows { right, left };

template <Element element_, Reduction reduction_, Lies left_lies_, Output output_, Accumulation accumulation_,
          int right_tile_, int slots_, Rows rows_ = Rows::right, int cluster_ = 1>
struct ProductConfig {
    static constexpr Element element = element_;
    static constexpr Reduction reduction = reduction_;
    static constexpr Output output = output_;
    static constexpr Accumulation accumulation = accumulation_;
    static constexpr bool fp8 = element == Element::e4m3 || element == Element::e4m3_e5m2;
    static constexpr int left_tile = 128;
    static constexpr int right_tile = right_tile_;
    static constexpr int element_bytes = fp8 ? 1 : 2;  // as multiplied
    static constexpr bool decoded = element == Element::mx;
    static constexpr int left_line = decoded ? 64 : 128;     // bytes of a left row in a slot
    static constexpr int reduce_tile = 128 / element_bytes;  // one swizzled line
    static constexpr int slots = slots_;
    // Where shared memory is left for it, a whole bf16 tile of each multiplying warpgroup waits there for its store; a
    // tile that is added to waits there whole in any case.
    static constexpr int slot_bytes = left_tile * left_line + right_tile * 128;
    static constexpr bool rows_left = rows_ == Rows::left;
    static constexpr bool tokens_left = rows_left && reduction == Reduction::along_k;
    // Blockwise wgrad: scales on both sides, of which a lane needs two for its rows and one for each of its columns. So
    // each multiplying warpgroup has all 128 rows of half of the columns, in two turns: half as many to read.
    static constexpr bool columns_halved = accumulation == Accumulation::blocks && reduction != Reduction::along_k;
    // Two blocks of a cluster multiply the same right rows with a left tile each, and load half of the right rows for
    // each other.
    static constexpr int cluster = cluster_;
    // Columns of the first warpgroup, of a tile of `width`.
    __host__ __device__ static constexpr int first_columns(int width) {
        return width == right_tile ? right_tile / 2 : (width / 2 + 31) / 32 * 32;
    }
    static constexpr int spare_bytes =
        227 * 1024 - slots * slot_bytes - (decoded ? 6144 : 4096);  // barriers, scales, tasks
    static constexpr bool adds = output == Output::add_f32;
    static constexpr bool whole_tile_staged = adds || (writes_bf16(output) && spare_bytes >= 2 * right_tile * 128);
    static constexpr int staging_bytes = whole_tile_staged      ? right_tile * (adds ? 256 : 128)
                                         : spare_bytes >= 65536 ? 32768
                                                                : 16384;
    using OutputLayout = std::conditional_t<
        rows_left, RowOutputLayout<output, rows_left ? right_tile : 64>,
        std::conditional_t<columns_halved, HalvedOutputLayout<output, right_tile>,
                           octet::cuda::OutputLayout<output, staging_bytes, whole_tile_staged ? 1 : 2>>>;
    static constexpr int threads = 384;
    // Registers of a thread at launch, and of those who feed and who multiply. With one set of accumulators enough are
    // left on a multiprocessor for a block of 128 threads that casts meanwhile (gpu/columns_by_peaks.hpp).
    static constexpr bool leaves_room = accumulation == Accumulation::fast;
    static constexpr int registers = leaves_room ? 160 : 168, feed_registers = leaves_room ? 48 : 56,
                         multiply_registers = leaves_room ? 216 : 224;
    static constexpr int task_readers = 11;  // warps: 1 feeding, 2 storing, 8 multiplying
    // On a full slot: the engine, and 32 lanes where they bring scales.
    static constexpr int tile_arrivals = decoded || accumulation == Accumulation::blocks ? 33 : 1;
    static constexpr bool scaled_blocks = accumulation == Accumulation::blocks;
    static constexpr bool scaled_rows = fp8 && !scaled_blocks;
    // Operands whose reduction is not contiguous lie in shared memory as panels of 64 along the rows.
    static constexpr bool left_panels = left_lies_ == Lies::across_reduction;
    static constexpr bool right_panels = reduction == Reduction::along_tokens;
    static constexpr int panel_bytes = 64 * 128;
    static constexpr int step = reduce_tile / 4;  // of the reduction, one instruction
    using Schedule = ProductSchedule<reduction, left_tile, right_tile, reduce_tile, rows_left, cluster>;
    static constexpr bool draws_tickets = reduction != Reduction::along_k;

    static_assert(right_tile % 32 == 0 && right_tile <= 256 && (right_tile % 64 == 0 || !right_panels));
    static_assert(!right_panels || left_panels, "tokens as rows: of both operands");
    static_assert(!rows_left || tokens_left || (decoded && !adds));
    static_assert(!left_panels || (element == Element::bf16 && accumulation == Accumulation::fast),
                  "the tensor cores transpose 16-bit operands only");
    static_assert(!decoded || accumulation == Accumulation::fast);
    static_assert(accumulation == Accumulation::fast || right_tile <= 192 || (columns_halved && right_tile == 224),
                  "two sets of accumulators must fit the registers");
    static_assert(!scaled_blocks || fp8);
};

struct ProductParameters {
    ProductShape shape;
    const float* left_scales;   // rows: [groups, left_extent]
    const float* right_scales;  // rows: [tokens] forward; [groups, right_extent] wgrad
    const std::uint8_t*
        left_exponents;  // mx: [groups, left_extent, scale_blocks] forward, [left_extent, scale_blocks] wgrad
    int scale_blocks;  // blocks: left_scales [scale_blocks, tokens] and right_scales [groups, ceil(left_extent / 128),
                       // scale_blocks] forward; [scale_blocks, left_extent] and [scale_blocks, right_extent] wgrad
    void* out;         // [tokens, left_extent] forward; [groups, right_extent, left_extent] wgrad
    const std::uint32_t* large_exponents = nullptr;  // mx: [mx_lookers], not zero where a left exponent is over 134
    int exponent_pitch = scale_blocks;               // mx: from row to row of left_exponents
    unsigned* tickets = nullptr;  // wgrad: zero, and zero again when it is done; null: tiles are dealt
};

// Where the scale of a left row lies. A lane of the tensor cores' layout owns rows r and r + 8 of 16: beside each
// other, so that it reads them at once.
__device__ inline int left_place(int row) { return row / 16 * 16 + row % 8 * 2 + row / 8 % 2; }

// The scales of one slot, blockwise wgrad. A lane of the tensor cores' layout owns columns 8j + 2q and 8j + 2q + 1 for
// its q = lane % 4: its scales lie beside each other, and the four q's in different banks.
template <int right_tile>
struct SlotScales {
    static constexpr int stride = right_tile / 4 + 4;
    alignas(16) float right[4 * stride];
    alignas(8) float left[128];
    __device__ static int place(int column) { return column % 8 / 2 * stride + column / 8 * 2 + column % 2; }
};

// The same, forward and dgrad: of the tokens, and of each 64 weight rows.
template <int right_tile>
struct TokenSlotScales {
    static_assert(right_tile % 64 == 0 && right_tile <= 256);
    alignas(16) float right[4];  // read at once
    alignas(8) float left[128];
};

// mx: the exponents of the left rows, four blocks of 32 from every other slot on.
struct SlotExponents {
    alignas(8) std::uint32_t left[128];
};
struct NoScales {};

template <class Config>
struct ProductStorage {
    static constexpr int tasks_ahead = 4;
    alignas(1024) std::uint8_t left[Config::slots][Config::left_tile * Config::left_line];
    alignas(1024) std::uint8_t right[Config::slots][Config::right_tile * 128];
    OutputChunks<typename Config::OutputLayout> chunks[2];  // per multiplying warpgroup
    OutputStorage<typename Config::OutputLayout, Config::right_tile> output[2];
    using Scales = std::conditional_t<
        Config::decoded, SlotExponents,
        std::conditional_t<
            !Config::scaled_blocks, NoScales,
            std::conditional_t<Config::tokens_left, TokenSlotScales<Config::tokens_left ? Config::right_tile : 64>,
                               SlotScales<Config::right_tile>>>>;
    Scales scales[Config::slots];
    using Task = typename Config::Schedule::Task;
    alignas(16) Task tasks[tasks_ahead];
    ptx::Barrier tiles_arrived[Config::slots], tiles_free[Config::slots];
    ptx::Barrier task_posted[tasks_ahead], task_read[tasks_ahead];
    ptx::Barrier task_begun;  // the loads of another tile
};

// A warp's way through the tile list.
template <class Config>
struct TaskReader {
    ProductStorage<Config>& storage;
    RingPosition<ProductStorage<Config>::tasks_ahead> position{};

    // The next task; blocks is -1 when there are no more.
    __device__ __forceinline__ auto next() {
        ptx::barrier_wait(&storage.task_posted[position.slot], position.phase);
        const auto task = storage.tasks[position.slot];
        ptx::warp_arrive(&storage.task_read[position.slot]);
        position.advance();
        return task;
    }
};

}  // namespace octet::cuda
