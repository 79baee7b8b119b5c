// Moves bytes without changing them: padded token groups, and the blocked layout of MX scales.
#pragma once

#include "gpu/dequantize.hpp"
#include "gpu/plan.hpp"

namespace octet::gpu {

// Token groups to aligned starts with zero rows between them, or back. Bytes: each row once in, once out.
struct PadParams {
    const u8* from;
    u8* to;
    i64 from_stride, to_stride, row_bytes;  // bytes
    i64 rows;                               // of the padded side (pad) or of the unpadded one (unpad)
    i64 groups;
    i32 wide;          // everything is a multiple of 16 bytes
    i32 back;          // 1: unpad
    i32* padded_ends;  // [groups] or null
    Plan plan;
};

struct PadKernel {
    using Params = PadParams;
    static constexpr int threads = 256;
    static constexpr int blocks_per_core = 1;
    struct Shared {};

    // A unit a row.
    template <class Thread>
    OCTET_GPU static void run(Thread& t, const Params& p, Shared&) {
        const i64 first = (static_cast<i64>(t.block()) * threads + t.thread()) / unit;
        const i64 step = static_cast<i64>(t.blocks()) * threads / unit;
        const int lane = t.thread() % unit;
        if (p.padded_ends)
            for (i64 g = static_cast<i64>(t.block()) * threads + t.thread(); g < p.groups;
                 g += static_cast<i64>(t.blocks()) * threads)
                t.store(p.padded_ends + g,
                        static_cast<i32>(t.load(&p.plan.group[g].padded_begin) + t.load(&p.plan.group[g].padded_rows)));
        for (i64 row = first; row < p.rows; row += step) {
            const i64 group = find(t, p, row);
            const Group* g = p.plan.group + group;
            const i64 local = row - (p.back ? t.load(&g->begin) : t.load(&g->padded_begin));
            if (group == p.groups || (!p.back && local >= t.load(&g->padded_rows))) continue;  // nobody's
            const bool zero = !p.back && local >= t.load(&g->rows);
            const i64 other = local + (p.back ? t.load(&g->padded_begin) : t.load(&g->begin));
            copy_row(t, p, p.from + other * p.from_stride, p.to + row * p.to_stride, lane, zero);
        }
    }

private:
    template <class Thread>
    OCTET_GPU static i64 find(Thread& t, const Params& p, i64 row) {
        i64 low = 0, high = p.groups;
        while (low < high) {
            const i64 middle = (low + high + 1) / 2;
            const Group* g = p.plan.group + middle;
            if ((p.back ? t.load(&g->begin) : t.load(&g->padded_begin)) <= row)
                low = middle;
            else
                high = middle - 1;
        }
        return low;
    }

    template <class Thread>
    OCTET_GPU static void copy_row(Thread& t, const Params& p, const u8* from, u8* to, int lane, bool zero) {
        if (p.wide) {
            for (i64 i = lane * 16; i < p.row_bytes; i += unit * 16)
                t.store16(to + i, zero ? Vec16{} : t.load16(from + i, Reuse::stream));
        } else {
            for (i64 i = lane; i < p.row_bytes; i += unit) t.store(to + i, zero ? u8{0} : t.load(from + i));
        }
    }
};

// scale[E, R, C] <-> 128 x 4 tiles of 512 bytes. Grouped: rows go to 128-aligned starts.
struct SwizzleParams {
    const u8* from;
    u8* to;
    i64 scale_stride[3];         // expert, row, column
    i64 experts, rows, columns;  // of the scales
    i64 blocked_rows;            // of one expert's blocked part, a multiple of 128
    i64 groups;                  // 0: no groups
    i32 back;                    // 1: blocked to scales
    Plan plan;
};

struct SwizzleKernel {
    using Params = SwizzleParams;
    static constexpr int threads = 256;
    static constexpr int blocks_per_core = 1;
    struct Shared {};

    template <class Thread>
    OCTET_GPU static void run(Thread& t, const Params& p, Shared&) {
        const i64 across = (p.columns + 3) / 4, size = p.blocked_rows * across * 4;
        const i64 every = static_cast<i64>(t.blocks()) * threads;
        for (i64 i = static_cast<i64>(t.block()) * threads + t.thread(); i < size * p.experts; i += every) {
            const i64 expert = i / size, tile = i % size / 512, byte = i % 512;
            i64 row = tile / across * 128 + byte / 4 % 4 * 32 + byte / 16;
            const i64 column = tile % across * 4 + byte % 4;
            bool real = column < p.columns;
            if (p.groups) {
                const i64 group = group_of(t, p, row);
                const i64 local = row - t.load(&p.plan.group[group].padded_begin);
                real = real && group < p.groups && local < t.load(&p.plan.group[group].rows);
                row = local + t.load(&p.plan.group[group].begin);
            } else {
                real = real && row < p.rows;
            }
            const i64 place = expert * p.scale_stride[0] + row * p.scale_stride[1] + column * p.scale_stride[2];
            if (!p.back)
                t.store(p.to + i, real ? t.load(p.from + place) : u8{0});
            else if (real)
                t.store(p.to + place, t.load(p.from + i));
        }
    }

private:
    // The last group whose padded rows begin at or before this one.
    template <class Thread>
    OCTET_GPU static i64 group_of(Thread& t, const Params& p, i64 row) {
        i64 low = 0, high = p.groups;
        while (low < high) {
            const i64 middle = (low + high + 1) / 2;
            if (t.load(&p.plan.group[middle].padded_begin) <= row)
                low = middle;
            else
                high = middle - 1;
        }
        return low;
    }
};

}  // namespace octet::gpu
