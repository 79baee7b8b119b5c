// Moving bytes without changing them: padded token groups, and the blocked layout of MX scales.
#include <algorithm>
#include <cstring>
#include <vector>

#include "core/element.hpp"
#include "core/parallel.hpp"
#include "cpu/quantize.hpp"
#include "cpu/rows.hpp"

namespace octet::cpu {
namespace {

std::vector<GroupRange> ranges_of(const Groups& groups, std::int64_t alignment) {
    std::vector<GroupRange> ranges;
    for_each_group(groups, alignment, [&](const GroupRange& group) { ranges.push_back(group); });
    return ranges;
}

// The group that row `row` of the padded tensor lies in; there is one.
const GroupRange& group_of_padded(const std::vector<GroupRange>& ranges, std::int64_t row) {
    return *std::partition_point(ranges.begin(), ranges.end(),
                                 [&](const GroupRange& group) { return group.padded_end <= row; });
}

template <class View>
auto* row_of(const View& x, std::int64_t row) {
    using Byte = std::conditional_t<std::is_same_v<View, TensorView>, std::byte, const std::byte>;
    return static_cast<Byte*>(x.data) + row * x.stride(0) * bytes_of(x.format);
}

// One tile of 128 x 4 scales is 512 bytes: scale (r, c) of it at r % 32 * 16 + r / 32 * 4 + c.
constexpr std::int64_t tile_rows = 128, tile_columns = 4, tile_bytes = 512;
constexpr std::int64_t tile_offset(std::int64_t r, std::int64_t c) { return r % 32 * 16 + r / 32 * 4 + c; }

// A matrix of scales, of which each panel of 128 rows becomes a row of tiles.
struct Scales {
    const std::uint8_t* data;
    std::int64_t rows, columns, row_step, column_step;
};

void swizzle_panel(const Scales& scales, std::int64_t first_row, std::uint8_t* to) {
    const std::int64_t tiles = swizzled_columns(scales.columns) / tile_columns;
    std::memset(to, 0, static_cast<std::size_t>(tiles * tile_bytes));
    for (std::int64_t r = 0; r < std::min(tile_rows, scales.rows - first_row); ++r) {
        const std::uint8_t* from = scales.data + (first_row + r) * scales.row_step;
        for (std::int64_t c = 0; c < scales.columns; ++c)
            to[c / tile_columns * tile_bytes + tile_offset(r, c % tile_columns)] = from[c * scales.column_step];
    }
}

void unswizzle_panel(const std::uint8_t* from, std::int64_t first_row, const Scales& scales) {
    for (std::int64_t r = 0; r < std::min(tile_rows, scales.rows - first_row); ++r) {
        auto* to = const_cast<std::uint8_t*>(scales.data) + (first_row + r) * scales.row_step;
        for (std::int64_t c = 0; c < scales.columns; ++c)
            to[c * scales.column_step] = from[c / tile_columns * tile_bytes + tile_offset(r, c % tile_columns)];
    }
}

// The matrix of expert `expert` of [E, R, C] or of [R, C].
Scales matrix_of(const ConstTensorView& scale, std::int64_t expert) {
    const int first = scale.rank() - 2;
    const auto* data = static_cast<const std::uint8_t*>(scale.data);
    return {data + (first == 1 ? expert * scale.stride(0) : 0), scale.size(first), scale.size(first + 1),
            scale.stride(first), scale.stride(first + 1)};
}

// A group's rows of [R, C].
Scales group_of(const ConstTensorView& scale, const GroupRange& group) {
    return {static_cast<const std::uint8_t*>(scale.data) + group.begin * scale.stride(0), group.rows(), scale.size(1),
            scale.stride(0), scale.stride(1)};
}

// f(matrix, first row, bytes of its blocked panel) for every panel of every expert.
template <class F>
void for_each_panel(const ConstTensorView& scale, std::uint8_t* blocked, int threads, F f) {
    const std::int64_t experts = scale.rank() == 3 ? scale.size(0) : 1;
    const std::int64_t panels = swizzled_rows(scale.size(scale.rank() - 2)) / tile_rows;
    const std::int64_t panel_bytes = swizzled_columns(scale.size(scale.rank() - 1)) * tile_rows;
    parallel_for(threads, experts * panels, row_grain(panel_bytes), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i)
            f(matrix_of(scale, i / panels), i % panels * tile_rows, blocked + i * panel_bytes);
    });
}

}  // namespace

void pad_groups(ConstTensorView x, Groups groups, std::int64_t alignment, TensorView padded, std::int32_t* padded_ends,
                const Execution& on) {
    const std::int64_t bytes = x.size(1) * bytes_of(x.format);
    const std::vector<GroupRange> ranges = ranges_of(groups, alignment);
    if (padded_ends)
        for (const GroupRange& group : ranges) padded_ends[group.index] = static_cast<std::int32_t>(group.padded_end);
    if (bytes == 0) return;
    parallel_for(on.threads, ranges.back().padded_end, row_grain(bytes), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
            const GroupRange& group = group_of_padded(ranges, row);
            const std::int64_t t = row - group.padded_begin;
            if (t < group.rows()) {
                std::memcpy(row_of(padded, row), row_of(x, group.begin + t), static_cast<std::size_t>(bytes));
            } else {
                std::memset(row_of(padded, row), 0, static_cast<std::size_t>(bytes));
            }
        }
    });
}

void unpad_groups(ConstTensorView padded, Groups groups, std::int64_t alignment, TensorView x, const Execution& on) {
    const std::int64_t bytes = x.size(1) * bytes_of(x.format);
    if (bytes == 0) return;
    const std::vector<GroupRange> ranges = ranges_of(groups, alignment);
    parallel_for(on.threads, ranges.back().padded_end, row_grain(bytes), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
            const GroupRange& group = group_of_padded(ranges, row);
            const std::int64_t t = row - group.padded_begin;
            if (t < group.rows())
                std::memcpy(row_of(x, group.begin + t), row_of(padded, row), static_cast<std::size_t>(bytes));
        }
    });
}

void swizzle_scales(ConstTensorView scale, TensorView blocked, const Execution& on) {
    for_each_panel(scale, static_cast<std::uint8_t*>(blocked.data), on.threads, swizzle_panel);
}

void unswizzle_scales(ConstTensorView blocked, TensorView scale, const Execution& on) {
    auto* from = static_cast<std::uint8_t*>(const_cast<void*>(blocked.data));
    for_each_panel(scale, from, on.threads, [](const Scales& scales, std::int64_t first_row, std::uint8_t* panel) {
        unswizzle_panel(panel, first_row, scales);
    });
}

void swizzle_group_scales(ConstTensorView scale, Groups groups, TensorView blocked, const Execution& on) {
    const std::vector<GroupRange> ranges = ranges_of(groups, tile_rows);
    const std::int64_t panels = swizzled_group_rows(scale.size(0), groups.count) / tile_rows;
    const std::int64_t panel_bytes = swizzled_columns(scale.size(1)) * tile_rows;
    const std::int64_t used = ranges.back().padded_end / tile_rows;
    parallel_for(on.threads, panels, row_grain(panel_bytes), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t panel = begin; panel < end; ++panel) {
            auto* to = static_cast<std::uint8_t*>(blocked.data) + panel * panel_bytes;
            if (panel >= used) {
                std::memset(to, 0, static_cast<std::size_t>(panel_bytes));
                continue;
            }
            const GroupRange& group = group_of_padded(ranges, panel * tile_rows);
            swizzle_panel(group_of(scale, group), panel * tile_rows - group.padded_begin, to);
        }
    });
}

void unswizzle_group_scales(ConstTensorView blocked, Groups groups, TensorView scale, const Execution& on) {
    const std::vector<GroupRange> ranges = ranges_of(groups, tile_rows);
    const std::int64_t panel_bytes = swizzled_columns(scale.size(1)) * tile_rows;
    const std::int64_t used = ranges.back().padded_end / tile_rows;
    parallel_for(on.threads, used, row_grain(panel_bytes), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t panel = begin; panel < end; ++panel) {
            const GroupRange& group = group_of_padded(ranges, panel * tile_rows);
            unswizzle_panel(static_cast<const std::uint8_t*>(blocked.data) + panel * panel_bytes,
                            panel * tile_rows - group.padded_begin, group_of(scale, group));
        }
    });
}

}  // namespace octet::cpu
