// Back from 8 bits: x = value of the code times the inverse of its multiplier.
//
// One element a thread and step; reads follow the quantized layout's places, so that transposed operands are read along
// tokens a cache line at a time. For checking and for paths off the hot one; nothing here is tuned.
#pragma once

#include "gpu/outputs.hpp"
#include "gpu/plan.hpp"

namespace octet::gpu {

struct ScaleIn {
    const float* scale = nullptr;
    const float* inverse = nullptr;
    const u8* mx = nullptr;
    i64 scale_stride[3] = {0, 0, 0};
    i64 inverse_stride[3] = {0, 0, 0};
};

template <class Thread>
OCTET_GPU float inverse_of(Thread& t, const ScaleIn& in, i64 outer, i64 middle, i64 inner) {
    if (in.mx) return E8M0::decode(t.load(in.mx + place(in.scale_stride, outer, middle, inner)));
    if (in.inverse) return t.load(in.inverse + place(in.inverse_stride, outer, middle, inner));
    return 1.0f / t.load(in.scale + place(in.scale_stride, outer, middle, inner));
}

// x[a][b][c] = data[a][b][c] (or data[a][c][b], transposed), for experts a; or, with groups, x[b][c] over tokens.
struct DequantizeParams {
    const u8* data;
    i64 data_stride[3];  // expert, then one step along x's second axis, and along its last
    ScaleIn scale;
    void* x;
    i64 x_stride[2];              // expert, row; the last axis steps by 1
    i64 size[3];                  // of x: experts, rows, columns
    i64 row_block, column_block;  // elements of x that share a scale along its rows' and columns' axis; 0: all of them
    i32 scale_by_column;          // 1: the scale's middle index runs along x's columns, its inner one along rows
    i32 tokens_last;              // grouped: tokens run along x's columns (1) or rows (0)
    i64 groups;                   // 0: no groups
    Plan plan;
};

template <class Out, class Codec>
struct DequantizeKernel {
    using Params = DequantizeParams;
    static constexpr int threads = 256;
    static constexpr int blocks_per_core = 1;
    struct Shared {};

    template <class Thread>
    OCTET_GPU static void run(Thread& t, const Params& p, Shared&) {
        const i64 all = p.size[0] * p.size[1] * p.size[2];
        for (i64 i = static_cast<i64>(t.block()) * threads + t.thread(); i < all;
             i += static_cast<i64>(t.blocks()) * threads) {
            const i64 column = i % p.size[2], row = i / p.size[2] % p.size[1], expert = i / p.size[2] / p.size[1];
            i64 outer = expert, from_row = row, from_column = column;
            if (p.groups) {
                i64& token = p.tokens_last ? from_column : from_row;
                const i64 group = group_of(t, p, token);
                if (group < 0) continue;
                outer = group;
                token += t.load(&p.plan.group[group].padded_begin) - t.load(&p.plan.group[group].begin);
            }
            const i64 down = p.row_block ? from_row / p.row_block : 0,
                      across = p.column_block ? from_column / p.column_block : 0;
            const float inverse = p.scale_by_column ? inverse_of(t, p.scale, outer, across, down)
                                                    : inverse_of(t, p.scale, outer, down, across);
            const u8 code = t.load(p.data + expert * p.data_stride[0] + from_row * p.data_stride[1] +
                                   from_column * p.data_stride[2]);
            const float value = Codec::decode(code) * inverse;
            const i64 to = expert * p.x_stride[0] + row * p.x_stride[1] + column;
            if constexpr (sizeof(Out) == 2)
                t.store(static_cast<u16*>(p.x) + to, BF16::encode(value));
            else
                t.store(static_cast<float*>(p.x) + to, value);
        }
    }

    // The group that owns a token, or -1.
    template <class Thread>
    OCTET_GPU static i64 group_of(Thread& t, const Params& p, i64 token) {
        i64 low = 0, high = p.groups;  // the last group that begins at or before the token; groups is the rest
        while (low < high) {
            const i64 middle = (low + high + 1) / 2;
            if (t.load(&p.plan.group[middle].begin) <= token)
                low = middle;
            else
                high = middle - 1;
        }
        return low < p.groups ? low : -1;
    }
};

}  // namespace octet::gpu
