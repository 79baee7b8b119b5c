// The plan of a grouped kernel: which rows each group has, where they go once padded, and which work items they make.
//
// Offsets are known on the device only, so the plan is worked out there: by a small kernel, which also clears the
// counters and maxima (or notes) that the main kernel shares between its blocks, or by every block for itself
// (tiles.hpp). Offsets that decrease or run past the last row are clamped: a bad router gives wrong numbers, never a
// write out of bounds.
//
// Items are numbered. Blocks take them in order as they come by, or, where tiles wait for each other's maxima, block b
// of n takes items b, b + n, ... The tiles that share maxima are then neighbours: those of a group's column tile (a
// slab), or, where rows have a scale each too, all of the group's.
//   - fused: no more of them than all blocks have in hand at once. They are read once, and held until all of them have
//     handed in their maxima. A tile is in hand before the block's tiles of earlier such neighbours are waited for, so
//     nobody waits for ever.
//   - split: of more of them the last ones are held likewise, and those before them are visited twice. First items read
//     a tile for its maxima; second items, which come after the ones that are held, read it again and cast it.
#pragma once

#include "gpu/simt.hpp"

namespace octet::gpu {

using namespace octet::simt;

struct Group {
    i64 begin;         // first row
    i64 padded_begin;  // first column of the transposed data
    i32 rows;
    i32 padded_rows;
};

// A group as the tile kernel looks it up, in as little shared memory as it takes.
struct Span {
    u32 first_item;
    i32 rows;
    u32 position;  // rows of all groups before this one
    u32 padded_begin;
};

inline constexpr int tile_rows = 128;

// How groups make items.
struct Tiling {
    i32 tiles;  // 0: no items are wanted, only ranges
    u32 column_tiles;
    i32 tile_columns;
    u32 alignment;
    u32 fused_tiles;   // so many that share maxima are held; more are split
    u32 eager_from;    // of more than so many a block hands in one more before it waits (tiles.hpp)
    i32 exchange;      // 1: scales are a group's column's, and tiles exchange maxima for them
    i32 row_scales;    // 1: and a row's
    i32 empty_groups;  // 1: a group without rows has an item too, for its scales
    i32 rest;          // 1: rows past the last group make items too
    i32 least_rows;    // groups with fewer rows make no items
    i32 doublings;     // an item has tile_rows rows, so many times doubled

    OCTET_GPU i32 item_rows() const { return tile_rows << doublings; }
    OCTET_GPU u32 items_down(i32 rows) const {
        return (static_cast<u32>(rows) + static_cast<u32>(item_rows()) - 1) / tile_rows >> doublings;
    }
    // owned: they are a group's, and not those past the last one.
    OCTET_GPU i32 padded(i32 rows, bool owned) const {
        if (!owned) return 0;
        const u32 reach = static_cast<u32>(rows) + alignment - 1;
        return static_cast<i32>((alignment & (alignment - 1)) == 0 ? reach & ~(alignment - 1)
                                                                   : reach / alignment * alignment);
    }
    OCTET_GPU u32 row_tiles(i32 rows, bool owned) const {  // padding included
        if (!tiles || (!owned && !rest) || (owned && rows < least_rows)) return 0;
        const i32 with_padding = padded(rows, owned), reach = with_padding > rows ? with_padding : rows;
        const u32 down = items_down(reach);
        return owned && empty_groups && down == 0 ? 1 : down;
    }
    // Tiles are numbered slab by slab, where slabs alone share maxima, else row by row: so many without a break.
    OCTET_GPU bool by_slabs() const { return exchange && !row_scales; }
    OCTET_GPU u32 run(u32 down) const { return by_slabs() ? down : down * column_tiles; }
    // Rows that nobody owns have no columns to share.
    OCTET_GPU bool split(u32 down, bool owned) const {
        return exchange && (owned || down == 0 ? run(down) : column_tiles) > fused_tiles;
    }
    OCTET_GPU u32 items_of_run(u32 down, bool owned) const {
        return split(down, owned) ? 2 * run(down) - fused_tiles : run(down);
    }
    OCTET_GPU u64 items(i32 rows, bool owned) const {
        return static_cast<u64>(items_of_run(row_tiles(rows, owned), owned)) * (by_slabs() ? column_tiles : 1);
    }
};

struct Tile;  // tile_list.hpp

// Words from one counter to the next. Those that are in use at a time are neighbours, and all blocks add to them and
// look at them: next to each other, where L2 seems to answer for one after the other, casts take up to 3% longer than
// 32 bytes apart.
inline constexpr u32 counter_words = 8;

// A tile's note (noted_tiles.hpp): 128 columns and 128 rows, a byte each.
inline constexpr u32 note_words = 64;
inline constexpr u32 note_readers = 16;  // threads that read notes of the same columns or rows
inline constexpr i64 widest_noted = note_readers * i64{tile_rows};  // columns: a tile of a row each
// Tokens in all. Only the average is known of groups, and a tile of a long one reads as many notes as are above each
// other.
inline constexpr i64 most_noted = 32768;

struct Plan {
    Group* group;      // [groups + 1]; the last one holds the rows that nobody owns. Without items
    Span* span;        // [groups + 2] likewise, and one past the end. With items, where groups are many
    Tile* tile;        // [items]
    u32* ticket;       // items taken, past the first ones of every block; or [WorkspaceSize::tickets], of parts of all
    u32* arrived;      // [slabs, counter_words] tiles above each other whose maxima are in
    u32* row_arrived;  // [row tiles, counter_words] tiles beside each other whose maxima are in
    u32* column_amax;  // [groups, columns] f32 bits
    u32* row_amax;     // [rows] likewise
    u16* peaks;        // [groups, columns] code_of_peak, instead of column_amax: rows_and_peaks.hpp
    u32* done;         // [WorkspaceSize::tickets, counter_words] blocks that are done with a part of the rows
    u32* note;         // [row tiles, column tiles, note_words], where tiles exchange maxima by notes; else null
    u8* row_power;     // [rows], see rows_and_peaks.hpp
};

struct PlanParams {
    const i32* ends;  // [groups], or null: every group has uniform_rows rows of its own matrix
    i64 groups;
    i64 rows;  // of the tensor
    i64 uniform_rows;
    Tiling tiling;
    i64 cleared;  // 16-byte pieces, from the ticket on
    Plan plan;
};

OCTET_GPU u32 larger(u32 a, u32 b) { return a > b ? a : b; }

// Where group g ends, if no group before it ends later.
template <class Thread>
OCTET_GPU u32 end_of(Thread& t, const PlanParams& p, i64 g) {
    const i64 end = t.load(p.ends + g);
    return static_cast<u32>(end < 0 ? 0 : end < p.rows ? end : p.rows);
}

// One group's span, without first_item, where offsets decrease or run too far.
template <class Thread>
OCTET_GPU_RARE Span find_odd_span(Thread& t, const PlanParams& p, u32 group) {
    Span span{0, 0, 0, 0};
    u32 end = 0;
    for (u32 g = 0; g <= group; ++g) {
        const u32 from = end;
        end = larger(from, end_of(t, p, g));
        if (g < group) span.padded_begin += static_cast<u32>(p.tiling.padded(static_cast<i32>(end - from), true));
        span.position = from;
        span.rows = static_cast<i32>(end - from);
    }
    return span;
}

// What a block asks for before anything else, in one round trip: its group's two offsets, and those of the group that
// the thread adds up.
struct AskedSpan {
    i32 begin, end;  // of the block's group
    i32 from, to;    // of the thread's, before it; or 0, 0
    // Whether the group is where it seems to be, unless an offset before it is out of order.
    OCTET_GPU bool likely(i64 rows) const { return 0 <= begin && begin <= end && end <= rows; }
};
template <class Thread>
OCTET_GPU AskedSpan ask_span(Thread& t, const PlanParams& p, u32 group) {
    const u32 mine = static_cast<u32>(t.thread());
    AskedSpan a{};
    if (group > 0) a.begin = t.load(p.ends + group - 1);
    a.end = t.load(p.ends + group);
    if (mine < group && mine > 0) a.from = t.load(p.ends + mine - 1);
    if (mine < group) a.to = t.load(p.ends + mine);
    return a;
}

// The group's span, whatever the offsets are, by all threads of a block. sums: one a unit, in shared memory.
template <int threads, class Thread>
OCTET_GPU Span place_span(Thread& t, const PlanParams& p, u32 group, const AskedSpan& asked,
                          u32 (&sums)[static_cast<u32>(threads / unit)]) {
    constexpr u32 odd = 1u << 31;  // beside the sum, which stays below
    const auto add = [](u32 a, u32 b) { return (a + b) | ((a | b) & odd); };
    const auto padded_rows = [&](i32 from, i32 to) {
        return from < 0 || from > to ? odd : static_cast<u32>(p.tiling.padded(to - from, true));
    };
    u32 padded = add(padded_rows(asked.from, asked.to), asked.likely(p.rows) ? 0 : odd);
    for (u32 g = static_cast<u32>(t.thread()) + threads; g < group; g += threads)
        padded = add(padded, padded_rows(t.load(p.ends + g - 1), t.load(p.ends + g)));
    OCTET_UNROLL
    for (int mask = 1; mask < unit; mask *= 2) padded = add(padded, t.shuffle_xor(padded, mask));
    if (t.thread() % unit == 0) t.store_shared(&sums[t.thread() / unit], padded);
    t.barrier();
    padded = 0;
    OCTET_UNROLL
    for (int u = 0; u < threads / unit; ++u) padded = add(padded, t.load_shared(&sums[u]));
    if (padded & odd) return find_odd_span(t, p, group);
    return {0, asked.end - asked.begin, static_cast<u32>(asked.begin), padded};
}

// Asks for a matrix's first lines, a line a thread, `number` counting blocks' shares: before anything is known of the
// groups, since reading the offsets first, or waiting for a plan, costs round trips to memory more.
template <int threads, class In, class Thread>
OCTET_GPU void ask_ahead(Thread& t, const void* x, i64 stride, i64 rows, i64 columns, u32 number) {
    constexpr u32 line = 128 / sizeof(typename In::Element);
    const u32 lines = (static_cast<u32>(columns) + line - 1) / line;
    const u32 mine = number * threads + static_cast<u32>(t.thread());
    if (lines != 0 && mine / lines < rows)
        t.prefetch(static_cast<const typename In::Element*>(x) + mine / lines * stride + mine % lines * line);
}

struct PlanKernel {
    static constexpr int threads = 256;
    static constexpr int units = threads / unit;
    static constexpr int blocks_per_core = 1;
    using Params = PlanParams;

    struct Sums {
        u32 padded_rows, items;
    };
    struct Shared {
        u32 largest[units];
        Sums sums[units];
    };

    template <class Thread>
    OCTET_GPU static void run(Thread& t, const Params& p, Shared& s) {
        t.admit_later();
        if (t.block() == 0) {
            if (p.tiling.tiles)
                for_spans<threads>(t, p, s, [&](i64 i, const Span& span) { p.plan.span[i] = span; });
            else
                for_spans<threads>(t, p, s, [&](i64 i, const Span& span) {
                    if (i > p.groups) return;
                    p.plan.group[i] = {static_cast<i64>(span.position), static_cast<i64>(span.padded_begin), span.rows,
                                       p.tiling.padded(span.rows, i < p.groups)};
                });
        }
        clear<threads>(t, p);
    }

    template <int of_block, class Thread>
    OCTET_GPU static void clear(Thread& t, const Params& p) {
        const i64 every = static_cast<i64>(t.blocks()) * of_block;
        auto* cleared = reinterpret_cast<Vec16*>(p.plan.ticket);
        OCTET_ROLLED
        for (i64 i = static_cast<i64>(t.block()) * of_block + t.thread(); i < p.cleared; i += every)
            t.store(cleared + i, Vec16{{0, 0, 0, 0}});
    }

    // Gives every group's span to `put`, the one of rows that nobody owns, and one past the end. Each thread owns a run
    // of neighbouring groups; scans over the threads join the runs.
    template <int of_block, class Thread, class Put>
    OCTET_GPU static void for_spans(Thread& t, const Params& p, Shared& s, Put put) {
        const i64 count = p.groups + 1, run = (count + of_block - 1) / of_block;
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
            const i32 rows = rows_of(t, p, g, end);
            end += rows;
            add(sums, sums_of(p, rows, g < p.groups));
        }
        sums = sums_before(t, s, sums);
        end = begin;
        OCTET_ROLLED
        for (i64 g = from; g < to; ++g) {
            const i32 rows = rows_of(t, p, g, end);
            put(g, Span{sums.items, rows, static_cast<u32>(end), sums.padded_rows});
            end += rows;
            add(sums, sums_of(p, rows, g < p.groups));
            if (g == p.groups) put(count, Span{sums.items, 0, 0, 0});
        }
    }

    // The same where there is a thread for each and one more, and groups have offsets. These are mostly in order, and
    // then it takes one round trip to memory and one barrier.
    template <int of_block, class Thread, class Put>
    OCTET_GPU static void for_few_spans(Thread& t, const Params& p, Shared& s, Put put) {
        constexpr u32 odd = 1u << 31;  // beside the sum of padded rows, which stays below
        const auto add = [](Sums& to, const Sums& other) {
            to.padded_rows = (to.padded_rows + other.padded_rows) | ((to.padded_rows | other.padded_rows) & odd);
            to.items += other.items;
        };
        const u32 groups = static_cast<u32>(p.groups), me = static_cast<u32>(t.thread());
        i32 begin = 0, end = static_cast<i32>(p.rows);
        if (me - 1 < groups) begin = t.load(p.ends + (me - 1));
        if (me < groups) end = t.load(p.ends + me);
        Sums mine{0, 0}, before{0, 0};
        if (begin < 0 || begin > end || end > p.rows)
            mine.padded_rows = odd;
        else if (me <= groups)
            mine = sums_of(p, end - begin, me < groups);
        Sums value = mine;
        OCTET_UNROLL
        for (int mask = 1; mask < unit; mask *= 2) {
            const Sums other{t.shuffle_xor(value.padded_rows, mask), t.shuffle_xor(value.items, mask)};
            if (t.thread() & mask) add(before, other);
            add(value, other);
        }
        if (t.thread() % unit == 0) t.store_shared(&s.sums[t.thread() / unit], value);
        t.barrier();
        Sums all{0, 0};
        OCTET_UNROLL
        for (int u = 0; u < of_block / unit; ++u) {
            const Sums other = t.load_shared(&s.sums[u]);
            if (u < t.thread() / unit) add(before, other);
            add(all, other);
        }
        if (all.padded_rows & odd) return for_odd_spans<of_block>(t, p, s, put);
        if (me > groups) return;
        put(i64{me}, Span{before.items, end - begin, static_cast<u32>(begin), before.padded_rows});
        if (me == groups) put(i64{me} + 1, Span{all.items, 0, 0, 0});
    }

private:
    template <int of_block, class Thread, class Put>
    OCTET_GPU_RARE static void for_odd_spans(Thread& t, const Params& p, Shared& s, Put put) {
        for_spans<of_block>(t, p, s, put);
    }

    // Of group g, which follow the first `before` ones.
    template <class Thread>
    OCTET_GPU static i32 rows_of(Thread& t, const Params& p, i64 g, i64 before) {
        const bool owned = g < p.groups;
        const i64 end = p.ends ? (owned ? end_of(t, p, g) : p.rows) : before + (owned ? p.uniform_rows : 0);
        return end > before ? static_cast<i32>(end - before) : 0;
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
            const Sums other{t.shuffle_xor(value.padded_rows, mask), t.shuffle_xor(value.items, mask)};
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
    OCTET_GPU static Sums sums_of(const Params& p, i32 rows, bool owned) {
        return {static_cast<u32>(p.tiling.padded(rows, owned)), static_cast<u32>(p.tiling.items(rows, owned))};
    }
};

// Orders groups for blocks that do not all begin at once: those that begin last should have little to do. plan.span[i]
// is the group that i others with more rows come before, of those from the first on, and first_item says which it is.
struct RankParams : PlanParams {
    i64 first;
};
struct RankKernel {
    static constexpr int threads = 256;
    static constexpr int blocks_per_core = 1;
    static constexpr i64 most_groups = 512;
    using Params = RankParams;

    struct Shared {
        PlanKernel::Shared plan;
        alignas(16) Span span[most_groups];
    };

    template <class Thread>
    OCTET_GPU static void run(Thread& t, const Params& p, Shared& s) {
        t.admit_later();
        PlanKernel::for_spans<threads>(t, p, s.plan, [&](i64 g, const Span& span) {
            if (g < p.groups) t.store_shared(&s.span[g], span);
        });
        t.barrier();
        for (i64 g = p.first + t.thread(); g < p.groups; g += threads) {
            Span mine = t.load_shared(&s.span[g]);
            u32 before = 0;
            for (i64 other = p.first; other < p.groups; ++other) {
                const i32 rows = t.load_shared(&s.span[other].rows);
                before += rows > mine.rows || (rows == mine.rows && other < g);
            }
            mine.first_item = static_cast<u32>(g);
            t.store(p.plan.span + before, mine);
        }
    }
};

}  // namespace octet::gpu
