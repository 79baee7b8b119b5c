// Device memory that a call shares between its kernels: the plan, the maxima that tiles exchange, and the counters.
#pragma once

#include <algorithm>
#include <cstddef>

#include "gpu/plan.hpp"
#include "octet/error.hpp"
#include "octet/groups.hpp"

namespace octet::gpu {

// What one call needs at most. rows: of the tensor (experts * N for weights); columns: features of one tensor, or of
// both in a dual call; groups: or experts.
struct WorkspaceSize {
    i64 groups, slabs, column_words, row_words;

    static constexpr i64 align(i64 bytes) { return round_up(bytes, 256); }
    constexpr i64 group_bytes() const { return align((groups + 2) * static_cast<i64>(sizeof(Group))); }
    constexpr i64 item_bytes() const { return align((groups + 2) * 4); }
    constexpr i64 bytes() const {
        return group_bytes() + 2 * item_bytes() + align(4) + align(slabs * 4) + align(column_words * 4) +
               align(row_words * 4);
    }
};

// Groups alone: padding, dequantizing, and scales that stay within a tile.
constexpr WorkspaceSize ranges_workspace(i64 groups) { return {groups, 0, 0, 0}; }
// One scale a column of a group. `column_tiles` of 128 columns.
constexpr WorkspaceSize columns_workspace(i64 columns, i64 column_tiles, i64 groups) {
    return {groups, (groups + 1) * column_tiles, groups * columns, 0};
}
// One scale a column of a group and one a row.
constexpr WorkspaceSize pair_workspace(i64 rows, i64 columns, i64 groups) {
    return {groups, groups + 1, groups * columns, rows};
}

inline Plan place_plan(const WorkspaceSize& size, void* memory) {
    auto* at = static_cast<unsigned char*>(memory);
    const auto take = [&](i64 bytes) {
        auto* here = at;
        at += bytes;
        return here;
    };
    Plan plan;
    plan.group = reinterpret_cast<Group*>(take(size.group_bytes()));
    plan.first_item = reinterpret_cast<u32*>(take(size.item_bytes()));
    plan.second_item = reinterpret_cast<u32*>(take(size.item_bytes()));
    plan.ticket = reinterpret_cast<u32*>(take(WorkspaceSize::align(4)));
    plan.arrived = reinterpret_cast<u32*>(take(WorkspaceSize::align(size.slabs * 4)));
    plan.column_amax = reinterpret_cast<u32*>(take(WorkspaceSize::align(size.column_words * 4)));
    plan.row_amax = reinterpret_cast<u32*>(take(WorkspaceSize::align(size.row_words * 4)));
    return plan;
}

}  // namespace octet::gpu
