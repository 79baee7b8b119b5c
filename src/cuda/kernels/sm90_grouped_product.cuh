// Grouped matrix product on Hopper: out[right, left] = left_scale * right_scale * sum over the reduction of left .
// right.
//
//   forward, dgrad   left = weights of the group's expert    right = tokens                  reduction = K
//   wgrad            left = activations, transposed           right = gradients, transposed   reduction = the group's
//   tokens
//
// The weights, not the tokens, are the tensor cores' 64-row operand: their 64-row granularity then falls on N or K,
// which are multiples of 128 in practice, and a group of any size is cut into tiles whose width is any multiple of 32.
//
// One block a multiprocessor, resident; warpgroup 0 feeds and stores, warpgroups 1 and 2 multiply (64 left rows each).
// Two blocks form a cluster and work on tiles beside each other in left: the right rows are fetched from L2 once for
// both.
#pragma once

#include <type_traits>

#include "cuda/ptx/async_copy.cuh"
#include "cuda/ptx/bulk_tensor.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/warp.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/schedule/product_tasks.cuh"
#include "cuda/tile/matrix_descriptor.cuh"
#include "cuda/tile/mx_decode.cuh"
#include "cuda/tile/output_tile.cuh"
#include "cuda/tile/ring.cuh"

namespace octet::cuda {

enum class Element {
    e4m3,
    bf16,
    mx,  // e4m3 in blocks of 32 with a power of two each; decoded to bf16 on the way
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

template <Element element_, Reduction reduction_, Lies left_lies_, Output output_, Accumulation accumulation_,
          int right_tile_, int cluster_, int slots_>
struct ProductConfig {
    static constexpr Element element = element_;
    static constexpr Reduction reduction = reduction_;
    static constexpr Output output = output_;
    static constexpr Accumulation accumulation = accumulation_;
    static constexpr int cluster = cluster_;
    static constexpr int left_tile = 128;
    static constexpr int right_tile = right_tile_;
    static constexpr int element_bytes = element == Element::e4m3 ? 1 : 2;
    static constexpr int reduce_tile = 128 / element_bytes;  // one swizzled line
    static constexpr int slots = slots_;
    // Where shared memory is left for it, a whole bf16 tile of each multiplying warpgroup waits there for its store.
    static constexpr int slot_bytes = (left_tile + right_tile) * 128;
    static constexpr int raw_slot_bytes = element == Element::mx ? 2 * (left_tile + right_tile) * 64 : 0;
    static constexpr int spare_bytes =
        227 * 1024 - slots * slot_bytes - raw_slot_bytes - 4096;  // 4096: barriers, scales, tasks
    static constexpr bool whole_tile_staged = output == Output::bf16 && spare_bytes >= 2 * right_tile * 128;
    using OutputLayout = octet::cuda::OutputLayout<output,
                                                   whole_tile_staged      ? right_tile * 128
                                                   : spare_bytes >= 65536 ? 32768
                                                                          : 16384,
                                                   whole_tile_staged ? 1 : 2>;
    // mx: the copy engine fills raw slots, a fourth warpgroup decodes them into the slots.
    static constexpr bool decoded = element == Element::mx;
    static constexpr int raw_slots = decoded ? 2 : 0;
    static constexpr int raw_line = 64;  // bytes: as many e4m3 as a slot's line holds bf16
    static constexpr int threads = decoded ? 512 : 384;
    static constexpr int task_readers = decoded ? 15 : 11;  // 1 feeding, 2 storing, 8 multiplying, 4 decoding warps
    static constexpr int tile_arrivals = decoded ? 4
                                         : accumulation == Accumulation::blocks
                                             ? 33
                                             : 1;  // decoding warps; engine and 32 lanes with scales; engine
    static constexpr bool scaled_blocks = accumulation == Accumulation::blocks;
    static constexpr bool scaled_rows = element == Element::e4m3 && !scaled_blocks;
    // Operands whose reduction is not contiguous lie in shared memory as panels of 64 along the rows.
    static constexpr bool left_panels = left_lies_ == Lies::across_reduction;
    static constexpr bool right_panels = reduction == Reduction::along_tokens;
    static constexpr int panel_bytes = 64 * 128;
    static constexpr int step = reduce_tile / 4;  // of the reduction, one instruction

    static_assert(right_tile % 32 == 0 && right_tile <= 256 && (right_tile % 64 == 0 || !right_panels));
    static_assert(cluster == 1 || cluster == 2);
    static_assert(!right_panels || left_panels, "tokens as rows: of both operands");
    static_assert(!left_panels || (element == Element::bf16 && accumulation == Accumulation::fast),
                  "the tensor cores transpose 16-bit operands only");
    static_assert(!decoded || (cluster == 1 && accumulation == Accumulation::fast));
    static_assert(accumulation == Accumulation::fast || right_tile <= 192,
                  "two sets of accumulators must fit the registers");
    static_assert(!scaled_blocks || (element == Element::e4m3 && cluster == 1));
};

struct ProductParameters {
    ProductShape shape;
    const float* left_scales;   // rows: [groups, left_extent]
    const float* right_scales;  // rows: [tokens] forward; [groups, right_extent] wgrad
    const std::uint8_t*
        left_exponents;  // mx: [groups, left_extent, scale_blocks] forward, [left_extent, scale_blocks] wgrad
    const std::uint8_t* right_exponents;  // mx: [tokens, scale_blocks] forward, [right_extent, scale_blocks] wgrad
    int scale_blocks;  // blocks: left_scales [groups, ceil(left_extent / 128), scale_blocks] and right_scales
                       // [scale_blocks, tokens] forward; [scale_blocks, left_extent] and [scale_blocks, right_extent]
                       // wgrad
    void* out;         // [tokens, left_extent] forward; [groups, right_extent, left_extent] wgrad
};

// The scales of one slot, blockwise. A lane of the tensor cores' layout owns columns 8j + 2q and 8j + 2q + 1 for its q
// = lane % 4: its scales lie beside each other, and the four q's in different banks.
template <int right_tile>
struct SlotScales {
    static constexpr int stride = right_tile / 4 + 4;
    alignas(16) float right[4 * stride];
    float left[128];
    __device__ static int place(int column) { return column % 8 / 2 * stride + column / 8 * 2 + column % 2; }
};

// Undecoded slots; nothing where there are none.
template <int slots, int bytes>
struct RawSlots {
    alignas(1024) std::uint8_t slot[slots][bytes];
    ptx::Barrier arrived[slots], free[slots];
};
template <int bytes>
struct RawSlots<0, bytes> {};

template <class Config>
struct ProductStorage {
    static constexpr int tasks_ahead = 4;
    alignas(1024) std::uint8_t left[Config::slots][Config::left_tile * 128];
    alignas(1024) std::uint8_t right[Config::slots][Config::right_tile * 128];
    OutputChunks<typename Config::OutputLayout> chunks[2];  // per multiplying warpgroup
    RawSlots<Config::raw_slots, (Config::left_tile + Config::right_tile) * Config::raw_line> raw;
    OutputStorage<typename Config::OutputLayout, Config::right_tile> output[2];
    std::conditional_t<Config::scaled_blocks, SlotScales<Config::right_tile>, std::uint8_t> scales[Config::slots];
    alignas(16) ProductTask tasks[tasks_ahead];
    ptx::Barrier tiles_arrived[Config::slots], tiles_free[Config::slots];
    ptx::Barrier task_posted[tasks_ahead], task_read[tasks_ahead];
};

// Warp 1 of the feeding warpgroup: works out the tile list and posts it for everybody else.
template <class Config>
__device__ void post_tasks(ProductStorage<Config>& storage, const ProductParameters& parameters, int rank) {
    using Schedule = ProductSchedule<Config::reduction, Config::left_tile, Config::right_tile, Config::reduce_tile>;
    Schedule schedule(parameters.shape);
    RingPosition<ProductStorage<Config>::tasks_ahead> position;
    const int clusters = static_cast<int>(gridDim.x) / Config::cluster;
    for (int round = static_cast<int>(blockIdx.x) / Config::cluster;; round += clusters) {
        ProductTask mine = schedule.task(round * Config::cluster);
        if constexpr (Config::cluster == 2) {
            // Both blocks walk the same list, so both know whether they share and how many slots the pair goes through.
            const ProductTask first = mine, second = schedule.task(round * 2 + 1);
            if (rank == 1) mine = second;
            mine.rounds = first.rounds < 0 ? -1 : max(first.blocks, second.blocks);
            mine.shared_right =
                second.right_width > 0 && first.group == second.group && first.right_row == second.right_row;
        }
        ptx::barrier_wait(&storage.task_read[position.slot], position.phase ^ 1);
        if (threadIdx.x % 32 == 0) {
            storage.tasks[position.slot] = mine;
            ptx::barrier_arrive(&storage.task_posted[position.slot]);
        }
        __syncwarp();
        position.advance();
        if (mine.rounds < 0) return;
    }
}

// One thread: asks the copy engine for both operands of a slot.
template <class Config>
__device__ __forceinline__ void load_slot(ProductStorage<Config>& storage, const CUtensorMap* left_map,
                                          const CUtensorMap* right_map, const CUtensorMap* right_full_map,
                                          const ProductTask& task, int round, int slot, int rank) {
    const bool shared = Config::cluster == 2 && task.shared_right;
    ptx::Barrier* arrived = &storage.tiles_arrived[slot];
    std::uint8_t *left = storage.left[slot], *right = storage.right[slot];
    const int reduce = task.reduce_first + round * Config::reduce_tile;
    // A box for this block alone, or every other one for both blocks of the cluster.
    const auto load_right = [&](std::uint8_t* to, const CUtensorMap* map, int turn, int x, int y) {
        if (!shared)
            ptx::tensor_load(to, map, arrived, x, y, 0);
        else if (turn % 2 == rank)
            ptx::tensor_load_multicast(to, map, arrived, 3, x, y, 0);
    };
    const int right_panels = (task.right_width + 63) / 64;
    const int right_lines = Config::right_panels ? right_panels * 64 : task.right_width;
    const int batch = Config::reduction == Reduction::along_k ? task.group : 0;
    ptx::barrier_arrive_expect(arrived, (Config::left_tile + right_lines) * 128);
    if constexpr (Config::left_panels) {
        for (int panel = 0; panel < Config::left_tile / 64; ++panel)
            ptx::tensor_load(left + panel * Config::panel_bytes, left_map, arrived, task.left_row + panel * 64, reduce,
                             batch);
    } else {
        ptx::tensor_load(left, left_map, arrived, reduce, task.left_row, batch);
    }
    if constexpr (Config::right_panels) {
        for (int panel = 0; panel < right_panels; ++panel)
            load_right(right + panel * Config::panel_bytes, right_map, panel, task.right_row + panel * 64, reduce);
    } else {
        if (task.right_width == Config::right_tile) {
            constexpr int half = Config::right_tile / 2;
            load_right(right, right_full_map, 0, reduce, task.right_row);
            load_right(right + half * 128, right_full_map, 1, reduce, task.right_row + half);
        } else {
            for (int row = 0; row < task.right_width; row += 32)
                load_right(right + row * 128, right_map, row / 32, reduce, task.right_row + row);
        }
    }
}

// One thread: asks the copy engine for the 8-bit rows of a slot.
template <class Config>
__device__ __forceinline__ void load_raw_slot(ProductStorage<Config>& storage, const CUtensorMap* left_map,
                                              const CUtensorMap* right_map, const CUtensorMap* right_full_map,
                                              const ProductTask& task, int round, int slot) {
    ptx::Barrier* arrived = &storage.raw.arrived[slot];
    std::uint8_t* left = storage.raw.slot[slot];
    std::uint8_t* right = left + Config::left_tile * Config::raw_line;
    const int reduce = task.reduce_first + round * Config::reduce_tile;
    ptx::barrier_arrive_expect(arrived, (Config::left_tile + task.right_width) * Config::raw_line);
    ptx::tensor_load(left, left_map, arrived, reduce, task.left_row,
                     Config::reduction == Reduction::along_k ? task.group : 0);
    if (task.right_width == Config::right_tile) {
        constexpr int half = Config::right_tile / 2;
        ptx::tensor_load(right, right_full_map, arrived, reduce, task.right_row, 0);
        ptx::tensor_load(right + half * Config::raw_line, right_full_map, arrived, reduce, task.right_row + half, 0);
    } else {
        for (int row = 0; row < task.right_width; row += 32)
            ptx::tensor_load(right + row * Config::raw_line, right_map, arrived, reduce, task.right_row + row, 0);
    }
}

// The decoding warpgroup: 8-bit rows and their exponents to bf16 rows. A slot has 320 rows of two blocks for 128
// threads: each takes left row t, right row t, and half of right row 128 + t/2.
template <class Config>
__device__ void decode_slots(ProductStorage<Config>& storage, const ProductParameters& parameters) {
    static_assert(Config::left_tile == 128 && Config::right_tile == 192);
    const int thread = static_cast<int>(threadIdx.x % 128), lane = thread % 32, warp = thread / 32;
    const std::int64_t blocks = parameters.scale_blocks;
    RingPosition<ProductStorage<Config>::tasks_ahead> task_position;
    RingPosition<Config::raw_slots> raw_position;
    RingPosition<Config::slots> position;
    while (true) {
        ptx::barrier_wait(&storage.task_posted[task_position.slot], task_position.phase);
        const ProductTask task = storage.tasks[task_position.slot];
        __syncwarp();
        if (lane == 0) ptx::barrier_arrive(&storage.task_read[task_position.slot]);
        task_position.advance();
        if (task.rounds < 0) return;
        const std::int64_t first_left =
            task.left_row + (Config::reduction == Reduction::along_k
                                 ? static_cast<std::int64_t>(task.group) * parameters.shape.left_extent
                                 : 0);
        const int half_row = 128 + thread / 2, half_block = thread % 2;
        const std::uint8_t* left = parameters.left_exponents + (first_left + thread) * blocks;
        const std::uint8_t* right = parameters.right_exponents + (task.right_row + thread) * blocks;
        const std::uint8_t* right_half = parameters.right_exponents + (task.right_row + half_row) * blocks;
        const bool left_valid = task.left_row + thread < parameters.shape.left_extent;
        const bool right_valid = thread < task.right_valid, half_valid = half_row < task.right_valid;
        // Rows that are not stored and blocks past the end (whose elements are zero): any exponent does that is a
        // number.
        const auto fetch = [&](const std::uint8_t* row, bool valid, int block) -> unsigned {
            return valid && block < blocks ? __ldg(row + block) : 127;
        };
        unsigned next[5];
        const auto fetch_all = [&](int round) {
            const int block = task.reduce_first / 32 + 2 * round;
            next[0] = fetch(left, left_valid, block);
            next[1] = fetch(left, left_valid, block + 1);
            next[2] = fetch(right, right_valid, block);
            next[3] = fetch(right, right_valid, block + 1);
            next[4] = fetch(right_half, half_valid, block + half_block);
        };
        fetch_all(0);
        for (int round = 0; round < task.blocks; ++round) {
            const unsigned now[5] = {next[0], next[1], next[2], next[3], next[4]};
            if (round + 1 < task.blocks) fetch_all(round + 1);
            ptx::barrier_wait(&storage.raw.arrived[raw_position.slot], raw_position.phase);
            ptx::barrier_wait(&storage.tiles_free[position.slot], position.phase ^ 1);
            const std::uint8_t* raw_left = storage.raw.slot[raw_position.slot];
            const std::uint8_t* raw_right = raw_left + Config::left_tile * Config::raw_line;
            std::uint8_t *left_tile = storage.left[position.slot], *right_tile = storage.right[position.slot];
            const bool with_right = warp * 32 < task.right_width, with_half = 128 + warp * 16 < task.right_width;
            MxBlock work[5] = {{thread, 0}, {thread, 1}, {thread, 0}, {thread, 1}, {half_row, half_block}};
#pragma unroll
            for (int i = 0; i < 5; ++i)
                work[i].load(i < 2 ? raw_left : raw_right);  // past the tile's width: loaded, not used
            unsigned nans = work[0].nans() | work[1].nans();
            work[0].decode(left_tile, now[0]);
            work[1].decode(left_tile, now[1]);
            if (with_right) {
                nans |= work[2].nans() | work[3].nans();
                work[2].decode(right_tile, now[2]);
                work[3].decode(right_tile, now[3]);
            }
            if (with_half) {
                nans |= work[4].nans();
                work[4].decode(right_tile, now[4]);
            }
            if (nans != 0) {
                for (int block = 0; block < 2; ++block) MxBlock::mend_nans(raw_left, left_tile, thread, block);
                if (with_right)
                    for (int block = 0; block < 2; ++block) MxBlock::mend_nans(raw_right, right_tile, thread, block);
                if (with_half) MxBlock::mend_nans(raw_right, right_tile, half_row, half_block);
            }
            ptx::shared_to_async_fence();
            __syncwarp();
            if (lane == 0) {
                ptx::barrier_arrive(&storage.tiles_arrived[position.slot]);
                ptx::barrier_arrive(&storage.raw.free[raw_position.slot]);
            }
            raw_position.advance();
            position.advance();
        }
    }
}

// Blockwise scales, a warp: where this lane's come from is worked out once a tile; every slot is then a few copies.
template <class Config>
struct ScaleFeeder {
    static constexpr bool along_k = Config::reduction == Reduction::along_k;
    static constexpr int rights = Config::right_tile / 32, lefts = along_k ? 1 : Config::left_tile / 32;
    const float *right[rights], *left[lefts];  // of the next slot
    std::int64_t right_step, left_step;        // from block to block
    unsigned right_valid = 0, left_valid = 0;  // a bit each
    int lane;

    __device__ ScaleFeeder(const ProductParameters& parameters, const ProductTask& task)
        : lane(static_cast<int>(threadIdx.x % 32)) {
        const std::int64_t blocks = parameters.scale_blocks, block = task.reduce_first / Config::reduce_tile;
        const bool inside = block < blocks;  // not in an empty group, whose operands lie past the end
        right_step = along_k ? parameters.shape.tokens : parameters.shape.right_extent;
        left_step = along_k ? 1 : parameters.shape.left_extent;
#pragma unroll
        for (int i = 0; i < rights; ++i) {
            const bool valid = inside && lane + 32 * i < task.right_valid;
            right_valid |= (valid ? 1u : 0u) << i;
            right[i] = parameters.right_scales + (valid ? block * right_step + task.right_row + lane + 32 * i : 0);
        }
#pragma unroll
        for (int i = 0; i < lefts; ++i) {
            const bool valid =
                along_k ? lane == 0 : inside && task.left_row + lane + 32 * i < parameters.shape.left_extent;
            left_valid |= (valid ? 1u : 0u) << i;
            const std::int64_t first =
                along_k ? (task.group * static_cast<std::int64_t>((parameters.shape.left_extent + 127) / 128) +
                           task.left_row / 128) *
                              blocks
                        : block * left_step + task.left_row + lane + 32 * i;
            left[i] = parameters.left_scales + (valid ? first : 0);
        }
    }

    __device__ __forceinline__ void load(SlotScales<Config::right_tile>& scales, ptx::Barrier* arrived) {
#pragma unroll
        for (int i = 0; i < rights; ++i) {
            const bool valid = right_valid >> i & 1;
            ptx::copy_word(&scales.right[scales.place(lane + 32 * i)], right[i], valid);
            if (valid) right[i] += right_step;
        }
#pragma unroll
        for (int i = 0; i < lefts; ++i) {
            const bool valid = left_valid >> i & 1;
            if (!along_k || lane == 0) ptx::copy_word(&scales.left[along_k ? 0 : lane + 32 * i], left[i], valid);
            if (valid) left[i] += left_step;
        }
        ptx::copy_words_arrive(arrived);
    }
};
struct NoScaleFeeder {
    __device__ NoScaleFeeder(const ProductParameters&, const ProductTask&) {}
};

// Warp 0 of the feeding warpgroup: one lane keeps the copy engine busy; blockwise, all lanes fetch scales.
template <class Config>
__device__ void feed(ProductStorage<Config>& storage, const CUtensorMap* left_map, const CUtensorMap* right_map,
                     const CUtensorMap* right_full_map, const ProductParameters& parameters, int rank) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    RingPosition<ProductStorage<Config>::tasks_ahead> task_position;
    RingPosition<Config::decoded ? Config::raw_slots : Config::slots> position;
    while (true) {
        ptx::barrier_wait(&storage.task_posted[task_position.slot], task_position.phase);
        const ProductTask task = storage.tasks[task_position.slot];
        __syncwarp();
        if (lane == 0) ptx::barrier_arrive(&storage.task_read[task_position.slot]);
        task_position.advance();
        if (task.rounds < 0) return;
        std::conditional_t<Config::scaled_blocks, ScaleFeeder<Config>, NoScaleFeeder> scale_feeder(parameters, task);
        for (int round = 0; round < task.rounds; ++round, position.advance()) {
            if constexpr (Config::decoded) {
                ptx::barrier_wait(&storage.raw.free[position.slot], position.phase ^ 1);
                if (lane == 0)
                    load_raw_slot<Config>(storage, left_map, right_map, right_full_map, task, round, position.slot);
                continue;
            } else {
                ptx::barrier_wait(&storage.tiles_free[position.slot], position.phase ^ 1);
            }
            if (lane == 0) {
                if (Config::cluster == 2 && round >= task.blocks)  // the other block's reduction is longer
                    ptx::barrier_arrive(&storage.tiles_arrived[position.slot]);
                else
                    load_slot<Config>(storage, left_map, right_map, right_full_map, task, round, position.slot, rank);
            }
            if constexpr (Config::scaled_blocks)
                scale_feeder.load(storage.scales[position.slot], &storage.tiles_arrived[position.slot]);
        }
        __syncwarp();
    }
}

// A warp of the feeding warpgroup for each multiplying one: fetches the tile's scales while it is multiplied, stores it
// after.
template <class Config>
__device__ void store_tiles(ProductStorage<Config>& storage, const ProductParameters& parameters,
                            const CUtensorMap* out_map, int half) {
    constexpr bool along_k = Config::reduction == Reduction::along_k;
    auto& shared = storage.output[half];
    const int lane = static_cast<int>(threadIdx.x % 32), left_extent = parameters.shape.left_extent;
    OutputDrainer<typename Config::OutputLayout, Config::right_tile> drainer{shared, storage.chunks[half], out_map,
                                                                             parameters.out, left_extent};
    RingPosition<ProductStorage<Config>::tasks_ahead> position;
    const auto next_task = [&] {  // the next one that has a tile, or the end
        while (true) {
            ptx::barrier_wait(&storage.task_posted[position.slot], position.phase);
            const ProductTask task = storage.tasks[position.slot];
            __syncwarp();
            if (lane == 0) ptx::barrier_arrive(&storage.task_read[position.slot]);
            position.advance();
            if (task.rounds < 0 || task.right_width > 0) return task;
        }
    };

    ProductTask task = next_task();
    for (bool first = true; task.rounds >= 0 || !first; first = false) {
        // Asked for before waiting on the engine, posted after: neither wait holds up the multiplying warpgroup.
        float left_scales[2], right_scales[Config::right_tile / 32];
        if (Config::scaled_rows && task.rounds >= 0) {
            const int left_row = task.left_row + half * 64 + lane;
            const float* left = parameters.left_scales + static_cast<std::int64_t>(task.group) * left_extent + left_row;
            const float* right = parameters.right_scales + task.right_row + lane +
                                 (along_k ? 0 : static_cast<std::int64_t>(task.group) * parameters.shape.right_extent);
#pragma unroll
            for (int i = 0; i < 2; ++i) left_scales[i] = left_row + i * 32 < left_extent ? __ldg(left + i * 32) : 0;
#pragma unroll
            for (int i = 0; i < Config::right_tile / 32; ++i)
                right_scales[i] = lane + i * 32 < task.right_valid ? __ldg(right + i * 32) : 0;
        }
        if (!first) drainer.finish();
        if (task.rounds < 0) break;
        if constexpr (Config::scaled_rows) {
            // The previous tile was staged, so its scales have been read.
#pragma unroll
            for (int i = 0; i < 2; ++i) shared.left_scales[lane + i * 32] = left_scales[i];
#pragma unroll
            for (int i = 0; i < Config::right_tile / 32; ++i) shared.right_scales[lane + i * 32] = right_scales[i];
            __syncwarp();
            if (lane == 0) ptx::barrier_arrive(&shared.scales_ready);
        }
        drainer.template drain<!along_k>(task.right_width, task.left_row + half * 64, task.right_row, task.right_valid,
                                         along_k ? 0 : task.group);
        task = next_task();
    }
    if (lane == 0) ptx::store_wait_all();
}

// A multiplying warpgroup.
template <class Config>
struct Multiplier {
    ProductStorage<Config>& storage;
    int half;  // which 64 left rows of the tile
    OutputStager<typename Config::OutputLayout, Config::right_tile, Config::scaled_rows> output;
    RingPosition<Config::slots> position{};
    RingPosition<ProductStorage<Config>::tasks_ahead> task_position{};

    __device__ __forceinline__ ProductTask next_task() {
        ptx::barrier_wait(&storage.task_posted[task_position.slot], task_position.phase);
        const ProductTask task = storage.tasks[task_position.slot];
        __syncwarp();
        if (threadIdx.x % 32 == 0) ptx::barrier_arrive(&storage.task_read[task_position.slot]);
        task_position.advance();
        return task;
    }

    __device__ __forceinline__ void release(int slot) const {
        const int lane = static_cast<int>(threadIdx.x % 32);
        if constexpr (Config::cluster == 1) {
            if (lane == 0) ptx::barrier_arrive(&storage.tiles_free[slot]);
        } else {
            // Either block may be the one that next writes this slot in both.
            if (lane < 2) ptx::barrier_arrive_at(&storage.tiles_free[slot], lane);
        }
    }

    // Waits for the slot at `position`. Both warpgroups come here for every slot, so they may wait for each other.
    __device__ __forceinline__ void await_slot(const ProductTask& task, int round) const {
        ptx::barrier_wait(&storage.tiles_arrived[position.slot], position.phase);
        if constexpr (Config::reduction != Reduction::along_k) blank_tail(task, position.slot, round);
    }

    // Issues the products of the slot at `position`, without waiting for them. What lies past the group's end is not
    // multiplied at all.
    template <int Width, bool Accumulate>
    __device__ __forceinline__ void multiply_slot(float (&acc)[Width / 2], const ProductTask& task, int round) const {
        const int kept = task.reduce_length - round * Config::reduce_tile;
        if (Config::reduction == Reduction::along_k || kept > 3 * Config::step)
            multiply_steps<Width, Accumulate, 4>(acc);
        else if (kept > 2 * Config::step)
            multiply_steps<Width, Accumulate, 3>(acc);
        else if (kept > Config::step)
            multiply_steps<Width, Accumulate, 2>(acc);
        else
            multiply_steps<Width, Accumulate, 1>(acc);
    }

    // The first `Steps` of the slot's four instructions; whole, because the compiler serializes products in branches.
    template <int Width, bool Accumulate, int Steps>
    __device__ __forceinline__ void multiply_steps(float (&acc)[Width / 2]) const {
        const std::uint8_t* left = storage.left[position.slot] + half * 64 * 128;  // a panel is 64 lines too
        const std::uint8_t* right = storage.right[position.slot];
        if constexpr (Accumulate) ptx::wgmma_hold(acc);
        ptx::wgmma_fence();
        const std::uint64_t a =
            Config::left_panels ? mn_major_descriptor(left, Config::panel_bytes) : k_major_descriptor(left);
        const std::uint64_t b =
            Config::right_panels ? mn_major_descriptor(right, Config::panel_bytes) : k_major_descriptor(right);
        constexpr int left_step = Config::left_panels ? 2048 / 16 : 32 / 16;
        constexpr int right_step = Config::right_panels ? 2048 / 16 : 32 / 16;
        multiply_step<Width, Accumulate>(acc, a, b);
#pragma unroll
        for (int i = 1; i < Steps; ++i) multiply_step<Width, true>(acc, a + i * left_step, b + i * right_step);
        ptx::wgmma_commit();
        ptx::wgmma_hold(acc);
    }
    template <int Width, bool Accumulate>
    __device__ __forceinline__ static void multiply_step(float (&acc)[Width / 2], std::uint64_t a, std::uint64_t b) {
        if constexpr (Config::element == Element::e4m3)
            ptx::wgmma_e4m3<Width, Accumulate>(acc, a, b);
        else
            ptx::wgmma_bf16<Width, Config::left_panels, Config::right_panels, Accumulate>(acc, a, b);
    }

    // Blockwise scales of this lane's accumulators: right of its columns, left of its two rows. In forward a weight
    // block is a whole left tile: its scale is the same for all and is multiplied in at once.
    static constexpr bool one_left_scale = Config::reduction == Reduction::along_k;
    template <int Width>
    struct BlockScales {
        float right[Width / 4], left[2];
    };
    template <int Width>
    __device__ __forceinline__ BlockScales<Width> read_scales(const SlotScales<Config::right_tile>& slot) const {
        const int lane = static_cast<int>(threadIdx.x % 32),
                  row = half * 64 + static_cast<int>(threadIdx.x / 32 % 4) * 16 + lane / 4;
        BlockScales<Width> scales;
        scales.left[0] = slot.left[one_left_scale ? 0 : row];
        scales.left[1] = one_left_scale ? scales.left[0] : slot.left[row + 8];
        const auto* right = reinterpret_cast<const float4*>(&slot.right[lane % 4 * slot.stride]);
        const float factor = one_left_scale ? scales.left[0] : 1.0f;
#pragma unroll
        for (int j = 0; j < Width / 16; ++j) {
            const float4 four = right[j];  // of two columns, and of the two 8 further on
            scales.right[4 * j] = four.x * factor;
            scales.right[4 * j + 1] = four.y * factor;
            scales.right[4 * j + 2] = four.z * factor;
            scales.right[4 * j + 3] = four.w * factor;
        }
        return scales;
    }

    // The last instruction's part of the reduction may reach past the group's end, where the next group's tokens lie:
    // made zero in both operands.
    __device__ __forceinline__ void blank_tail(const ProductTask& task, int slot, int round) const {
        const int kept = task.reduce_length - round * Config::reduce_tile;
        const int thread = static_cast<int>(threadIdx.x) - 128;  // of 256
        if constexpr (Config::right_panels) {
            if (kept >= Config::reduce_tile || kept % Config::step == 0) return;
            const int blank_bytes = (Config::step - kept % Config::step) * 128;  // of each panel, a line a token
            const int right_panels = (task.right_width + 63) / 64;
            for (int panel = 0; panel < Config::left_tile / 64 + right_panels; ++panel) {
                std::uint8_t* lines =
                    panel < Config::left_tile / 64
                        ? storage.left[slot] + panel * Config::panel_bytes
                        : storage.right[slot] + (panel - Config::left_tile / 64) * Config::panel_bytes;
                if (thread * 16 < blank_bytes)
                    *reinterpret_cast<uint4*>(lines + kept * 128 + thread * 16) = uint4{0, 0, 0, 0};
            }
        } else {
            // Groups start on multiples of 16 bytes at least, and are zero up to there.
            if constexpr (Config::element != Element::e4m3) return;
            const int unit = (kept + 15) / 16;
            if (kept >= Config::reduce_tile || unit % 2 == 0) return;
            const auto blank_line = [&](std::uint8_t* lines, int line) {
                *reinterpret_cast<uint4*>(lines + line * 128 + ((unit ^ (line % 8)) << 4)) = uint4{0, 0, 0, 0};
            };
            if (thread < Config::left_tile) blank_line(storage.left[slot], thread);
            if (thread < task.right_width) blank_line(storage.right[slot], thread);
        }
        ptx::shared_to_async_fence();
        ptx::named_sync(1, 256);
    }

    // One tile; returns the next task, read while the first products run.
    template <int Width>
    __device__ __forceinline__ ProductTask tile(const ProductTask& task) {
        float acc[Width / 2];
        ProductTask next;
        if constexpr (Config::accumulation == Accumulation::fast) {
            await_slot(task, 0);
            multiply_slot<Width, false>(acc, task, 0);
            next = next_task();
            for (int round = 1; round < task.blocks; ++round) {
                const int previous = position.slot;
                position.advance();
                await_slot(task, round);
                multiply_slot<Width, true>(acc, task, round);
                ptx::wgmma_wait<1>();
                release(previous);
            }
            ptx::wgmma_wait<0>();
            ptx::wgmma_hold(acc);
            release(position.slot);
            position.advance();
        } else {
#pragma unroll
            for (float& value : acc) value = 0;
            next = next_task();
            for (int round = 0; round < task.blocks; ++round) {
                float partial[Width / 2];
                await_slot(task, round);
                // The two warpgroups take turns to issue, so that one adds while the other's products run.
                ptx::named_sync(2 + half, 256);
                multiply_slot<Width, false>(partial, task, round);
                ptx::named_arrive(3 - half, 256);
                BlockScales<Width> scales;
                if constexpr (Config::scaled_blocks)
                    scales = read_scales<Width>(storage.scales[position.slot]);  // while the products run
                ptx::wgmma_wait<0>();
                ptx::wgmma_hold(partial);
                release(position.slot);
                position.advance();
#pragma unroll
                for (int i = 0; i < Width / 2; ++i) {
                    if constexpr (!Config::scaled_blocks)
                        acc[i] += partial[i];
                    else if constexpr (one_left_scale)
                        acc[i] += partial[i] * scales.right[i / 4 * 2 + i % 2];
                    else
                        acc[i] += partial[i] * (scales.right[i / 4 * 2 + i % 2] * scales.left[i / 2 % 2]);
                }
            }
        }
        skip(task.rounds - task.blocks);
        output.template stage<Width>(acc);
        return next;
    }

    // Slots that only the other block of the cluster fills.
    __device__ __forceinline__ void skip(int rounds) {
        if constexpr (Config::cluster == 2) {
            for (; rounds > 0; --rounds, position.advance()) {
                ptx::barrier_wait(&storage.tiles_arrived[position.slot], position.phase);
                release(position.slot);
            }
        }
    }

    // One instance of the main loop per width.
    template <int Width>
    __device__ __forceinline__ ProductTask dispatch(const ProductTask& task) {
        if (task.right_width == Width) return tile<Width>(task);
        if constexpr (Width > 32)
            return dispatch<Width - 32>(task);
        else
            __trap();
    }

    __device__ __forceinline__ void run() {
        if (Config::accumulation != Accumulation::fast && half == 1)
            ptx::named_arrive(2, 256);  // the first turn is the other's
        ProductTask task = next_task();
        while (task.rounds >= 0) {
            if (task.right_width == 0) {
                skip(task.rounds);
                task = next_task();
            } else {
                task = dispatch<Config::right_tile>(task);
            }
        }
    }
};

// left_map: box 128 bytes x 128 rows; right_map: box 128 bytes x 32 rows; right_full_map: box 128 bytes x right_tile/2
// rows (panels: box 64 columns x 64 steps of the reduction). out_map: box 128 bytes x 32 rows. All with the 128-byte
// swizzle.
template <class Config>
__global__ void __launch_bounds__(Config::threads, 1)
    sm90_grouped_product(const __grid_constant__ CUtensorMap left_map, const __grid_constant__ CUtensorMap right_map,
                         const __grid_constant__ CUtensorMap right_full_map,
                         const __grid_constant__ CUtensorMap out_map,
                         const __grid_constant__ ProductParameters parameters) {
    extern __shared__ __align__(1024) std::uint8_t shared_bytes[];
    if (ptx::shared_address(shared_bytes) % 1024 != 0) __trap();  // the swizzle would silently permute differently
    auto& storage = *reinterpret_cast<ProductStorage<Config>*>(shared_bytes);
    const int rank = Config::cluster == 1 ? 0 : static_cast<int>(ptx::cluster_rank());
    const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x / 32), 0);

    if (threadIdx.x == 0) {
        for (int slot = 0; slot < Config::slots; ++slot) {
            ptx::barrier_init(&storage.tiles_arrived[slot], Config::tile_arrivals);
            ptx::barrier_init(&storage.tiles_free[slot], 8 * Config::cluster);  // multiplying warps
        }
        for (int slot = 0; slot < ProductStorage<Config>::tasks_ahead; ++slot) {
            ptx::barrier_init(&storage.task_posted[slot], 1);
            ptx::barrier_init(&storage.task_read[slot], Config::task_readers);
        }
        for (auto& output : storage.output) output.init();
        if constexpr (Config::decoded) {
            for (int slot = 0; slot < Config::raw_slots; ++slot) {
                ptx::barrier_init(&storage.raw.arrived[slot], 1);
                ptx::barrier_init(&storage.raw.free[slot], 4);  // decoding warps
            }
        }
        ptx::barrier_init_fence();
        ptx::tensor_map_prefetch(&left_map);
        ptx::tensor_map_prefetch(&right_map);
        ptx::tensor_map_prefetch(&right_full_map);
        ptx::tensor_map_prefetch(&out_map);
    }
    __syncthreads();
    if constexpr (Config::cluster == 2) {
        ptx::cluster_arrive();
        ptx::cluster_wait();
    }

    if (warp < 4) {
        ptx::registers_shrink<Config::decoded ? 40 : 56>();
        if (warp == 1)
            post_tasks<Config>(storage, parameters, rank);
        else if (warp >= 2)
            store_tiles<Config>(storage, parameters, &out_map, warp - 2);
        else
            feed<Config>(storage, &left_map, &right_map, &right_full_map, parameters, rank);
    } else if (Config::decoded && warp >= 12) {
        if constexpr (Config::decoded) {
            ptx::registers_shrink<104>();
            decode_slots<Config>(storage, parameters);
        }
    } else {
        ptx::registers_grow<Config::decoded ? 184 : 224>();
        // Uniform over the warp, and known to be: the descriptors then live in uniform registers.
        const int half = __shfl_sync(~0u, warp / 4 - 1, 0);
        Multiplier<Config>{storage, half, {storage.output[half], storage.chunks[half]}}.run();
    }
    // No block leaves while the other may still write to its shared memory or arrive on its barriers.
    if constexpr (Config::cluster == 2) {
        ptx::cluster_arrive();
        ptx::cluster_wait();
    }
}

}  // namespace octet::cuda
