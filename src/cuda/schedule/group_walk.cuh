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

// One warp walks the groups 32 at a time, a group a lane; tiles must be asked for in ascending order. Offsets outside
// [0, tokens] or descending are clamped: the result is then meaningless, but nothing outside the buffers is touched.
class GroupWalk {
public:
    __device__ GroupWalk(const std::int32_t* ends, int groups, int tokens, int left_alignment, int right_alignment)
        : ends_(ends),
          groups_(groups),
          tokens_(tokens),
          left_alignment_(left_alignment),
          right_alignment_(right_alignment),
          lane_(static_cast<int>(threadIdx.x % 32)) {}

    // tiles_of(rows): how many tiles a group of that many rows has. False when there is no such tile.
    template <class TilesOf>
    __device__ bool seek(int tile, TilesOf tiles_of, GroupRange& found) {
        while (tile >= tiles_before_ + tiles_in_window_) {
            const int next = window_ + 32;
            if (next >= groups_ && window_ >= 0) return false;
            open(window_ < 0 ? 0 : next, tiles_of);
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

    template <class TilesOf>
    __device__ void open(int window, TilesOf tiles_of) {
        tiles_before_ += tiles_in_window_;
        left_before_ += left_in_window_;
        right_before_ += right_in_window_;
        window_ = window;
        const int group = window + lane_;
        first_row_ = end_of(group - 1);
        rows_ = group < groups_ ? max(end_of(group) - first_row_, 0) : 0;
        tiles_ = group < groups_ ? tiles_of(rows_) : 0;
        const int left = round_up(rows_, left_alignment_), right = round_up(rows_, right_alignment_);
        int left_through = left, right_through = right;
        tiles_through_ = tiles_;
#pragma unroll
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
    int window_ = -1;  // first group of the 32 in the lanes
    int tiles_before_ = 0, tiles_in_window_ = 0;
    int left_before_ = 0, left_in_window_ = 0, right_before_ = 0, right_in_window_ = 0;  // columns
    // of this lane's group
    int first_row_ = 0, rows_ = 0, tiles_ = 0, tiles_through_ = 0, left_first_ = 0, right_first_ = 0;
};

}  // namespace octet::cuda
