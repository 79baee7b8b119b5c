// Columns of every token group, and rows with them: the slabs are the groups.
#include "core/element.hpp"
#include "core/parallel.hpp"
#include "cpu/quantize.hpp"
#include "cpu/rows.hpp"
#include "cpu/slabs.hpp"

namespace octet::cpu {
namespace {

void add_group_slabs(std::vector<Slab>& slabs, const ConstTensorView& x, const Groups& groups, std::int64_t alignment,
                     const QuantizeOptions& options, const QuantizedView& out) {
    const std::int64_t block = block_of(options.scaling);
    for_each_group(groups, alignment, [&](const GroupRange& group) {
        Slab slab;
        slab.x = static_cast<const std::byte*>(x.data) + group.begin * x.stride(0) * bytes_of(x.format);
        slab.pitch = x.stride(0);
        slab.rows = group.rows();
        slab.columns = x.size(1);
        slab.out = static_cast<std::uint8_t*>(out.data.data) + group.padded_begin;
        slab.out_pitch = out.data.stride(0);
        slab.out_rows = group.padded_end - group.padded_begin;
        // Scale (g, k) for a whole group, (k, b) for blocks.
        slab.scales = block == 0 ? ScalePlane(out, 1, -1, 0, group.index)
                                 : ScalePlane(out, 0, 1, -1, 0, group.padded_begin / block);
        slabs.push_back(slab);
    });
}

}  // namespace

void quantize_columns(ConstTensorView x, Groups groups, std::int64_t alignment, const QuantizeOptions& options,
                      QuantizedView out, const Execution& on) {
    std::vector<Slab> slabs;
    add_group_slabs(slabs, x, groups, alignment, options, out);
    quantize_slabs(slabs, x.format, options, on.threads);
}

void quantize_columns_dual(ConstTensorView x0, ConstTensorView x1, Groups groups, std::int64_t alignment,
                           const QuantizeOptions& options, QuantizedView out0, QuantizedView out1,
                           const Execution& on) {
    std::vector<Slab> slabs;
    add_group_slabs(slabs, x0, groups, alignment, options, out0);
    add_group_slabs(slabs, x1, groups, alignment, options, out1);
    quantize_slabs(slabs, x0.format, options, on.threads);
}

void quantize_pair(ConstTensorView x, Groups groups, std::int64_t alignment, const QuantizeOptions& options,
                   QuantizedView rows, QuantizedView columns, const Execution& on) {
    std::vector<Slab> slabs;
    add_group_slabs(slabs, x, groups, alignment, options, columns);
    const int block_axis = options.scaling == Scaling::rowwise ? -1 : 1;
    std::int64_t begin = 0;
    for (Slab& slab : slabs) {
        slab.row_out = static_cast<std::uint8_t*>(rows.data.data) + begin * rows.data.stride(0);
        slab.row_out_pitch = rows.data.stride(0);
        slab.row_scales = ScalePlane(rows, 0, block_axis).from_i(begin);
        begin += slab.rows;
    }
    quantize_slabs(slabs, x.format, options, on.threads);

    // Rows that no group owns have no columns' scales, but rows' scales all the same.
    const std::int64_t k = x.size(1), element = bytes_of(x.format);
    const RowQuantizer quantize(x.format, options, false);
    const ScalePlane row_scales(rows, 0, block_axis);
    parallel_for(on.threads, x.size(0) - begin, row_grain(k * element), [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t row = begin + first; row < begin + last; ++row)
            quantize(static_cast<const std::byte*>(x.data) + row * x.stride(0) * element, k,
                     static_cast<std::uint8_t*>(rows.data.data) + row * rows.data.stride(0), row_scales, row);
    });
}

}  // namespace octet::cpu
