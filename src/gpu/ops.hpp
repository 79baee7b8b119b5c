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

#include "gpu/strip_ops.hpp"
#include "gpu/tile_ops.hpp"
#include "gpu/transposed.hpp"
#include "gpu/whole_rows.hpp"

namespace octet::gpu {
namespace detail {

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