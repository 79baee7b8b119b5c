#include "core/parallel.hpp"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace octet {

namespace {

constexpr int most_workers = 1023;

// True on every thread that is inside a parallel loop: a loop inside it runs serially.
thread_local bool inside_loop = false;

// Stores past the caches are ordered with no others. After this they are.
void order_streamed_stores() {
#if defined(__x86_64__)
    __builtin_ia32_sfence();
#endif
}

void pause_briefly() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// Watches for done() a little longer than it takes to put a thread to sleep and wake it: the loops of one training step
// follow each other within microseconds, and waking a thread for each would cost as much as a short loop saves.
template <class Done>
void watch(const Done& done) {
    constexpr auto patience = std::chrono::microseconds(100);
    const auto end = std::chrono::steady_clock::now() + patience;
    do {
        for (int i = 0; i < 16; ++i) {
            if (done()) return;
            pause_briefly();
        }
    } while (std::chrono::steady_clock::now() < end);
}

class Job {
public:
    Job(std::int64_t count, std::int64_t grain, detail::RangeFunction function, void* context, int helpers)
        : helpers_wanted(helpers),
          count_(count),
          grain_(grain),
          ranges_((count - 1) / grain + 1),
          function_(function),
          context_(context) {}

    // Takes ranges until there are none. Every thread of the job, the caller too, is in here once.
    void run() {
        const bool was_inside = std::exchange(inside_loop, true);
        try {
            for (;;) {
                const std::int64_t range = next_range_.fetch_add(1, std::memory_order_relaxed);
                if (range >= ranges_ || stopped_.load(std::memory_order_relaxed)) break;
                const std::int64_t begin = range * grain_;
                function_(context_, begin, begin + std::min(grain_, count_ - begin));
            }
        } catch (...) {
            stopped_.store(true, std::memory_order_relaxed);
            const std::lock_guard lock(error_mutex_);
            if (!error_) error_ = std::current_exception();
        }
        order_streamed_stores();
        inside_loop = was_inside;
    }

    void rethrow() {
        if (error_) std::rethrow_exception(error_);
    }

    // Changed under the pool's mutex.
    int helpers_wanted;
    std::atomic<int> helpers_inside{0};
    std::condition_variable helper_left;

private:
    const std::int64_t count_, grain_, ranges_;
    const detail::RangeFunction function_;
    void* const context_;
    std::atomic<std::int64_t> next_range_{0};
    std::atomic<bool> stopped_{false};
    std::mutex error_mutex_;
    std::exception_ptr error_;
};

// Workers wait for jobs that want helpers. The caller works on its own job and waits only for helpers that have
// entered it, so a job ends even when every worker is busy elsewhere, or when there are none.
class Pool {
public:
    void run(Job& job) {
        const int helpers = job.helpers_wanted;
        int asleep = 0;
        {
            const std::lock_guard lock(mutex_);
            grow(helpers);
            jobs_.push_back(&job);
            jobs_posted_.fetch_add(1, std::memory_order_relaxed);
            asleep = helpers - watching_;
        }
        for (int helper = 0; helper < asleep; ++helper) job_came_.notify_one();
        job.run();
        std::unique_lock lock(mutex_);
        jobs_.erase(std::find(jobs_.begin(), jobs_.end(), &job));
        const auto alone = [&] { return job.helpers_inside.load(std::memory_order_relaxed) == 0; };
        if (!alone() && a_core_each()) {
            lock.unlock();
            watch(alone);
            lock.lock();
        }
        job.helper_left.wait(lock, alone);
    }

private:
    void grow(int wanted) {
        while (workers_ < std::min(wanted, most_workers)) {
            try {
                // Detached: a worker lives as long as the process and is not waited for when it ends.
                std::thread([this] { work(); }).detach();
            } catch (const std::system_error&) {
                return;  // the system gives no more threads: those there are do the work
            }
            ++workers_;
        }
    }

    [[noreturn]] void work() {
        std::unique_lock lock(mutex_);
        bool watched = false;  // since the last job
        for (;;) {
            const auto open =
                std::find_if(jobs_.begin(), jobs_.end(), [](Job* job) { return job->helpers_wanted > 0; });
            if (open == jobs_.end()) {
                if (!watched && a_core_each()) {
                    ++watching_;
                    const auto seen = jobs_posted_.load(std::memory_order_relaxed);
                    lock.unlock();
                    watch([&] { return jobs_posted_.load(std::memory_order_relaxed) != seen; });
                    lock.lock();
                    --watching_;
                    watched = true;
                } else {
                    job_came_.wait(lock);
                    watched = false;
                }
                continue;
            }
            watched = false;
            Job& job = **open;
            --job.helpers_wanted;
            ++job.helpers_inside;
            lock.unlock();
            job.run();
            lock.lock();
            // Notified under the lock: once it is released the caller may destroy the job.
            if (job.helpers_inside.fetch_sub(1) == 1) job.helper_left.notify_one();
        }
    }

    // A thread that watches for work takes a core; it must not be one that another thread has work for.
    bool a_core_each() const { return workers_ < thread_count(0); }

    std::mutex mutex_;
    std::condition_variable job_came_;
    std::vector<Job*> jobs_;
    std::atomic<std::uint64_t> jobs_posted_{0};  // changed under the mutex
    int workers_ = 0;
    int watching_ = 0;  // workers that will see a new job without being woken
};

// Never destroyed: workers may be waiting in it while static objects go away. A child of fork() has none of its
// parent's threads and gets a pool of its own.
std::atomic<Pool*> the_pool{nullptr};

Pool& pool() {
    static std::once_flag once;
    std::call_once(once, [] {
        the_pool = new Pool;
        pthread_atfork(nullptr, nullptr, [] { the_pool = new Pool; });
    });
    return *the_pool;
}

}  // namespace

int usable_cores() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
    return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));  // more cores than the set has room for
}

int thread_count(int threads) {
    static const int cores = usable_cores();
    return threads > 0 ? threads : cores;
}

void detail::parallel_for(int threads, std::int64_t count, std::int64_t grain, RangeFunction function, void* context) {
    if (count <= 0) return;
    grain = std::max<std::int64_t>(grain, 1);
    const std::int64_t ranges = (count - 1) / grain + 1;
    const std::int64_t wanted = std::min<std::int64_t>({thread_count(threads), ranges, most_workers + 1});
    if (wanted <= 1 || inside_loop) {
        function(context, 0, count);
        return order_streamed_stores();
    }
    Job job(count, grain, function, context, static_cast<int>(wanted - 1));
    pool().run(job);
    job.rethrow();
}

}  // namespace octet
