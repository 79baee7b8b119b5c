// The multiplying warpgroups of the Hopper product kernel.
#pragma once

#include "cuda/kernels/product_decode.cuh"
#include "cuda/kernels/product_storage.cuh"
#include "cuda/ptx/warp.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/tile/matrix_descriptor.cuh"

namespace octet::cuda {

// A multiplying warpgroup.
template <class Config>
struct Multiplier {
    ProductStorage<Config>& storage;
    int half;            // which 64 left rows of the tile
    bool single_factor;  // mx: no left exponent is over 134
    OutputStager<typename Config::OutputLayout, Config::right_tile, Config::scaled_rows> output;
    RingPosition<Config::slots> position{};
    TaskReader<Config> tasks{storage};
    // The other block's tiles_free: who loads for both waits for both.
    std::uint32_t others_free = Config::cluster > 1 ? ptx::cluster_address(storage.tiles_free, 1 - ptx::cluster_rank())
                                                    : 0;
    // The low words of the descriptors of the operands in the slot at `position`. Kept beside it, because working them
    // out is a chain of uniform instructions between the products of one slot and those of the next.
    std::uint32_t left =
        static_cast<std::uint32_t>(Config::left_panels ? mn_major_descriptor(storage.left[0], Config::panel_bytes)
                                                       : k_major_descriptor(storage.left[0]));
    std::uint32_t right =
        static_cast<std::uint32_t>(Config::right_panels ? mn_major_descriptor(storage.right[0], Config::panel_bytes)
                                                        : k_major_descriptor(storage.right[0]));

    // How many turns a warpgroup takes in a slot. With one set of accumulators, or products in two parts, it always has
    // some waiting; but one that decodes should do so while the other's run.
    static constexpr int turns =
        Config::columns_halved                                                                    ? 2
        : Config::decoded || (Config::accumulation != Accumulation::fast && !Config::tokens_left) ? 1
                                                                                                  : 0;

    // To the next slot.
    __device__ __forceinline__ void advance() {
        constexpr int last = Config::slots - 1, left_units = sizeof storage.left[0] / 16,
                      right_units = sizeof storage.right[0] / 16;
        position.advance();
        left += position.slot == 0 ? -last * left_units : left_units;
        right += position.slot == 0 ? -last * right_units : right_units;
    }

    // Its products are done in all lanes of the warp; nothing was written.
    __device__ __forceinline__ void release(int slot) const {
        if (!ptx::lane_arrives()) return;
        ptx::barrier_arrive(&storage.tiles_free[slot]);
        if constexpr (Config::cluster > 1) ptx::barrier_arrive_at(others_free + slot * sizeof(ptx::Barrier));
    }

    // Waits for the slot at `position`. Both warpgroups come here for every slot, so they may wait for each other.
    __device__ __forceinline__ void await_slot(const ProductTask& task, int round) const {
        ptx::barrier_wait(&storage.tiles_arrived[position.slot], position.phase);
        after_arrival(task, round);
    }
    __device__ __forceinline__ void after_arrival(const ProductTask& task, int round) const {
        // Blockwise operands are zero from a group's end to the next slot.
        if (Config::reduction != Reduction::along_k && !Config::scaled_blocks && round + 1 == task.blocks)
            blank_tail(task, position.slot, round);
    }
    // Whether it has come already. Asked before the sums of the slot before are added, the answer costs no time.
    __device__ __forceinline__ bool slot_arrived() const {
        return ptx::barrier_test(&storage.tiles_arrived[position.slot], position.phase);
    }

    // Where in its tile a product of 64 rows lies.
    struct Place {
        int row, column;
    };

    // Issues the products of the slot at `position`, without waiting for them. What lies past the group's end is not
    // multiplied at all; `whole`: nothing does.
    template <int Width, bool Accumulate>
    __device__ __forceinline__ void multiply_slot(float (&acc)[Width / 2], const ProductTask& task, int round) const {
        multiply_slot<Width, Accumulate>(acc, task, round, {half * 64, 0});
    }
    template <int Width, bool Accumulate, bool whole = false>
    __device__ __forceinline__ void multiply_slot(float (&acc)[Width / 2], const ProductTask& task, int round,
                                                  Place place) const {
        const int kept = task.reduce_length - round * Config::reduce_tile;
        if (whole || Config::reduction == Reduction::along_k || round + 1 < task.blocks || kept > 3 * Config::step)
            multiply_steps<Width, Accumulate, 4>(acc, place);
        else if (kept > 2 * Config::step)
            multiply_steps<Width, Accumulate, 3>(acc, place);
        else if (kept > Config::step)
            multiply_steps<Width, Accumulate, 2>(acc, place);
        else
            multiply_steps<Width, Accumulate, 1>(acc, place);
    }

    // The two warpgroups take turns to issue, so that one adds while the other's products run.
    __device__ __forceinline__ void take_turn() const { ptx::named_sync(2 + half, 256); }
    __device__ __forceinline__ void pass_turn() const { ptx::named_arrive(3 - half, 256); }

    __device__ __forceinline__ static std::uint64_t descriptor(std::uint32_t low) {
        return std::uint64_t{descriptor_upper} << 32 | low;
    }

    // The first `Steps` of the slot's four instructions; whole, because the compiler serializes products in branches.
    template <int Width, bool Accumulate, int Steps>
    __device__ __forceinline__ void multiply_steps(float (&acc)[Width / 2], Place place) const {
        if constexpr (Accumulate) ptx::wgmma_hold(acc);
        ptx::wgmma_fence();
        // Lines of 128 bytes; a panel is 64 of them, too.
        const std::uint32_t a = left + place.row * (128 / 16), b = right + place.column * (128 / 16);
        constexpr int left_step = Config::left_panels ? 2048 / 16 : 32 / 16;
        constexpr int right_step = Config::right_panels ? 2048 / 16 : 32 / 16;
        multiply_step<Width, Accumulate>(acc, descriptor(a), descriptor(b));
#pragma unroll
        for (int i = 1; i < Steps; ++i) {
            if (Config::columns_halved && i == Steps - 2) ptx::wgmma_commit();  // the last two in a group of their own
            multiply_step<Width, true>(acc, descriptor(a + i * left_step), descriptor(b + i * right_step));
        }
        ptx::wgmma_commit();
        ptx::wgmma_hold(acc);
    }
    // The e5m2 operand: 0 none, 1 left, 2 right.
    static constexpr int gradients = Config::element != Element::e4m3_e5m2 ? 0 : Config::tokens_left ? 1 : 2;
    template <int Width, bool Accumulate>
    __device__ __forceinline__ static void multiply_step(float (&acc)[Width / 2], std::uint64_t a, std::uint64_t b) {
        if constexpr (Config::fp8)
            ptx::wgmma_fp8<Width, gradients == 1, gradients == 2, Accumulate>(acc, a, b);
        else
            ptx::wgmma_bf16<Width, Config::left_panels, Config::right_panels, Accumulate>(acc, a, b);
    }

    // mx: issues the products of a slot, the left rows in registers.
    template <int Width, bool Accumulate>
    __device__ __forceinline__ void multiply_operands(float (&acc)[Width / 2], const std::uint32_t (&first)[8],
                                                      const std::uint32_t (&second)[8]) const {
        if constexpr (Accumulate) ptx::wgmma_hold(acc);
        ptx::wgmma_fence();
        ptx::wgmma_bf16<Width, Accumulate>(acc, first, descriptor(right));
        ptx::wgmma_bf16<Width, true>(acc, first + 4, descriptor(right + 32 / 16));
        ptx::wgmma_bf16<Width, true>(acc, second, descriptor(right + 64 / 16));
        ptx::wgmma_bf16<Width, true>(acc, second + 4, descriptor(right + 96 / 16));
        ptx::wgmma_commit();
        ptx::wgmma_hold(acc);
    }

    // mx: one tile's products; returns the next task. A slot is decoded, but for the factors, while the products of the
    // one before run, and the warpgroups take turns: one decodes while the other's products run.
    // NOTES: without a branch around any product, or ptxas waits for each of them (C7513).
    template <int Width, bool single>
    __device__ __forceinline__ ProductTask multiply_decoded(float (&acc)[Width / 2], const ProductTask& task) {
        LeftDecoder<Config> decoder(half);
        typename LeftDecoder<Config>::Block taken[2];  // of the slot
        std::uint32_t first[8], second[8];             // the same as operands
        const auto read_slot = [&](int round) {
            await_slot(task, round);
            decoder.read_rows(storage.left[position.slot]);
            decoder.read_exponents(storage.scales[position.slot].left, round);
            if (Config::reduction != Reduction::along_k && !has_second_block(task, round)) decoder.keep_first();
            taken[0] = decoder.template take<0, single>();
            taken[1] = decoder.template take<1, single>();
            // The slot came long ago; but with a loop here ptxas does not move the above behind the wait for products.
            ptx::barrier_wait(&storage.tiles_arrived[position.slot], position.phase);
        };
        read_slot(0);
        const auto decode_both = [&] {
            decoder.template decode<single>(taken[0], first);
            decoder.template decode<single>(taken[1], second);
        };
        decode_both();
        take_turn();
        multiply_operands<Width, false>(acc, first, second);
        pass_turn();
        const ProductTask next = tasks.next();
        for (int round = 1; round < task.blocks; ++round) {
            const int previous = position.slot;
            advance();
            read_slot(round);
            ptx::wgmma_wait<0>();
            ptx::wgmma_hold(first);
            ptx::wgmma_hold(second);
            release(previous);
            decode_both();
            take_turn();
            multiply_operands<Width, true>(acc, first, second);
            pass_turn();
        }
        ptx::wgmma_wait<0>();
        ptx::wgmma_hold(first);
        ptx::wgmma_hold(second);
        ptx::wgmma_hold(acc);
        release(position.slot);
        advance();
        if constexpr (single) {
            const bool nan[2] = {decoder.row_is_nan(0), decoder.row_is_nan(1)};
#pragma unroll
            for (int i = 0; i < Width / 2; ++i) acc[i] = nan[i / 2 % 2] ? __int_as_float(0x7FC0'0000) : acc[i];
        }
        return next;
    }

    // mx: the second block of a group's last slot may belong to the next group.
    __device__ __forceinline__ static bool has_second_block(const ProductTask& task, int round) {
        return task.reduce_length - round * Config::reduce_tile > 32;
    }

    // Blockwise scales of this lane's accumulators: left of its two rows, right of its columns (wgrad) or of 64 at a
    // time.
    template <int Width>
    struct BlockScales {
        static constexpr int rights = Config::tokens_left ? Config::right_tile / 64 : Width / 4;
        float right[rights], left[2];

        __device__ __forceinline__ float of(int accumulator) const {
            return right[Config::tokens_left ? accumulator / 32 : accumulator / 4 * 2 + accumulator % 2] *
                   left[accumulator / 2 % 2];
        }
    };
    template <int Width>
    __device__ __forceinline__ void read_left_scales(BlockScales<Width>& scales, int first_row) const {
        const int row =
            first_row + static_cast<int>(threadIdx.x / 32 % 4) * 16 + static_cast<int>(threadIdx.x % 32) / 4;
        const float2 two = *reinterpret_cast<const float2*>(&storage.scales[position.slot].left[left_place(row)]);
        scales.left[0] = two.x;
        scales.left[1] = two.y;  // 8 rows below
    }
    template <int Width>
    __device__ __forceinline__ void read_right_scales(BlockScales<Width>& scales, int first_column) const {
        const auto& shared = storage.scales[position.slot];
        if constexpr (Config::tokens_left) {
            const float4 four = *reinterpret_cast<const float4*>(shared.right);
            const float of[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
            for (int i = 0; i < scales.rights; ++i) scales.right[i] = of[i];
        } else {
            const auto* right =
                reinterpret_cast<const float2*>(&shared.right[threadIdx.x % 4 * shared.stride + first_column / 4]);
#pragma unroll
            for (int j = 0; j < Width / 8; ++j) {
                const float2 two = right[j];
                scales.right[2 * j] = two.x;
                scales.right[2 * j + 1] = two.y;
            }
        }
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
        } else if constexpr (Config::decoded) {
            // Groups start on multiples of a block and are zero up to there: all or nothing of the second one.
            if (has_second_block(task, round)) return;
            const auto blank = [](std::uint8_t* unit) { *reinterpret_cast<uint4*>(unit) = uint4{0, 0, 0, 0}; };
            for (int unit = 2; unit < 4 && thread < Config::left_tile; ++unit)
                blank(storage.left[slot] + thread * 64 + ((unit ^ (thread / 2 % 4)) << 4));
            for (int unit = 4; unit < 8 && thread < task.right_width; ++unit)
                blank(storage.right[slot] + thread * 128 + ((unit ^ (thread % 8)) << 4));
        } else {
            // Groups start on multiples of 16 bytes at least, and are zero up to there.
            if constexpr (!Config::fp8) return;
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

    // Whether the next slot has come is asked before the sums of this one are added. In wgrad that is slower.
    static constexpr bool asks_early = Config::reduction == Reduction::along_k;

    // The products of the slot at `position`, which are then added to `acc`, with its scales where there are some. In
    // two parts where turns are not taken: one is added while the other is multiplied. `sums`: the same registers in
    // every slot; `arrived`: the slot is known to have come, and then the next one.
    template <int Width, bool whole>
    __device__ __forceinline__ void add_slot(float (&acc)[Width / 2], float (&sums)[Width / 2], bool& arrived,
                                             const ProductTask& task, int round) {
        constexpr int second_width = turns > 0 ? 0 : Width / 2 / 32 * 32, first_width = Width - second_width;
        auto& first = reinterpret_cast<float(&)[first_width / 2]>(sums[0]);
        auto& second = reinterpret_cast<float(&)[second_width > 0 ? second_width / 2 : 1]>(
            sums[second_width > 0 ? first_width / 2 : 0]);
        if (!arrived) ptx::barrier_wait(&storage.tiles_arrived[position.slot], position.phase);
        if constexpr (!whole) after_arrival(task, round);
        if constexpr (turns > 0) take_turn();
        ptx::wgmma_hold(sums);
        multiply_slot<first_width, false, whole>(first, task, round, {half * 64, 0});
        if constexpr (second_width > 0)
            multiply_slot<second_width, false, whole>(second, task, round, {half * 64, first_width});
        if constexpr (turns > 0) pass_turn();
        BlockScales<Width> scales;
        if constexpr (Config::scaled_blocks) {  // while the products run
            read_left_scales(scales, half * 64);
            read_right_scales(scales, 0);
        }
        const auto add = [&](int from, int to) {
#pragma unroll
            for (int i = from; i < to; ++i) acc[i] += Config::scaled_blocks ? sums[i] * scales.of(i) : sums[i];
        };
        if constexpr (second_width > 0) {
            ptx::wgmma_wait<1>();
            ptx::wgmma_hold(first);
            add(0, first_width / 2);
        }
        ptx::wgmma_wait<0>();
        if constexpr (second_width > 0)
            ptx::wgmma_hold(second);
        else
            ptx::wgmma_hold(first);
        release(position.slot);
        advance();
        arrived = asks_early && slot_arrived();
        add(second_width > 0 ? first_width / 2 : 0, Width / 2);
    }

    // One tile's products, which are added to `acc` after every slot; returns the next task.
    template <int Width>
    __device__ __forceinline__ ProductTask multiply_and_add(float (&acc)[Width / 2], const ProductTask& task) {
        // `promoted` wgrad: so many slots in a straight line, without a look for the group's end. The others were
        // slower, or would spill.
        constexpr bool wgrad = Config::reduction != Reduction::along_k;
        constexpr int many = wgrad && !Config::adds ? 4 : 1;
        float sums[Width / 2];
#pragma unroll
        for (float& value : acc) value = 0;
        const ProductTask next = tasks.next();
        bool arrived = asks_early && slot_arrived();
        int round = 0;
        for (; many > 1 && round + many < task.blocks; round += many)
#pragma unroll
            for (int i = 0; i < many; ++i) add_slot<Width, true>(acc, sums, arrived, task, round + i);
        for (; round < task.blocks; ++round) add_slot<Width, false>(acc, sums, arrived, task, round);
        return next;
    }

    // Known to be uniform over the warp, what the loop over a tile's slots counts with stays in uniform registers;
    // otherwise descriptors are moved there before every product.
    __device__ __forceinline__ ProductTask made_uniform(ProductTask task) {
        const auto uniform = [](auto& value) { value = __shfl_sync(~0u, value, 0); };
        uniform(task.blocks);
        uniform(task.reduce_length);
        uniform(position.slot);
        uniform(position.phase);
        uniform(left);
        uniform(right);
        return task;
    }

    // One tile; returns the next task, read while the first products run.
    template <int Width>
    __device__ __forceinline__ ProductTask tile(const ProductTask& given) {
        const ProductTask task = made_uniform(given);
        float acc[Width / 2];
        ProductTask next;
        if constexpr (Config::decoded) {
            next = single_factor ? multiply_decoded<Width, true>(acc, task) : multiply_decoded<Width, false>(acc, task);
        } else if constexpr (Config::accumulation == Accumulation::fast) {
            await_slot(task, 0);
            multiply_slot<Width, false>(acc, task, 0);
            next = tasks.next();
            for (int round = 1; round < task.blocks; ++round) {
                const int previous = position.slot;
                advance();
                await_slot(task, round);
                multiply_slot<Width, true>(acc, task, round);
                ptx::wgmma_wait<1>();
                release(previous);
            }
            ptx::wgmma_wait<0>();
            ptx::wgmma_hold(acc);
            release(position.slot);
            advance();
        } else {
            next = multiply_and_add<Width>(acc, task);
        }
        if constexpr (Config::rows_left)
            output.template stage_rows<Width>(acc);
        else
            output.template stage<Width>(acc);
        return next;
    }

    // Columns `column` and on of one tile, all its rows; otherwise as tile().
    template <int Width>
    __device__ __forceinline__ ProductTask tile_columns(const ProductTask& given, int column) {
        const ProductTask task = made_uniform(given);
        float acc[2][Width / 2] = {};
        const ProductTask next = tasks.next();
        for (int round = 0; round < task.blocks; ++round) {
            await_slot(task, round);
            BlockScales<Width> scales;
            read_right_scales(scales, column);
            read_left_scales(scales, 0);
#pragma unroll
            for (int turn = 0; turn < 2; ++turn) {
                float partial[Width / 2];
                take_turn();
                // All four steps, to a group's end too: a branch here cost a tenth of the time.
                multiply_steps<Width, false, 4>(partial, {turn * 64, column});
                if (turn == 1) read_left_scales(scales, 64);
                // Products this narrow end together where both warpgroups have issued theirs, and both add at the same
                // time: the turn passes when only the last two are left.
                ptx::wgmma_wait<1>();
                pass_turn();
                ptx::wgmma_wait<0>();
                ptx::wgmma_hold(partial);
                if (turn == 1) release(position.slot);
#pragma unroll
                for (int i = 0; i < Width / 2; ++i) acc[turn][i] += partial[i] * scales.of(i);
            }
            advance();
        }
        output.template stage<Width>(acc[0]);
        output.template stage<Width>(acc[1]);
        return next;
    }
    template <int Width>
    __device__ __forceinline__ ProductTask dispatch_columns(const ProductTask& task, int column, int width) {
        if (width == Width) return tile_columns<Width>(task, column);
        constexpr int narrower = Width > 96 ? 96 : Width - 32;
        if constexpr (narrower > 0)
            return dispatch_columns<narrower>(task, column, width);
        else
            return pass_over(task);
    }

    // A tile of which this warpgroup has no tokens, or no columns: its turns pass, but nothing is multiplied.
    __device__ __forceinline__ ProductTask pass_over(const ProductTask& task) {
        const ProductTask next = tasks.next();
        for (int round = 0; round < task.blocks; ++round) {
            await_slot(task, round);
            for (int turn = 0; turn < turns; ++turn) {
                take_turn();
                pass_turn();
            }
            release(position.slot);
            advance();
        }
        if constexpr (Config::tokens_left) output.pass_over_rows(task.right_width);
        return next;
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
        if (turns > 0 && half == 1) ptx::named_arrive(2, 256);  // the first turn is the other's
        ProductTask task = tasks.next();
        while (task.blocks >= 0) {
            if constexpr (Config::columns_halved) {
                const int first = Config::first_columns(task.right_width);
                task = dispatch_columns<Config::right_tile / 2>(task, half * first,
                                                                half == 0 ? first : task.right_width - first);
            } else if (Config::tokens_left && half * 64 >= task.left_valid)
                task = pass_over(task);
            else
                task = dispatch<Config::right_tile>(task);
        }
    }
};

}  // namespace octet::cuda
