// The feeding warps of the Hopper product kernel: the tile list, and operands and scales into the slots.
#pragma once

#include "cuda/kernels/product_storage.cuh"
#include "cuda/ptx/async_copy.cuh"
#include "cuda/ptx/bulk_tensor.cuh"
#include "cuda/ptx/warp.cuh"

namespace octet::cuda {

struct OperandMaps {
    const CUtensorMap *left, *right, *right_full;
};

// Posts tasks by tickets: a block's first is its number, and the next one is drawn when the tile before it begins to be
// loaded. Everybody draws one that is too high; who has the last of these leaves the counter at zero.
template <class Config, class Post>
__device__ void post_by_tickets(ProductStorage<Config>& storage, unsigned* counter, typename Config::Schedule& schedule,
                                Post post) {
    const int blocks = static_cast<int>(gridDim.x), tickets = schedule.tickets(blocks);
    int ticket = static_cast<int>(blockIdx.x);
    unsigned begun = 0;
    bool drawn = false;
    while (ticket < tickets || !drawn) {
        const auto task = schedule.task_of(ticket, blocks);
        if (task.blocks > 0) {
            post(task);
            ptx::barrier_wait(&storage.task_begun, begun);
            begun ^= 1;
        }
        if (threadIdx.x % 32 == 0) ticket = blocks + static_cast<int>(atomicAdd(counter, 1u));
        ticket = __shfl_sync(~0u, ticket, 0);
        drawn = true;
    }
    if (threadIdx.x % 32 == 0 && ticket == max(tickets, blocks) + blocks - 1) atomicExch(counter, 0u);
    post(schedule.task_of(ticket, blocks));
}

// Warp 1 of the feeding warpgroup: works out the tile list and posts it for everybody else.
template <class Config>
__device__ void post_tasks(ProductStorage<Config>& storage, const ProductParameters& parameters) {
    typename Config::Schedule schedule(parameters.shape, Config::cluster > 1 ? ptx::cluster_rank() : 0);
    RingPosition<ProductStorage<Config>::tasks_ahead> position;
    const auto post = [&](const auto& task) {
        ptx::barrier_wait(&storage.task_read[position.slot], position.phase ^ 1);
        if (threadIdx.x % 32 == 0) {
            storage.tasks[position.slot] = task;
            ptx::barrier_arrive(&storage.task_posted[position.slot]);
        }
        __syncwarp();
        position.advance();
    };
    if constexpr (Config::draws_tickets)
        if (parameters.tickets != nullptr && schedule.by_tickets())
            return post_by_tickets<Config>(storage, parameters.tickets, schedule, post);
    for (int round = 0;; ++round) {
        const auto task = schedule.task(round, static_cast<int>(blockIdx.x) / Config::cluster,
                                        static_cast<int>(gridDim.x) / Config::cluster);
        post(task);
        if (task.blocks < 0) return;
    }
}

// One thread: asks the copy engine for both operands of a slot.
template <class Config>
__device__ __forceinline__ void load_slot(ProductStorage<Config>& storage, const OperandMaps& maps,
                                          const typename ProductStorage<Config>::Task& task, int round, int slot) {
    ptx::Barrier* arrived = &storage.tiles_arrived[slot];
    std::uint8_t *left = storage.left[slot], *right = storage.right[slot];
    const int left_reduce = task.left_first + round * Config::reduce_tile;
    const int right_reduce = task.right_first + round * Config::reduce_tile;
    const int right_panels = (task.right_width + 63) / 64;
    const int right_lines = Config::right_panels ? right_panels * 64 : task.right_width;
    // The weights' matrix; tokens have none.
    const int left_batch = Config::reduction == Reduction::along_k && !Config::tokens_left ? task.group : 0;
    const int right_batch = Config::tokens_left ? task.group : 0;
    ptx::barrier_arrive_expect(arrived, Config::left_tile * Config::left_line + right_lines * 128);
    if constexpr (Config::left_panels) {
        for (int panel = 0; panel < Config::left_tile / 64; ++panel)
            ptx::tensor_load(left + panel * Config::panel_bytes, maps.left, arrived, task.left_row + panel * 64,
                             left_reduce, left_batch);
    } else {
        ptx::tensor_load(left, maps.left, arrived, left_reduce, task.left_row, left_batch);
    }
    if constexpr (Config::cluster > 1) {
        bool shared = true;
        if constexpr (Config::tokens_left) shared = task.right_shared;
        if (shared) {  // in turns with the other block, for both
            const bool whole = task.right_width == Config::right_tile;
            const int step = whole ? Config::right_tile / 2 : 32;
            for (int row = ptx::cluster_rank() * step; row < task.right_width; row += 2 * step)
                ptx::tensor_load_to(0b11, right + row * 128, whole ? maps.right_full : maps.right, arrived,
                                    right_reduce, task.right_row + row, right_batch);
            return;
        }
    }
    if constexpr (Config::right_panels) {
        for (int panel = 0; panel < right_panels; ++panel)
            ptx::tensor_load(right + panel * Config::panel_bytes, maps.right, arrived, task.right_row + panel * 64,
                             right_reduce, 0);
    } else if constexpr (Config::scaled_blocks) {
        constexpr int half = Config::right_tile / 2;
        const bool whole = task.right_width == Config::right_tile;
        if (whole) {
            ptx::tensor_load(right, maps.right_full, arrived, right_reduce, task.right_row, right_batch);
            ptx::tensor_load(right + half * 128, maps.right_full, arrived, right_reduce, task.right_row + half,
                             right_batch);
        } else {
            for (int row = 0; row < task.right_width; row += 32)
                ptx::tensor_load(right + row * 128, maps.right, arrived, right_reduce, task.right_row + row,
                                 right_batch);
        }
    } else {
        // In halves of a whole tile where the width has some, in units of 32 for the rest: one warp issues all of them.
        constexpr int half = Config::right_tile / 2;
        constexpr bool mixes = half % 32 == 0;
        constexpr int most_units = mixes ? half / 32 - 1 : Config::right_tile / 32 - 1;
        const int halves = mixes || task.right_width == Config::right_tile ? task.right_width / half : 0;
        const auto load = [&](const CUtensorMap* map, int row) {
            ptx::tensor_load(right + row * 128, map, arrived, right_reduce, task.right_row + row, right_batch);
        };
#pragma unroll
        for (int i = 0; i < 2; ++i)
            if (i < halves) load(maps.right_full, i * half);
#pragma unroll
        for (int i = 0; i < most_units; ++i)
            if (halves * half + i * 32 < task.right_width) load(maps.right, halves * half + i * 32);
    }
}

// Blockwise scales of wgrad, a warp: where this lane's come from is worked out once a tile; every slot is then a few
// copies.
template <class Config>
struct ScaleFeeder {
    static constexpr int rights = Config::right_tile / 32, lefts = Config::left_tile / 32;
    const float *right, *left;           // this lane's first of the next slot
    std::int64_t right_step, left_step;  // from block to block
    int right_valid, left_valid;         // from there on
    int lane;

    __device__ ScaleFeeder(const ProductParameters& parameters, const ProductTask& task)
        : right_step(parameters.shape.right_extent),
          left_step(parameters.shape.left_extent),
          lane(static_cast<int>(threadIdx.x % 32)) {
        const std::int64_t block = task.left_first / Config::reduce_tile;
        const bool inside = block < parameters.scale_blocks;  // not in an empty group, whose operands lie past the end
        right_valid = inside ? task.right_valid - lane : 0;
        left_valid = inside ? parameters.shape.left_extent - task.left_row - lane : 0;
        right = parameters.right_scales + (inside ? block * right_step + task.right_row + lane : 0);
        left = parameters.left_scales + (inside ? block * left_step + task.left_row + lane : 0);
    }

    __device__ __forceinline__ void load(SlotScales<Config::right_tile>& scales, ptx::Barrier* arrived) {
#pragma unroll
        for (int i = 0; i < rights; ++i)
            ptx::copy_word(&scales.right[scales.place(lane + 32 * i)], right + 32 * i, 32 * i < right_valid);
#pragma unroll
        for (int i = 0; i < lefts; ++i)
            ptx::copy_word(&scales.left[left_place(lane + 32 * i)], left + 32 * i, 32 * i < left_valid);
        right += right_step;
        left += left_step;
        ptx::copy_words_arrive(arrived);
    }
};

// The same for forward and dgrad: a scale for every token, and one for 64 columns of the weights.
template <class Config>
struct TokenScaleFeeder {
    static constexpr int rights = Config::right_tile / 64, lefts = Config::left_tile / 32;
    const float *right, *left;  // this lane's first of the next slot
    std::int64_t tokens;
    int lane, place, left_valid;  // of the left ones: where the lane's first goes, and how many come from there on
    bool right_valid;

    __device__ TokenScaleFeeder(const ProductParameters& parameters, const ProductTask& task)
        : tokens(parameters.shape.tokens), lane(static_cast<int>(threadIdx.x % 32)), place(left_place(lane)) {
        left = parameters.left_scales + task.left_row + lane;
        left_valid = task.left_valid - lane;
        const int row = task.right_row + 64 * lane;
        right_valid = lane < rights && row < parameters.shape.left_extent;
        const std::int64_t blocks = (parameters.shape.left_extent + 127) / 128;
        right =
            parameters.right_scales + (right_valid ? (task.group * blocks + row / 128) * parameters.scale_blocks : 0);
    }

    __device__ __forceinline__ void load(TokenSlotScales<Config::right_tile>& scales, ptx::Barrier* arrived) {
#pragma unroll
        for (int i = 0; i < lefts; ++i)
            ptx::copy_word(&scales.left[place + 32 * i], left + 32 * i, 32 * i < left_valid);
        if (lane < rights) ptx::copy_word(&scales.right[lane], right, right_valid);
        left += tokens;
        ++right;
        ptx::copy_words_arrive(arrived);
    }
};

// mx, the same for the left rows' exponents: words of four blocks, with every other slot. Rows and blocks outside the
// operand, whose elements are zero, get 0.
template <class Config>
struct ExponentFeeder {
    static constexpr int lefts = Config::left_tile / 32;
    const std::uint8_t* left;  // of this lane's first row, the next slot's first block
    std::int64_t step;         // from there to the lane's next row
    int rows, blocks;          // of the operand, from there on
    int place;                 // of the lane's first row in a slot
    bool words;                // every four blocks are an aligned word
    int round = 0;

    __device__ ExponentFeeder(const ProductParameters& parameters, const ProductTask& task) {
        const int lane = static_cast<int>(threadIdx.x % 32), row = task.left_row + lane, block = task.left_first / 32;
        const bool of_group = Config::reduction == Reduction::along_k && !Config::tokens_left;  // weights
        const std::int64_t first = of_group ? static_cast<std::int64_t>(task.group) * parameters.shape.left_extent : 0;
        const int pitch = parameters.exponent_pitch;
        left = parameters.left_exponents + (first + row) * pitch + block;
        step = std::int64_t{32} * pitch;
        blocks = parameters.scale_blocks - block;  // none in an empty group, whose operands lie past the end
        rows = blocks > 0 ? (Config::tokens_left ? parameters.shape.tokens : parameters.shape.left_extent) - row : 0;
        place = left_place(lane);
        words = (reinterpret_cast<std::uintptr_t>(parameters.left_exponents) | pitch | block) % 4 == 0;
    }

    __device__ __forceinline__ void load(SlotExponents& exponents, ptx::Barrier* arrived) {
        const bool comes = round++ % 2 == 0;
        std::uint32_t* into = exponents.left + place;
        if (words) {
#pragma unroll
            for (int i = 0; i < lefts; ++i)
                if (comes) ptx::copy_word(into + 32 * i, left + i * step, 32 * i < rows);
            ptx::copy_words_arrive(arrived);
        } else {
            for (int i = 0; i < lefts && comes; ++i) into[32 * i] = bytes(left + i * step, 32 * i < rows ? blocks : 0);
            ptx::barrier_arrive(arrived);
        }
        left += 2;
        blocks -= 2;
    }

private:
    __device__ static std::uint32_t bytes(const std::uint8_t* from, int valid) {
        std::uint32_t word = 0;
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (i < valid) word |= static_cast<std::uint32_t>(__ldg(from + i)) << (8 * i);
        return word;
    }
};

struct NoScaleFeeder {
    __device__ NoScaleFeeder(const ProductParameters&, const ProductTask&) {}
    __device__ void load(NoScales&, ptx::Barrier*) {}
};

template <class Config>
using ScaleFeederOf = std::conditional_t<
    Config::decoded, ExponentFeeder<Config>,
    std::conditional_t<!Config::scaled_blocks, NoScaleFeeder,
                       std::conditional_t<Config::tokens_left, TokenScaleFeeder<Config>, ScaleFeeder<Config>>>>;

// Warp 0 of the feeding warpgroup: one lane keeps the copy engine busy; all lanes fetch scales that come by slots.
template <class Config>
__device__ void feed(ProductStorage<Config>& storage, const OperandMaps& maps, const ProductParameters& parameters) {
    TaskReader<Config> tasks{storage};
    RingPosition<Config::slots> position;
    while (true) {
        const auto task = tasks.next();
        if (task.blocks < 0) return;
        if (Config::draws_tickets && threadIdx.x % 32 == 0) ptx::barrier_arrive(&storage.task_begun);
        ScaleFeederOf<Config> scale_feeder(parameters, task);
        for (int round = 0; round < task.blocks; ++round, position.advance()) {
            ptx::barrier_wait(&storage.tiles_free[position.slot], position.phase ^ 1);
            if (ptx::elect_lane()) load_slot<Config>(storage, maps, task, round, position.slot);
            scale_feeder.load(storage.scales[position.slot], &storage.tiles_arrived[position.slot]);
        }
        __syncwarp();
    }
}

}  // namespace octet::cuda
