// Parallel loops over a persistent pool of threads.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace octet {

// The cores that this process may run on.
int usable_cores();

// The number of threads that `threads` asks for: 0 means every usable core.
int thread_count(int threads);

namespace detail {

using RangeFunction = void (*)(void* context, std::int64_t begin, std::int64_t end);
void parallel_for(int threads, std::int64_t count, std::int64_t grain, RangeFunction function, void* context);

}  // namespace detail

// Calls f(begin, end) on disjoint ranges that together are [0, count), by up to `threads` threads (0: every core), the
// caller among them. A range starts on a multiple of `grain`, which is the least work worth a hand-over; a serial run
// is one range. Ranges are handed out as threads come free, so which thread gets which is not fixed: f must give the
// same result for any partition.
//
// What f wrote is there for everybody when the call returns, stores past the caches included.
//
// The first exception that f throws stops the hand-out and is rethrown here. A call from inside f runs serially. Any
// number of callers may call at the same time.
template <class F>
void parallel_for(int threads, std::int64_t count, std::int64_t grain, F&& f) {
    using Function = std::remove_reference_t<F>;
    detail::parallel_for(
        threads, count, grain,
        [](void* context, std::int64_t begin, std::int64_t end) { (*static_cast<Function*>(context))(begin, end); },
        const_cast<void*>(static_cast<const void*>(std::addressof(f))));
}

}  // namespace octet
