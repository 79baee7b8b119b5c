// The order of the tiles inside one group.
#pragma once

namespace octet::cuda {

// Of numbers that are not negative. What is worked out before a kernel's first load is not in the instruction cache,
// and a signed division has twice the instructions.
__host__ __device__ __forceinline__ int quotient(int dividend, int divisor) {
    return static_cast<int>(static_cast<unsigned>(dividend) / static_cast<unsigned>(divisor));
}
__host__ __device__ __forceinline__ int round_up_quotient(int dividend, int divisor) {
    return quotient(dividend + divisor - 1, divisor);
}

struct TilePlace {
    int right, left;
};

// `right_tiles` x `left_tiles` tiles are visited in bands of about `band` right tiles; inside a band, two left tiles at
// a time, all the band's right tiles for these two: blocks that run at the same time then find each other's rows in L2.
// With an odd number of left tiles the last left tile has no partner; one of these singles goes first where the band
// starts on an odd index. index: of the tile inside the group; first_tile: of the group, among all tiles.
__device__ __forceinline__ TilePlace place_tile(int index, int first_tile, int right_tiles, int left_tiles, int band) {
    int height = right_tiles, which = 0;  // of the bands, and which of them
    if (right_tiles > band) {
        height = round_up_quotient(right_tiles, round_up_quotient(right_tiles, band));
        which = quotient(index, height * left_tiles);
    }
    const int band_tiles = height * left_tiles;
    const int inside = index - which * band_tiles;
    const int first_right = which * height;
    const int rights = min(height, right_tiles - first_right);
    const int leading_single = (first_tile + which * band_tiles) & left_tiles & 1;
    const int paired = rights * (left_tiles & ~1);
    const int position = inside - leading_single;
    if (position >= 0 && position < paired) {
        const int pair = quotient(position, 2 * rights);
        const int rest = position - pair * 2 * rights;
        return {first_right + rest / 2, 2 * pair + rest % 2};
    }
    return {first_right + (position < 0 ? 0 : inside - paired), left_tiles - 1};
}

}  // namespace octet::cuda
