// The tile list of the Hopper products: every element of the output in one tile, whatever the groups. The device code
// runs on the host, each lane of its warp a fiber.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <random>
#include <type_traits>
#include <vector>

#include "emulator/fiber.hpp"

namespace octet::test {

using emulator::Fiber;

// What the lanes of the running warp gave to the collective they are all in.
struct Warp {
    int lane = 0;
    Fiber* fiber = nullptr;
    std::uint32_t values[32] = {};
};
Warp& warp() {
    static Warp one;
    return one;
}

// All lanes give a value, then all see what was given.
std::vector<std::uint32_t> exchange(std::uint32_t value) {
    warp().values[warp().lane] = value;
    warp().fiber->yield();
    const std::vector<std::uint32_t> given(warp().values, warp().values + 32);
    warp().fiber->yield();
    return given;
}

}  // namespace octet::test

// As much of CUDA as the schedule uses.
#define __device__
#define __host__
#define __forceinline__ inline
namespace octet::cuda {
using std::max;
using std::min;
struct ThreadIndex {
    struct {
        operator unsigned() const { return static_cast<unsigned>(test::warp().lane); }
    } x;
};
inline constexpr ThreadIndex threadIdx{};
inline int __shfl_sync(unsigned, int value, int from) {
    return static_cast<int>(test::exchange(static_cast<std::uint32_t>(value))[static_cast<std::size_t>(from)]);
}
inline int __shfl_up_sync(unsigned, int value, int by) {
    const int lane = test::warp().lane;
    const auto given = test::exchange(static_cast<std::uint32_t>(value));
    return static_cast<int>(given[static_cast<std::size_t>(lane < by ? lane : lane - by)]);
}
inline unsigned __ballot_sync(unsigned, bool value) {
    const auto given = test::exchange(value);
    unsigned bits = 0;
    for (unsigned i = 0; i < 32; ++i) bits |= given[i] << i;
    return bits;
}
inline unsigned __reduce_or_sync(unsigned, unsigned value) {
    unsigned bits = 0;
    for (const std::uint32_t one : test::exchange(value)) bits |= one;
    return bits;
}
inline unsigned __reduce_add_sync(unsigned, unsigned value) {
    unsigned sum = 0;
    for (const std::uint32_t one : test::exchange(value)) sum += one;
    return sum;
}
inline unsigned __reduce_max_sync(unsigned, unsigned value) {
    const auto given = test::exchange(value);
    return *std::max_element(given.begin(), given.end());
}
inline int __ffs(int value) { return value == 0 ? 0 : std::countr_zero(static_cast<unsigned>(value)) + 1; }
inline int __clz(int value) { return std::countl_zero(static_cast<unsigned>(value)); }
}  // namespace octet::cuda
#include "cuda/schedule/product_tasks.cuh"

namespace octet::test {

using cuda::ProductShape;
using cuda::ProductTask;
using cuda::Reduction;

// What all lanes of a warp find, given a schedule of a block or of one of that rank in its cluster.
template <class Schedule, class Find>
auto found_by_warp(const ProductShape& shape, int rank, const Find& find) {
    using Found = std::invoke_result_t<const Find&, Schedule&>;
    struct Lane {
        Fiber fiber;
        const ProductShape* shape;
        const Find* find;
        int rank;
        Found found;
        bool done = false;
    };
    std::vector<Lane> lanes(32);
    for (Lane& lane : lanes) {
        lane.shape = &shape;
        lane.find = &find;
        lane.rank = rank;
        lane.fiber.start(
            [](void* argument) {
                Lane& mine = *static_cast<Lane*>(argument);
                Schedule schedule(*mine.shape, mine.rank);
                mine.found = (*mine.find)(schedule);
                mine.done = true;
            },
            &lane);
    }
    while (!lanes[0].done)
        for (int lane = 0; lane < 32; ++lane) {
            warp().lane = lane;
            warp().fiber = &lanes[static_cast<std::size_t>(lane)].fiber;
            warp().fiber->resume();
        }
    for (const Lane& lane : lanes) EXPECT_TRUE(lane.done);
    return lanes[0].found;
}

// The tasks that one block works through, where they are dealt.
template <class Schedule>
std::vector<typename Schedule::Task> tasks_of(const ProductShape& shape, int block, int blocks, int rank = 0) {
    return found_by_warp<Schedule>(shape, rank, [=](Schedule& schedule) {
        std::vector<typename Schedule::Task> tasks;
        for (int round = 0;; ++round) {
            tasks.push_back(schedule.task(round, block, blocks));
            if (tasks.back().blocks < 0) break;
        }
        tasks.pop_back();
        return tasks;
    });
}

// The tasks of all blocks, where they draw tickets, in any order.
template <class Schedule>
std::vector<typename Schedule::Task> tasks_by_tickets(const ProductShape& shape, int blocks, std::mt19937& random) {
    const int tickets = found_by_warp<Schedule>(shape, 0, [=](Schedule& schedule) { return schedule.tickets(blocks); });
    std::vector<std::vector<int>> drawn(static_cast<std::size_t>(blocks));
    for (int ticket = 0; ticket < tickets; ++ticket)
        drawn[static_cast<std::size_t>(ticket < blocks ? ticket : static_cast<int>(random() % drawn.size()))].push_back(
            ticket);
    std::vector<typename Schedule::Task> tasks;
    for (const auto& mine : drawn) {
        const auto some = found_by_warp<Schedule>(shape, 0, [&](Schedule& schedule) {
            std::vector<typename Schedule::Task> made;
            for (const int ticket : mine) {
                made.push_back(schedule.task_of(ticket, blocks));
                if (made.back().blocks < 0) made.pop_back();  // for nothing
            }
            EXPECT_LT(schedule.task_of(tickets, blocks).blocks, 0);
            return made;
        });
        tasks.insert(tasks.end(), some.begin(), some.end());
    }
    return tasks;
}

struct Case {
    std::vector<std::int32_t> sizes, ends;
    int tokens = 0, spare = 0, n = 0, k = 0, band = 8, blocks = 1;
};

Case draw(std::mt19937& random) {
    const auto from = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
    Case made;
    const int groups = from(1, from(0, 1) ? 5 : 70), most = from(0, 3) ? 300 : 1100;
    for (int i = 0; i < groups; ++i) {
        made.sizes.push_back(from(0, 3) == 0 ? 0 : from(0, 5) == 0 ? 1 : from(1, most));
        made.tokens += made.sizes.back();
        made.ends.push_back(made.tokens);
    }
    made.spare = from(0, 40);
    made.n = 16 * from(1, 40);
    made.k = 16 * from(1, 40);
    made.band = from(1, 16);
    made.blocks = from(1, 12);
    return made;
}

// Forward: out[tokens, N], cut finer than any tile.
template <bool tokens_left, int right_tile, int cluster = 1>
void check_forward(const Case& c) {
    using Schedule = cuda::ProductSchedule<Reduction::along_k, 128, right_tile, 128, tokens_left, cluster>;
    const ProductShape shape{
        c.ends.data(), static_cast<int>(c.sizes.size()), c.tokens + c.spare, c.n, 0, c.k, c.k, false, 1, 1, c.band};
    std::vector<int> seen(static_cast<std::size_t>((c.tokens + c.spare) * (c.n / 16)), 0);
    for (int block = 0; block < c.blocks * cluster; ++block) {
        const auto tasks = tasks_of<Schedule>(shape, block / cluster, c.blocks, block % cluster);
        if constexpr (cluster > 1) {  // what its blocks must agree on
            const auto first = tasks_of<Schedule>(shape, block / cluster, c.blocks);
            ASSERT_EQ(tasks.size(), first.size());
            for (std::size_t i = 0; i < tasks.size(); ++i) {
                const auto &mine = tasks[i], &other = first[i];
                ASSERT_TRUE(mine.group == other.group && mine.blocks == other.blocks);
                bool shared = true;
                if constexpr (tokens_left) {
                    ASSERT_EQ(mine.right_shared, other.right_shared);
                    shared = mine.right_shared;
                }
                ASSERT_TRUE(!shared || (mine.right_row == other.right_row && mine.right_width == other.right_width));
            }
        }
        for (const ProductTask& task : tasks) {
            const int row = tokens_left ? task.left_row : task.right_row,
                      column = tokens_left ? task.right_row : task.left_row;
            const int rows = tokens_left ? task.left_valid : task.right_valid,
                      columns = tokens_left ? task.right_valid : std::min(128, c.n - task.left_row);
            if (cluster > 1 && !tokens_left && block % cluster == 1 && columns <= 0) continue;  // an odd left tile's
            const int end = c.ends[static_cast<std::size_t>(task.group)];
            ASSERT_TRUE((rows > 0 || (cluster > 1 && rows == 0)) && columns > 0 && column + columns <= c.n);
            ASSERT_TRUE(row >= end - c.sizes[static_cast<std::size_t>(task.group)] && row + rows <= end);
            ASSERT_TRUE(task.right_valid <= task.right_width && task.right_width <= right_tile &&
                        task.right_width % 32 == 0);
            ASSERT_TRUE(task.blocks == (c.k + 127) / 128 && task.reduce_length == c.k);
            for (int i = row; i < row + rows; ++i)
                for (int j = column / 16; j < (column + columns) / 16; ++j)
                    ++seen[static_cast<std::size_t>(i * (c.n / 16) + j)];
        }
    }
    for (int i = 0; i < c.tokens + c.spare; ++i)
        for (int j = 0; j < c.n / 16; ++j)
            ASSERT_EQ(seen[static_cast<std::size_t>(i * (c.n / 16) + j)], i < c.tokens)
                << "row " << i << " columns " << 16 * j;
}

// wgrad: dw[E, N, K]; rows_left: the operands exchanged, as dw[E, K, N] would be.
template <bool rows_left>
void check_wgrad(const Case& c, bool adds, bool by_tickets, std::mt19937& random) {
    using Schedule = cuda::ProductSchedule<Reduction::along_padded_tokens, 128, 256, 128, rows_left>;
    const int groups = static_cast<int>(c.sizes.size()), padded = c.tokens + 128 * groups;
    const ProductShape shape{c.ends.data(), groups, c.tokens, c.k, c.n, padded, padded, adds, 16, 128, c.band};
    const std::size_t wide = static_cast<std::size_t>(c.k / 16), high = static_cast<std::size_t>(c.n / 16);
    std::vector<int> seen(static_cast<std::size_t>(groups) * wide * high, 0), left(1, 0), right(1, 0);
    for (const int size : c.sizes) {
        left.push_back(left.back() + (size + 15) / 16 * 16);
        right.push_back(right.back() + (size + 127) / 128 * 128);
    }
    std::vector<ProductTask> tasks;
    if (by_tickets) tasks = tasks_by_tickets<Schedule>(shape, c.blocks, random);
    for (int block = 0; block < c.blocks && !by_tickets; ++block) {
        const auto dealt = tasks_of<Schedule>(shape, block, c.blocks);
        tasks.insert(tasks.end(), dealt.begin(), dealt.end());
    }
    for (const ProductTask& task : tasks) {
        const auto group = static_cast<std::size_t>(task.group);
        const bool empty = c.sizes[group] == 0;
        ASSERT_EQ(task.left_first, empty ? padded : left[group]);
        ASSERT_EQ(task.right_first, empty ? padded : right[group]);
        ASSERT_EQ(task.reduce_length, c.sizes[group]);
        ASSERT_EQ(task.blocks, std::max((c.sizes[group] + 127) / 128, 1));
        ASSERT_EQ(task.right_row % (rows_left ? 64 : 32), 0);
        for (int i = task.right_row / 16; i < (task.right_row + task.right_valid) / 16; ++i)
            for (int j = task.left_row / 16; j < std::min(task.left_row + 128, c.k) / 16; ++j)
                ++seen[(group * high + static_cast<std::size_t>(i)) * wide + static_cast<std::size_t>(j)];
    }
    int narrowest = 256, widest = 0;
    for (const ProductTask& task : tasks_of<Schedule>(shape, 0, 1)) {  // one block: no tile is cut
        narrowest = std::min(narrowest, task.right_width);
        widest = std::max(widest, task.right_width);
    }
    ASSERT_LE(widest - narrowest, rows_left ? 96 : 32);  // N is dealt evenly, by 32 or by 64 and a rest
    for (std::size_t i = 0; i < seen.size(); ++i)
        ASSERT_EQ(seen[i], !(adds && c.sizes[i / (wide * high)] == 0)) << "group " << i / (wide * high);
}

TEST(TileList, CoversEveryElementOnce) {
    std::mt19937 random(1);
    for (int i = 0; i < 60; ++i) {
        const Case c = draw(random);
        SCOPED_TRACE(testing::Message() << "case " << i);
        check_forward<false, 256>(c);
        check_forward<false, 192>(c);
        check_forward<true, 192>(c);
        check_forward<true, 192, 2>(c);
        check_forward<false, 256, 2>(c);
        for (const bool by_tickets : {false, true}) {
            check_wgrad<false>(c, i % 2 == 0, by_tickets, random);
            check_wgrad<true>(c, false, by_tickets, random);
        }
        if (HasFatalFailure()) return;
    }
}

// A pair of tiles in four pieces each for nine blocks, of which the narrow one has but three; and none at all.
TEST(TileList, TicketsForNothing) {
    using Schedule = cuda::ProductSchedule<Reduction::along_padded_tokens, 128, 256, 128>;
    std::mt19937 random(1);
    const std::int32_t ends[] = {130}, none[] = {0};
    const ProductShape shape{ends, 1, 130, 256, 96, 256, 256, false, 128, 128, 8};
    EXPECT_EQ(found_by_warp<Schedule>(shape, 0, [](Schedule& schedule) { return schedule.tickets(9); }), 8);
    EXPECT_EQ(tasks_by_tickets<Schedule>(shape, 9, random).size(), 6u);
    const ProductShape added{none, 1, 130, 256, 96, 256, 256, true, 128, 128, 8};
    EXPECT_EQ(found_by_warp<Schedule>(added, 0, [](Schedule& schedule) { return schedule.tickets(9); }), 0);
    EXPECT_TRUE(tasks_by_tickets<Schedule>(added, 9, random).empty());
}

// Of reductions that differ much, or are short.
TEST(TileList, WhenTicketsAreDrawn) {
    using Wgrad = cuda::ProductSchedule<Reduction::along_padded_tokens, 128, 256, 128>;
    using Forward = cuda::ProductSchedule<Reduction::along_k, 128, 256, 128>;
    const auto drawn = []<class Schedule>(std::vector<std::int32_t> sizes) {
        std::vector<std::int32_t> ends;
        for (const std::int32_t size : sizes) ends.push_back((ends.empty() ? 0 : ends.back()) + size);
        const ProductShape shape{
            ends.data(), static_cast<int>(sizes.size()), ends.back(), 256, 256, 4096, 4096, false, 128, 128, 8};
        return found_by_warp<Schedule>(shape, 0, [](Schedule& schedule) { return schedule.by_tickets() ? 1 : 0; }) == 1;
    };
    std::vector<std::int32_t> many(40, 1000);
    EXPECT_FALSE(drawn.operator()<Wgrad>(many));
    many[37] = 1900;
    EXPECT_FALSE(drawn.operator()<Wgrad>(many));
    many[37] = 2200;
    EXPECT_TRUE(drawn.operator()<Wgrad>(many));
    EXPECT_FALSE(drawn.operator()<Forward>(many));
    EXPECT_TRUE(drawn.operator()<Wgrad>(std::vector<std::int32_t>(40, 500)));
    EXPECT_FALSE(drawn.operator()<Wgrad>({9000}));
}

// Five tiles for four blocks: the one that is left over is shared by all of them.
TEST(TileList, CutsWhatIsLeftOver) {
    using Schedule = cuda::ProductSchedule<Reduction::along_k, 128, 256, 128>;
    const std::int32_t ends[] = {5 * 256};
    for (int block = 0; block < 4; ++block) {
        const auto tasks = tasks_of<Schedule>({ends, 1, ends[0], 128, 0, 512, 512, false, 1, 1, 8}, block, 4);
        ASSERT_EQ(tasks.size(), 2u);
        EXPECT_EQ(tasks[0].right_width, 256);
        EXPECT_EQ(tasks[1].right_width, 64);
    }
}

// 19 tiles for four blocks: one of them would be idle in the last round, so there are 20 narrower ones.
TEST(TileList, FillsTheLastRound) {
    using Forward = cuda::ProductSchedule<Reduction::along_k, 128, 256, 128>;
    using Wgrad = cuda::ProductSchedule<Reduction::along_padded_tokens, 128, 256, 128>;
    constexpr int rows = 19 * 256;
    const std::int32_t ends[] = {rows}, two[] = {256, rows};
    const auto filled = [&]<class Schedule>(const ProductShape& shape) {
        for (int block = 0; block < 4; ++block) {
            const auto tasks = tasks_of<Schedule>(Schedule::fill_last_round(shape, 4), block, 4);
            ASSERT_EQ(tasks.size(), 5u);
            int columns = 0;
            for (const ProductTask& task : tasks) columns += task.right_width;
            EXPECT_EQ(columns, 3 * 256 + 2 * 224);
        }
    };
    filled.operator()<Forward>({ends, 1, rows, 128, 0, 512, 512, false, 1, 1, 8});
    filled.operator()<Wgrad>({ends, 1, 300, 128, rows, 512, 512, false, 128, 128, 8});
    // Of two groups, where another tile of each row of tiles is more than the last round has room for, and where the
    // last round is cut.
    EXPECT_EQ(Forward::fill_last_round({two, 2, rows, 128, 0, 512, 512, false, 1, 1, 8}, 4).more_tiles, 0);
    EXPECT_EQ(Forward::fill_last_round({ends, 1, rows, 256, 0, 512, 512, false, 1, 1, 8}, 3).more_tiles, 0);
    EXPECT_EQ(Forward::fill_last_round({ends, 1, rows - 256, 128, 0, 512, 512, false, 1, 1, 8}, 4).more_tiles, 0);
    // Rows that are nobody's: fewer than the host knows, down to none. Three left tiles for eight blocks, so that tiles
    // of a small group are not cut: none may be empty.
    constexpr int fewer_rows = 15 * 256;
    for (const int end : {0, 1, 33, 300, fewer_rows - 1, fewer_rows}) {
        const std::int32_t owned[] = {end};
        const ProductShape shape =
            Forward::fill_last_round({owned, 1, fewer_rows, 384, 0, 512, 512, false, 1, 1, 8}, 8);
        ASSERT_EQ(shape.more_tiles, 1);
        std::vector<int> seen(fewer_rows, 0);
        for (int block = 0; block < 8; ++block)
            for (const ProductTask& task : tasks_of<Forward>(shape, block, 8)) {
                EXPECT_GT(task.right_valid, 0);
                for (int i = task.right_row; i < task.right_row + task.right_valid; ++i)
                    ++seen[static_cast<std::size_t>(i)];
            }
        for (int i = 0; i < fewer_rows; ++i)
            ASSERT_EQ(seen[static_cast<std::size_t>(i)], i < end ? 3 : 0) << "row " << i;
    }
}

// Three token tiles and two weight tiles for one cluster: two of the token tiles share each of the weight tiles, the
// third has one of them in either block.
TEST(TileList, ClustersShareWeights) {
    using Schedule = cuda::ProductSchedule<Reduction::along_k, 128, 192, 128, true, 2>;
    const std::int32_t ends[] = {3 * 128};
    for (int rank = 0; rank < 2; ++rank) {
        const auto tasks = tasks_of<Schedule>({ends, 1, ends[0], 384, 0, 512, 512, false, 1, 1, 8}, 0, 1, rank);
        ASSERT_EQ(tasks.size(), 3u);
        for (int i = 0; i < 3; ++i) {
            const auto& task = tasks[static_cast<std::size_t>(i)];
            EXPECT_EQ(task.right_shared, i < 2);
            EXPECT_EQ(task.left_row, i < 2 ? 128 * rank : 256);
            EXPECT_EQ(task.right_row, 192 * (i < 2 ? i : rank));
        }
    }
}

}  // namespace octet::test
