// Finds the group that owns a tile, from cumulative end offsets that only the device knows.
#pragma once

#include <cstdint>

namespace octet::cuda {

struct GroupRange {
    int group;
    int first_row;     // of the group, among all tokens
    int rows;          // may be 0
    int padded_first;  // first column of the group in a buffer where every group starts on a multiple of `alignment`
    int first_tile;    // of the group, among all tiles
};

// One warp walks the groups 32 at a time, a group a lane; tiles must be asked for in ascending order. Offsets outside
// [0, tokens] or descending are clamped: the result is then meaningless, but nothing outside the buffers is touched.
class GroupWalk {
public:
    __device__ GroupWalk(const std::int32_t* ends, int groups, int tokens, int alignment)
        : ends_(ends),
          groups_(groups),
          tokens_(tokens),
          alignment_(alignment),
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
        found.padded_first = __shfl_sync(~0u, padded_first_, owner);
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
        padded_before_ += padded_in_window_;
        window_ = window;
        const int group = window + lane_;
        first_row_ = end_of(group - 1);
        rows_ = group < groups_ ? max(end_of(group) - first_row_, 0) : 0;
        tiles_ = group < groups_ ? tiles_of(rows_) : 0;
        const int padded = (rows_ + alignment_ - 1) / alignment_ * alignment_;
        int padded_through = padded;
        tiles_through_ = tiles_;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            const int tiles = __shfl_up_sync(~0u, tiles_through_, step);
            const int columns = __shfl_up_sync(~0u, padded_through, step);
            if (lane_ >= step) {
                tiles_through_ += tiles;
                padded_through += columns;
            }
        }
        padded_first_ = padded_before_ + padded_through - padded;
        tiles_in_window_ = __shfl_sync(~0u, tiles_through_, 31);
        padded_in_window_ = __shfl_sync(~0u, padded_through, 31);
    }

    const std::int32_t* ends_;  // [groups] cumulative
    int groups_, tokens_, alignment_, lane_;
    int window_ = -1;  // first group of the 32 in the lanes
    int tiles_before_ = 0, tiles_in_window_ = 0;
    int padded_before_ = 0, padded_in_window_ = 0;
    // of this lane's group
    int first_row_ = 0, rows_ = 0, tiles_ = 0, tiles_through_ = 0, padded_first_ = 0;
};

}  // namespace octet::cuda
