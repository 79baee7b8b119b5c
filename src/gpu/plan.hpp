// The plan of a grouped kernel: which rows each group has, where they go once padded, and which work items they make.
//
// Offsets are known on the device only, so a small kernel works the plan out there, and clears the counters and maxima
// that the main kernel shares between its blocks. Offsets that decrease or run past the last row are clamped: a bad
// router gives wrong numbers, never a write out of bounds.
//
// Items are numbered. Blocks take them in order as they come by, or, where tiles wait for each other, block b of n
// takes items b, b + n, ... Where a scale is a group's column's, the tiles of a group's column tile (a slab) are
// neighbours:
//   - fused: no more of them than there are blocks, so that all are in hand at once. They are read once, and held until
//     all of them have handed in their maxima. Whoever holds the lowest item waits for nobody but blocks that hold
//     higher items of the same slab, and these have nothing lower left to do: nobody waits for ever.
//   - split: a larger slab is visited twice. First items read a tile for its maxima, second items read it again, from
//     the cache where it is still there, and cast it. `lead` slabs of first items come before the second items of the
//     first of them, so that nobody waits long; they have lower numbers, so nobody waits for ever.
#pragma once

#include "gpu/simt.hpp"

namespace octet::gpu {

using namespace octet::simt;

enum class GroupOrder : u32 {
    once,  // nothing is exchanged: tiles are cast as they are read
    fused,
    split,
};

struct Group {
    i64 begin;         // first row
    i64 padded_begin;  // first column of the transposed data
    i64 position;      // rows of all groups before this one
    i32 rows;
    i32 padded_rows;
    u32 row_tiles;  // padding included
    u32 order;      // GroupOrder
};

struct Plan {
    Group* group;       // [groups + 1]; the last one holds the rows that nobody owns
    u32* first_item;    // [groups + 2], ascending; the last one is the number of items
    u32* ticket;        // items taken, past the first one of every block
    u32* arrived;       // [slabs] tiles whose maxima are in
    u32* column_amax;   // [groups, columns] f32 bits
    Vec16* tile_peaks;  // [row tiles, column tiles, 128 columns] what fused tiles hand in
};

struct PlanParams {
    const i32* ends;  // [groups], or null: every group has uniform_rows rows of its own matrix
    i64 groups;
    i64 rows;  // of the tensor
    i64 uniform_rows;
    i64 alignment;
    i32 tile_rows;  // 0: no items are wanted, only ranges
    u32 column_tiles;
    u32 fused_tiles;                        // a slab of more is split
    i32 exchange;                           // 1: scales are a group's column's, and tiles exchange maxima for them
    i32 empty_groups;                       // 1: a group without rows has an item too, for its scales
    i32 rest;                               // 1: rows past the last group make items too
    i64 slabs, column_words, peak_vectors;  // to clear
    Plan plan;
};

struct PlanKernel {
    static constexpr int threads = 256;
    static constexpr int units = threads / unit;
    static constexpr int blocks_per_core = 1;
    using Params = PlanParams;

    struct Sums {
        u64 padded_rows, items;
    };
    struct Shared {
        u32 largest[units];
        Sums sums[units];
    };

    template <class Thread>
    OCTET_GPU static void run(Thread& t, const Params& p, Shared& s) {
        t.admit_later();
        if (t.block() == 0) ranges_and_items(t, p, s);
        const i64 every = static_cast<i64>(t.blocks()) * threads;
        const i64 me = static_cast<i64>(t.block()) * threads + t.thread();
        OCTET_ROLLED
        for (i64 i = me; i < p.peak_vectors; i += every) t.store(p.plan.tile_peaks + i, Vec16{{0, 0, 0, 0}});
        OCTET_ROLLED
        for (i64 i = me; i < p.column_words; i += every) t.store(p.plan.column_amax + i, 0u);
        if (me == 0) t.store(p.plan.ticket, 0u);
        OCTET_ROLLED
        for (i64 i = me; i < p.slabs; i += every) t.store(p.plan.arrived + i, 0u);
    }

private:
    // Each thread owns a run of neighbouring groups; scans over the threads join the runs.
    template <class Thread>
    OCTET_GPU static void ranges_and_items(Thread& t, const Params& p, Shared& s) {
        const i64 count = p.groups + 1, run = (count + threads - 1) / threads;
        const i64 from = t.thread() * run < count ? t.thread() * run : count;
        const i64 to = from + run < count ? from + run : count;

        i64 begin = from * p.uniform_rows;
        if (p.ends) {
            u32 largest = 0;
            OCTET_ROLLED
            for (i64 g = from; g < to && g < p.groups; ++g) largest = larger(largest, end_of(t, p, g));
            begin = largest_before(t, s, largest);
        }
        i64 end = begin;
        Sums sums{0, 0};
        OCTET_ROLLED
        for (i64 g = from; g < to; ++g) {
            const Group group = describe(t, p, g, end);
            end += group.rows;
            sums.padded_rows += static_cast<u64>(group.padded_rows);
            sums.items += items_of(p, group);
        }
        sums = sums_before(t, s, sums);
        end = begin;
        OCTET_ROLLED
        for (i64 g = from; g < to; ++g) {
            Group group = describe(t, p, g, end);
            end += group.rows;
            if (p.ends) group.padded_begin = static_cast<i64>(sums.padded_rows);
            sums.padded_rows += static_cast<u64>(group.padded_rows);
            p.plan.group[g] = group;
            if (p.tile_rows == 0) continue;
            t.store(p.plan.first_item + g, static_cast<u32>(sums.items));
            sums.items += items_of(p, group);
            if (g == p.groups) t.store(p.plan.first_item + count, static_cast<u32>(sums.items));
        }
    }

    OCTET_GPU static u32 larger(u32 a, u32 b) { return a > b ? a : b; }

    template <class Thread>
    OCTET_GPU static u32 end_of(Thread& t, const Params& p, i64 g) {
        const i64 end = t.load(p.ends + g);
        return static_cast<u32>(end < 0 ? 0 : end < p.rows ? end : p.rows);
    }

    // Group g, whose rows follow the first `before` ones.
    template <class Thread>
    OCTET_GPU static Group describe(Thread& t, const Params& p, i64 g, i64 before) {
        const bool owned = g < p.groups;
        const i64 end = p.ends ? (owned ? end_of(t, p, g) : p.rows) : before + (owned ? p.uniform_rows : 0);
        Group group;
        group.begin = p.ends ? before : 0;
        group.padded_begin = 0;
        group.position = before;
        group.rows = end > before ? static_cast<i32>(end - before) : 0;
        const u32 alignment = static_cast<u32>(p.alignment);
        group.padded_rows =
            owned ? static_cast<i32>((static_cast<u32>(group.rows) + alignment - 1) / alignment * alignment) : 0;
        group.row_tiles = 0;
        group.order = static_cast<u32>(GroupOrder::once);
        if (p.tile_rows == 0 || (!owned && !p.rest)) return group;
        const i32 reach = group.padded_rows > group.rows ? group.padded_rows : group.rows;
        group.row_tiles = static_cast<u32>((reach + p.tile_rows - 1) / p.tile_rows);
        if (owned && p.empty_groups && group.row_tiles == 0) group.row_tiles = 1;
        if (p.exchange && group.rows > p.tile_rows)
            group.order = static_cast<u32>(group.row_tiles <= p.fused_tiles ? GroupOrder::fused : GroupOrder::split);
        return group;
    }

    OCTET_GPU static u64 items_of(const Params& p, const Group& group) {
        const bool twice = static_cast<GroupOrder>(group.order) == GroupOrder::split;
        return static_cast<u64>(group.row_tiles) * p.column_tiles * (twice ? 2 : 1);
    }

    // The largest of what the threads before this one give.
    template <class Thread>
    OCTET_GPU static u32 largest_before(Thread& t, Shared& s, u32 value) {
        u32 before = 0;
        OCTET_ROLLED
        for (int mask = 1; mask < unit; mask *= 2) {
            const u32 other = t.shuffle_xor(value, mask);
            if (t.thread() & mask) before = larger(before, other);
            value = larger(value, other);
        }
        if (t.thread() % unit == 0) t.store_shared(&s.largest[t.thread() / unit], value);
        t.barrier();
        OCTET_ROLLED
        for (int u = 0; u < t.thread() / unit; ++u) before = larger(before, t.load_shared(&s.largest[u]));
        return before;
    }

    // The sums of what the threads before this one give.
    template <class Thread>
    OCTET_GPU static Sums sums_before(Thread& t, Shared& s, Sums value) {
        Sums before{0, 0};
        OCTET_ROLLED
        for (int mask = 1; mask < unit; mask *= 2) {
            const Sums other{shuffle_u64(t, value.padded_rows, mask), shuffle_u64(t, value.items, mask)};
            if (t.thread() & mask) add(before, other);
            add(value, other);
        }
        if (t.thread() % unit == 0) t.store_shared(&s.sums[t.thread() / unit], value);
        t.barrier();
        OCTET_ROLLED
        for (int u = 0; u < t.thread() / unit; ++u) add(before, t.load_shared(&s.sums[u]));
        return before;
    }

    OCTET_GPU static void add(Sums& to, const Sums& other) {
        to.padded_rows += other.padded_rows;
        to.items += other.items;
    }
    template <class Thread>
    OCTET_GPU static u64 shuffle_u64(Thread& t, u64 value, int mask) {
        const u32 low = t.shuffle_xor(static_cast<u32>(value), mask);
        const u32 high = t.shuffle_xor(static_cast<u32>(value >> 32), mask);
        return static_cast<u64>(high) << 32 | low;
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
