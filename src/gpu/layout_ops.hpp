// From the dequantizing, padding and swizzling calls of octet/quantize.hpp to kernel launches, for any Runner
// (ops.hpp).
#pragma once

#include "gpu/dequantize.hpp"
#include "gpu/layout.hpp"
#include "gpu/row_ops.hpp"

namespace octet::gpu {
namespace detail {

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

template <class Runner>
void dequantize(Runner& runner, Format data, Format x, const DequantizeParams& p) {
    const i64 all = p.size[0] * p.size[1] * p.size[2];
    if (all == 0) return;
    const i64 blocks = std::clamp<i64>(ceil_div(all, 256 * 4), 1, 1 << 16);
    with_fp8(data, [&](auto codec) {
        if (x == Format::bf16)
            runner.template launch<DequantizeKernel<u16, decltype(codec)>>(blocks, p);
        else
            runner.template launch<DequantizeKernel<float, decltype(codec)>>(blocks, p);
    });
}

}  // namespace detail

template <class Runner>
void dequantize_rows(Runner& runner, ConstQuantizedView q, const QuantizeOptions& options, TensorView x) {
    DequantizeParams p{};
    p.data = static_cast<const u8*>(q.data.data);
    p.data_stride[1] = q.data.stride(0);
    p.data_stride[2] = 1;
    p.scale = detail::scale_in(q, -1, 0, options.scaling == Scaling::rowwise ? -1 : 1);
    p.x = x.data;
    p.x_stride[1] = x.stride(0);
    p.size[0] = 1;
    p.size[1] = x.size(0);
    p.size[2] = x.size(1);
    p.row_block = 1;
    p.column_block = block_of(options.scaling);
    detail::dequantize(runner, q.data.format, x.format, p);
}

template <class Runner>
void dequantize_tokens(Runner& runner, ConstQuantizedView q, Groups groups, i64 alignment,
                       const QuantizeOptions& options, TensorView x, bool tokens_last) {
    DequantizeParams p{};
    const i64 block = block_of(options.scaling);
    p.data = static_cast<const u8*>(q.data.data);
    p.data_stride[1] = tokens_last ? q.data.stride(0) : 1;
    p.data_stride[2] = tokens_last ? 1 : q.data.stride(0);
    p.scale = block == 0 ? detail::scale_in(q, 0, 1, -1) : detail::scale_in(q, -1, 0, 1);
    p.x = x.data;
    p.x_stride[1] = x.stride(0);
    p.size[0] = 1;
    p.size[1] = x.size(0);
    p.size[2] = x.size(1);
    p.row_block = tokens_last ? 1 : block;
    p.column_block = tokens_last ? block : 1;
    p.scale_by_column = !tokens_last;
    p.tokens_last = tokens_last;
    p.groups = groups.count;
    p.plan = detail::plan_ranges(runner, groups, x.size(tokens_last ? 1 : 0), alignment);
    detail::dequantize(runner, q.data.format, x.format, p);
}

template <class Runner>
void dequantize_weights(Runner& runner, ConstQuantizedView q, WeightOrientation orientation,
                        const QuantizeOptions& options, TensorView w) {
    const bool along_n = orientation == WeightOrientation::along_n;
    const i64 block = block_of(options.scaling), other = options.scaling == Scaling::blockwise ? block : 1;
    DequantizeParams p{};
    p.data = static_cast<const u8*>(q.data.data);
    p.data_stride[0] = q.data.stride(0);
    p.data_stride[1] = along_n ? 1 : q.data.stride(1);
    p.data_stride[2] = along_n ? q.data.stride(1) : 1;
    p.scale = detail::scale_in(q, 0, 1, options.scaling == Scaling::rowwise ? -1 : 2);
    p.x = w.data;
    p.x_stride[0] = w.stride(0);
    p.x_stride[1] = w.stride(1);
    for (int axis = 0; axis < 3; ++axis) p.size[axis] = w.size(axis);
    p.row_block = along_n ? block : other;
    p.column_block = along_n ? other : block;
    p.scale_by_column = along_n;
    detail::dequantize(runner, q.data.format, w.format, p);
}

template <class Runner>
void pad_or_unpad(Runner& runner, ConstTensorView from, TensorView to, Groups groups, i64 tokens, i64 alignment,
                  std::int32_t* padded_ends, bool back) {
    PadParams p{};
    const i64 size = bytes_of(from.format);
    p.from = static_cast<const u8*>(from.data);
    p.to = static_cast<u8*>(to.data);
    p.from_stride = from.stride(0) * size;
    p.to_stride = to.stride(0) * size;
    p.row_bytes = to.size(1) * size;
    p.rows = to.size(0);
    p.groups = groups.count;
    p.wide = detail::rows_aligned(from) && detail::rows_aligned(to) && p.row_bytes % 16 == 0;
    p.back = back;
    p.padded_ends = padded_ends;
    p.plan = detail::plan_ranges(runner, groups, tokens, alignment);
    runner.template launch<PadKernel>(std::clamp<i64>(ceil_div(std::max(p.rows, groups.count), 8), 1, 1 << 16), p);
}

// scale: the shape of whichever of the two is the scale tensor, [R, C] or [E, R, C].
template <class Runner>
void swizzle(Runner& runner, const void* from, void* to, const Extents& scale, const Groups* groups, bool back) {
    SwizzleParams p{};
    const int first = scale.rank == 3 ? 1 : 0;
    p.from = static_cast<const u8*>(from);
    p.to = static_cast<u8*>(to);
    p.scale_stride[0] = first ? scale.strides[0] : 0;
    p.scale_stride[1] = scale.strides[static_cast<std::size_t>(first)];
    p.scale_stride[2] = scale.strides[static_cast<std::size_t>(first + 1)];
    p.experts = first ? scale.shape[0] : 1;
    p.rows = scale.shape[static_cast<std::size_t>(first)];
    p.columns = scale.shape[static_cast<std::size_t>(first + 1)];
    p.blocked_rows = groups ? swizzled_group_rows(p.rows, groups->count) : swizzled_rows(p.rows);
    p.back = back;
    if (groups) {
        p.groups = groups->count;
        p.plan = detail::plan_ranges(runner, *groups, p.rows, 128);
    }
    const i64 all = p.experts * p.blocked_rows * swizzled_columns(p.columns);
    if (all == 0) return;
    runner.template launch<SwizzleKernel>(std::clamp<i64>(ceil_div(all, 256 * 4), 1, 1 << 16), p);
}

}  // namespace octet::gpu
