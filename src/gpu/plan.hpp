// The plan of a grouped kernel: which rows each group has, where they go once padded, and which work items they make.
//
// Offsets are known on the device only, so a small kernel works the plan out there, and clears the counters and maxima
// that the main kernel shares between its blocks. Offsets that decrease or run past the last row are clamped: a bad
// router gives wrong numbers, never a write out of bounds.
//
// Items are numbered so that blocks may take them in order. A group whose tiles exchange maxima is visited in one of two
// ways: `fused` (its tiles wait for each other holding their elements; only for groups of at most `fused_tiles` tiles),
// or `split` (all its tiles are read for their maxima first, then read again and cast, from the L2 cache if the group is
// small enough). Between a split group's two visits the next groups' first items go ahead, up to `lag` rows of them, so
// that nobody waits.
#pragma once

#include "gpu/simt.hpp"

namespace octet::gpu {

using namespace octet::simt;

struct Group {
    i64 begin;         // first row
    i64 padded_begin;  // first column of the transposed data
    i64 position;      // rows of all groups before this one
    i32 rows;
    i32 padded_rows;
    u32 row_tiles;
    u32 fused;         // 1: one visit
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
    const i32* ends;     // [groups], or null: every group has uniform_rows rows of its own matrix
    i64 groups;
    i64 rows;            // of the tensor
    i64 uniform_rows;
    i64 alignment;
    i64 tile_rows;       // 0: no items are wanted, only ranges
    i64 column_tiles;
    i64 fused_tiles;     // 0: every group is split, unless nothing is exchanged
    i64 lag;
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

    struct Shared {
        i64 scan[2][threads];
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

    // Items of a group's first visit (its only one, where it is fused or nothing is exchanged), and of its second.
    // Along columns the two visits of a split group alternate slab by slab, and all count as first.
    OCTET_GPU static u32 first_items(const Params& p, const Group& group) {
        const u32 tiles = group.row_tiles * static_cast<u32>(p.column_tiles);
        return p.exchange == 1 && !group.fused ? 2 * tiles : tiles;
    }
    OCTET_GPU static u32 second_items(const Params& p, const Group& group) {
        return p.exchange == 2 && !group.fused ? group.row_tiles * static_cast<u32>(p.column_tiles) : 0;
    }

private:
    template <class Thread>
    OCTET_GPU static i64 end_of(Thread& t, const Params& p, i64 g) {
        if (!p.ends) return (g + 1) * p.uniform_rows;
        const i64 end = t.load(p.ends + g);
        return end < p.rows ? end : p.rows;
    }

    OCTET_GPU static void count_tiles(const Params& p, Group& group, bool owned) {
        group.row_tiles = 0;
        group.fused = 1;
        if (p.tile_rows == 0 || (!owned && !p.rest)) return;
        const i64 reach = group.padded_rows > group.rows ? group.padded_rows : group.rows;
        i64 tiles = (reach + p.tile_rows - 1) / p.tile_rows;
        if (tiles == 0 && owned && p.exchange) tiles = 1;  // an empty group has scales too
        group.row_tiles = static_cast<u32>(tiles);
        if (p.exchange) group.fused = (p.exchange == 2 ? tiles * p.column_tiles : tiles) <= p.fused_tiles ? 1 : 0;
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
        i64 end = before<true>(t, s, largest), padded = 0, firsts = 0, seconds = 0;
        for (i64 g = from; g < to; ++g) {
            const bool owned = g < p.groups;
            i64 mine = owned ? end_of(t, p, g) : p.ends ? p.rows : end;
            mine = mine > end ? mine : end;
            Group group;
            group.position = end;
            group.begin = p.ends ? end : 0;
            group.rows = static_cast<i32>(mine - end);
            group.padded_begin = 0;
            group.padded_rows = owned ? static_cast<i32>((mine - end + p.alignment - 1) / p.alignment * p.alignment) : 0;
            count_tiles(p, group, owned);
            groups[g] = group;
            end = mine;
            padded += p.ends ? group.padded_rows : 0;
            firsts += first_items(p, group);
            seconds += second_items(p, group);
        }
        padded = before<false>(t, s, padded);
        firsts = before<false>(t, s, firsts);
        seconds = before<false>(t, s, seconds);
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
        i64 low = g, high = p.groups;
        while (low < high) {
            const i64 middle = (low + high + 1) / 2;
            if (p.plan.group[middle].position < reach) low = middle;
            else high = middle - 1;
        }
        return low;
    }

    // The first group whose second items do not come before group h's first ones.
    OCTET_GPU static i64 seconds_done_before(const Params& p, i64 h) {
        i64 low = 0, high = h;
        while (low < high) {
            const i64 middle = (low + high) / 2;
            if (last_ahead_of(p, middle) >= h) high = middle;
            else low = middle + 1;
        }
        return low;
    }

    // The sum, or the maximum, of what the threads before this one give.
    template <bool maximum, class Thread>
    OCTET_GPU static i64 before(Thread& t, Shared& s, i64 value) {
        const int me = t.thread();
        t.store_shared(&s.scan[0][me], value);
        t.barrier();
        int now = 0;
        for (int step = 1; step < threads; step *= 2) {
            i64 mine = t.load_shared(&s.scan[now][me]);
            if (me >= step) {
                const i64 other = t.load_shared(&s.scan[now][me - step]);
                if constexpr (maximum) mine = other > mine ? other : mine;
                else mine += other;
            }
            t.store_shared(&s.scan[1 - now][me], mine);
            t.barrier();
            now = 1 - now;
        }
        const i64 result = me == 0 ? 0 : t.load_shared(&s.scan[now][me - 1]);
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
        if (t.load(table + middle) <= item) low = middle;
        else high = middle - 1;
    }
    return low;
}

}  // namespace octet::gpu
