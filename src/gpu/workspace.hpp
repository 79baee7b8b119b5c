// Device memory that a call shares between its kernels: the plan, the maxima that tiles exchange, and the counters.
#pragma once

#include <algorithm>
#include <cstddef>

#include "gpu/plan.hpp"
#include "octet/error.hpp"
#include "octet/groups.hpp"

namespace octet::gpu {

// What one call needs at most.
struct WorkspaceSize {
    i64 groups, slabs, column_words, peak_vectors;

    static constexpr i64 align(i64 bytes) { return round_up(bytes, 256); }
    constexpr i64 group_bytes() const { return align((groups + 1) * static_cast<i64>(sizeof(Group))); }
    constexpr i64 item_bytes() const { return align((groups + 2) * 4); }
    constexpr i64 bytes() const {
        return group_bytes() + item_bytes() + align(4) + align(slabs * 4) + align(column_words * 4) +
               align(peak_vectors * 16);
    }
};

// Groups alone: padding, dequantizing, and scales that stay within a tile.
constexpr WorkspaceSize ranges_workspace(i64 groups) { return {groups, 0, 0, 0}; }
// One scale a column of a group, found by tiles. rows: of the tensor (experts * N for weights); columns, and tiles of
// 128 of them: of one tensor, or of both in a dual call; groups: or experts.
constexpr WorkspaceSize columns_workspace(i64 rows, i64 columns, i64 column_tiles, i64 groups, i64 element_bytes) {
    const i64 row_tiles = rows / 128 + groups + 1;
    return {groups, groups * column_tiles, groups * columns, row_tiles * column_tiles * 8 * element_bytes};
}
// One scale a column of a group, and one a row.
constexpr WorkspaceSize pair_workspace(i64 columns, i64 groups) { return {groups, 0, groups * columns, 0}; }

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
    plan.ticket = reinterpret_cast<u32*>(take(WorkspaceSize::align(4)));
    plan.arrived = reinterpret_cast<u32*>(take(WorkspaceSize::align(size.slabs * 4)));
    plan.column_amax = reinterpret_cast<u32*>(take(WorkspaceSize::align(size.column_words * 4)));
    plan.tile_peaks = reinterpret_cast<Vec16*>(take(WorkspaceSize::align(size.peak_vectors * 16)));
    return plan;
}

}  // namespace octet::gpu
