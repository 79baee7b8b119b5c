// The plan of a grouped kernel: which rows each group has, where they go once padded, and which work items they make.
//
// Offsets are known on the device only, so a small kernel works the plan out there, and clears the counters and maxima
// that the main kernel shares between its blocks. Offsets that decrease or run past the last row are clamped: a bad
// router gives wrong numbers, never a write out of bounds.
//
// Items are numbered so that blocks may take them in order. Where the tiles of a group, or of a group's column tile,
// are no more than the blocks that run at once, they are fused: read once, and held until all of them have handed in
// their maxima. A larger group is visited twice: first items read a tile for its maxima, second items read it again,
// from the L2 cache where it is still there, and cast it. Second items wait until the first ones of their slab are
// counted in; these have lower numbers, so nobody waits for ever, whatever else runs on the device. To have nobody wait
// at all, and the cache still hold what was read first, second items follow some megabytes behind:
//   - lagged: after the first items of the following groups, up to `lag` rows of them;
//   - alternating (one group too large for the cache, scales along columns only): column tile by column tile.
#pragma once

#include "gpu/simt.hpp"

namespace octet::gpu {

using namespace octet::simt;

enum class GroupOrder : u32 {
    once,   // nothing is exchanged: tiles are cast as they are read
    fused,  // tiles wait for each other holding what they read
    lagged,
    alternating,
};

struct Group {
    i64 begin;         // first row
    i64 padded_begin;  // first column of the transposed data
    i64 position;      // rows of all groups before this one
    i32 rows;
    i32 padded_rows;
    u32 row_tiles;       // of 128 rows, padding included
    u32 row_chunks;      // first items down a column tile
    u32 order;           // GroupOrder
    u32 firsts_before;   // first items of the groups before this one
    u32 seconds_before;  // second items of them
};

struct Plan {
    Group* group;      // [groups + 2]; the last but one holds the rows that nobody owns, the last only totals
    u32* first_item;   // [groups + 2], ascending; the last one is the number of items
    u32* second_item;  // [groups + 2], second visits of split groups, ascending
    u32* ticket;       // the next item to take
    u32* arrived;      // [slabs] tiles whose maxima are in
    u32* column_amax;  // [groups, columns] f32 bits
    u32* row_amax;     // [rows] f32 bits
};

struct PlanParams {
    const i32* ends;  // [groups], or null: every group has uniform_rows rows of its own matrix
    i64 groups;
    i64 rows;  // of the tensor
    i64 uniform_rows;
    i64 alignment;
    i32 tile_rows;  // 0: no items are wanted, only ranges
    i32 chunk_rows;
    u32 column_tiles;
    i64 lag;             // rows that first items are ahead by, where they do not
    i64 fused_tiles;     // tiles that may wait for each other
    i64 alternate_rows;  // groups of more rows than this alternate, where they may
    i32 exchange;        // 0: tiles are on their own; 1: along columns, a slab is a group's column tile;
                         // 2: along both, a slab is a group
    i32 rest;            // 1: rows past the last group make items too
    i64 slabs, column_words, row_words;  // to clear
    Plan plan;
};

struct PlanKernel {
    static constexpr int threads = 256;
    static constexpr int blocks_per_core = 1;
    using Params = PlanParams;

    struct Three {
        i64 value[3];
    };
    struct Shared {
        Three scan[2][threads];
    };

    template <class Thread>
    OCTET_GPU static void run(Thread& t, const Params& p, Shared& s) {
        const i64 every = static_cast<i64>(t.blocks()) * threads;
        const i64 me = static_cast<i64>(t.block()) * threads + t.thread();
        for (i64 i = me; i < p.slabs; i += every) t.store(p.plan.arrived + i, 0u);
        for (i64 i = me; i < p.column_words; i += every) t.store(p.plan.column_amax + i, 0u);
        for (i64 i = me; i < p.row_words; i += every) t.store(p.plan.row_amax + i, 0u);
        if (me == 0) t.store(p.plan.ticket, 0u);
        if (t.block() == 0) ranges_and_items(t, p, s);
    }

    OCTET_GPU static u32 first_items(const Params& p, const Group& group) {
        const auto order = static_cast<GroupOrder>(group.order);
        if (order == GroupOrder::once || order == GroupOrder::fused) return group.row_tiles * p.column_tiles;
        return (group.row_chunks + (order == GroupOrder::alternating ? group.row_tiles : 0)) * p.column_tiles;
    }
    OCTET_GPU static u32 second_items(const Params& p, const Group& group) {
        return static_cast<GroupOrder>(group.order) == GroupOrder::lagged ? group.row_tiles * p.column_tiles : 0;
    }

private:
    template <class Thread>
    OCTET_GPU static i64 end_of(Thread& t, const Params& p, i64 g) {
        if (!p.ends) return (g + 1) * p.uniform_rows;
        const i64 end = t.load(p.ends + g);
        return end < p.rows ? end : p.rows;
    }

    OCTET_GPU static void count_tiles(const Params& p, Group& group, bool owned) {
        group.row_tiles = group.row_chunks = 0;
        group.order = static_cast<u32>(GroupOrder::once);
        if (p.tile_rows == 0 || (!owned && !p.rest)) return;
        const i32 reach = group.padded_rows > group.rows ? group.padded_rows : group.rows;
        group.row_tiles = static_cast<u32>((reach + p.tile_rows - 1) / p.tile_rows);
        if (!p.exchange) return;
        if (owned && group.row_tiles == 0) group.row_tiles = 1;  // an empty group has scales too
        if (p.exchange == 1 && group.row_tiles <= 1) return;
        group.order = static_cast<u32>(GroupOrder::fused);
        if ((p.exchange == 2 ? static_cast<i64>(group.row_tiles) * p.column_tiles : group.row_tiles) <= p.fused_tiles)
            return;
        group.row_chunks = static_cast<u32>((group.rows + p.chunk_rows - 1) / p.chunk_rows);
        group.order = static_cast<u32>(p.exchange == 1 && group.rows > p.alternate_rows ? GroupOrder::alternating
                                                                                        : GroupOrder::lagged);
    }

    // Each thread owns a run of neighbouring groups; scans over the threads join the runs.
    template <class Thread>
    OCTET_GPU static void ranges_and_items(Thread& t, const Params& p, Shared& s) {
        const i64 count = p.groups + 1, run = (count + threads - 1) / threads;
        const i64 from = t.thread() * run < count ? t.thread() * run : count;
        const i64 to = from + run < count ? from + run : count;
        Group* groups = p.plan.group;

        i64 largest = 0;
        for (i64 g = from; g < to && g < p.groups; ++g) {
            const i64 end = end_of(t, p, g);
            largest = end > largest ? end : largest;
        }
        largest = before(t, s, {{largest, 0, 0}}, true).value[0];
        i64 end = largest;
        Three sums{};  // padded rows, first and second items
        for (i64 g = from; g < to; ++g) {
            const bool owned = g < p.groups;
            i64 mine = owned ? end_of(t, p, g) : p.ends ? p.rows : end;
            mine = mine > end ? mine : end;
            Group group;
            group.position = end;
            group.begin = p.ends ? end : 0;
            group.rows = static_cast<i32>(mine - end);
            group.padded_begin = 0;
            const u32 alignment = static_cast<u32>(p.alignment);
            group.padded_rows =
                owned ? static_cast<i32>((static_cast<u32>(group.rows) + alignment - 1) / alignment * alignment) : 0;
            count_tiles(p, group, owned);
            groups[g] = group;
            end = mine;
            sums.value[0] += group.padded_rows;
            sums.value[1] += first_items(p, group);
            sums.value[2] += second_items(p, group);
        }
        sums = before(t, s, sums, false);
        i64 padded = sums.value[0], firsts = sums.value[1], seconds = sums.value[2];
        for (i64 g = from; g < to; ++g) {
            Group& group = groups[g];
            if (p.ends) group.padded_begin = padded;
            group.firsts_before = static_cast<u32>(firsts);
            group.seconds_before = static_cast<u32>(seconds);
            padded += group.padded_rows;
            firsts += first_items(p, group);
            seconds += second_items(p, group);
        }
        if (to == count && from < to) {
            groups[count].firsts_before = static_cast<u32>(firsts);
            groups[count].seconds_before = static_cast<u32>(seconds);
        }
        if (p.tile_rows == 0) return;
        t.barrier();
        for (i64 g = from; g < to; ++g) {
            p.plan.first_item[g] = groups[g].firsts_before + groups[seconds_done_before(p, g)].seconds_before;
            p.plan.second_item[g] = groups[last_ahead_of(p, g) + 1].firsts_before + groups[g].seconds_before;
        }
        if (to == count && from < to) {
            const u32 items = groups[count].firsts_before + groups[count].seconds_before;
            p.plan.first_item[count] = items;
            p.plan.second_item[count] = items;
        }
    }

    // Group g's second items follow the first items of group h, the last that starts less than `lag` rows past g's end.
    OCTET_GPU static i64 last_ahead_of(const Params& p, i64 g) {
        const i64 reach = p.plan.group[g].position + p.plan.group[g].rows + p.lag;
        i64 low = g, high = p.exchange ? p.groups : g;
        while (low < high) {
            const i64 middle = (low + high + 1) / 2;
            if (p.plan.group[middle].position < reach)
                low = middle;
            else
                high = middle - 1;
        }
        return low;
    }

    // The first group whose second items do not come before group h's first ones: its end reaches within `lag` of h.
    OCTET_GPU static i64 seconds_done_before(const Params& p, i64 h) {
        const i64 start = p.plan.group[h].position - p.lag;
        i64 low = 0, high = p.exchange ? h : 0;
        while (low < high) {
            const i64 middle = (low + high) / 2;
            if (p.plan.group[middle].position + p.plan.group[middle].rows > start)
                high = middle;
            else
                low = middle + 1;
        }
        return low;
    }

    // Sums, or maxima, of what the threads before this one give.
    template <class Thread>
    OCTET_GPU static Three before(Thread& t, Shared& s, Three value, bool maximum) {
        const int me = t.thread();
        t.store_shared(&s.scan[0][me], value);
        t.barrier();
        int now = 0;
        for (int step = 1; step < threads; step *= 2) {
            Three mine = t.load_shared(&s.scan[now][me]);
            if (me >= step) {
                const Three other = t.load_shared(&s.scan[now][me - step]);
                OCTET_UNROLL
                for (int i = 0; i < 3; ++i)
                    mine.value[i] = maximum ? (other.value[i] > mine.value[i] ? other.value[i] : mine.value[i])
                                            : mine.value[i] + other.value[i];
            }
            t.store_shared(&s.scan[1 - now][me], mine);
            t.barrier();
            now = 1 - now;
        }
        const Three result = me == 0 ? Three{} : t.load_shared(&s.scan[now][me - 1]);
        t.barrier();
        return result;
    }
};

// The last entry of ascending table[0..count) that is not above `item`; table[0] is not. Equal entries are groups
// without items: the last of them is the one that has some.
template <class Thread>
OCTET_GPU i64 find_item(Thread& t, const u32* table, i64 count, u32 item) {
    i64 low = 0, high = count - 1;
    while (low < high) {
        const i64 middle = (low + high + 1) / 2;
        if (t.load(table + middle) <= item)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

}  // namespace octet::gpu
