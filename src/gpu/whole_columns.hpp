// Quantizes the columns of a small tensor, x[M, K] -> data[K, P], with one scale a column and group; and x along its
// rows beside it, where that is asked for.
//
// Bytes: x once, data once; along rows x once more, from the cache. Bound by latency: a kernel that looks its group up
// first waits for memory twice. So a block takes few columns of all groups, and sends for them before anything is known
// of these, which every unit works out for itself while they come. What is to be written of a column is cut into chunks
// of 16 tokens, each of one group, and a list of them says where their rows are: threads share chunks evenly, whatever
// the groups are. Between the launch and the last store there are one trip to memory and two barriers: rows and list
// are there; maxima are there.
#pragma once

#include "gpu/eight.hpp"
#include "gpu/outputs.hpp"
#include "gpu/rows.hpp"
#include "gpu/tile_list.hpp"

namespace octet::gpu {

struct WholeColumnsParams : TileParams {  // operand[].column_tiles: strips; tiling.column_tiles of both,
    RowsParams along_rows{};              // whose blocks come first, and then those of rows
};

template <class Codec_, bool with_rows>
struct WholeColumnsKernel {
    using In = Bf16In;
    using Codec = Codec_;
    using Params = WholeColumnsParams;
    static constexpr int columns = 16;  // of a block; a unit takes eight of them
    static constexpr int across = columns / 8;
    static constexpr int threads = 512;
    static constexpr int units = threads / unit;
    static constexpr int blocks_per_core = 2;
    static constexpr u32 most_rows = 1024, most_groups = 2 * unit;
    static constexpr u32 tokens = 16;         // of a chunk
    static constexpr i64 most_padded = 9216;  // tokens: as many groups that are padded to 128 each
    static constexpr u32 four = 4;            // chunks that are taken together
    static constexpr u32 most_chunks = most_padded / tokens;
    static constexpr int row_vectors = 2;  // that a thread reads along rows, so that there are many blocks of few rows
    using Rows = RowsKernel<In, Codec, Scaling::rowwise, 2 * row_vectors, threads>;
    static_assert(across == 2 || across == 4);

    // 16 tokens of the transposed data: which rows of x they are, and whose.
    struct Chunk {
        u32 bits;

        OCTET_GPU static Chunk of(u32 row, u32 real, u32 group) { return {row | real << 11 | group << 16}; }
        OCTET_GPU u32 row() const { return bits & 0x7FFu; }        // the first one
        OCTET_GPU u32 real() const { return bits >> 11 & 0x1Fu; }  // tokens; the others are padding
        OCTET_GPU u32 group() const { return bits >> 16; }
    };
    struct Shared {
        Vec16 x[most_rows * across];  // place_of
        Vec16 none;                   // a row of zeros
        Chunk chunk[most_chunks + four - 1];
        u32 peak[most_groups][static_cast<u32>(columns)];  // f32 bits
        typename Rows::Shared rows;
    };

    template <class Thread>
    OCTET_GPU static void run(Thread& t, const Params& p, Shared& s) {
        if constexpr (with_rows)
            if (t.block() >= p.tiling.column_tiles)
                return Rows::cast(t, p.along_rows, s.rows, t.block() - p.tiling.column_tiles);
        const Asked asked = ask(t, p);
        const u32 first_ones = p.operand[0].column_tiles;
        const bool second = t.block() >= first_ones;
        const TileOperand& o = p.operand[second];
        const i32 column0 = static_cast<i32>(t.block() - (second ? first_ones : 0)) * columns;
        fetch(t, p, s, o, column0);
        const u32 chunks = list_chunks(t, p, s, asked);
        t.template await_copies<0>();
        t.barrier();
        cast(t, p, s, o, column0, chunks);
    }

private:
    // ---- groups

    // The offsets of two groups, `unit` apart, in each lane: the first thing that is asked for, since memory answers in
    // order.
    struct Asked {
        i32 begin[2], end[2];
    };
    template <class Thread>
    OCTET_GPU static Asked ask(Thread& t, const Params& p) {
        Asked a{};
        OCTET_UNROLL
        for (int i = 0; i < 2; ++i) {
            const i32 g = t.thread() % unit + i * unit;
            if (g >= p.groups) continue;
            if (g > 0) a.begin[i] = t.load(p.ends + g - 1);
            a.end[i] = t.load(p.ends + g);
        }
        return a;
    }

    // Lists the chunks, and returns how many there are. Every unit finds all groups, and lists some of them.
    template <class Thread>
    OCTET_GPU static u32 list_chunks(Thread& t, const Params& p, Shared& s, const Asked& asked) {
        constexpr u32 odd = 1u << 31;  // beside the sum of padded rows, which stays below
        const auto add = [](u32& to, u32 other) { to = (to + other) | ((to | other) & odd); };
        const u32 me = static_cast<u32>(t.thread()), lane = me % unit, groups = static_cast<u32>(p.groups);
        u32 range[2], before[2] = {0, 0}, sum[2];  // range: the first row, and rows
        OCTET_UNROLL
        for (int i = 0; i < 2; ++i) {
            const i32 begin = asked.begin[i], end = asked.end[i];
            const bool in_order = 0 <= begin && begin <= end && end <= p.rows;
            range[i] = range_of(static_cast<u32>(begin), static_cast<u32>(end - begin));
            sum[i] = in_order ? static_cast<u32>(p.tiling.padded(end - begin, true)) : odd;
        }
        OCTET_UNROLL
        for (u32 mask = 1; mask < unit; mask *= 2) OCTET_UNROLL
        for (int i = 0; i < 2; ++i) {
            const u32 other = t.shuffle_xor(sum[i], static_cast<int>(mask));
            if (lane & mask) add(before[i], other);
            add(sum[i], other);
        }
        add(before[1], sum[0]);
        add(sum[1], sum[0]);
        u32 all = sum[1];
        if (all & odd) {
            OCTET_UNROLL
            for (u32 i = 0; i < 2; ++i) {
                const u32 g = lane + i * unit;
                const Span span = find_odd_span(t, p, g < groups ? g : groups - 1);
                range[i] = range_of(span.position, static_cast<u32>(span.rows));
                before[i] = span.padded_begin;
            }
            const Span last = find_odd_span(t, p, groups - 1);
            all = last.padded_begin + static_cast<u32>(p.tiling.padded(last.rows, true));
        }
        OCTET_ROLLED
        for (u32 g = me / unit; g < groups; g += units) {
            const int from = static_cast<int>(g % unit);
            const u32 found = t.shuffle(g < unit ? range[0] : range[1], from);
            const u32 to = t.shuffle(g < unit ? before[0] : before[1], from) / tokens;
            const u32 row = found & 0xFFFFu, rows = found >> 16;
            const u32 count = static_cast<u32>(p.tiling.padded(static_cast<i32>(rows), true)) / tokens;
            OCTET_ROLLED
            for (u32 i = lane; i < count; i += unit) {
                const u32 done = i * tokens, left = rows > done ? rows - done : 0;
                t.store_shared(&s.chunk[to + i],
                               Chunk::of(left > 0 ? row + done : 0, left < tokens ? left : tokens, g));
            }
            if (lane < columns) t.store_shared(&s.peak[g][lane], 0u);
        }
        // They are taken by fours.
        const u32 chunks = all / tokens;
        if (me < four - 1) t.store_shared(&s.chunk[chunks + me], Chunk{0});
        if (me == 0) t.store_shared(&s.none, Vec16{{0, 0, 0, 0}});
        return chunks;
    }
    OCTET_GPU static u32 range_of(u32 row, u32 rows) { return row | rows << 16; }

    // ---- reading

    // Where an eight of a row lies: so that neither neighbours meet in a bank, nor those of one column that are read
    // across at once, which are of two rows in each of four chunks.
    OCTET_GPU static u32 place_of(u32 row, u32 eight) {
        return (row * across + eight) ^ (across == 2 ? row / 16 % 4 * 2 + row % 2 : row / 16 % 4);
    }

    // Sends for all rows.
    template <class Thread>
    OCTET_GPU static void fetch(Thread& t, const Params& p, Shared& s, const TileOperand& o, i32 column0) {
        constexpr u32 rows_at_once = threads / across;
        const u32 me = static_cast<u32>(t.thread()), eight = me % across, first = me / across;
        const i32 column = column0 + static_cast<i32>(eight) * 8;
        const u32 rows = column < o.columns ? static_cast<u32>(p.rows) : 0;
        const auto* from = static_cast<const typename In::Element*>(o.x) + first * o.x_stride[1] + column;
        OCTET_UNROLL
        for (u32 row = 0; row < most_rows; row += rows_at_once)
            if (row + first < rows)
                t.template copy_async<Line::rest_soon>(&s.x[place_of(row + first, eight)], from + row * o.x_stride[1],
                                                       true);
        t.commit_copies();
    }

    // 16 tokens of one column: a unit reads four chunks of eight columns, a lane number lane % 4 of column lane / 4.
    struct Column {
        Chunk chunk;
        u32 word[8];
    };
    template <class Thread>
    OCTET_GPU static Column load_column(Thread& t, Shared& s, u32 first, u32 eight) {
        const int me = t.thread() % unit;
        // A row of matrix lane / 8: two of them are of one chunk.
        const auto chunk_of = [&](int lane) { return t.load_shared(&s.chunk[first + static_cast<u32>(lane) % 8 / 2]); };
        const Chunk mine = chunk_of(me);
        Column x;
        x.chunk = t.load_shared(&s.chunk[first + static_cast<u32>(me) % four]);
        OCTET_UNROLL
        for (u32 half = 0; half < 2; ++half) {
            u32 words[4];
            t.load_transposed(
                [&](int lane) {
                    const u32 l = static_cast<u32>(lane), token = half * 8 + l / 8 * 2 + l % 2;
                    const Chunk chunk = lane == me ? mine : chunk_of(lane);
                    return token < chunk.real() ? &s.x[place_of(chunk.row() + token, eight)] : &s.none;
                },
                words);
            OCTET_UNROLL
            for (u32 w = 0; w < 4; ++w) x.word[4 * half + w] = words[w];
        }
        return x;
    }

    // ---- casting

    template <class Thread>
    OCTET_GPU static void cast(Thread& t, const Params& p, Shared& s, const TileOperand& o, i32 column0, u32 chunks) {
        const u32 me = static_cast<u32>(t.thread()), lane = me % unit, eight = me / unit % across;
        const u32 beside = eight * 8 + lane / 4;  // the thread's column
        const i32 column = column0 + static_cast<i32>(beside);
        // Fours of chunks: those of the first rounds stay in registers, others are read again.
        constexpr u32 round = units / across * four, held = 1024 / threads;
        const u32 first = me / unit / across * four;
        const u32 end = column < o.columns ? chunks : 0;  // of all columns of an eight alike
        Column x[held];
        const auto find_peak = [&](const Column& v) {
            u32 word = v.word[0];
            OCTET_UNROLL
            for (int w = 1; w < 8; ++w) word = magnitude_max<In>(t, word, v.word[w]);
            if (v.chunk.real() > 0) t.atomic_max_shared(&s.peak[v.chunk.group()][beside], f32_bits_of<In>(word));
        };
        OCTET_UNROLL
        for (u32 i = 0; i < held; ++i)
            if (first + i * round < end) x[i] = load_column(t, s, first + i * round, eight);
        OCTET_UNROLL
        for (u32 i = 0; i < held; ++i)
            if (first + i * round < end) find_peak(x[i]);
        OCTET_ROLLED
        for (u32 at = first + held * round; at < end; at += round) find_peak(load_column(t, s, at, eight));
        t.barrier();

        u8* data = o.column_data + column * o.column_data_stride[1];
        const auto store = [&](u32 at, const Column& v) {
            const u32 number = at + lane % four, peak = t.load_shared(&s.peak[v.chunk.group()][beside]);
            const float scale = scale_of_bits<Codec>(peak, p.rule.rounding);
            Vec16 bytes = encode(t, v, scale);
            // Padding is zero bytes, and what was read for it zeros: times the scale zero, too, unless that is NaN.
            if (peak > 0x7F800000u) bytes = first_bytes(bytes, static_cast<i32>(v.chunk.real()));
            if (number < chunks) t.store16(data + number * tokens, bytes);
        };
        OCTET_UNROLL
        for (u32 i = 0; i < held; ++i)
            if (first + i * round < end) store(first + i * round, x[i]);
        OCTET_ROLLED
        for (u32 at = first + held * round; at < end; at += round) store(at, load_column(t, s, at, eight));

        // By the last threads, which have the fewest chunks.
        OCTET_ROLLED
        for (u32 i = threads - 1 - me; i < static_cast<u32>(p.groups) * columns; i += threads) {
            const u32 g = i / columns, c = i % columns;
            make_scale<Codec, false>(t, t.load_shared(&s.peak[g][c]), p.rule, o.column_scale,
                                     column0 + static_cast<i32>(c) < o.columns, g, column0 + static_cast<i32>(c), 0);
        }
    }

    template <class Thread>
    OCTET_GPU static Vec16 encode(Thread& t, const Column& x, float scale) {
        const auto element = [&](int r) {
            return std::bit_cast<float>(r & 1 ? x.word[r >> 1] & 0xFFFF0000u : x.word[r >> 1] << 16) * scale;
        };
        Vec16 out;
        OCTET_UNROLL
        for (int w = 0; w < 4; ++w)
            out.word[w] =
                t.template encode4<Codec>(element(4 * w), element(4 * w + 1), element(4 * w + 2), element(4 * w + 3));
        return out;
    }
};

}  // namespace octet::gpu
