// The thread pool: every index once, whatever the threads, the nesting, the callers and the exceptions.
#include "core/parallel.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

namespace octet {
namespace {

TEST(ParallelFor, VisitsEveryIndexOnce) {
    for (int threads : {0, 1, 2, 3, 7, 64}) {
        for (std::int64_t count : {0, 1, 2, 63, 64, 65, 1000}) {
            for (std::int64_t grain : {0, 1, 3, 64, 5000}) {
                std::vector<std::atomic<int>> visits(static_cast<std::size_t>(count));
                parallel_for(threads, count, grain, [&](std::int64_t begin, std::int64_t end) {
                    EXPECT_LT(begin, end);
                    EXPECT_EQ(begin % std::max<std::int64_t>(grain, 1), 0);
                    for (std::int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
                });
                for (const auto& visit : visits) ASSERT_EQ(visit, 1);
            }
        }
    }
}

TEST(ParallelFor, ACountNearTheEndOfIntegersDoesNotOverflow) {
    std::int64_t total = 0;
    parallel_for(1, INT64_MAX, INT64_MAX, [&](std::int64_t begin, std::int64_t end) { total += end - begin; });
    EXPECT_EQ(total, INT64_MAX);
}

TEST(ParallelFor, PropagatesExceptionsAndKeepsWorking) {
    for (int threads : {1, 2, 7}) {
        EXPECT_THROW(parallel_for(threads, 100, 1,
                                  [](std::int64_t begin, std::int64_t end) {
                                      if (begin <= 17 && 17 < end) throw std::runtime_error("17");
                                  }),
                     std::runtime_error);
        std::atomic<int> sum = 0;
        parallel_for(threads, 100, 1,
                     [&](std::int64_t begin, std::int64_t end) { sum += static_cast<int>(end - begin); });
        EXPECT_EQ(sum, 100);
    }
}

TEST(ParallelFor, NestedCallsRunSeriallyOnTheSameThread) {
    std::atomic<int> sum = 0;
    parallel_for(3, 30, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
            const auto outer = std::this_thread::get_id();
            parallel_for(3, 10, 1, [&](std::int64_t b, std::int64_t e) {
                EXPECT_EQ(std::this_thread::get_id(), outer);
                EXPECT_EQ(e - b, 10);
                sum += static_cast<int>(e - b);
            });
        }
    });
    EXPECT_EQ(sum, 300);
}

TEST(ParallelFor, ManyCallersShareThePool) {
    std::vector<std::thread> callers;
    std::atomic<std::int64_t> sum = 0;
    for (int caller = 0; caller < 8; ++caller) {
        callers.emplace_back([&] {
            for (int round = 0; round < 50; ++round)
                parallel_for(4, 64, 1, [&](std::int64_t begin, std::int64_t end) { sum += end - begin; });
        });
    }
    for (auto& caller : callers) caller.join();
    EXPECT_EQ(sum, 8 * 50 * 64);
}

#ifndef __SANITIZE_THREAD__  // tsan does not follow threads across fork
TEST(ParallelFor, AForkedChildHasAPoolOfItsOwn) {
    parallel_for(2, 8, 1, [](std::int64_t, std::int64_t) {});
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        std::atomic<int> sum = 0;
        parallel_for(2, 8, 1, [&](std::int64_t begin, std::int64_t end) { sum += static_cast<int>(end - begin); });
        _exit(sum == 8 ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(UsableCores, AreThoseThatTheProcessMayRunOn) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(static_cast<std::size_t>(sched_getcpu()), &one);
        _exit(sched_setaffinity(0, sizeof one, &one) == 0 ? usable_cores() : 100);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 1);
}
#endif

}  // namespace
}  // namespace octet
