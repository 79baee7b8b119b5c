// Part of ops.hpp: columns of short groups in strips, and of small tensors whole.
#pragma once

#include "gpu/row_ops.hpp"
#include "gpu/strips.hpp"
#include "gpu/tile_ops.hpp"
#include "gpu/whole_columns.hpp"

namespace octet::gpu {
namespace detail {

// ---- strips

// Whether columns are taken in strips: where groups are short (`longest` tokens on average, which is as far as the host
// can know), but not so short that blocks have little to do, unless the tensor is small. Of more elements than `most`
// tiles are faster.
inline bool in_strips(const TileParams& p, const QuantizerTuning& tuning, i64 longest, i64 most) {
    if (p.rows <= tuning.strip_tokens) return true;
    if (p.rows > p.groups * longest || p.rows * (p.operand[0].columns + p.operand[1].columns) > most) return false;
    return p.rows >= p.groups * 96 || p.rows <= 8 * tuning.strip_tokens;
}

inline TileScales scales_of(Scaling scaling) {
    return scaling == Scaling::rowwise     ? TileScales::slab
           : scaling == Scaling::blockwise ? TileScales::run128
                                           : TileScales::run32;
}

// Whether the columns of a tensor that is small are taken whole, a few in each block: bf16 in whole eights, for which
// there is room. Beside a product a block should be smaller.
template <class Kernel, class Runner>
bool in_whole_columns(const Runner& runner, Format input, Scaling scaling, const TileParams& p) {
    const auto in_eights = [](const TileOperand& o) {
        return o.columns == 0 || (o.aligned && o.columns % 8 == 0 && o.column_data_aligned);
    };
    const i64 most = std::min<i64>(runner.tuning().whole_columns, Kernel::most_rows);
    const i64 padded = padded_bound(p.rows, p.groups, p.tiling.alignment);
    return scaling == Scaling::rowwise && input == Format::bf16 && !runner.may_wait() && 0 < p.rows && p.rows <= most &&
           p.rows <= runner.tuning().strip_tokens && 0 < p.groups && p.groups <= Kernel::most_groups &&
           padded <= Kernel::most_padded && in_eights(p.operand[0]) && in_eights(p.operand[1]);
}

// along_rows: or null.
template <class Kernel, class Runner>
void whole_columns(Runner& runner, const TileParams& groups, const RowsParams* along_rows) {
    WholeColumnsParams p{groups};
    count_column_tiles(p, Kernel::columns);
    i64 row_blocks = 0;
    if (along_rows) {
        p.along_rows = *along_rows;
        p.along_rows.team = team_of(along_rows->columns, Kernel::row_vectors, 256);
        row_blocks = ceil_div(along_rows->total_rows, Kernel::threads / p.along_rows.team);
    }
    if (p.tiling.column_tiles == 0) return;
    runner.template resident<Kernel>();  // which asks for its shared memory
    runner.template launch<Kernel>(p.tiling.column_tiles + row_blocks, p);
}

// along_rows: or null.
template <class Codec, class Runner>
void strips(Runner& runner, Format input, Scaling scaling, const TileParams& groups, const RowsParams* along_rows) {
    StripParams p{groups};
    check_sizes(p);
    const auto taken_whole = [&]<class Kernel>(Type<Kernel>) {
        const bool taken = in_whole_columns<Kernel>(runner, input, scaling, p);
        if (taken) whole_columns<Kernel>(runner, p, along_rows);
        return taken;
    };
    if (along_rows ? taken_whole(Type<WholeColumnsKernel<Codec, true>>{})
                   : taken_whole(Type<WholeColumnsKernel<Codec, false>>{}))
        return;
    const auto go = [&]<class Kernel>(Type<Kernel>) {
        count_column_tiles(p, Kernel::columns);
        p.strips = p.tiling.column_tiles;
        const i64 blocks = p.groups * p.strips;
        i64 row_blocks = 0;
        if (along_rows && along_rows->columns > 0) {
            p.along_rows = *along_rows;
            p.along_rows.team = team_of(along_rows->columns, Kernel::Rows::held, Kernel::threads);
            row_blocks = ceil_div(along_rows->total_rows, Kernel::threads / p.along_rows.team);
        }
        if (blocks + row_blocks == 0) return;
        const i64 resident = runner.template resident<Kernel>();  // which asks for its shared memory
        if (p.rows > Kernel::most_rows) {
            p.long_blocks = static_cast<u32>(std::max<i64>(resident / 2, 1));  // who mostly find nothing
            count_column_tiles(p, Kernel::long_columns);
            // One long group should be work for half of them.
            p.narrow = Kernel::narrow_columns != Kernel::long_columns && 2 * p.tiling.column_tiles < p.long_blocks;
            if (p.narrow) count_column_tiles(p, Kernel::narrow_columns);
            p.tiling.tiles = 1;
            p.tiling.doublings = Kernel::long_doublings;
            p.tiling.least_rows = Kernel::most_rows + 1;
        }
        p.first_row_block = static_cast<u32>(p.long_blocks + blocks);
        // Columns alone are for another product than the next one.
        if (!along_rows && runner.may_wait() && p.rows > 0)
            return runner.template launch_later<Kernel>(p.first_row_block, p);
        // The last groups in the order of their rows. Not all of them: what lies beside each other should be written
        // at the same time. Nor where rows come behind them, or groups are short: that is little work to end with.
        const i64 at_once = resident / p.strips, first = std::max(at_once, p.groups - 3 * at_once);
        const bool ranked = row_blocks == 0 && p.rows > runner.tuning().strip_tokens &&
                            p.rows >= p.groups * runner.tuning().ranked_rows;
        if (!ranked || first >= p.groups || p.groups > RankKernel::most_groups)
            return runner.template launch<Kernel>(p.first_row_block + row_blocks, p);
        p.unranked = static_cast<u32>(first);
        place_plan(runner, p, ranges_workspace(p.groups));
        RankParams rank{p, first};
        rank.tiling.tiles = 0;
        runner.template launch<RankKernel>(1, rank);
        runner.template launch_next<Kernel>(p.first_row_block, p);
    };
    with_input(input, [&](auto in) {
        using In = typename decltype(in)::type;
        const auto go_by = [&]<Scaling s>(std::integral_constant<Scaling, s>) {
            if (along_rows)
                go(Type<StripsKernel<In, Codec, s, true>>{});
            else
                go(Type<StripsKernel<In, Codec, s, false>>{});
        };
        switch (scaling) {
            case Scaling::rowwise: go_by(std::integral_constant<Scaling, Scaling::rowwise>{}); break;
            case Scaling::blockwise: go_by(std::integral_constant<Scaling, Scaling::blockwise>{}); break;
            case Scaling::mx: go_by(std::integral_constant<Scaling, Scaling::mx>{}); break;
        }
    });
}

}  // namespace detail
}  // namespace octet::gpu
