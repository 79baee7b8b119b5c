// Moving bytes without changing them: padded token groups, and the blocked layout of MX scales.
#include <cstring>

#include "core/element.hpp"
#include "reference/quantize.hpp"

namespace octet::reference {
namespace {

// The bytes of row `row` of a 2D tensor.
std::byte* row_of(const TensorView& x, std::int64_t row) {
    return static_cast<std::byte*>(x.data) + row * x.stride(0) * bytes_of(x.format);
}
const std::byte* row_of(const ConstTensorView& x, std::int64_t row) {
    return static_cast<const std::byte*>(x.data) + row * x.stride(0) * bytes_of(x.format);
}

// Where scale (row, column) lies in the blocked layout of a matrix of `columns` columns: tiles of 128 x 4 scales follow
// each other in row-major order; within a tile the rows r, r+32, r+64, r+96 lie together.
std::int64_t blocked_offset(std::int64_t row, std::int64_t column, std::int64_t columns) {
    const std::int64_t tiles_across = swizzled_columns(columns) / 4;
    const std::int64_t tile = row / 128 * tiles_across + column / 4;
    const std::int64_t r = row % 128, c = column % 4;
    return tile * 512 + r % 32 * 16 + r / 32 * 4 + c;
}

std::uint8_t* bytes(const TensorView& view) { return static_cast<std::uint8_t*>(view.data); }
const std::uint8_t* bytes(const ConstTensorView& view) { return static_cast<const std::uint8_t*>(view.data); }

}  // namespace

void pad_groups(ConstTensorView x, Groups groups, std::int64_t alignment, TensorView padded, std::int32_t* padded_ends,
                const Execution&) {
    const auto row_bytes = static_cast<std::size_t>(x.size(1) * bytes_of(x.format));
    for_each_group(groups, alignment, [&](const GroupRange& group) {
        for (std::int64_t t = 0; t < group.padded_end - group.padded_begin; ++t) {
            std::byte* to = row_of(padded, group.padded_begin + t);
            if (row_bytes == 0) continue;
            if (t < group.rows()) {
                std::memcpy(to, row_of(x, group.begin + t), row_bytes);
            } else {
                std::memset(to, 0, row_bytes);
            }
        }
        if (padded_ends) padded_ends[group.index] = static_cast<std::int32_t>(group.padded_end);
    });
}

void unpad_groups(ConstTensorView padded, Groups groups, std::int64_t alignment, TensorView x, const Execution&) {
    const auto row_bytes = static_cast<std::size_t>(x.size(1) * bytes_of(x.format));
    if (row_bytes == 0) return;
    for_each_group(groups, alignment, [&](const GroupRange& group) {
        for (std::int64_t t = 0; t < group.rows(); ++t)
            std::memcpy(row_of(x, group.begin + t), row_of(padded, group.padded_begin + t), row_bytes);
    });
}

void swizzle_scales(ConstTensorView scale, TensorView blocked, const Execution&) {
    const bool experts = scale.rank() == 3;
    const std::int64_t count = experts ? scale.size(0) : 1;
    const std::int64_t rows = scale.size(experts ? 1 : 0), columns = scale.size(experts ? 2 : 1);
    const std::int64_t size = swizzled_rows(rows) * swizzled_columns(columns);
    for (std::int64_t expert = 0; expert < count; ++expert) {
        std::uint8_t* to = bytes(blocked) + expert * size;
        std::memset(to, 0, static_cast<std::size_t>(size));
        for (std::int64_t r = 0; r < rows; ++r)
            for (std::int64_t c = 0; c < columns; ++c)
                to[blocked_offset(r, c, columns)] =
                    experts ? at<std::uint8_t>(scale, expert, r, c) : at<std::uint8_t>(scale, r, c);
    }
}

void unswizzle_scales(ConstTensorView blocked, TensorView scale, const Execution&) {
    const bool experts = scale.rank() == 3;
    const std::int64_t count = experts ? scale.size(0) : 1;
    const std::int64_t rows = scale.size(experts ? 1 : 0), columns = scale.size(experts ? 2 : 1);
    const std::int64_t size = swizzled_rows(rows) * swizzled_columns(columns);
    for (std::int64_t expert = 0; expert < count; ++expert) {
        const std::uint8_t* from = bytes(blocked) + expert * size;
        for (std::int64_t r = 0; r < rows; ++r)
            for (std::int64_t c = 0; c < columns; ++c)
                (experts ? at<std::uint8_t>(scale, expert, r, c) : at<std::uint8_t>(scale, r, c)) =
                    from[blocked_offset(r, c, columns)];
    }
}

void swizzle_group_scales(ConstTensorView scale, Groups groups, TensorView blocked, const Execution&) {
    const std::int64_t columns = scale.size(1);
    const std::int64_t size = swizzled_group_rows(scale.size(0), groups.count) * swizzled_columns(columns);
    std::memset(bytes(blocked), 0, static_cast<std::size_t>(size));
    for_each_group(groups, 128, [&](const GroupRange& group) {
        for (std::int64_t t = 0; t < group.rows(); ++t)
            for (std::int64_t c = 0; c < columns; ++c)
                bytes(blocked)[blocked_offset(group.padded_begin + t, c, columns)] =
                    at<std::uint8_t>(scale, group.begin + t, c);
    });
}

void unswizzle_group_scales(ConstTensorView blocked, Groups groups, TensorView scale, const Execution&) {
    const std::int64_t columns = scale.size(1);
    for_each_group(groups, 128, [&](const GroupRange& group) {
        for (std::int64_t t = 0; t < group.rows(); ++t)
            for (std::int64_t c = 0; c < columns; ++c)
                at<std::uint8_t>(scale, group.begin + t, c) =
                    bytes(blocked)[blocked_offset(group.padded_begin + t, c, columns)];
    });
}

}  // namespace octet::reference
