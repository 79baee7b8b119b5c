// The tiles that a call of the tile kernel goes through: where each is read and written, and whom it shares its maxima
// with. Many threads work them out at once, because a block that casts has no time for it: all blocks make a list of
// them before they begin, or, where tiles are dealt round, each works out the next ones of its own.
#pragma once

#include "gpu/outputs.hpp"
#include "gpu/plan.hpp"

namespace octet::gpu {

struct TileOperand {
    const void* x = nullptr;   // [groups, rows, columns]
    i64 x_stride[2] = {0, 0};  // group, row
    i32 columns = 0;
    u32 column_tiles = 0;
    i32 aligned = 0;                     // every row starts on 16 bytes
    i32 columns_wanted = 0;              // 0: along rows only
    u8* column_data = nullptr;           // [groups, columns, rows]
    i64 column_data_stride[2] = {0, 0};  // group, column
    ScaleOut column_scale;
    i32 column_data_aligned = 0;  // 16 rows of a column are one aligned store
};

// How the groups are laid out, and what is to be made of them.
struct TileParams : PlanParams {  // tiling.column_tiles: of both operands
    TileOperand operand[2];       // the second one is empty but in dual calls
    u8* row_data = nullptr;       // of the first operand: [groups, rows, columns], or null
    i64 row_data_stride[2] = {0, 0};
    i32 row_data_aligned = 1;  // 8 columns of a row are one aligned store
    ScaleOut row_scale;
    ScaleRule rule;
    i64 columns_in_all = 0;  // of both operands
    i32 element_bytes = 2;
    Reuse reuse = Reuse::normal;  // of x
};

enum class Visit : u32 {
    only,    // the tile knows its scales
    fused,   // it waits for the others' maxima
    first,   // of two: it hands in its maxima
    second,  // it waits for them
};

// How a tile is read and written.
enum class Pieces : u32 {
    elements,
    wide,   // 8 or 16 at once
    whole,  // and the tile is whole: there is nothing to check
};

// What is asked of a tile at every step, in one word: a block keeps it in a register, and asks shared memory for little
// else, where each answer would be waited for.
struct TileState {
    u32 bits = 0;  // 0: there is no tile

    static constexpr u32 there = 1, hands_in_bit = 2, columns_bit = 4, top_bit = 8, left_bit = 16, lines_bit = 32,
                         eager_bit = 64;
    static constexpr int visit_shift = 7, pieces_shift = 9;

    OCTET_GPU bool is_there() const { return bits & there; }
    OCTET_GPU bool hands_in() const { return bits & hands_in_bit; }    // maxima
    OCTET_GPU bool has_columns() const { return bits & columns_bit; }  // its columns are wanted
    OCTET_GPU bool is_top() const { return bits & top_bit; }           // its group's first rows
    OCTET_GPU bool is_left() const { return bits & left_bit; }         // the first columns
    OCTET_GPU bool is_eager() const { return bits & eager_bit; }       // of Tiling::eager_from
    OCTET_GPU Visit visit() const { return static_cast<Visit>(bits >> visit_shift & 3u); }
    OCTET_GPU Pieces pieces() const { return static_cast<Pieces>(bits >> pieces_shift & 3u); }
    OCTET_GPU bool is_whole() const { return pieces() == Pieces::whole; }
    // Its columns are written as a whole tile's are, in wide pieces that need no check: tokens, and padding below them.
    OCTET_GPU bool stores_lines() const { return bits & lines_bit; }
};

// What a block needs of a tile.
struct alignas(16) Tile {
    TileState state;
    i32 rows, columns;  // that the tile has
    i32 room;           // rows of the transposed data from the tile's first on, padding included
    const void* x;      // the tile's first element
    i64 x_stride;       // from row to row
    u8* column_data;    // the tile's first element
    i64 column_stride;  // from column to column
    u8* row_data;       // the tile's first element
    i64 group;
    i64 row;            // the tile's first, in its matrix
    i64 padded_row;     // and in the transposed data
    i32 row0, column0;  // of the tile, within the group and its operand
    i32 operand;
    u32 above;         // tiles above each other that hand in maxima
    u32* column_amax;  // of the tile's first column, or null; or the notes of the first of the tiles above each other
    u32* row_amax;     // of its first row, or null; or of the first of those beside each other
    u32* column_counter;  // of tiles above each other whose maxima are in, or null
    u32* row_counter;     // of tiles beside each other, or null
};

static_assert(sizeof(Tile) == 128);

OCTET_GPU i32 at_most(i32 most, i32 value) { return value < most ? value : most; }

// The tile of a group's item.
OCTET_GPU Tile describe(const TileParams& p, u32 group, const Span& span, u32 local) {
    const bool owned = group < p.groups;
    const u32 across = p.tiling.column_tiles, down = p.tiling.row_tiles(span.rows, owned);
    const bool exchanges = p.tiling.exchange != 0, split = p.tiling.split(down, owned);
    const u32 run = p.tiling.run(down), items = p.tiling.items_of_run(down, owned);
    const u32 slab = p.tiling.by_slabs() ? local / items : 0;
    u32 tile = local - slab * items;
    Tile at{};
    Visit visit = !exchanges ? Visit::only : split && tile < items - run ? Visit::first : Visit::fused;
    if (tile >= run) {  // from the last, which the cache may still have
        tile = items - 1 - tile;
        visit = Visit::second;
    }
    const u32 row_tile = p.tiling.by_slabs() ? tile : tile / across,
              column_tile = p.tiling.by_slabs() ? slab : tile - row_tile * across;
    at.operand = column_tile >= p.operand[0].column_tiles;
    const TileOperand& o = p.operand[at.operand];
    at.group = group;
    at.row0 = static_cast<i32>(row_tile) * p.tiling.item_rows();
    at.column0 = static_cast<i32>(column_tile - (at.operand ? p.operand[0].column_tiles : 0)) * p.tiling.tile_columns;
    at.row = (p.ends ? static_cast<i64>(span.position) : 0) + at.row0;
    at.padded_row = (p.ends ? static_cast<i64>(span.padded_begin) : 0) + at.row0;
    at.rows = at_most(p.tiling.item_rows(), span.rows - at.row0);
    at.columns = at_most(p.tiling.tile_columns, o.columns - at.column0);
    at.room = p.tiling.padded(span.rows, owned) - at.row0;
    at.x_stride = o.x_stride[1];
    at.x =
        static_cast<const u8*>(o.x) + (group * o.x_stride[0] + at.row * o.x_stride[1] + at.column0) * p.element_bytes;
    at.column_stride = o.column_data_stride[1];
    at.column_data =
        o.column_data + group * o.column_data_stride[0] + at.column0 * o.column_data_stride[1] + at.padded_row;
    at.row_data = p.row_data + group * p.row_data_stride[0] + at.row * p.row_data_stride[1] + at.column0;
    const bool has_columns = o.columns_wanted && owned;
    const bool wide = at.columns % 8 == 0 && o.aligned && p.row_data_aligned && (!has_columns || o.column_data_aligned);
    const bool whole = at.rows == p.tiling.item_rows() && at.columns == p.tiling.tile_columns;
    const Pieces pieces = !wide ? Pieces::elements : whole ? Pieces::whole : Pieces::wide;
    const bool lines = wide && at.columns == p.tiling.tile_columns && at.room >= p.tiling.item_rows();
    const bool hands_in = exchanges && at.rows > 0 && visit != Visit::second;
    if (exchanges) {
        if (at.rows <= 0 && visit != Visit::first) visit = Visit::only;  // padding alone
        if (owned) {
            at.above = p.tiling.items_down(span.rows);
            at.column_amax =
                p.plan.column_amax + group * p.columns_in_all + (at.operand ? p.operand[0].columns : 0) + at.column0;
            at.column_counter = p.plan.arrived + (group * across + column_tile) * counter_words;
        }
        if (p.plan.note) {
            // Groups share no note, as they share no row_counter.
            at.row_amax = p.plan.note + static_cast<u64>(span.position / tile_rows + group) * across * note_words;
            at.column_amax = at.row_amax + column_tile * note_words;
            at.row_amax += static_cast<u64>(row_tile) * across * note_words;
        } else if (p.tiling.row_scales) {
            at.row_amax = p.plan.row_amax + span.position + at.row0;
            // Groups share no counter if each starts where it would after the rows before it, and one on for each.
            at.row_counter = p.plan.row_arrived + (span.position / tile_rows + group + row_tile) * counter_words;
        }
    }
    at.state.bits =
        TileState::there | (hands_in ? TileState::hands_in_bit : 0) | (has_columns ? TileState::columns_bit : 0) |
        (at.row0 == 0 ? TileState::top_bit : 0) | (at.column0 == 0 ? TileState::left_bit : 0) |
        (lines ? TileState::lines_bit : 0) | (exchanges && run > p.tiling.eager_from ? TileState::eager_bit : 0) |
        static_cast<u32>(visit) << TileState::visit_shift | static_cast<u32>(pieces) << TileState::pieces_shift;
    return at;
}

// The last of `count` groups whose items start at or before `item`.
template <class FirstItem>
OCTET_GPU u32 group_of(u32 item, u32 count, FirstItem first_item) {
    u32 low = 0, high = count - 1;
    while (low < high) {
        const u32 middle = (low + high + 1) / 2;
        if (first_item(middle) <= item)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

// The tile of an item, whose groups' spans span_of tells.
template <class SpanOf>
OCTET_GPU Tile tile_of(const TileParams& p, u32 item, SpanOf span_of) {
    Tile at{};
    if (item < span_of(p.groups + 1).first_item) {
        const u32 group = group_of(item, static_cast<u32>(p.groups) + 1, [&](i64 i) { return span_of(i).first_item; });
        const Span span = span_of(group);
        at = describe(p, group, span, item - span.first_item);
    }
    return at;
}

// A group's span where all have as many rows (weights): nothing needs to be looked up.
OCTET_GPU Span uniform_span(const TileParams& p, i64 group) {
    const i32 rows = static_cast<i32>(p.uniform_rows);
    const u32 number = static_cast<u32>(group < p.groups ? group : p.groups);
    return {number * static_cast<u32>(p.tiling.items(rows, true)), group < p.groups ? rows : 0,
            number * static_cast<u32>(rows), 0};
}
OCTET_GPU Tile uniform_tile_of(const TileParams& p, u32 item) {
    const u32 items = static_cast<u32>(p.tiling.items(static_cast<i32>(p.uniform_rows), true));
    const u32 group = items ? item / items : static_cast<u32>(p.groups);
    return group < p.groups ? describe(p, group, uniform_span(p, group), item - group * items) : Tile{};
}

}  // namespace octet::gpu
