// What one block does next: the tile list of a grouped product, computed on the device by one warp.
#pragma once

#include <type_traits>

#include "cuda/schedule/group_walk.cuh"
#include "cuda/schedule/tile_order.cuh"

namespace octet::cuda {

enum class Reduction {
    along_k,              // token-grouped: the right operand's rows are tokens, every tile reduces over K
    along_padded_tokens,  // wgrad: both operands hold tokens contiguously, each group from a multiple of the alignment,
                          // zero up to the next multiple
    along_tokens,         // wgrad: tokens are rows, groups follow each other without padding
};

// Output tile out[right_row .. + right_valid, left_row .. + 128].
struct ProductTask {
    int group;
    int left_row;
    int left_valid;  // tokens on the left: rows that belong to the group
    int right_row;
    int right_valid;    // rows that belong to the group (and are stored)
    int right_width;    // rows loaded and multiplied, a multiple of 32
    int left_first;     // first element of the reduction in the left operand
    int right_first;    // and in the right one
    int reduce_length;  // elements of the reduction that belong to the group
    int blocks;         // of 128 bytes along the reduction, at least 1; -1: no more tiles
};
static_assert(sizeof(ProductTask) == 40);

// Of a block in a cluster, where tokens are on the left.
struct ClusterTask : ProductTask {
    int right_shared;  // the other block has the same right rows
};

struct ProductShape {
    const std::int32_t* ends;  // [groups] cumulative end offsets, device
    int groups;
    int tokens;        // M
    int left_extent;   // output columns: N forward, K wgrad
    int right_extent;  // output rows of a group in wgrad (N); unused in forward
    int left_reduce;   // elements of the reduction in the left operand: K; in wgrad its columns (padded) or rows (not)
    int right_reduce;  // and in the right one
    bool skip_empty;   // wgrad that adds: an empty group has nothing to add
    int left_alignment, right_alignment;  // of the groups' first columns, along_padded_tokens; otherwise 1
    int band;                             // right tiles in a band, see tile_order.cuh
    int more_tiles = 0;  // right tiles of a group besides those that its width asks for, see fill_last_round()
};

// rows_left: the left operand has the rows of the output, tokens or (wgrad) gradients. cluster: so many blocks, 2 at
// most, work side by side, each with its rank and a left tile of its own, and what is called a tile outside is one of
// each.
template <Reduction reduction, int left_tile, int right_tile, int reduce_tile, bool rows_left = false, int cluster = 1>
class ProductSchedule {
public:
    static constexpr bool tokens_left = rows_left && reduction == Reduction::along_k;
    using Task = std::conditional_t<cluster == 1 || !tokens_left, ProductTask, ClusterTask>;
    static constexpr int most_pieces = 4;  // of a tile

    // More than half of the blocks have a tile in the last round, so that none is cut, and the others wait: more and
    // narrower ones, where all would then have one. Of one group alone, whose rows the host knows but for those that
    // are nobody's.
    static ProductShape fill_last_round(ProductShape shape, int blocks) {
        if (shape.groups > 1 || tokens_left) return shape;
        const int right = tiles(reduction == Reduction::along_k ? shape.tokens : shape.right_extent, right_tile);
        const int left = tiles(shape.left_extent, cluster * left_tile), left_over = right * left % blocks;
        if (right * left > 4 * blocks && 2 * left_over > blocks)
            shape.more_tiles = min((blocks - left_over) / left, right / 8);
        return shape;
    }

    // Warp-collective.
    __device__ explicit ProductSchedule(const ProductShape& shape, int rank = 0)
        : shape_(shape),
          rank_(rank),
          walk_(shape.ends, shape.groups, shape.tokens, shape.left_alignment, shape.right_alignment),
          left_tiles_(tiles(shape.left_extent, tokens_left ? right_tile : cluster * left_tile)),
          all_tiles_(walk_.survey([this](int rows) { return work_of(rows); })) {}

    // What a block does in a round; warp-collective, rounds must ascend. Past the end blocks is -1.
    // The tiles that are left over after the last whole round, too few for all blocks, are cut along the right operand,
    // so that they end sooner: into four at most, narrower ones are no faster.
    __device__ Task task(int round, int block, int blocks) {
        const int first = round * blocks, left_over = all_tiles_ - first;
        if (left_over <= 0) return nothing();
        const int pieces = pieces_of(left_over, blocks);
        const int place = place_of(round, block, blocks), in_round = pieces > 1 ? quotient(place, pieces) : place;
        return make(first + in_round, pieces, place - in_round * pieces);
    }

    // Where reductions differ much in length, a block that has a long one should have fewer: blocks then draw tickets
    // for the same tiles as they come by. Dealt tiles are better where that is not so, because neighbours that multiply
    // the same rows at the same time load them at the same time; but short reductions wait for their stores.
    __device__ bool by_tickets() const {
        const float groups = static_cast<float>(shape_.groups), tokens = static_cast<float>(shape_.tokens);
        return reduction != Reduction::along_k &&
               (tokens < 512 * groups || static_cast<float>(walk_.largest_group()) * groups > 2 * tokens);
    }
    __device__ int tickets(int blocks) const {
        const int left_over = all_tiles_ - whole_rounds(blocks);
        return all_tiles_ + (left_over > 0 ? left_over * (pieces_of(left_over, blocks) - 1) : 0);
    }
    // Warp-collective, tickets must ascend. Past the end blocks is -1, and of one that is for nothing, too.
    __device__ Task task_of(int ticket, int blocks) {
        const int whole = whole_rounds(blocks), place = ticket - whole;
        if (ticket >= tickets(blocks)) return nothing();
        if (place < 0) return make(ticket, 1, 0);
        const int pieces = pieces_of(all_tiles_ - whole, blocks), tile = quotient(place, pieces);
        return make(whole + tile, pieces, place - tile * pieces);
    }

private:
    __device__ static Task nothing() {
        Task task{};
        task.blocks = -1;
        return task;
    }
    __device__ int whole_rounds(int blocks) const { return quotient(all_tiles_, blocks) * blocks; }
    __device__ static int pieces_of(int left_over, int blocks) {
        return left_over < blocks ? min(quotient(blocks, left_over), most_pieces) : 1;
    }

    // A piece of a tile.
    __device__ Task make(int tile, int pieces, int piece) {
        GroupRange range;
        const auto work = [this](int rows) { return work_of(rows); };
        if (!walk_.seek(tile, work, range)) return nothing();
        Task task{};
        task.group = range.group;
        if constexpr (tokens_left)
            place_tokens_left(tile, range, task);
        else
            place_tokens_right(tile, range, task);
        if (pieces > 1) {
            const Share share = share_of(task.right_valid, pieces, piece);
            if (share.size == 0 && !goes_along(task)) return nothing();  // it is narrower than that
            if (share.size > 0) {
                task.right_row += share.first;
                task.right_valid = share.size;
            }
        }
        task.right_width = round_up_32(task.right_valid);
        task.blocks = max(tiles(task.reduce_length, reduce_tile), 1);
        return task;
    }

    // Of a block in a round: the blocks take turns in one order and then in the other, because tiles get smaller and
    // nobody should always be first. Where the tiles of a wgrad are not all as wide, that is a period which may divide
    // the number of blocks; so every round starts at another block.
    // 104: by a count of every block's work (132 blocks, 20 wgrads of nine shapes) the last one then ends 0.9% after
    // the end with the best step for that wgrad, on average, and 3.1% at most. No other step is better by 0.1%; with 1
    // it is 1.2% and 4.7%, with none 1.3% and 8.8%.
    __device__ int place_of(int round, int block, int blocks) const {
        constexpr int step = 104;
        if (round == 0) return block;  // without a division: nothing runs before it is known
        if (reduction != Reduction::along_k && tiles(shape_.right_extent, 32) % right_tiles(1) != 0)
            return (block + step * (round % blocks)) % blocks;
        return round % 2 == 0 ? block : blocks - 1 - block;
    }

    static constexpr int unit = rows_left ? 64 : 32;  // columns of the output are stored by 64
    struct Share {
        int first, size;
    };
    // As evenly as units go.
    __device__ static Share share_of(int rows, int count, int index) {
        const int units = tiles(rows, unit), fewest = quotient(units, count), wider = units - fewest * count;
        const int first = unit * (index * fewest + min(index, wider));
        return {first, max(min(unit * (fewest + (index < wider ? 1 : 0)), rows - first), 0)};
    }

    // A block of a cluster that has nothing to do where the other one may: without tokens. False: both have nothing.
    __device__ static bool goes_along(Task& task) {
        if constexpr (std::is_same_v<Task, ClusterTask>) {
            task.left_valid = 0;
            return !task.right_shared;
        } else {
            return false;
        }
    }

    __device__ void place_tokens_right(int tile, const GroupRange& range, ProductTask& task) const {
        const int extent = reduction == Reduction::along_k ? range.rows : shape_.right_extent;
        const int rights = right_tiles(range.rows);
        const TilePlace place = place_tile(tile - range.first_tile, range.first_tile, rights, left_tiles_, shape_.band);
        const Share share = share_of(extent, rights, place.right);
        task.left_row = (cluster * place.left + rank_) * left_tile;  // may be past the last: its tile is nobody's
        task.right_row = share.first + (reduction == Reduction::along_k ? range.first_row : 0);
        task.right_valid = share.size;
        if constexpr (reduction == Reduction::along_k) {
            task.left_first = task.right_first = 0;
            task.reduce_length = shape_.left_reduce;
        } else {
            task.left_first = reduction == Reduction::along_tokens ? range.first_row : range.left_first;
            task.right_first = reduction == Reduction::along_tokens ? range.first_row : range.right_first;
            task.reduce_length = range.rows;
            // An empty group's gradient is the product of what lies outside the operands, which reads as zero.
            if (range.rows == 0) {
                task.left_first = shape_.left_reduce;
                task.right_first = shape_.right_reduce;
            }
        }
    }

    // The roles exchanged: bands of token tiles, two weight tiles at a time.
    __device__ void place_tokens_left(int tile, const GroupRange& range, Task& task) const {
        const int index = tile - range.first_tile, rights = right_tiles(range.rows);
        TilePlace place;
        if constexpr (cluster == 1) {
            place = place_tile(index, range.first_tile, rights, left_tiles_, shape_.band);
        } else {
            place = place_in_cluster(index, rights);
            task.right_shared = index < shared_tiles(rights);
        }
        const int token = place.right * left_tile, weight_tile = min(place.left, left_tiles_ - 1);
        task.left_row = range.first_row + token;
        task.left_valid = place.left == weight_tile ? min(left_tile, range.rows - token) : 0;
        task.right_row = weight_tile * right_tile;
        task.right_valid = min(right_tile, shape_.left_extent - task.right_row);
        task.reduce_length = shape_.left_reduce;
    }

    // This block's tile of its cluster's two. Token tiles by two for the same weights, in bands, one weight tile after
    // the other; then an odd token tile, for two weight tiles. Without a second one, `left` is past the last.
    __device__ TilePlace place_in_cluster(int index, int token_tiles) const {
        const int shared = shared_tiles(token_tiles), band = shape_.band * left_tiles_;
        if (index >= shared) return {token_tiles - 1, 2 * (index - shared) + rank_};
        const int first = index / band * shape_.band, pairs = min(shape_.band, token_tiles / 2 - first);
        return {2 * (first + index % band % pairs) + rank_, index % band / pairs};
    }
    __device__ int shared_tiles(int token_tiles) const { return token_tiles / cluster * left_tiles_; }

    __device__ GroupWork work_of(int rows) const {
        const int rights = right_tiles(rows);
        if (!tokens_left) return {rights * left_tiles_, rank_of(rows)};
        return {shared_tiles(rights) + rights % cluster * tiles(left_tiles_, cluster), 0};
    }

    __host__ __device__ static int tiles(int extent, int tile) { return round_up_quotient(extent, tile); }
    __device__ static int round_up_32(int value) { return tiles(value, 32) * 32; }
    __device__ int right_tiles(int rows) const {
        if (reduction != Reduction::along_k && rows == 0 && shape_.skip_empty) return 0;
        if (tokens_left) return tiles(rows, left_tile);
        const int extent = reduction == Reduction::along_k ? rows : shape_.right_extent;
        return min(tiles(extent, right_tile) + shape_.more_tiles, tiles(extent, unit));
    }
    // The rows are dealt evenly, by 32: 260 are 160 + 100, not 256 + 4, because a narrow tile reloads the left operand
    // for little work; 1408 are 2 x 256 + 4 x 224, because a block that has none of the narrow ones ends late. The
    // highest tile:
    __device__ static int tile_height(int extent, int count) {
        return count == 0 ? 32 : round_up_32(tiles(extent, count));
    }

    // Tiles of much work first, so that blocks that run side by side have alike ones and the last ones are small: by
    // the width, or where all are alike in that, by the length of the reduction, two ranks to a doubling. Short
    // reductions wait for their stores, not for each other.
    __device__ int rank_of(int rows) const {
        if constexpr (reduction == Reduction::along_k) {
            return quotient(right_tile - tile_height(rows, right_tiles(rows)), 32);
        } else {
            const int blocks = max(tiles(rows, reduce_tile), 6), doublings = 31 - __clz(blocks);
            return 31 - min(2 * doublings + (blocks >> (doublings - 1) & 1), 31);
        }
    }

    static_assert(cluster == 1 || (cluster == 2 && reduction == Reduction::along_k));

    ProductShape shape_;
    int rank_;
    GroupWalk walk_;
    int left_tiles_, all_tiles_;
};

}  // namespace octet::cuda
