// Finds the group that owns a tile, from cumulative end offsets that only the device knows.
#pragma once

#include <cstdint>

namespace octet::cuda {

struct GroupRange {
    int group;
    int first_row;    // of the group, among all tokens
    int rows;         // may be 0
    int left_first;   // first column of the group in the left operand, where every group starts on a multiple of its
    int right_first;  // alignment, and in the right one
    int first_tile;   // of the group, among all tiles
};

// What a group asks for. Groups of a lower rank come first, those of equal rank in their own order.
struct GroupWork {
    int tiles;
    int rank;  // 0 to 31
};

// One warp walks the groups 32 at a time, a group a lane, once for every rank that occurs; tiles must be asked for in
// ascending order. Offsets outside [0, tokens] or descending are clamped: the result is then meaningless, but nothing
// outside the buffers is touched.
class GroupWalk {
public:
    __device__ GroupWalk(const std::int32_t* ends, int groups, int tokens, int left_alignment, int right_alignment)
        : ends_(ends),
          groups_(groups),
          tokens_(tokens),
          left_alignment_(left_alignment),
          right_alignment_(right_alignment),
          lane_(static_cast<int>(threadIdx.x % 32)),
          window_(groups) {}

    // How many tiles there are; first of all. work_of(rows): of a group of that many rows.
    template <class WorkOf>
    __device__ int survey(WorkOf work_of) {
        int tiles = 0, largest = 0;
#pragma unroll 1  // it runs before the first load, when no instruction is in the cache
        for (int window = 0; window < groups_; window += 32) {
            const int rows = rows_of(window + lane_);
            const GroupWork work = work_of(rows);
            const bool counts = window + lane_ < groups_ && work.tiles > 0;
            ranks_ |= __reduce_or_sync(~0u, counts ? 1u << work.rank : 0);
            tiles += counts ? work.tiles : 0;
            largest = max(largest, rows);
        }
        largest_ = static_cast<int>(__reduce_max_sync(~0u, static_cast<unsigned>(largest)));
        return static_cast<int>(__reduce_add_sync(~0u, static_cast<unsigned>(tiles)));
    }

    // Its rows, once surveyed.
    __device__ int largest_group() const { return largest_; }

    // False when there is no such tile.
    template <class WorkOf>
    __device__ bool seek(int tile, WorkOf work_of, GroupRange& found) {
        while (tile >= tiles_before_ + tiles_in_window_) {
            window_ += 32;
            if (window_ >= groups_ && !next_rank()) return false;
            open(work_of);
        }
        const unsigned owners = __ballot_sync(~0u, tiles_before_ + tiles_through_ > tile);
        const int owner = __ffs(static_cast<int>(owners)) - 1;
        found.group = window_ + owner;
        found.first_row = __shfl_sync(~0u, first_row_, owner);
        found.rows = __shfl_sync(~0u, rows_, owner);
        found.left_first = __shfl_sync(~0u, left_first_, owner);
        found.right_first = __shfl_sync(~0u, right_first_, owner);
        found.first_tile = tiles_before_ + __shfl_sync(~0u, tiles_through_ - tiles_, owner);
        return true;
    }

private:
    __device__ int end_of(int group) const {
        return group < 0 ? 0 : min(max(ends_[min(group, groups_ - 1)], 0), tokens_);
    }

    __device__ int rows_of(int group) const { return group < groups_ ? max(end_of(group) - end_of(group - 1), 0) : 0; }

    __device__ bool next_rank() {
        if (ranks_ == 0) return false;
        rank_ = __ffs(static_cast<int>(ranks_)) - 1;
        ranks_ &= ranks_ - 1;
        window_ = 0;
        left_before_ = left_in_window_ = right_before_ = right_in_window_ = 0;
        return true;
    }

    template <class WorkOf>
    __device__ void open(WorkOf work_of) {
        tiles_before_ += tiles_in_window_;
        left_before_ += left_in_window_;
        right_before_ += right_in_window_;
        const int group = window_ + lane_;
        first_row_ = end_of(group - 1);
        rows_ = rows_of(group);
        const GroupWork work = work_of(rows_);
        tiles_ = group < groups_ && work.rank == rank_ ? work.tiles : 0;
        const int left = round_up(rows_, left_alignment_), right = round_up(rows_, right_alignment_);
        int left_through = left, right_through = right;
        tiles_through_ = tiles_;
        for (int step = 1; step < 32; step *= 2) {
            const int tiles = __shfl_up_sync(~0u, tiles_through_, step);
            const int left_columns = __shfl_up_sync(~0u, left_through, step);
            const int right_columns = __shfl_up_sync(~0u, right_through, step);
            if (lane_ >= step) {
                tiles_through_ += tiles;
                left_through += left_columns;
                right_through += right_columns;
            }
        }
        left_first_ = left_before_ + left_through - left;
        right_first_ = right_before_ + right_through - right;
        tiles_in_window_ = __shfl_sync(~0u, tiles_through_, 31);
        left_in_window_ = __shfl_sync(~0u, left_through, 31);
        right_in_window_ = __shfl_sync(~0u, right_through, 31);
    }
    __device__ static int round_up(int value, int multiple) { return (value + multiple - 1) / multiple * multiple; }

    const std::int32_t* ends_;  // [groups] cumulative
    int groups_, tokens_, left_alignment_, right_alignment_, lane_;
    unsigned ranks_ = 0;  // still to come, a bit each
    int largest_ = 0;
    int rank_ = 0;
    int window_;  // first group of the 32 in the lanes; `groups`: none yet
    int tiles_before_ = 0, tiles_in_window_ = 0;
    int left_before_ = 0, left_in_window_ = 0, right_before_ = 0, right_in_window_ = 0;  // columns
    // of this lane's group
    int first_row_ = 0, rows_ = 0, tiles_ = 0, tiles_through_ = 0, left_first_ = 0, right_first_ = 0;
};

}  // namespace octet::cuda
