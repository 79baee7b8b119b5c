// Device memory that a call shares between its kernels: the plan, the maxima that tiles exchange, and the counters, or
// their notes.
#pragma once

#include <algorithm>
#include <cstddef>

#include "gpu/tile_list.hpp"
#include "octet/error.hpp"
#include "octet/groups.hpp"

namespace octet::gpu {

// What one call needs at most.
struct WorkspaceSize {
    i64 groups, tiles = 0, slabs = 0, row_slabs = 0, column_words = 0, row_words = 0, row_powers = 0, notes = 0,
                parts = 0;

    static constexpr i64 tickets = 64;
    static constexpr i64 align(i64 bytes) { return round_up(bytes, 256); }
    static constexpr i64 counter_bytes(i64 counters) { return counters * counter_words * 4; }
    constexpr i64 group_bytes() const {
        return align((groups + 2) * static_cast<i64>(sizeof(Group) > sizeof(Span) ? sizeof(Group) : sizeof(Span)));
    }
    constexpr i64 cleared_bytes() const {
        return align(tickets * 4) + align(counter_bytes(slabs)) + align(counter_bytes(row_slabs)) +
               align(column_words * 4) + align(row_words * 4) + align(notes * i64{note_words} * 4) +
               align(counter_bytes(parts));
    }
    constexpr i64 bytes() const {
        return group_bytes() + align(tiles * static_cast<i64>(sizeof(Tile))) + cleared_bytes() + align(row_powers);
    }
};

// Groups alone: padding, dequantizing.
constexpr WorkspaceSize ranges_workspace(i64 groups) { return {groups}; }
// Scales that stay within a tile: a list of all tiles.
constexpr WorkspaceSize tiles_workspace(i64 groups, i64 tiles) { return {groups, tiles}; }
// Scales that are a group's column's. columns, and tiles of them: of one tensor, or of both in a dual call.
constexpr WorkspaceSize columns_workspace(i64 groups, i64 column_tiles, i64 columns) {
    return {groups, 0, groups * column_tiles, 0, groups * columns, 0};
}
// The same in two halves.
constexpr WorkspaceSize halves_workspace(i64 groups, i64 columns, i64 rows) {
    return {groups, 0, 0, 0, ceil_div(groups * columns, 2), 0, rows, 0, WorkspaceSize::tickets};
}
// And a row's. rows: of all groups.
constexpr WorkspaceSize pair_workspace(i64 groups, i64 column_tiles, i64 columns, i64 rows) {
    return {groups, 0, groups * column_tiles, rows / 128 + groups + 2, groups * columns, rows};
}

// Both likewise, where tiles leave notes instead.
constexpr WorkspaceSize notes_workspace(i64 groups, i64 column_tiles, i64 rows) {
    return {groups, 0, 0, 0, 0, 0, 0, (rows / 128 + groups + 2) * column_tiles};
}

// What is enough for every call of such sizes, or of smaller ones, whatever its scales and tuning are: with padding to
// multiples of up to 1024.
constexpr i64 most_token_workspace(i64 tokens, i64 features, i64 groups) {
    const i64 column_tiles = ceil_div(features, 128) + 1, narrow_tiles = ceil_div(features, 64) + 1;
    const i64 row_tiles = tokens / 128 + 9 * groups + 2;
    return std::max(
        {pair_workspace(groups, narrow_tiles, features, tokens).bytes(),
         halves_workspace(groups, features, tokens).bytes(),
         notes_workspace(groups, std::min<i64>(column_tiles, note_readers), std::min(tokens, most_noted)).bytes(),
         tiles_workspace(groups, row_tiles * column_tiles).bytes()});
}
constexpr i64 most_weight_workspace(i64 experts, i64 n, i64 k) { return most_token_workspace(experts * n, k, experts); }

inline Plan place_plan(const WorkspaceSize& size, void* memory) {
    auto* at = static_cast<unsigned char*>(memory);
    const auto take = [&](i64 bytes) {
        auto* here = at;
        at += WorkspaceSize::align(bytes);
        return here;
    };
    Plan plan;
    plan.group = reinterpret_cast<Group*>(take(size.group_bytes()));
    plan.span = reinterpret_cast<Span*>(plan.group);  // a plan has one or the other
    plan.tile = reinterpret_cast<Tile*>(take(size.tiles * static_cast<i64>(sizeof(Tile))));
    plan.ticket = reinterpret_cast<u32*>(take(WorkspaceSize::tickets * 4));
    plan.arrived = reinterpret_cast<u32*>(take(WorkspaceSize::counter_bytes(size.slabs)));
    plan.row_arrived = reinterpret_cast<u32*>(take(WorkspaceSize::counter_bytes(size.row_slabs)));
    plan.column_amax = reinterpret_cast<u32*>(take(size.column_words * 4));
    plan.row_amax = reinterpret_cast<u32*>(take(size.row_words * 4));
    u32* const notes = reinterpret_cast<u32*>(take(size.notes * i64{note_words} * 4));
    plan.note = size.notes > 0 ? notes : nullptr;
    plan.peaks = reinterpret_cast<u16*>(plan.column_amax);
    plan.done = reinterpret_cast<u32*>(take(WorkspaceSize::counter_bytes(size.parts)));
    plan.row_power = take(size.row_powers);
    return plan;
}

}  // namespace octet::gpu
