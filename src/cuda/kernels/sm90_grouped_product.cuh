// Grouped matrix product on Hopper: out[right, left] = left_scale * right_scale * sum over the reduction of left . right.
//
//   forward, dgrad   left = weights of the group's expert    right = tokens                  reduction = K
//   wgrad            left = activations, transposed           right = gradients, transposed   reduction = the group's tokens
//
// The weights, not the tokens, are the tensor cores' 64-row operand: their 64-row granularity then falls on N or K, which
// are multiples of 128 in practice, and a group of any size is cut into tiles whose width is any multiple of 32.
//
// One block a multiprocessor, resident; warpgroup 0 feeds, warpgroups 1 and 2 multiply (64 left rows each). Two blocks form
// a cluster and work on tiles beside each other in left: the right rows are fetched from L2 once for both.
#pragma once

#include "cuda/ptx/bulk_tensor.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/warp.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/schedule/product_tasks.cuh"
#include "cuda/tile/matrix_descriptor.cuh"
#include "cuda/tile/output_tile.cuh"
#include "cuda/tile/ring.cuh"

namespace octet::cuda {

enum class Element { e4m3, bf16 };
enum class Accumulation {
    fast,      // in the tensor cores, through the whole reduction
    promoted,  // added to f32 registers after every 128 bytes of the reduction
};

template <Element element_, Reduction reduction_, Output output_, Accumulation accumulation_, int right_tile_, int cluster_>
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
    static constexpr int slots = 4;
    static constexpr int threads = 384;
    static constexpr bool scaled = element == Element::e4m3;
    // Operands whose reduction is not contiguous lie in shared memory as panels of 64 along the rows.
    static constexpr bool panels = reduction == Reduction::along_tokens;
    static constexpr int panel_bytes = 64 * 128;

    static_assert(right_tile % 64 == 0 && right_tile <= 256);
    static_assert(cluster == 1 || cluster == 2);
    static_assert(!panels || element == Element::bf16, "the tensor cores transpose 16-bit operands only");
    static_assert(accumulation == Accumulation::fast || right_tile <= 192, "two sets of accumulators must fit the registers");
};

struct ProductParameters {
    ProductShape shape;
    const float* left_scales;    // [groups, left_extent]
    const float* right_scales;   // [tokens] forward; [groups, right_extent] wgrad
    void* out;                   // [tokens, left_extent] forward; [groups, right_extent, left_extent] wgrad
};

template <class Config>
struct ProductStorage {
    static constexpr int tasks_ahead = 4;
    alignas(1024) std::uint8_t left[Config::slots][Config::left_tile * 128];
    alignas(1024) std::uint8_t right[Config::slots][Config::right_tile * 128];
    alignas(1024) std::uint8_t staging[2][OutputTile<Config::output>::buffers * OutputTile<Config::output>::chunk_bytes];
    alignas(16) float right_scales[2][Config::right_tile];
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
            mine.shared_right = second.right_width > 0 && first.group == second.group && first.right_row == second.right_row;
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

// One thread of warp 0 of the feeding warpgroup: keeps the copy engine busy.
template <class Config>
__device__ void feed(ProductStorage<Config>& storage, const CUtensorMap* left_map, const CUtensorMap* right_map,
                     const CUtensorMap* right_full_map, int rank) {
    RingPosition<ProductStorage<Config>::tasks_ahead> task_position;
    RingPosition<Config::slots> position;
    while (true) {
        ptx::barrier_wait(&storage.task_posted[task_position.slot], task_position.phase);
        const ProductTask task = storage.tasks[task_position.slot];
        ptx::barrier_arrive(&storage.task_read[task_position.slot]);
        task_position.advance();
        if (task.rounds < 0) return;

        const bool shared = Config::cluster == 2 && task.shared_right;
        // Loads a box for this block alone, or its turn's share for both blocks of the cluster.
        const auto load_right = [&](std::uint8_t* to, const CUtensorMap* map, ptx::Barrier* arrived, int turn, int x, int y) {
            if (!shared) ptx::tensor_load(to, map, arrived, x, y, 0);
            else if (turn % 2 == rank) ptx::tensor_load_multicast(to, map, arrived, 3, x, y, 0);
        };
        for (int round = 0; round < task.rounds; ++round, position.advance()) {
            ptx::barrier_wait(&storage.tiles_free[position.slot], position.phase ^ 1);
            ptx::Barrier* arrived = &storage.tiles_arrived[position.slot];
            if (Config::cluster == 2 && round >= task.blocks) {  // the other block's reduction is longer
                ptx::barrier_arrive(arrived);
                continue;
            }
            std::uint8_t* left = storage.left[position.slot];
            std::uint8_t* right = storage.right[position.slot];
            const int reduce = task.reduce_first + round * Config::reduce_tile;
            if constexpr (Config::panels) {
                const int right_panels = (task.right_width + 63) / 64;
                ptx::barrier_arrive_expect(arrived, (Config::left_tile / 64 + right_panels) * Config::panel_bytes);
                for (int panel = 0; panel < Config::left_tile / 64; ++panel)
                    ptx::tensor_load(left + panel * Config::panel_bytes, left_map, arrived, task.left_row + panel * 64, reduce, 0);
                for (int panel = 0; panel < right_panels; ++panel)
                    load_right(right + panel * Config::panel_bytes, right_map, arrived, panel, task.right_row + panel * 64, reduce);
            } else {
                ptx::barrier_arrive_expect(arrived, (Config::left_tile + task.right_width) * 128);
                ptx::tensor_load(left, left_map, arrived, reduce, task.left_row,
                                 Config::reduction == Reduction::along_k ? task.group : 0);
                if (task.right_width == Config::right_tile) {
                    constexpr int half = Config::right_tile / 2;
                    load_right(right, right_full_map, arrived, 0, reduce, task.right_row);
                    load_right(right + half * 128, right_full_map, arrived, 1, reduce, task.right_row + half);
                } else {
                    for (int row = 0; row < task.right_width; row += 32)
                        load_right(right + row * 128, right_map, arrived, row / 32, reduce, task.right_row + row);
                }
            }
        }
    }
}

// A multiplying warpgroup.
template <class Config>
struct Multiplier {
    ProductStorage<Config>& storage;
    int half;  // which 64 left rows of the tile
    RingPosition<Config::slots> position{};
    OutputTile<Config::output> output{};

    __device__ __forceinline__ void release(int slot) const {
        const int lane = static_cast<int>(threadIdx.x % 32);
        if constexpr (Config::cluster == 1) {
            if (lane == 0) ptx::barrier_arrive(&storage.tiles_free[slot]);
        } else {
            // Either block may be the one that next writes this slot in both.
            if (lane < 2) ptx::barrier_arrive_at(&storage.tiles_free[slot], lane);
        }
    }

    template <int Width>
    __device__ __forceinline__ void multiply_slot(float (&acc)[Width / 2], int slot, int accumulate) const {
        const std::uint8_t* left = storage.left[slot] + half * 64 * 128;  // a panel is 64 lines too
        const std::uint8_t* right = storage.right[slot];
        if constexpr (Config::panels) {
            const std::uint64_t a = mn_major_descriptor(left, Config::panel_bytes);
            const std::uint64_t b = mn_major_descriptor(right, Config::panel_bytes);
#pragma unroll
            for (int step = 0; step < 4; ++step)
                ptx::wgmma_bf16<Width, 1, 1>(acc, a + step * (2048 / 16), b + step * (2048 / 16), accumulate | step);
        } else {
            const std::uint64_t a = k_major_descriptor(left), b = k_major_descriptor(right);
#pragma unroll
            for (int step = 0; step < 4; ++step) {
                if constexpr (Config::element == Element::e4m3)
                    ptx::wgmma_e4m3<Width>(acc, a + step * 2, b + step * 2, accumulate | step);
                else
                    ptx::wgmma_bf16<Width, 0, 0>(acc, a + step * 2, b + step * 2, accumulate | step);
            }
        }
    }

    // Steps of the reduction past the group's end hold the next group's tokens: made zero in both operands.
    __device__ __forceinline__ void blank_tail(const ProductTask& task, int slot, int round) const {
        const int kept = task.reduce_length - round * Config::reduce_tile;
        if (kept >= Config::reduce_tile) return;
        const int thread = static_cast<int>(threadIdx.x) - 128;  // of 256
        const int right_panels = (task.right_width + 63) / 64;
        for (int panel = 0; panel < Config::left_tile / 64 + right_panels; ++panel) {
            std::uint8_t* lines = panel < Config::left_tile / 64
                                      ? storage.left[slot] + panel * Config::panel_bytes
                                      : storage.right[slot] + (panel - Config::left_tile / 64) * Config::panel_bytes;
            for (int byte = kept * 128 + thread * 16; byte < Config::panel_bytes; byte += 256 * 16)
                *reinterpret_cast<uint4*>(lines + byte) = uint4{0, 0, 0, 0};
        }
        ptx::shared_to_async_fence();
        ptx::named_sync(3, 256);
    }

    template <int Width>
    __device__ __forceinline__ void tile(const ProductTask& task, const ProductParameters& parameters, const CUtensorMap* out_map) {
        const int thread = static_cast<int>(threadIdx.x % 128), lane = thread % 32, warp = thread / 32;

        // Scales are asked for now and used after the products.
        float left_scale_0 = 1, left_scale_8 = 1, right_scale[2] = {1, 1};
        const int left_row = task.left_row + half * 64;
        if constexpr (Config::scaled) {
            const int extent = parameters.shape.left_extent, row = left_row + warp * 16 + lane / 4;
            const float* scales = parameters.left_scales + static_cast<std::int64_t>(task.group) * extent;
            left_scale_0 = row < extent ? __ldg(scales + row) : 0;
            left_scale_8 = row + 8 < extent ? __ldg(scales + row + 8) : 0;
            const std::int64_t first = task.right_row + (Config::reduction == Reduction::along_k
                                                             ? 0
                                                             : static_cast<std::int64_t>(task.group) * parameters.shape.right_extent);
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const int right = thread + i * 128;
                right_scale[i] = right < task.right_valid ? __ldg(parameters.right_scales + first + right) : 0;
            }
        }

        // Zeroed, not left to a first product that overwrites: registers without a first value would stay reserved in all the
        // other instances of this loop, and spill. It also makes the empty group's zeros.
        float acc[Width / 2] = {};
        if constexpr (Config::accumulation == Accumulation::fast) {
            int previous = -1;
            for (int round = 0; round < task.blocks; ++round) {
                ptx::barrier_wait(&storage.tiles_arrived[position.slot], position.phase);
                if constexpr (Config::panels) blank_tail(task, position.slot, round);
                ptx::wgmma_hold(acc);
                ptx::wgmma_fence();
                multiply_slot<Width>(acc, position.slot, 1);
                ptx::wgmma_commit();
                ptx::wgmma_hold(acc);
                ptx::wgmma_wait<1>();  // the previous slot's products are done
                if (previous >= 0) release(previous);
                previous = position.slot;
                position.advance();
            }
            ptx::wgmma_wait<0>();
            ptx::wgmma_hold(acc);
            if (previous >= 0) release(previous);
        } else {
            float partial[Width / 2] = {};
            for (int round = 0; round < task.blocks; ++round) {
                ptx::barrier_wait(&storage.tiles_arrived[position.slot], position.phase);
                if constexpr (Config::panels) blank_tail(task, position.slot, round);
                ptx::wgmma_hold(partial);
                ptx::wgmma_fence();
                multiply_slot<Width>(partial, position.slot, 0);
                ptx::wgmma_commit();
                ptx::wgmma_hold(partial);
                ptx::wgmma_wait<0>();
                ptx::wgmma_hold(partial);
                release(position.slot);
                position.advance();
#pragma unroll
                for (int i = 0; i < Width / 2; ++i) acc[i] += partial[i];
            }
        }
        skip(task.rounds - task.blocks);

#pragma unroll
        for (int i = 0; i < 2; ++i)
            if (thread + i * 128 < Width) storage.right_scales[half][thread + i * 128] = right_scale[i];
        // The first barrier inside store() publishes the scales to the warpgroup.
        constexpr bool clipped = Config::reduction != Reduction::along_k;
        output.template store<Width, clipped>(acc, left_scale_0, left_scale_8, out_map, parameters.out, left_row,
                                              parameters.shape.left_extent, task.right_row, task.right_valid,
                                              clipped ? task.group : 0);
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
    __device__ __forceinline__ void dispatch(const ProductTask& task, const ProductParameters& parameters, const CUtensorMap* out_map) {
        if (task.right_width == Width) tile<Width>(task, parameters, out_map);
        else if constexpr (Width > 32) dispatch<Width - 32>(task, parameters, out_map);
    }
};

template <class Config>
__device__ void multiply(ProductStorage<Config>& storage, const ProductParameters& parameters, const CUtensorMap* out_map) {
    // Uniform over the warp, and known to be: the descriptors then live in uniform registers.
    const int half = __shfl_sync(~0u, static_cast<int>(threadIdx.x / 128) - 1, 0);
    Multiplier<Config> multiplier{storage, half};
    multiplier.output.staging = storage.staging[half];
    multiplier.output.right_scales = storage.right_scales[half];
    multiplier.output.barrier = 1 + half;
    RingPosition<ProductStorage<Config>::tasks_ahead> position;
    while (true) {
        ptx::barrier_wait(&storage.task_posted[position.slot], position.phase);
        const ProductTask task = storage.tasks[position.slot];
        __syncwarp();
        if (threadIdx.x % 32 == 0) ptx::barrier_arrive(&storage.task_read[position.slot]);
        position.advance();
        if (task.rounds < 0) break;
        if (task.right_width == 0) multiplier.skip(task.rounds);
        else multiplier.template dispatch<Config::right_tile>(task, parameters, out_map);
    }
    if (threadIdx.x % 128 == 0) ptx::store_wait_all();
}

// left_map: box 128 bytes x 128 rows; right_map: box 128 bytes x 32 rows; right_full_map: box 128 bytes x right_tile/2 rows
// (with panels, all three: box 64 columns x 64 tokens). out_map: box 128 bytes x 32 rows. All with the 128-byte swizzle.
template <class Config>
__global__ void __launch_bounds__(Config::threads, 1)
    sm90_grouped_product(const __grid_constant__ CUtensorMap left_map, const __grid_constant__ CUtensorMap right_map,
                         const __grid_constant__ CUtensorMap right_full_map, const __grid_constant__ CUtensorMap out_map,
                         const __grid_constant__ ProductParameters parameters) {
    extern __shared__ __align__(1024) std::uint8_t shared_bytes[];
    if (ptx::shared_address(shared_bytes) % 1024 != 0) __trap();  // the swizzle would silently permute differently
    auto& storage = *reinterpret_cast<ProductStorage<Config>*>(shared_bytes);
    const int rank = Config::cluster == 1 ? 0 : static_cast<int>(ptx::cluster_rank());
    const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x / 32), 0);

    if (threadIdx.x == 0) {
        for (int slot = 0; slot < Config::slots; ++slot) {
            ptx::barrier_init(&storage.tiles_arrived[slot], 1);
            ptx::barrier_init(&storage.tiles_free[slot], 8 * Config::cluster);  // multiplying warps
        }
        for (int slot = 0; slot < ProductStorage<Config>::tasks_ahead; ++slot) {
            ptx::barrier_init(&storage.task_posted[slot], 1);
            ptx::barrier_init(&storage.task_read[slot], 9);  // the feeding thread and 8 multiplying warps
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
        ptx::registers_shrink<40>();
        if (warp == 1) post_tasks<Config>(storage, parameters, rank);
        else if (threadIdx.x == 0) feed<Config>(storage, &left_map, &right_map, &right_full_map, rank);
        __syncwarp();
    } else {
        ptx::registers_grow<232>();
        multiply<Config>(storage, parameters, &out_map);
    }
    // No block leaves while the other may still write to its shared memory or arrive on its barriers.
    if constexpr (Config::cluster == 2) {
        ptx::cluster_arrive();
        ptx::cluster_wait();
    }
}

}  // namespace octet::cuda
