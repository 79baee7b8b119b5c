// The first half of a cast both ways, rowwise: quantizes rows along their own axis, and finds the largest magnitude of
// every column of a group on the way: x[M, K] -> data[M, K], peaks[groups, K]. columns_by_peaks.hpp, which reads x
// again, is the other half: it may run beside a product that needs the rows alone.
//
// Bytes: x once, data once. Bound by memory. All threads of a block share a row, `batch` rows at a time: a thread holds
// the same columns of every row, so that their maxima stay in its registers until the group ends, or what the block has
// to do. The next `stages` batches are on their way to shared memory meanwhile, each thread's eights to places of its
// own: nobody else reads them, so that no barrier is between a copy and its use.
//
// Blocks stay, and take batches as they come: multiprocessors are not equally fast. Rows are in as many parts as there
// are groups, if there are blocks for so many, and a block takes batches of one part, so that it has few groups' maxima
// to hand in. Blocks are done at the same time, all of them hand in all columns then, and who comes next waits for it:
// so maxima have 16 bits, and are folded out of shared memory, without any thread's help.
//
// Where columns are cast next (columns_from_rows.hpp), each part is longer than the one before it: columns of the first
// groups are cast while rows of the last ones are, and while their maxima go round.
//
// bf16, in rows of whole eights that start on 16 bytes.
#pragma once

#include "gpu/eight.hpp"
#include "gpu/outputs.hpp"
#include "gpu/plan.hpp"

namespace octet::gpu {

// A column's largest magnitude on its way from one half to the other, as a number that is finite whatever it was, so
// that it can be folded: its bf16 bits less 0x1000. What is smaller than that, 2^-95, has the scale of zero.
OCTET_GPU u32 code_of_peak(u32 bits) { return bits < 0x1000u ? 0u : bits - 0x1000u; }
OCTET_GPU u32 peak_of_code(u32 code) { return code == 0 ? 0u : (code + 0x1000u) << 16; }  // f32 bits

// Rows in parts, each `more` rows longer than the one before it, but for the last one, which ends with them. In whole
// batches.
struct RowParts {
    i64 count, rows;
    i64 first, more;
    OCTET_GPU i64 begin(i64 part) const {
        const i64 at = part * first + part * (part - 1) / 2 * more;
        return part < count && at < rows ? at : rows;
    }
};

struct RowsAndPeaksParams {
    const void* x;    // [groups, rows, columns]; tokens: one matrix for all groups
    i64 x_stride[2];  // group, row
    u8* data;         // likewise
    i64 data_stride[2];
    ScaleOut scale;  // [groups, rows]
    ScaleRule rule;
    i64 groups;
    i64 rows;  // of all groups, and those that nobody owns
    i32 columns;
    i64 apart;          // rows of a group that has a matrix of its own, or 0: one matrix for all
    const i32* ends;    // [groups], or null where groups have matrices of their own
    RowParts parts;     // every count-th block works at one
    i64 rows_a_block;   // in whole batches, that a block has for its own; the rest of a part is for all who work at it
    u32* ticket;        // [parts] batches of the rest that are taken, 0 before
    const Span* spans;  // [groups + 2]
    u16* peaks;         // [groups, columns] code_of_peak, zero before
    u32* done;          // [parts, counter_words] blocks that are done with it, zero before; or null: nobody looks
    u8* power;          // [rows] a row's power_of, or null: nobody reads rows again
    Reuse reuse;        // of x
    i64 kept;           // from this row on rows stay in the cache, and x leaves it first
};

// What who reads rows again has to know of each: its scale's exponent bits, 0 and 255 where its bytes say nothing of x
// (infinity, NaN), and 1, which no scale has, where all of it is zero.
inline constexpr u8 power_of_zeros = 1;
OCTET_GPU u8 power_of(u32 peak, float scale) {
    return peak == 0 ? power_of_zeros : static_cast<u8>(std::bit_cast<u32>(scale) >> 23 & 0xFFu);
}

template <class Codec_, int vectors, int threads_ = 256>
struct RowsAndPeaksKernel {
    using In = Bf16In;
    using Codec = Codec_;
    using Params = RowsAndPeaksParams;
    static constexpr int threads = threads_;
    static constexpr int units = threads / unit;
    // Blocks of many rows at a time are few, and so are maxima to hand in, as far as shared memory goes.
    static constexpr int batch = vectors == 1 || (vectors == 2 && threads <= 384) ? 4 : vectors == 2 ? 2 : 1;
    static constexpr int stages = batch == 1 ? 3 : 2;
    static constexpr int blocks_per_core = vectors == 1 ? 1024 / threads : vectors == 2 && threads <= 192 ? 3 : 2;
    static constexpr int reach = threads * 8 * vectors;  // columns of the longest row
    static constexpr int pairs = (batch + 1) / 2;        // rows are folded two by two

    // A block asks for a ticket as soon as it may ask for the plan without waiting: some turns after it began.
    static constexpr u32 planned_turn = 2;
    static constexpr i64 least_own = (stages + i64{planned_turn}) * batch;

    // Rows that are cast at a time.
    struct Batch {
        const u16* from[static_cast<u32>(batch)];
        u8* to[static_cast<u32>(batch)];
        i64 row;  // the first one, counted over all groups; p.rows: none is left
    };
    static constexpr u32 ring = 8;
    static_assert(ring >= stages + 2, "a batch is fetched as soon as it is known, and written stages turns later");
    // What a block works at, counted over all groups; p.rows stands for none.
    struct Part {
        i64 first, own_end;  // rows of its own
        i64 shared, end;     // those that are there for all who work at the part
    };
    struct Found {
        i64 group, matrix, end;  // where its matrix begins, and where it ends, in rows counted over all groups
    };
    struct Shared {
        Vec16 landing[static_cast<u32>(stages)][static_cast<u32>(batch)][static_cast<u32>(vectors)]
                     [static_cast<u32>(threads)];
        alignas(16) u32 peak[2][static_cast<u32>(2 * pairs)][static_cast<u32>(units)];  // a row's, f32 bits, by unit
        alignas(16) u16 column_peak[static_cast<u32>(reach)];                           // code_of_peak
        Part part;
        Batch batches[ring];
        Found found;
        u32 finders;  // of the first group: not one, where offsets are out of order
    };

    template <class Thread>
    OCTET_GPU static void run(Thread& t, const Params& p, Shared& s) {
        if (t.thread() == 0) {
            t.store_shared(&s.part, part_of(t, p));
            t.store_shared(&s.finders, 0u);
        }
        t.barrier();
        OCTET_UNROLL
        for (u32 k = 0; k < static_cast<u32>(stages); ++k) set_out(t, p, s, k, 0);
        t.barrier();
        OCTET_UNROLL
        for (u32 k = 0; k < static_cast<u32>(stages); ++k) fetch(t, p, s, k);
        // The plan is not waited for before it is made, some microseconds from here: the first group is found without.
        bool planned = false;
        const auto await_plan = [&] {
            if (planned) return;
            t.await_earlier();
            if (p.power) t.admit_later();
            planned = true;
        };
        Found in = find_first_group(t, p, s, t.load_shared(&nth(s, 0).row));
        Magnitudes<In> peaks[static_cast<u32>(vectors)]{};
        u32 piece = 0;
        OCTET_ROLLED
        for (u32 turn = 0;; ++turn) {
            const i64 row = t.load_shared(&nth(s, turn).row);
            if (row >= p.rows) break;
            if (turn == planned_turn) await_plan();
            const u32 coming = turn + static_cast<u32>(stages);
            const u32 ticket = t.thread() == 0 ? take(t, p, s, coming) : 0;
            t.template await_copies<stages - 1>();
            const i32 rows = p.rows - row < batch ? static_cast<i32>(p.rows - row) : batch;
            for (i32 first = 0; first < rows; ++piece) {
                if (row + first >= in.end) {
                    await_plan();
                    hand_in(t, p, s, in.group, peaks);
                    in = find_group(t, p, s, row + first);
                }
                const i32 last = in.end - row < rows ? static_cast<i32>(in.end - row) : rows;
                const bool done = last == rows;
                cast(
                    t, p, s, turn, piece, in, row, first, last, peaks,
                    [&] {
                        if (done) set_out(t, p, s, coming, ticket);
                    },
                    [&] {
                        if (done) fetch(t, p, s, coming);
                    });
                first = last;
            }
        }
        await_plan();
        hand_in(t, p, s, in.group, peaks);
        t.await_folds();
        if (p.done) {
            t.barrier();
            if (t.thread() == 0) t.count_done(p.done + part_number(t, p) * counter_words);
        }
        // Who comes next is not admitted before the end, but for who reads rows again: the other half starts without
        // waiting for anybody.
    }

private:
    OCTET_GPU static Batch& nth(Shared& s, u32 k) { return s.batches[k % ring]; }

    template <class Thread>
    OCTET_GPU static u32 part_number(Thread& t, const Params& p) {
        return t.block() % static_cast<u32>(p.parts.count);
    }
    template <class Thread>
    OCTET_GPU static Part part_of(Thread& t, const Params& p) {
        const auto least = [](i64 a, i64 b) { return a < b ? a : b; };
        const u32 parts = static_cast<u32>(p.parts.count);
        const i64 begin = p.parts.begin(part_number(t, p));
        Part part;
        part.end = p.parts.begin(i64{part_number(t, p)} + 1);
        part.shared = least(begin + t.blocks() / parts * p.rows_a_block, part.end);
        part.first = least(begin + t.block() / parts * p.rows_a_block, part.end);
        part.own_end = least(part.first + p.rows_a_block, part.end);
        return part;
    }
    // The block's k-th batch, if it is one of its own.
    template <class Thread>
    OCTET_GPU static i64 own_row(Thread& t, const Params& p, Shared& s, u32 k) {
        const i64 row = t.load_shared(&s.part.first) + static_cast<i64>(k) * batch;
        return row < t.load_shared(&s.part.own_end) ? row : p.rows;
    }
    // Asks for a ticket, where it is not.
    template <class Thread>
    OCTET_GPU static u32 take(Thread& t, const Params& p, Shared& s, u32 k) {
        if (own_row(t, p, s, k) < p.rows || t.load_shared(&s.part.shared) == t.load_shared(&s.part.end)) return 0;
        return t.atomic_add(p.ticket + part_number(t, p), 1u);
    }

    // Writes down the block's k-th batch, before a barrier. ticket: the first thread's.
    template <class Thread>
    OCTET_GPU static void set_out(Thread& t, const Params& p, Shared& s, u32 k, u32 ticket) {
        if (t.thread() >= unit) return;
        i64 row = own_row(t, p, s, k);
        ticket = t.shuffle(ticket, 0);
        if (row == p.rows) row = t.load_shared(&s.part.shared) + i64{ticket} * batch;
        if (row >= t.load_shared(&s.part.end)) row = p.rows;
        const int b = t.thread();
        if (b >= batch) return;
        Batch& to = nth(s, k);
        if (b == 0) t.store_shared(&to.row, row);
        const i64 matrix = p.apart ? (row + b) / p.apart : 0, local = row + b - matrix * p.apart;
        t.store_shared(&to.from[b], static_cast<const u16*>(p.x) + matrix * p.x_stride[0] + local * p.x_stride[1]);
        t.store_shared(&to.to[b], p.data + matrix * p.data_stride[0] + local * p.data_stride[1]);
    }

    // Whose row the block's first one is, before the plan is made; group -1 where offsets are out of order, or there is
    // no row.
    template <class Thread>
    OCTET_GPU static Found find_first_group(Thread& t, const Params& p, Shared& s, i64 row) {
        if (row >= p.rows) return {-1, 0, 0};
        if (p.apart) return find_matrix(p, row);
        for (i64 g = t.thread(); g <= p.groups; g += threads) {
            const i64 begin = g > 0 ? t.load(p.ends + g - 1) : 0, end = g < p.groups ? t.load(p.ends + g) : p.rows;
            const bool odd = begin < 0 || begin > end || end > p.rows;
            if (!odd && (row < begin || end <= row)) continue;
            if (t.atomic_add_shared(&s.finders, odd ? 2u : 1u) == 0) t.store_shared(&s.found, Found{g, 0, end});
        }
        t.barrier();
        return t.load_shared(&s.finders) == 1 ? t.load_shared(&s.found) : Found{-1, 0, 0};
    }
    // Whose row it is. Between two calls there is a barrier.
    template <class Thread>
    OCTET_GPU static Found find_group(Thread& t, const Params& p, Shared& s, i64 row) {
        if (p.apart) return find_matrix(p, row);
        for (i64 g = t.thread(); g <= p.groups; g += threads) {
            const i64 begin = t.load_made(&p.spans[g].position), end = begin + t.load_made(&p.spans[g].rows);
            if (begin <= row && row < end) t.store_shared(&s.found, Found{g, 0, end});
        }
        t.barrier();
        return t.load_shared(&s.found);
    }
    OCTET_GPU static Found find_matrix(const Params& p, i64 row) {
        const i64 group = row / p.apart, begin = group * p.apart;
        return {group, begin, begin + p.apart};
    }

    OCTET_GPU static i32 column_of(int thread, int j) { return (thread + j * threads) * 8; }

    // Sends for the block's k-th batch.
    template <class Thread>
    OCTET_GPU static void fetch(Thread& t, const Params& p, Shared& s, u32 k) {
        const i64 row = t.load_shared(&nth(s, k).row);
        const Reuse reuse = row < p.kept ? p.reuse : Reuse::stream;
        OCTET_UNROLL
        for (int b = 0; b < batch; ++b) {
            if (row + b >= p.rows) break;
            const u16* from = t.load_shared(&nth(s, k).from[b]);
            OCTET_UNROLL
            for (int j = 0; j < vectors; ++j)
                if (column_of(t.thread(), j) < p.columns)
                    t.copy_async(&s.landing[k % stages][b][j][t.thread()], from + column_of(t.thread(), j), true,
                                 reuse);
        }
        t.commit_copies();
    }

    template <class Thread>
    OCTET_GPU static Eight<In> landed(Thread& t, const Params& p, Shared& s, u32 stage, int b, int j, bool wanted) {
        if (!wanted || column_of(t.thread(), j) >= p.columns) return zero_eight<In>();
        const Vec16 v = t.load_shared(&s.landing[stage][b][j][t.thread()]);
        Eight<In> x;
        OCTET_UNROLL
        for (int i = 0; i < 4; ++i) x.word[i] = v.word[i];
        return x;
    }

    // Casts those rows of the k-th batch, which has landed, that are of group `in`, from `first` to `last`. piece:
    // counts calls. before(), after(): around the barrier.
    template <class Thread, class Before, class After>
    OCTET_GPU static void cast(Thread& t, const Params& p, Shared& s, u32 k, u32 piece, const Found& in, i64 row,
                               i32 first, i32 last, Magnitudes<In> (&peaks)[static_cast<u32>(vectors)], Before before,
                               After after) {
        Eight<In> x[static_cast<u32>(batch)][static_cast<u32>(vectors)];
        OCTET_UNROLL
        for (int b = 0; b < batch; ++b) OCTET_UNROLL
        for (int j = 0; j < vectors; ++j) x[b][j] = landed(t, p, s, k % stages, b, j, first <= b && b < last);
        u32 row_peak[static_cast<u32>(2 * pairs)] = {};
        OCTET_UNROLL
        for (int b = 0; b < batch; ++b) OCTET_UNROLL
        for (int j = 0; j < vectors; ++j) {
            const Magnitudes<In> m = magnitudes_of(x[b][j]);
            fold(t, peaks[j], m);
            row_peak[b] = magnitude_max<In>(t, row_peak[b], fold_across(t, m));
        }
        OCTET_UNROLL
        for (int pair = 0; pair < pairs; ++pair) {
            u32 two[2];
            peaks_of_two<In, unit>(t, row_peak[2 * pair], row_peak[2 * pair + 1], two);
            if (t.thread() % unit > 1) continue;
            const int mine = t.thread() % unit;
            t.store_shared(&s.peak[piece % 2][2 * pair + mine][t.thread() / unit], mine ? two[1] : two[0]);
        }
        before();
        t.barrier();  // one a piece: they alternate between two halves
        after();
        // Each row's scale is found by some lanes of a unit, and told to the others.
        constexpr int lanes = unit / batch;
        const int lane = t.thread() % unit, mine = lane / lanes, of = lane % lanes;
        u32 peak = 0;
        OCTET_UNROLL
        for (int first_unit = 0; first_unit < units; first_unit += lanes)
            if (first_unit + of < units) peak = larger(peak, t.load_shared(&s.peak[piece % 2][mine][first_unit + of]));
        OCTET_UNROLL
        for (int mask = 1; mask < units && mask < lanes; mask *= 2) peak = larger(peak, t.shuffle_xor(peak, mask));
        const bool writes = t.thread() < unit && of == 0 && first <= mine && mine < last;
        const float scale =
            make_scale<Codec, false>(t, peak, p.rule, p.scale, writes, in.group, row - in.matrix + mine, 0);
        if (writes && p.power) t.store(p.power + row + mine, power_of(peak, scale));
        OCTET_UNROLL
        for (int b = 0; b < batch; ++b) {
            const float of_row = std::bit_cast<float>(t.shuffle(std::bit_cast<u32>(scale), b * lanes));
            if (b < first || b >= last) continue;
            u8* to = t.load_shared(&nth(s, k).to[b]);
            OCTET_UNROLL
            for (int j = 0; j < vectors; ++j)
                if (column_of(t.thread(), j) < p.columns)
                    t.store8(to + column_of(t.thread(), j), encode_eight<Codec>(t, x[b][j], of_row),
                             row < p.kept ? Reuse::last : Reuse::kept);
        }
    }

    // Hands in the maxima of all columns, and does not wait until they are in.
    template <class Thread>
    OCTET_GPU static void hand_in(Thread& t, const Params& p, Shared& s, i64 group,
                                  Magnitudes<In> (&peaks)[static_cast<u32>(vectors)]) {
        if (group < 0 || group >= p.groups) return;  // not one's first rows, nor rows that nobody owns
        t.await_folds_read();
        t.barrier();
        OCTET_UNROLL
        for (int j = 0; j < vectors; ++j) {
            Vec16 v;
            OCTET_UNROLL
            for (int i = 0; i < 4; ++i) {
                const u32 two = plain_magnitude<In>(peaks[j].word[i]);
                v.word[i] = code_of_peak(two & 0xFFFFu) | code_of_peak(two >> 16) << 16;
            }
            t.store_shared(reinterpret_cast<Vec16*>(s.column_peak + column_of(t.thread(), j)), v);
            peaks[j] = {};
        }
        t.admit_folds();
        t.barrier();
        t.fold_max(p.peaks + group * p.columns, s.column_peak, p.columns);
    }
};

}  // namespace octet::gpu
