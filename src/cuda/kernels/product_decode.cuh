// mxfp8: the warpgroup that turns 8-bit rows and their exponents into bf16 rows.
#pragma once

#include "cuda/kernels/product_storage.cuh"
#include "cuda/ptx/bulk_tensor.cuh"
#include "cuda/tile/mx_decode.cuh"

namespace octet::cuda {

// The decoding warpgroup: 8-bit rows and their exponents to bf16 rows. A slot has 320 rows of two blocks for 128
// threads: each takes left row t, right row t, and half of right row 128 + t/2.
template <class Config>
__device__ void decode_slots(ProductStorage<Config>& storage, const ProductParameters& parameters) {
    static_assert(Config::left_tile == 128 && Config::right_tile == 192);
    const int thread = static_cast<int>(threadIdx.x % 128), warp = thread / 32;
    const std::int64_t blocks = parameters.scale_blocks;
    TaskReader<Config> tasks{storage};
    RingPosition<Config::raw_slots> raw_position;
    RingPosition<Config::slots> position;
    while (true) {
        const ProductTask task = tasks.next();
        if (task.blocks < 0) return;
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
            const int block = task.left_first / 32 + 2 * round;
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
            ptx::warp_arrive(&storage.tiles_arrived[position.slot]);
            ptx::warp_arrive(&storage.raw.free[raw_position.slot]);
            raw_position.advance();
            position.advance();
        }
    }
}

}  // namespace octet::cuda
