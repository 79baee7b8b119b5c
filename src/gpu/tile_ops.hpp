// Part of ops.hpp: casts by tiles, in halves, and of columns out of quantized rows.
#pragma once

#include "gpu/columns_by_peaks.hpp"
#include "gpu/columns_from_rows.hpp"
#include "gpu/noted_tiles.hpp"
#include "gpu/row_ops.hpp"
#include "gpu/rows_and_peaks.hpp"

namespace octet::gpu {
namespace detail {

// ---- tiles

inline bool rows_in_eights(const TileParams& p) {
    return starts_on(p.row_data, 8) && p.row_data_stride[0] % 8 == 0 && p.row_data_stride[1] % 8 == 0;
}

inline void count_column_tiles(TileParams& p, i32 tile_columns) {
    p.tiling.tile_columns = tile_columns;
    p.columns_in_all = p.operand[0].columns + p.operand[1].columns;
    p.operand[0].column_tiles = static_cast<u32>(ceil_div(p.operand[0].columns, tile_columns));
    p.operand[1].column_tiles = static_cast<u32>(ceil_div(p.operand[1].columns, tile_columns));
    p.tiling.column_tiles = p.operand[0].column_tiles + p.operand[1].column_tiles;
}

template <class Kernel, class Runner>
void launch_tiles(Runner& runner, TileParams p) {
    count_column_tiles(p, Kernel::tile_columns);
    p.row_data_aligned = rows_in_eights(p);
    // Weights both ways are faster without.
    p.reuse = Kernel::has_rows && !p.ends ? Reuse::normal : reuse_beside(p.rows * p.columns_in_all);
    Tiling& tiling = p.tiling;
    tiling.tiles = 1;
    tiling.doublings = Kernel::doublings;
    tiling.rest = Kernel::has_rows && p.ends;
    // No more blocks than there can be items.
    const i64 row_tiles =
        p.ends ? ceil_div(padded_bound(p.rows, p.groups, tiling.alignment), Kernel::tile_rows) + p.groups + 1
               : p.groups * std::max<i64>(1, ceil_div(p.uniform_rows, Kernel::tile_rows));
    const i64 blocks = std::clamp<i64>(2 * row_tiles * tiling.column_tiles, 1, runner.template resident<Kernel>());
    if constexpr (Kernel::exchanges) {
        tiling.exchange = tiling.empty_groups = 1;
        tiling.row_scales = Kernel::has_rows;
        tiling.fused_tiles = static_cast<u32>(std::min<i64>(Kernel::held, runner.tuning().fused_tiles) * blocks);
        tiling.eager_from = Kernel::held > Kernel::slots ? static_cast<u32>(Kernel::slots * blocks) : ~0u;
    }
    place_plan(runner, p,
               Kernel::leaves_notes ? notes_workspace(p.groups, tiling.column_tiles, p.rows)
               : !Kernel::exchanges ? tiles_workspace(p.groups, row_tiles * tiling.column_tiles)
               : Kernel::has_rows   ? pair_workspace(p.groups, tiling.column_tiles, p.columns_in_all, p.rows)
                                    : columns_workspace(p.groups, tiling.column_tiles, p.columns_in_all));
    if (p.ends && p.groups + 2 > Kernel::few_spans) launch_plan(runner, p);
    runner.template launch_together<Kernel>(blocks, p);
}

// ---- halves

// Whether both kernels take such an input, and each of them its output: see there.
template <class Codec>
bool input_has_halves(Format input, const TileParams& p) {
    const TileOperand& o = p.operand[0];
    const bool whole = p.ends ? p.tiling.alignment % 16 == 0 : p.uniform_rows % 16 == 0;
    return input == Format::bf16 && o.aligned && whole && o.columns % 8 == 0 && o.columns > 0 &&
           o.columns <= RowsAndPeaksKernel<Codec, 8>::reach && p.rows > 0;
}
template <class Codec>
bool has_halves(Format input, const TileParams& p) {
    const TileOperand& o = p.operand[0];
    return input_has_halves<Codec>(input, p) && rows_in_eights(p) && o.columns_wanted && o.column_data_aligned;
}

// How many rows a cast's first half has in each part, and how many blocks.
struct Shares {
    RowParts parts;
    i64 blocks_a_part;
    i64 kept;  // the row from which they are left in the cache
};

// from_rows: columns come out of the rows, next.
template <class Codec, class Runner>
Shares launch_rows_and_peaks(Runner& runner, const TileParams& p, bool from_rows) {
    RowsAndPeaksParams rows{};
    rows.x = p.operand[0].x;
    rows.data = p.row_data;
    std::copy_n(p.operand[0].x_stride, 2, rows.x_stride);
    std::copy_n(p.row_data_stride, 2, rows.data_stride);
    rows.scale = p.row_scale;
    rows.rule = p.rule;
    rows.groups = p.groups;
    rows.rows = p.rows;
    rows.columns = p.operand[0].columns;
    rows.apart = p.ends ? 0 : p.uniform_rows;
    rows.spans = p.plan.span;
    rows.peaks = p.plan.peaks;
    rows.power = from_rows ? p.plan.row_power : nullptr;
    rows.reuse = from_rows ? reuse_beside(rows.rows * rows.columns) : Reuse::normal;
    rows.ticket = p.plan.ticket;
    rows.ends = p.ends;
    Shares shares{};
    const auto go = [&](auto vectors, auto threads) {
        using Kernel = RowsAndPeaksKernel<Codec, decltype(vectors)::value, decltype(threads)::value>;
        const i64 resident = runner.template resident<Kernel>();
        constexpr i64 least_blocks = 8;  // of a part, so that they even each other out
        // A group that ends within a part waits for all of it: parts are not fewer than these, unless there is one
        // group.
        constexpr i64 least_parts = 8;
        const i64 wanted = from_rows && rows.groups > 1 ? std::max(rows.groups, least_parts) : rows.groups;
        i64 count = std::max<i64>(std::min({resident / least_blocks, wanted, WorkspaceSize::tickets}), 1);
        shares.blocks_a_part = resident / count;
        rows.rows_a_block = Kernel::least_own;
        if (rows.rows < count * shares.blocks_a_part * rows.rows_a_block) {  // nothing to share
            count = 1;
            rows.rows_a_block = round_up(ceil_div(rows.rows, resident), Kernel::batch);
            shares.blocks_a_part = ceil_div(rows.rows, rows.rows_a_block);
        }
        const i64 average = round_up(ceil_div(rows.rows, count), Kernel::batch);
        // The last part is longer than the first by so much of the average.
        const i64 longer = from_rows ? average / 2 : 0;
        const i64 more = count > 1 ? longer / (count - 1) / Kernel::batch * Kernel::batch : 0;
        rows.parts = {count, rows.rows, average - more * (count - 1) / 2 / Kernel::batch * Kernel::batch, more};
        rows.done = more > 0 ? p.plan.done : nullptr;
        shares.parts = rows.parts;
        // Of several parts columns are cast meanwhile, and not of the last rows first.
        constexpr i64 kept_bytes = i64{28} << 20;
        shares.kept = rows.kept = from_rows && count == 1 ? rows.rows - kept_bytes / rows.columns : rows.rows;
        runner.template launch_next<Kernel>(count * shares.blocks_a_part, rows);
    };
    // No more threads than have columns.
    const auto threads_of = [&](auto vectors, auto... threads) {
        const bool found = ((rows.columns <= vectors * threads * 8 && (go(vectors, threads), true)) || ...);
        if (!found) go(std::integral_constant<int, 8>{}, std::integral_constant<int, 256>{});
    };
    using std::integral_constant;
    if (rows.columns <= 2048)
        threads_of(integral_constant<int, 1>{}, integral_constant<int, 192>{}, integral_constant<int, 256>{});
    else
        threads_of(integral_constant<int, 2>{}, integral_constant<int, 192>{}, integral_constant<int, 256>{},
                   integral_constant<int, 320>{}, integral_constant<int, 384>{}, integral_constant<int, 448>{},
                   integral_constant<int, 512>{});
    return shares;
}

template <class Codec, class Runner>
bool in_two_halves(const Runner& runner, Format input, const TileParams& p) {
    return runner.may_wait() && has_halves<Codec>(input, p);
}

// Where the plan of a cast in halves lies, and the maxima that the first leaves for the second.
template <class Runner>
void place_halves(Runner& runner, TileParams& p) {
    p.tiling.tiles = p.tiling.empty_groups = 1;
    p.tiling.column_tiles = 1;
    place_plan(runner, p, halves_workspace(p.groups, p.operand[0].columns, p.rows));
}

// Rows, and the largest magnitudes of the columns.
template <class Codec, class Runner>
Shares first_half(Runner& runner, const TileParams& p, bool from_rows = false) {
    launch_plan(runner, p);
    return launch_rows_and_peaks<Codec>(runner, p, from_rows);
}

// Kernel: ColumnsByPeaksKernel or ColumnsFromRowsKernel.
template <class Kernel>
typename Kernel::Params second_half_params(const TileParams& p) {
    const TileOperand& o = p.operand[0];
    typename Kernel::Params columns{};
    columns.x = o.x;
    columns.data = o.column_data;
    std::copy_n(o.x_stride, 2, columns.x_stride);
    std::copy_n(o.column_data_stride, 2, columns.data_stride);
    columns.scale = o.column_scale;
    columns.rule = p.rule;
    columns.groups = p.groups;
    columns.columns = o.columns;
    columns.apart = !p.ends;
    columns.strips = static_cast<u32>(ceil_div(o.columns, Kernel::strip));
    columns.tiling = p.tiling;
    columns.spans = p.plan.span;
    columns.peaks = p.plan.peaks;
    return columns;
}
// Tiles of all groups' rows, padding included, at most.
inline i64 row_tiles_bound(const TileParams& p) {
    return p.ends ? ceil_div(padded_bound(p.rows, p.groups, p.tiling.alignment), tile_rows) + p.groups
                  : p.groups * ceil_div(p.uniform_rows, tile_rows);
}

// Columns, later where that is asked for.
template <class Codec, class Runner>
void second_half(Runner& runner, const TileParams& p) {
    using Kernel = ColumnsByPeaksKernel<Codec>;
    const ColumnsByPeaksParams columns = second_half_params<Kernel>(p);
    const i64 blocks = Kernel::blocks_a_strip(row_tiles_bound(p), p.groups) * columns.strips;
    if (runner.may_wait())
        runner.template launch_later<Kernel>(blocks, columns);
    else
        runner.template launch<Kernel>(blocks, columns);
}

// Whether columns come out of the quantized rows: of groups of so many bytes, where both kernels take such tensors. Two
// kernels take 3 to 4 us more than one on a tensor of 32 to 64 MiB, which is little of a large one.
template <class Codec, class Runner>
bool takes_columns_from_rows(const Runner& runner, Format input, const TileParams& p) {
    constexpr i64 large = i64{128} << 20;
    const i64 bytes = p.rows * p.operand[0].columns * 2, least = i64{runner.tuning().from_rows} << 10;
    return least > 0 && p.rows > runner.tuning().strip_tokens && !runner.may_wait() &&
           p.rule.rounding == ScaleRounding::power_of_two &&
           bytes >= p.groups * (bytes >= large ? least / 3 * 2 : least) && has_halves<Codec>(input, p) &&
           p.operand[0].columns % 16 == 0 && starts_on(p.row_data, 16) && p.row_data_stride[0] % 16 == 0 &&
           p.row_data_stride[1] % 16 == 0;
}

// Rows, and the columns out of them.
template <class Codec, class Runner>
void columns_from_rows(Runner& runner, TileParams p) {
    using Kernel = ColumnsFromRowsKernel<Codec>;
    place_halves(runner, p);
    const Shares shares = first_half<Codec>(runner, p, true);
    ColumnsFromRowsParams columns = second_half_params<Kernel>(p);
    columns.parts = shares.parts;
    columns.blocks_a_part = static_cast<u32>(shares.blocks_a_part);
    columns.kept = shares.kept;
    columns.done = shares.parts.more > 0 ? p.plan.done : nullptr;
    columns.rows = p.row_data;
    std::copy_n(p.row_data_stride, 2, columns.rows_stride);
    columns.power = p.plan.row_power;
    columns.reuse = reuse_beside(p.rows * p.operand[0].columns);
    runner.template launch_next<Kernel>((row_tiles_bound(p) + p.groups) * columns.strips, columns);
}

template <class Codec, class Runner>
void in_halves(Runner& runner, TileParams p) {
    place_halves(runner, p);
    first_half<Codec>(runner, p);
    second_half<Codec>(runner, p);
}

// The half that the call's visit is for, in the workspace of both.
template <class Codec, class Runner>
void one_visit(Runner& runner, TileParams p) {
    const bool first = runner.visit() == WeightVisit::first;
    require(first ? rows_in_eights(p) : p.operand[0].column_data_aligned != 0,
            "weights in two visits need outputs whose rows start on ", first ? "8" : "16", " bytes; this one's do not");
    place_halves(runner, p);
    if (first)
        first_half<Codec>(runner, p);
    else
        second_half<Codec>(runner, p);
}

// Columns alone. Of long groups in tiles twice as tall, which hand in half as many maxima; there is no room for such of
// f32.
template <class In, class Codec, class Runner>
void slabs(Runner& runner, const TileParams& p) {
    if constexpr (In::words == 4) {
        const i64 least = runner.tuning().tall_tiles;
        if (least > 0 && p.rows >= p.groups * least)
            return launch_tiles<TilesKernel<In, Codec, TileScales::slab, false, 1>>(runner, p);
    }
    launch_tiles<TilesKernel<In, Codec, TileScales::slab, false>>(runner, p);
}

// Both ways. Where groups are short and rows narrow, few tiles share a scale, and leave notes.
template <class In, class Codec, class Runner>
void slabs_and_rows(Runner& runner, const TileParams& p) {
    if constexpr (In::words == 4) {
        const i64 longest = runner.tuning().noted_rows;
        if (p.ends && p.rule.rounding == ScaleRounding::power_of_two && p.operand[0].columns <= widest_noted &&
            longest > 0 && p.rows <= std::min(most_noted, p.groups * longest))
            return launch_tiles<NotedTilesKernel<In, Codec>>(runner, p);
    }
    launch_tiles<TilesKernel<In, Codec, TileScales::slab, true>>(runner, p);
}

template <class Codec, class Runner>
void tiles(Runner& runner, Format input, TileParams& p, TileScales scales, bool with_rows) {
    if (scales == TileScales::slab && with_rows && in_two_halves<Codec>(runner, input, p))
        return in_halves<Codec>(runner, p);
    if (scales == TileScales::slab && with_rows && p.operand[0].columns_wanted &&
        takes_columns_from_rows<Codec>(runner, input, p))
        return columns_from_rows<Codec>(runner, p);
    p.element_bytes = static_cast<i32>(bytes_of(input));
    with_input(input, [&](auto in) {
        using In = typename decltype(in)::type;
        switch (scales) {
            case TileScales::slab:
                if (with_rows)
                    slabs_and_rows<In, Codec>(runner, p);
                else
                    slabs<In, Codec>(runner, p);
                break;
            case TileScales::run128:
                if (with_rows)
                    launch_tiles<TilesKernel<In, Codec, TileScales::run128, true>>(runner, p);
                else
                    launch_tiles<TilesKernel<In, Codec, TileScales::run128, false>>(runner, p);
                break;
            case TileScales::run32:
                if (with_rows)
                    launch_tiles<TilesKernel<In, Codec, TileScales::run32, true>>(runner, p);
                else
                    launch_tiles<TilesKernel<In, Codec, TileScales::run32, false>>(runner, p);
                break;
            case TileScales::square: launch_tiles<TilesKernel<In, Codec, TileScales::square, true>>(runner, p); break;
        }
    });
}

}  // namespace detail
}  // namespace octet::gpu
