// From a call of octet/quantize.hpp to kernel launches, for any Runner:
//
//     runner.tuning()                               -> const QuantizerTuning&
//     runner.workspace(bytes)                       -> device memory that lives until the call's kernels are done
//     runner.template resident<Kernel>()            -> blocks of the kernel that run at once
//     runner.template launch<Kernel>(blocks, params)
//     runner.template launch_next<Kernel>(blocks, params)       may begin before the call's last kernel has ended, and
//                                                               waits for it itself (await_earlier)
//     runner.template launch_together<Kernel>(blocks, params)   all blocks at once: they wait for each other
//     runner.may_wait()                             -> whether columns may be made later: a cast's second half, or all
//                                                      of a cast along tokens
//     runner.visit()                                -> which of two visits of weights the call is
//     runner.template launch_later<Kernel>(blocks, params)      once the caller asks for it
//
// The CUDA backend and the emulator tests are two Runners. Arguments have been checked.
#pragma once

#include <limits>

#include "gpu/columns_by_peaks.hpp"
#include "gpu/columns_from_rows.hpp"
#include "gpu/dequantize.hpp"
#include "gpu/layout.hpp"
#include "gpu/plan.hpp"
#include "gpu/rows.hpp"
#include "gpu/rows_and_peaks.hpp"
#include "gpu/strips.hpp"
#include "gpu/tiles.hpp"
#include "gpu/transposed.hpp"
#include "gpu/tuning.hpp"
#include "gpu/whole_columns.hpp"
#include "gpu/whole_rows.hpp"
#include "gpu/workspace.hpp"
#include "octet/quantize.hpp"

namespace octet::gpu {
namespace detail {

template <class T>
struct Type {
    using type = T;
};

template <class F>
void with_input(Format format, F&& f) {
    if (format == Format::f32)
        f(Type<F32In>{});
    else
        f(Type<Bf16In>{});
}

inline bool starts_on(const void* data, i64 bytes) {
    return reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(bytes) == 0;
}

// Every row along the last axis starts on 16 bytes.
inline bool rows_aligned(const ConstTensorView& x) {
    bool aligned = starts_on(x.data, 16);
    for (int axis = 0; axis + 1 < x.rank(); ++axis)
        aligned = aligned && (x.size(axis) < 2 || x.stride(axis) * bytes_of(x.format) % 16 == 0);
    return aligned;
}

// axes: which axis of the scale tensor the expert or group, the feature or row, and the block are; -1: none.
inline ScaleOut scale_out(const QuantizedView& out, int outer, int middle, int inner) {
    ScaleOut s;
    const auto strides = [&](const TensorView& view, i64(&stride)[3]) {
        if (view.null()) return;
        stride[0] = outer < 0 ? 0 : view.stride(outer);
        stride[1] = middle < 0 ? 0 : view.stride(middle);
        stride[2] = inner < 0 ? 0 : view.stride(inner);
    };
    strides(out.scale, s.scale_stride);
    strides(out.inverse, s.inverse_stride);
    if (out.scale.format == Format::e8m0 && !out.scale.null())
        s.mx = static_cast<u8*>(out.scale.data);
    else
        s.scale = static_cast<float*>(out.scale.data);
    s.inverse = static_cast<float*>(out.inverse.data);
    return s;
}

inline ScaleIn scale_in(const ConstQuantizedView& q, int outer, int middle, int inner) {
    const auto writable = [](const ConstTensorView& v) {
        return TensorView(const_cast<void*>(v.data), v.format, v.extents, v.device);
    };
    const ScaleOut out = scale_out({writable(q.data), writable(q.scale), writable(q.inverse)}, outer, middle, inner);
    ScaleIn in{out.scale, out.inverse, out.mx, {}, {}};
    std::copy_n(out.scale_stride, 3, in.scale_stride);
    std::copy_n(out.inverse_stride, 3, in.inverse_stride);
    return in;
}

inline ScaleRule rule_of(const QuantizeOptions& options) { return {options.scale_rounding, options.mx_mode}; }

// One axis is counted in 32 bits, with room for padding and whole tiles; elements and bytes in 64.
inline i32 in_32_bits(i64 size, const char* what) {
    constexpr i64 most = i64{1} << 30;
    if (size > most) fail(Status::unsupported, "a tensor of ", size, " ", what, " was given, more than ", most);
    return static_cast<i32>(size);
}

// How long to hold on to what is read. Where the cache holds all that is written, that is left to it; else lines that
// are to go first make reading slower.
inline Reuse reuse_beside(i64 written_bytes) {
    constexpr i64 held_by_cache = i64{48} << 20;
    return written_bytes <= held_by_cache ? Reuse::stream : Reuse::normal;
}

// ---- rows

// The narrowest team, of no more than `most`, whose threads hold a row in so many eights each.
inline int team_of(i64 columns, i64 vectors, int most) {
    int team = 32;
    while (team < most && ceil_div(columns, i64{8} * team) > vectors) team *= 2;
    return team;
}

template <class In, class Codec, Scaling scaling, class Runner>
void launch_rows(Runner& runner, RowsParams p) {
    const auto go = [&](auto vectors, int team) {
        p.team = team;
        const i64 rows_here = 256 / team;
        runner.template launch<RowsKernel<In, Codec, scaling, decltype(vectors)::value>>(
            ceil_div(p.total_rows, rows_here), p);
    };
    const int team = team_of(p.columns, In::words == 8 ? 4 : runner.tuning().rows_vectors, 256);
    const i64 vectors = ceil_div(p.columns, i64{8} * team);
    if (vectors <= 2) return go(std::integral_constant<int, 2>{}, team);
    if constexpr (In::words == 8) {
        go(std::integral_constant<int, 4>{}, team);  // eight f32 are as many registers as sixteen bf16
    } else {
        if (vectors <= 4)
            go(std::integral_constant<int, 4>{}, team);
        else if (vectors <= 5)
            go(std::integral_constant<int, 5>{}, team);
        else if (vectors <= 6)
            go(std::integral_constant<int, 6>{}, team);
        else if (vectors <= 7)
            go(std::integral_constant<int, 7>{}, team);
        else
            go(std::integral_constant<int, 8>{}, team);
    }
}

inline RowsParams rows_params(const ConstTensorView& x, const QuantizeOptions& options, const QuantizedView& out) {
    const bool experts = x.rank() == 3;
    const int first = experts ? 1 : 0;
    RowsParams p{};
    p.x = x.data;
    p.data = static_cast<u8*>(out.data.data);
    p.rows = x.size(first);
    p.columns = in_32_bits(x.size(first + 1), "columns");
    p.total_rows = p.rows * (experts ? x.size(0) : 1);
    p.x_stride[0] = experts ? x.stride(0) : 0;
    p.x_stride[1] = x.stride(first);
    p.data_stride[0] = experts ? out.data.stride(0) : 0;
    p.data_stride[1] = out.data.stride(first);
    p.scale = scale_out(out, experts ? 0 : -1, first, options.scaling == Scaling::rowwise ? -1 : first + 1);
    p.rule = rule_of(options);
    p.aligned = rows_aligned(x);
    p.reuse = reuse_beside(p.total_rows * p.columns);
    return p;
}

template <class Codec, class Runner>
void rows(Runner& runner, const ConstTensorView& x, const QuantizeOptions& options, const QuantizedView& out) {
    const RowsParams p = rows_params(x, options, out);
    if (p.total_rows == 0 || p.columns == 0) return;
    with_input(x.format, [&](auto in) {
        using In = typename decltype(in)::type;
        switch (options.scaling) {
            case Scaling::rowwise: launch_rows<In, Codec, Scaling::rowwise>(runner, p); break;
            case Scaling::blockwise: launch_rows<In, Codec, Scaling::blockwise>(runner, p); break;
            case Scaling::mx: launch_rows<In, Codec, Scaling::mx>(runner, p); break;
        }
    });
}

// ---- plans

inline void check_sizes(const PlanParams& p) {
    if (p.ends)
        in_32_bits(padded_bound(p.rows, p.groups, p.tiling.alignment), "rows, padding of its groups included,");
    else
        in_32_bits(p.uniform_rows, "rows");
}

// Params: PlanParams or TileParams.
template <class Runner, class Params>
void place_plan(Runner& runner, Params& p, const WorkspaceSize& size) {
    check_sizes(p);
    p.plan = gpu::place_plan(size, runner.workspace(size.bytes()));
    p.cleared = size.cleared_bytes() / 16;
}

template <class Runner>
void launch_plan(Runner& runner, const PlanParams& p) {
    runner.template launch<PlanKernel>(std::clamp<i64>(ceil_div(p.cleared, PlanKernel::threads), 1, 264), p);
}

inline void set_groups(PlanParams& p, const Groups& groups, i64 rows, i64 alignment) {
    p.ends = groups.ends;
    p.groups = groups.count;
    p.rows = rows;
    p.tiling.alignment = static_cast<u32>(alignment);
}

// Where each group's rows are, and go to.
template <class Runner>
Plan plan_ranges(Runner& runner, const Groups& groups, i64 rows, i64 alignment) {
    PlanParams p{};
    set_groups(p, groups, rows, alignment);
    place_plan(runner, p, ranges_workspace(groups.count));
    launch_plan(runner, p);
    return p.plan;
}

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
        tiling.fused_tiles = static_cast<u32>(std::min<i64>(Kernel::slots, runner.tuning().fused_tiles) * blocks);
    }
    place_plan(runner, p,
               !Kernel::exchanges ? tiles_workspace(p.groups, row_tiles * tiling.column_tiles)
               : Kernel::has_rows ? pair_workspace(p.groups, tiling.column_tiles, p.columns_in_all, p.rows)
                                  : columns_workspace(p.groups, tiling.column_tiles, p.columns_in_all));
    if (p.groups + 2 > Kernel::few_spans) launch_plan(runner, p);
    runner.template launch_together<Kernel>(blocks, p);
}

// ---- halves

// Whether both kernels take such an input, and each of them its output: see there.
template <class Codec>
bool input_has_halves(Format input, const TileParams& p) {
    const TileOperand& o = p.operand[0];
    const bool whole = p.ends ? p.tiling.alignment % 16 == 0 : p.uniform_rows % 16 == 0;
    return input == Format::bf16 && o.aligned && whole && o.columns % 8 == 0 &&
           o.columns <= RowsAndPeaksKernel<Codec, 8>::reach && p.rows > 0;
}
template <class Codec>
bool has_halves(Format input, const TileParams& p) {
    const TileOperand& o = p.operand[0];
    return input_has_halves<Codec>(input, p) && rows_in_eights(p) && o.columns_wanted && o.column_data_aligned;
}

// from_rows: columns come out of the rows, next.
template <class Codec, class Runner>
void launch_rows_and_peaks(Runner& runner, const TileParams& p, bool from_rows) {
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
    rows.peaks = p.plan.column_amax;
    rows.power = from_rows ? p.plan.row_power : nullptr;
    const auto go = [&](auto vectors, auto threads) {
        using Kernel = RowsAndPeaksKernel<Codec, decltype(vectors)::value, decltype(threads)::value>;
        // Whole waves of blocks, of as few rows as the handing in of maxima is worth.
        constexpr i64 worth = 32;
        const i64 resident = runner.template resident<Kernel>();
        const i64 waves = std::max<i64>(1, rows.rows / (resident * worth));
        rows.rows_a_block = round_up(ceil_div(rows.rows, resident * waves), Kernel::batch);
        runner.template launch_next<Kernel>(ceil_div(rows.rows, rows.rows_a_block), rows);
    };
    // Fewer threads where the others would have no columns.
    constexpr std::integral_constant<int, 192> few{};
    constexpr std::integral_constant<int, 256> all{};
    const i64 vectors = ceil_div(rows.columns, RowsAndPeaksKernel<Codec, 1>::reach);
    const bool narrow = rows.columns <= vectors * RowsAndPeaksKernel<Codec, 1, few>::reach;
    switch (vectors) {
        case 1: return narrow ? go(std::integral_constant<int, 1>{}, few) : go(std::integral_constant<int, 1>{}, all);
        case 2: return narrow ? go(std::integral_constant<int, 2>{}, few) : go(std::integral_constant<int, 2>{}, all);
        case 3: return go(std::integral_constant<int, 3>{}, all);
        case 4: return go(std::integral_constant<int, 4>{}, all);
        default: return go(std::integral_constant<int, 8>{}, all);
    }
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
void first_half(Runner& runner, const TileParams& p, bool from_rows = false) {
    launch_plan(runner, p);
    launch_rows_and_peaks<Codec>(runner, p, from_rows);
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
    columns.peaks = p.plan.column_amax;
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

// Whether columns come out of the quantized rows: of groups of so many bytes, where both kernels take such tensors.
template <class Codec, class Runner>
bool takes_columns_from_rows(const Runner& runner, Format input, const TileParams& p) {
    const i64 least = runner.tuning().from_rows;
    return least > 0 && p.rows > runner.tuning().strip_tokens && !runner.may_wait() &&
           p.rule.rounding == ScaleRounding::power_of_two &&
           p.rows * p.operand[0].columns * 2 >= p.groups * (least << 10) && has_halves<Codec>(input, p) &&
           p.operand[0].columns % 16 == 0 && starts_on(p.row_data, 16) && p.row_data_stride[0] % 16 == 0 &&
           p.row_data_stride[1] % 16 == 0;
}

// Rows, and the columns out of them.
template <class Codec, class Runner>
void columns_from_rows(Runner& runner, TileParams p) {
    using Kernel = ColumnsFromRowsKernel<Codec>;
    place_halves(runner, p);
    first_half<Codec>(runner, p, true);
    ColumnsFromRowsParams columns = second_half_params<Kernel>(p);
    columns.rows = p.row_data;
    std::copy_n(p.row_data_stride, 2, columns.rows_stride);
    columns.power = p.plan.row_power;
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
                    launch_tiles<TilesKernel<In, Codec, TileScales::slab, true>>(runner, p);
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

inline void set_input(TileOperand& o, const ConstTensorView& x) {
    const bool experts = x.rank() == 3;
    o.x = x.data;
    o.x_stride[0] = experts ? x.stride(0) : 0;
    o.x_stride[1] = x.stride(experts ? 1 : 0);
    o.columns = in_32_bits(x.size(experts ? 2 : 1), "columns");
    o.aligned = rows_aligned(x);
}

inline void set_token_columns(TileOperand& o, const QuantizedView& out, i64 alignment, const QuantizeOptions& options) {
    o.columns_wanted = 1;
    o.column_data = static_cast<u8*>(out.data.data);
    o.column_data_stride[1] = out.data.stride(0);
    o.column_data_aligned = rows_aligned(out.data) && alignment % 16 == 0;
    o.column_scale = options.scaling == Scaling::rowwise ? scale_out(out, 0, 1, -1) : scale_out(out, -1, 0, 1);
}

inline TileParams of_tokens(const ConstTensorView& x, const Groups& groups, i64 alignment,
                            const QuantizeOptions& options) {
    TileParams p{};
    set_groups(p, groups, x.size(0), alignment);
    p.rule = rule_of(options);
    return p;
}

// Whether rows of a tensor already transposed are taken whole, two a block or one: where groups are short, as far as
// the host can know, and a row is much, and fits.
template <class Kernel>
bool in_whole_rows(const QuantizerTuning& tuning, Format input, const TransposedParams& p) {
    return input == Format::bf16 && p.aligned && p.rows % 8 == 0 && starts_on(p.data, 16) && p.data_stride % 16 == 0 &&
           p.tiling.alignment % 16 == 0 && p.tiling.alignment <= Kernel::most_alignment &&
           p.groups <= Kernel::most_groups && p.rows <= Kernel::most_tokens && tuning.whole_rows > 0 &&
           p.rows >= tuning.whole_rows && p.rows <= p.groups * tuning.short_groups && p.features > 0;
}

template <class Kernel, class Runner>
void whole_rows(Runner& runner, const TransposedParams& p) {
    runner.template resident<Kernel>();  // which asks for its shared memory
    runner.template launch<Kernel>(ceil_div(p.features, i64{Kernel::block_rows}), p);
}

inline TileParams of_weights(const ConstTensorView& w, const QuantizeOptions& options) {
    TileParams p{};
    p.groups = w.size(0);
    p.uniform_rows = w.size(1);
    p.rows = w.size(0) * w.size(1);
    p.tiling.alignment = 1;
    p.rule = rule_of(options);
    set_input(p.operand[0], w);
    return p;
}

}  // namespace detail

// Whether the first of two visits of such weights leaves their maxima for the second.
template <class Codec>
bool keeps_maxima(const ConstTensorView& w, const QuantizeOptions& options) {
    return options.scaling == Scaling::rowwise &&
           detail::input_has_halves<Codec>(w.format, detail::of_weights(w, options));
}

template <class Codec, class Runner>
void quantize_rows(Runner& runner, ConstTensorView x, const QuantizeOptions& options, QuantizedView out) {
    detail::rows<Codec>(runner, x, options, out);
}

// x1 and out1 are null in a call for one tensor.
template <class Codec, class Runner>
void quantize_columns(Runner& runner, ConstTensorView x0, ConstTensorView x1, Groups groups, i64 alignment,
                      const QuantizeOptions& options, QuantizedView out0, QuantizedView out1) {
    TileParams p = detail::of_tokens(x0, groups, alignment, options);
    detail::set_input(p.operand[0], x0);
    detail::set_token_columns(p.operand[0], out0, alignment, options);
    if (x1.rank() == 2) {
        detail::set_input(p.operand[1], x1);
        detail::set_token_columns(p.operand[1], out1, alignment, options);
    }
    // Scales of 32 and 128 rows need no maxima of the group: a strip that is not held is read once, too. But of short
    // groups a strip is little work for a block, and tiles, which exchange nothing then, lose by their start alone;
    // only they cannot wait for a product to run beside.
    const bool whole_groups = options.scaling == Scaling::rowwise;
    const i64 longest = whole_groups ? runner.tuning().strip_rows : 2 * runner.tuning().strip_rows;
    const bool strips_win = whole_groups || p.rows >= p.groups * 192 || runner.may_wait();
    const i64 most = strips_win ? std::numeric_limits<i64>::max() : i64{20} << 20;
    if (detail::in_strips(p, runner.tuning(), longest, most))
        return detail::strips<Codec>(runner, x0.format, options.scaling, p, nullptr);
    detail::tiles<Codec>(runner, x0.format, p, detail::scales_of(options.scaling), false);
}

template <class Codec, class Runner>
void quantize_pair(Runner& runner, ConstTensorView x, Groups groups, i64 alignment, const QuantizeOptions& options,
                   QuantizedView rows, QuantizedView columns) {
    TileParams p = detail::of_tokens(x, groups, alignment, options);
    detail::set_input(p.operand[0], x);
    detail::set_token_columns(p.operand[0], columns, alignment, options);
    p.row_data = static_cast<u8*>(rows.data.data);
    p.row_data_stride[1] = rows.data.stride(0);
    p.row_scale = detail::scale_out(rows, -1, 0, options.scaling == Scaling::rowwise ? -1 : 1);
    const bool halves = options.scaling == Scaling::rowwise && detail::in_two_halves<Codec>(runner, x.format, p);
    // Strips read x twice for it, which is for what the cache holds.
    const i64 most = i64{options.scaling == Scaling::rowwise ? 24 : 20} << 20;
    if (!halves && detail::in_strips(p, runner.tuning(), runner.tuning().strip_rows, most)) {
        const RowsParams along_rows = detail::rows_params(x, options, rows);
        return detail::strips<Codec>(runner, x.format, options.scaling, p, &along_rows);
    }
    detail::tiles<Codec>(runner, x.format, p, detail::scales_of(options.scaling), true);
}

template <class Codec, class Runner>
void quantize_transposed(Runner& runner, ConstTensorView x, Groups groups, i64 alignment,
                         const QuantizeOptions& options, QuantizedView out) {
    TransposedParams p{};
    p.x = x.data;
    p.x_stride = x.stride(0);
    p.features = x.size(0);
    p.data = static_cast<u8*>(out.data.data);
    p.data_stride = out.data.stride(0);
    p.scale = options.scaling == Scaling::rowwise ? detail::scale_out(out, 0, 1, -1) : detail::scale_out(out, -1, 0, 1);
    p.rule = detail::rule_of(options);
    p.aligned = detail::rows_aligned(x);
    detail::set_groups(p, groups, x.size(1), alignment);
    // Short rows should come in numbers: as many as the teams of a block take at once, and of more than 256 tokens
    // twice as many, while there are blocks enough. A long one keeps a block busy alone.
    const i64 tokens = ceil_div(std::max<i64>(p.rows, 1), std::max<i64>(p.groups, 1));  // of a group
    const i64 at_once = tokens <= 128 ? 64 : tokens <= 256 ? 32 : tokens <= 1024 ? 16 : 8;
    const i64 rounds = tokens > 256 && groups.count * p.features / at_once >= 2048 ? 2 : 1;
    p.features_a_block = static_cast<i32>(std::clamp<i64>(32768 / tokens, 1, rounds * at_once));
    const i64 blocks = groups.count * ceil_div(p.features, p.features_a_block);
    // A plan is a launch more. Without one every block looks for its group, which is for few blocks.
    const bool alone = options.scaling == Scaling::rowwise && p.rows <= runner.tuning().strip_tokens;
    detail::check_sizes(p);
    const auto taken_whole = [&]<class Kernel>(detail::Type<Kernel>) {
        const bool taken = !alone && options.scaling == Scaling::rowwise &&
                           detail::in_whole_rows<Kernel>(runner.tuning(), x.format, p);
        if (taken) detail::whole_rows<Kernel>(runner, p);
        return taken;
    };
    if (taken_whole(detail::Type<WholeRowsKernel<Codec, 2>>{})) return;
    if (taken_whole(detail::Type<WholeRowsKernel<Codec, 1>>{})) return;
    if (!alone) p.plan = detail::plan_ranges(runner, groups, p.rows, alignment);
    detail::with_input(x.format, [&](auto in) {
        using In = typename decltype(in)::type;
        constexpr int most = In::words == 4 ? 8 : 4;
        if (alone) return runner.template launch<TransposedKernel<In, Codec, Scaling::rowwise, 4, false>>(blocks, p);
        const auto go = [&]<class Kernel>(detail::Type<Kernel>) {
            p.before_plan = static_cast<u32>(runner.template resident<Kernel>());
            runner.template launch_next<Kernel>(blocks, p);
        };
        switch (options.scaling) {
            case Scaling::rowwise:
                // Short groups want many threads, long ones many loads a thread.
                if (x.size(1) <= groups.count * runner.tuning().short_groups)
                    go(detail::Type<TransposedKernel<In, Codec, Scaling::rowwise, 4>>{});
                else
                    go(detail::Type<TransposedKernel<In, Codec, Scaling::rowwise, most>>{});
                break;
            case Scaling::blockwise: go(detail::Type<TransposedKernel<In, Codec, Scaling::blockwise, most>>{}); break;
            case Scaling::mx: go(detail::Type<TransposedKernel<In, Codec, Scaling::mx, most>>{}); break;
        }
    });
}

template <class Codec, class Runner>
void quantize_weights(Runner& runner, ConstTensorView w, const QuantizeOptions& options, QuantizedView along_k,
                      QuantizedView along_n) {
    const bool square = options.scaling == Scaling::blockwise;
    const bool has_k = !along_k.data.null(), has_n = !along_n.data.null();
    const int inner = options.scaling == Scaling::rowwise ? -1 : 2;
    TileParams p = detail::of_weights(w, options);
    if (has_n) {
        TileOperand& o = p.operand[0];
        o.columns_wanted = 1;
        o.column_data = static_cast<u8*>(along_n.data.data);
        o.column_data_stride[0] = along_n.data.stride(0);
        o.column_data_stride[1] = along_n.data.stride(1);
        o.column_data_aligned = detail::rows_aligned(along_n.data);
        o.column_scale = detail::scale_out(along_n, 0, 1, inner);
    }
    if (has_k) {
        p.row_data = static_cast<u8*>(along_k.data.data);
        p.row_data_stride[0] = along_k.data.stride(0);
        p.row_data_stride[1] = along_k.data.stride(1);
        p.row_scale = detail::scale_out(along_k, 0, 1, inner);
    }
    if (runner.visit() != WeightVisit::only && keeps_maxima<Codec>(w, options))
        return detail::one_visit<Codec>(runner, p);
    if (has_k && !has_n && !square) return detail::rows<Codec>(runner, w, options, along_k);
    detail::tiles<Codec>(runner, w.format, p, square ? TileScales::square : detail::scales_of(options.scaling), has_k);
}

}  // namespace octet::gpu
