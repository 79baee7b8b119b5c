// Part of ops.hpp: what every call asks of its tensors and its plan, and casts along rows.
#pragma once

#include <algorithm>

#include "gpu/plan.hpp"
#include "gpu/rows.hpp"
#include "gpu/tuning.hpp"
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

}  // namespace detail
}  // namespace octet::gpu
