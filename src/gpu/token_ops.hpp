// From the calls of octet/permute.hpp and octet/activation.hpp to kernel launches, for any Runner (ops.hpp).
#pragma once

#include <span>

#include "gpu/ops.hpp"
#include "gpu/permute.hpp"
#include "gpu/swiglu.hpp"
#include "octet/activation.hpp"
#include "octet/permute.hpp"

namespace octet::gpu {
namespace detail {

inline OrderLists lists_of(const TokenOrder& order) {
    return {order.row_of_slot,
            order.slot_of_row,
            static_cast<i32>(order.tokens),
            static_cast<i32>(order.top_k),
            static_cast<i32>(order.rows),
            static_cast<i32>(order.slots())};
}

// A unit of 32 threads a row, eight rows a block.
inline i64 blocks_of_rows(i64 rows) { return std::clamp<i64>(ceil_div(rows, 8), 1, 1 << 20); }

}  // namespace detail

template <class Runner>
void permute_tokens(Runner& runner, const TokenOrder& order, ConstTensorView tokens, TensorView rows) {
    if (order.rows == 0 || rows.size(1) == 0) return;
    const i64 size = bytes_of(tokens.format);
    PermuteParams p{};
    p.tokens = static_cast<const u8*>(tokens.data);
    p.rows = static_cast<u8*>(rows.data);
    p.token_stride = tokens.stride(0) * size;
    p.row_stride = rows.stride(0) * size;
    p.row_bytes = rows.size(1) * size;
    p.order = detail::lists_of(order);
    p.wide = detail::rows_aligned(tokens) && detail::rows_aligned(rows) && p.row_bytes % 16 == 0;
    runner.template launch<PermuteKernel>(detail::blocks_of_rows(order.slots() + order.rows), p);
}

template <class Runner>
void combine_tokens(Runner& runner, const TokenOrder& order, ConstTensorView rows, const float* weights,
                    std::span<const ConstTensorView> addends, TensorView y) {
    if (order.tokens == 0 || y.size(1) == 0) return;
    CombineParams p{};
    p.rows = rows.data;
    p.row_stride = rows.stride(0);
    p.weights = weights;
    p.y = y.data;
    p.y_stride = y.stride(0);
    p.columns = detail::in_32_bits(y.size(1), "columns");
    p.order = detail::lists_of(order);
    p.aligned = detail::rows_aligned(rows) && detail::rows_aligned(y);
    for (const ConstTensorView& addend : addends) {
        p.addend[p.addends] = addend.data;
        p.addend_stride[p.addends] = addend.stride(0);
        p.addend_f32[p.addends] = addend.format == Format::f32;
        p.aligned = p.aligned && detail::rows_aligned(addend);
        ++p.addends;
    }
    const i64 blocks = detail::blocks_of_rows(order.tokens * ceil_div(y.size(1), 256));
    detail::with_input(rows.format, [&](auto in) {
        detail::with_input(y.format, [&](auto out) {
            runner.template launch<CombineKernel<typename decltype(in)::type, typename decltype(out)::type>>(blocks, p);
        });
    });
}

template <class Runner>
void combine_tokens_backward(Runner& runner, const TokenOrder& order, ConstTensorView dy, ConstTensorView rows,
                             const float* weights, TensorView drows, float* weight_gradients) {
    if (order.rows == 0 && (order.slots() == 0 || !weight_gradients)) return;
    CombineBackwardParams p{};
    p.dy = dy.data;
    p.dy_stride = dy.stride(0);
    p.rows = weight_gradients ? rows.data : nullptr;
    p.row_stride = weight_gradients ? rows.stride(0) : 0;
    p.weights = weights;
    p.drows = drows.data;
    p.drow_stride = drows.stride(0);
    p.weight_gradients = weight_gradients;
    p.columns = detail::in_32_bits(dy.size(1), "columns");
    p.order = detail::lists_of(order);
    p.aligned =
        detail::rows_aligned(dy) && detail::rows_aligned(drows) && (!weight_gradients || detail::rows_aligned(rows));
    const i64 blocks = detail::blocks_of_rows(order.slots() + order.rows);
    detail::with_input(dy.format, [&](auto in) {
        runner.template launch<CombineBackwardKernel<typename decltype(in)::type>>(blocks, p);
    });
}

// ---- SwiGLU

// One call of either direction. Without ds it is the forward one.
struct SwigluCall {
    ConstTensorView gate_up{};
    const float* weights = nullptr;
    ConstTensorView ds{};
    TensorView out{};  // null where only the quantized result is wanted
    float* weight_gradients = nullptr;
    bool backward() const { return ds.rank() == 2; }
    i64 features() const { return backward() ? gate_up.size(1) : gate_up.size(1) / 2; }
};

namespace detail {

inline SwigluParams swiglu_params(const SwigluCall& call) {
    SwigluParams p{};
    p.gate_up = call.gate_up.data;
    p.gate_up_stride = call.gate_up.stride(0);
    p.weights = call.weights;
    p.rows = in_32_bits(call.gate_up.size(0), "rows");
    p.half = in_32_bits(call.gate_up.size(1), "columns") / 2;
    if (call.backward()) {
        p.ds = call.ds.data;
        p.ds_stride = call.ds.stride(0);
        p.weight_gradients = call.weight_gradients;
    }
    if (!call.out.null()) {
        p.out = call.out.data;
        p.out_stride = call.out.stride(0);
    }
    return p;
}

// Every eight elements of every tensor can be reached at once.
inline bool swiglu_whole(const SwigluCall& call, const SwigluParams& p) {
    return p.half % 8 == 0 && rows_aligned(call.gate_up) && (!call.backward() || rows_aligned(call.ds)) &&
           (call.out.null() || rows_aligned(call.out)) &&
           (!p.data || (starts_on(p.data, 8) && (p.rows < 2 || p.data_stride % 8 == 0)));
}

template <class Kernel, class Runner>
void launch_swiglu(Runner& runner, SwigluParams p) {
    if (p.rows == 0) return;
    // The narrowest team that holds a row, where it must be held; a wider one where there are few rows.
    const i64 eights = ceil_div(p.half, 8), most = std::min(runner.tuning().swiglu_vectors, Kernel::held);
    const auto each = [&] { return round_up(ceil_div(eights, p.team), Kernel::eights); };
    p.team = 32;
    while (p.team < 256 && ((Kernel::by_row && each() > most) || (each() > 2 && i64{p.rows} * p.team < 512 * 256)))
        p.team *= 2;
    p.reach = in_32_bits(each() * p.team * 8, "columns");
    p.held = each() <= Kernel::held;
    // Two rows a team and more, so that inputs are sent for ahead; several times the blocks that fit, because
    // multiprocessors are not equally fast.
    const i64 all = ceil_div(p.rows, 256 / p.team), fit = runner.template resident<Kernel>();
    const i64 waves = Kernel::by_row ? 4 : 16;
    runner.template launch<Kernel>(std::min(all, std::clamp(all / 2, fit, waves * fit)), p);
}

template <class In, class Codec, Scaling scaling, class Runner>
void launch_swiglu(Runner& runner, const SwigluCall& call, const SwigluParams& p) {
    using Yes = std::true_type;
    using No = std::false_type;
    const auto go = [&](auto backward, auto whole, auto writes) {
        constexpr bool b = decltype(backward)::value, w = decltype(whole)::value, o = decltype(writes)::value;
        launch_swiglu<SwigluKernel<In, Codec, scaling, b, w, o>>(runner, p);
    };
    const auto access = [&](auto backward, auto writes) {
        swiglu_whole(call, p) ? go(backward, Yes{}, writes) : go(backward, No{}, writes);
    };
    const auto direction = [&](auto writes) { call.backward() ? access(Yes{}, writes) : access(No{}, writes); };
    if constexpr (std::is_void_v<Codec>)
        direction(Yes{});
    else
        call.out.null() ? direction(No{}) : direction(Yes{});
}

}  // namespace detail

// The result as gate_up's format stores it.
template <class Runner>
void swiglu(Runner& runner, const SwigluCall& call) {
    detail::with_input(call.gate_up.format, [&](auto in) {
        using In = typename decltype(in)::type;
        detail::launch_swiglu<In, void, Scaling::rowwise>(runner, call, detail::swiglu_params(call));
    });
}

// Whether one kernel computes and quantizes: bf16, and no block that spans gate and up.
inline bool swiglu_fuses(const SwigluCall& call, const QuantizeOptions& options) {
    const i64 block = block_of(options.scaling);
    return call.gate_up.format == Format::bf16 &&
           (!call.backward() || block == 0 || call.gate_up.size(1) / 2 % block == 0);
}

// Along rows, where it fuses.
template <class Codec, class Runner>
void swiglu_rows(Runner& runner, const SwigluCall& call, const QuantizeOptions& options, QuantizedView rows) {
    SwigluParams p = detail::swiglu_params(call);
    p.data = static_cast<u8*>(rows.data.data);
    p.data_stride = rows.data.stride(0);
    p.scale = detail::scale_out(rows, -1, 0, options.scaling == Scaling::rowwise ? -1 : 1);
    p.rule = detail::rule_of(options);
    switch (options.scaling) {
        case Scaling::rowwise: detail::launch_swiglu<Bf16In, Codec, Scaling::rowwise>(runner, call, p); break;
        case Scaling::blockwise: detail::launch_swiglu<Bf16In, Codec, Scaling::blockwise>(runner, call, p); break;
        case Scaling::mx: detail::launch_swiglu<Bf16In, Codec, Scaling::mx>(runner, call, p); break;
    }
}

}  // namespace octet::gpu
