// A GPU for tests: runs a kernel of src/gpu (see gpu/simt.hpp) with every thread a fiber, real barriers and shuffles,
// and warps 32 or 64 wide. What a GPU would pass over in silence is an error here:
//
//   - a barrier that only part of a block reaches, or that its threads reach at different places;
//   - a shuffle that only part of a warp reaches (64 wide: whose partner is not there);
//   - a read of shared memory that nobody wrote;
//   - shared memory touched by two threads, one of them writing, with no barrier or shuffle between;
//   - a 16- or 8-byte access that is not aligned to its size;
//   - threads that wait for a count that nobody will reach, or a note that nobody leaves.
#pragma once

#include <cstring>
#include <deque>
#include <memory>
#include <source_location>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "emulator/fiber.hpp"
#include "gpu/simt.hpp"

namespace octet::emulator {

using namespace octet::simt;

class EmulatorError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

enum class Access { read, write, atomic };

enum class State { ready, at_shuffle, at_barrier, waiting, done };

// What is known of one byte of shared memory. Times count barriers of the block, and shuffles of the warp.
struct ShadowByte {
    std::int32_t writer = -1, reader = -1;  // threads
    std::uint32_t written = 0, read = 0;    // at this time of the block
    std::uint32_t written_warp = 0, read_warp = 0;
    bool atomic = false;  // written by atomics alone since the last barrier
};

struct Block;

struct Lane {
    Fiber fiber;
    Block* block = nullptr;
    int thread = 0;
    State state = State::done;
    std::uint32_t shuffle_value = 0, shuffle_result = 0;
    int shuffle_mask = 0, shuffle_lane = -1;  // one or the other
    std::source_location barrier_place{};
    std::deque<std::pair<Vec16*, const void*>> copies;  // to shared memory, on their way
    std::deque<std::size_t> commits;                    // copies of each
    std::size_t uncommitted = 0;
    std::vector<std::pair<u32*, u32>> maxima;  // atomics that nobody awaited
    struct Fold {
        u16* to;
        const u16* from;
        i32 count;
    };
    std::vector<Fold> folds;                   // out of shared memory, that has not been read
    std::vector<std::pair<u16*, u16>> folded;  // what they read, on its way
    u32 admitted = 0;                          // when the thread last let folds see what it wrote
    const u32* waits_for = nullptr;
    u32 wait_count = 0;

    const u32* waits_for_bytes = nullptr;  // 16, or null

    bool waits() const {
        if (waits_for_bytes == nullptr) return *waits_for < wait_count;
        Vec16 bytes;
        std::memcpy(&bytes, waits_for_bytes, sizeof(bytes));
        return !all_bytes(bytes);
    }
    void do_folds() {
        for (const auto& [to, value] : folded) *to = std::max(*to, value);
        folded.clear();
    }
    void do_atomics() {
        for (const auto& [to, value] : maxima) *to = value > *to ? value : *to;
        maxima.clear();
    }
};

struct Block {
    u32 index = 0, grid_blocks = 0;
    u32* arrived = nullptr;  // blocks, at the barrier of all
    int threads = 0, width = 32;
    // With 64 lanes blocks, warps and lanes take their turns from the last to the first: what depends on an order is
    // wrong in one of the two.
    bool backwards() const { return width == 64; }
    u32 time = 1;
    std::vector<u32> warp_time;
    std::deque<Lane> lanes;
    std::vector<ShadowByte> shadow;
    std::unique_ptr<std::byte[]> shared_storage;
    std::byte* shared = nullptr;
    std::size_t shared_bytes = 0;
    std::string error;
    void (*body)(Lane&) = nullptr;
    const void* params = nullptr;
};

// What a kernel sees.
class Thread {
public:
    explicit Thread(Lane& lane) : lane_(lane), block_(*lane.block) {}

    int thread() const { return lane_.thread; }
    int threads() const { return block_.threads; }
    int thread_again() const { return lane_.thread; }
    u32 block() const { return block_.index; }
    u32 blocks() const { return block_.grid_blocks; }

    u32 shuffle_xor(u32 value, int mask) { return shuffle_with(value, mask, -1); }
    u32 shuffle(u32 value, int lane) { return shuffle_with(value, 0, lane); }
    void barrier(std::source_location place = std::source_location::current()) {
        lane_.barrier_place = place;
        pause_as(State::at_barrier);
    }

    template <class T>
    T load_shared(const T* from) {
        touch(from, sizeof(T), Access::read);
        T value;
        std::memcpy(&value, from, sizeof(T));
        return value;
    }
    template <class T>
    T borrow_shared(const T* from) {
        return load_shared(from);
    }
    template <class RowOf>
    void load_transposed(RowOf row_of, u32 (&words)[4]) {
        simt::load_transposed_by_elements(*this, row_of, words);
    }
    template <class T, class V>
    void store_shared(T* to, V value) {
        touch(to, sizeof(T), Access::write);
        const T converted = static_cast<T>(value);
        std::memcpy(to, &converted, sizeof(T));
    }

    void atomic_max_shared(u32* to, u32 value) {
        touch(to, sizeof(u32), Access::atomic);
        *to = value > *to ? value : *to;
    }
    u32 atomic_add_shared(u32* to, u32 value) {
        touch(to, sizeof(u32), Access::atomic);
        const u32 before = *to;
        *to += value;
        return before;
    }

    Vec16 load16(const void* from, Reuse = Reuse::normal) { return wide_load<Vec16>(from); }
    // A copy arrives when it is awaited and no sooner, so that a kernel cannot do without the wait.
    template <Line line = Line::this_part>
    void copy_async(Vec16* to_shared, const void* from, bool inside) {
        if (inside) check_alignment(from, sizeof(Vec16), "copy");
        touch(to_shared, sizeof(Vec16), Access::write);
        const auto offset = reinterpret_cast<std::byte*>(to_shared) - block_.shared;
        for (std::size_t i = 0; i < sizeof(Vec16); ++i) block_.shadow[static_cast<std::size_t>(offset) + i].writer = -1;
        lane_.copies.emplace_back(to_shared, inside ? from : nullptr);
        ++lane_.uncommitted;
    }
    void copy_async(Vec16* to_shared, const void* from, bool inside, Reuse) { copy_async(to_shared, from, inside); }
    void commit_copies() {
        lane_.commits.push_back(lane_.uncommitted);
        lane_.uncommitted = 0;
    }
    template <int later>
    void await_copies() {
        while (lane_.commits.size() > static_cast<std::size_t>(later)) {
            for (std::size_t i = 0; i < lane_.commits.front(); ++i) {
                const auto [to, from] = lane_.copies.front();
                touch(to, sizeof(Vec16), Access::write);
                if (from)
                    std::memcpy(to, from, sizeof(Vec16));
                else
                    *to = {};
                lane_.copies.pop_front();
            }
            lane_.commits.pop_front();
        }
    }
    template <Reuse = Reuse::stream>
    void store16(void* to, Vec16 v) {
        wide_store(to, v);
    }
    template <Reuse = Reuse::stream>
    void store8(void* to, Vec8 v) {
        wide_store(to, v);
    }
    void store16(void* to, Vec16 v, Reuse) { wide_store(to, v); }
    void store8(void* to, Vec8 v, Reuse) { wide_store(to, v); }
    void store8_if(bool inside, void* to, Vec8 v) {
        if (inside) wide_store(to, v);
    }
    template <class T>
    T load(const T* from) {
        return *from;
    }
    template <class T>
    T load_made(const T* from) {
        return *from;
    }
    template <class T>
    void store(T* to, T value) {
        *to = value;
    }

    // An atomic is done when its answer is awaited, or the thread ends, and no sooner: a kernel cannot do without.
    u32 atomic_max(u32* to, u32 value) {
        lane_.maxima.emplace_back(to, value);
        return *to;
    }
    void await_answer(u32) { lane_.do_atomics(); }
    u32 atomic_add(u32* to, u32 value) {
        const u32 before = *to;
        *to += value;
        return before;
    }
    // A fold reads shared memory when that is awaited and no sooner, and is done when all of it is awaited, or the
    // thread ends.
    void admit_folds() { lane_.admitted = block_.time; }
    void fold_max(u16* to, const u16* from_shared, i32 count) {
        if (lane_.thread != 0) return;
        check_alignment(to, 16, "fold");
        check_alignment(from_shared, 16, "fold");
        if (count <= 0 || count % 8 != 0) report("a fold of ", count, " numbers, not of whole eights");
        touch(from_shared, static_cast<std::size_t>(count) * 2, Access::read);
        const auto* bytes = reinterpret_cast<const std::byte*>(from_shared) - block_.shared + block_.shadow.data();
        for (i32 i = 0; i < 2 * count; ++i)
            if (block_.lanes[static_cast<std::size_t>(bytes[i].writer)].admitted < bytes[i].written)
                report("a fold of what thread ", bytes[i].writer, " wrote and did not admit");
        lane_.folds.push_back({to, from_shared, count});
    }
    void await_folds_read() {
        for (const auto& fold : lane_.folds)
            for (i32 i = 0; i < fold.count; ++i) {
                const u16 value = load_shared(fold.from + i);
                if (value >= 0x7F80u) report("a fold of a number that is not finite");
                lane_.folded.emplace_back(fold.to + i, value);
            }
        lane_.folds.clear();
    }
    void await_folds() {
        await_folds_read();
        lane_.do_folds();
    }
    u16 load_fresh(const u16* from) { return *from; }
    void count_done(u32* counter) {
        if (!lane_.folds.empty() || !lane_.folded.empty()) report("a block counts as done before its folds are");
        ++*counter;
    }
    void await_done(const u32* counter, u32 count) { wait(counter, count); }
    void wait(const u32* counter, u32 count) {
        if (*counter >= count) return;
        lane_.waits_for = counter;
        lane_.wait_count = count;
        pause_as(State::waiting);
    }
    u32 load_fresh(const u32* from) { return *from; }
    Vec16 load_fresh16(const u32* from) { return wide_load<Vec16>(from); }
    void store_fresh(u8* to, u8 value) { *to = value; }
    Vec16 await_bytes(const u32* from) {
        lane_.waits_for_bytes = from;
        if (lane_.waits()) pause_as(State::waiting);
        lane_.waits_for_bytes = nullptr;
        return load_fresh16(from);
    }
    u32 arrive_everywhere() {
        barrier();
        if (lane_.thread == 0) ++*block_.arrived;
        return 0;
    }
    void await_everywhere(u32) {
        wait(block_.arrived, block_.grid_blocks);
        barrier();
    }
    static u32 keep(u32 value) { return value; }
    void await_earlier() {}
    void admit_later() {}
    void prefetch(const void*) {}

    // The larger magnitudes of two bf16 pairs, with signs that a kernel must not lean on, and one NaN for all.
    static u32 max_magnitude_bf16x2(u32 a, u32 b) {
        u32 result = 0;
        for (int shift = 0; shift < 32; shift += 16) {
            const u32 x = a >> shift & 0x7FFFu, y = b >> shift & 0x7FFFu, larger = x > y ? x : y;
            const u32 sign = (a ^ b) >> shift & 0x8000u;
            result |= (larger > 0x7F80u ? 0x7FFFu : larger | sign) << shift;
        }
        return result;
    }
    static u32 permute_bytes(u32 a, u32 b, u32 selector) {
        const u64 both = static_cast<u64>(b) << 32 | a;
        u32 result = 0;
        for (int i = 0; i < 4; ++i)
            result |= static_cast<u32>(both >> (8 * (selector >> (4 * i) & 7u)) & 0xFFu) << (8 * i);
        return result;
    }
    static float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
    static float product(float a, float b) { return a * b; }
    static float reciprocal(float x) { return 1.0f / x; }
    static u32 encode_bf16x2(float first, float second) {
        return static_cast<u32>(BF16::encode(first)) | static_cast<u32>(BF16::encode(second)) << 16;
    }
    template <class Codec>
    static u32 encode2(float first, float second) {
        return static_cast<u32>(Codec::encode(first)) | static_cast<u32>(Codec::encode(second)) << 8;
    }
    template <class Codec>
    static u32 encode4(float a, float b, float c, float d) {
        return encode2<Codec>(a, b) | encode2<Codec>(c, d) << 16;
    }

private:
    void pause_as(State state) {
        lane_.state = state;
        lane_.fiber.yield();
    }

    u32 shuffle_with(u32 value, int mask, int lane) {
        lane_.shuffle_value = value;
        lane_.shuffle_mask = mask;
        lane_.shuffle_lane = lane;
        pause_as(State::at_shuffle);
        return lane_.shuffle_result;
    }

    template <class... Parts>
    [[noreturn]] void report(const Parts&... parts) {
        std::ostringstream text;
        text << "thread " << lane_.thread << " of block " << block_.index << ": ";
        (text << ... << parts);
        throw EmulatorError(text.str());
    }

    template <class V>
    V wide_load(const void* from) {
        check_alignment(from, sizeof(V), "load");
        V v;
        std::memcpy(&v, from, sizeof(V));
        return v;
    }
    template <class V>
    void wide_store(void* to, const V& v) {
        check_alignment(to, sizeof(V), "store");
        std::memcpy(to, &v, sizeof(V));
    }
    void check_alignment(const void* at, std::size_t size, const char* what) {
        if (reinterpret_cast<std::uintptr_t>(at) % size != 0)
            report("a ", size, "-byte ", what, " that is not aligned");
    }

    // Two threads of a block may touch one byte, one of them writing, only with a barrier between, or a shuffle where
    // they are of one warp; or both by atomics.
    bool apart(std::int32_t other, u32 time, u32 warp_time) const {
        if (other < 0 || other == lane_.thread || time < block_.time) return true;
        const int warp = lane_.thread / block_.width;
        return other / block_.width == warp && warp_time < block_.warp_time[static_cast<std::size_t>(warp)];
    }

    void touch(const void* at, std::size_t size, Access access) {
        const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(at) - block_.shared);
        if (static_cast<const std::byte*>(at) < block_.shared || offset + size > block_.shared_bytes)
            report("shared memory access outside of it, at byte ", offset);
        const u32 warp_time = block_.warp_time[static_cast<std::size_t>(lane_.thread / block_.width)];
        for (std::size_t i = offset; i < offset + size; ++i) {
            ShadowByte& b = block_.shadow[i];
            if (access != Access::write && b.writer < 0) report("read of shared memory that nobody wrote, at byte ", i);
            const bool earlier = b.written < block_.time;  // than the last barrier
            const bool joins = access == Access::atomic && b.atomic && !earlier;
            if (!joins && !apart(b.writer, b.written, b.written_warp))
                report("race in shared memory at byte ", i, " with thread ", b.writer, ", which wrote it");
            if (access != Access::read) {
                if (!apart(b.reader, b.read, b.read_warp))
                    report("race in shared memory at byte ", i, " with thread ", b.reader, ", which read it");
                b.atomic = access == Access::atomic && (joins || earlier);
                b.writer = lane_.thread;
                b.written = block_.time;
                b.written_warp = warp_time;
            } else {
                b.reader = lane_.thread;
                b.read = block_.time;
                b.read_warp = warp_time;
            }
        }
    }

    Lane& lane_;
    Block& block_;
};

namespace detail {

template <class Kernel>
void body(Lane& lane) {
    Thread thread(lane);
    Kernel::run(thread, *static_cast<const typename Kernel::Params*>(lane.block->params),
                *reinterpret_cast<typename Kernel::Shared*>(lane.block->shared));
}

inline void enter(void* argument) {
    Lane& lane = *static_cast<Lane*>(argument);
    lane.maxima.clear();
    lane.folds.clear();
    lane.folded.clear();
    lane.admitted = 0;
    try {
        lane.block->body(lane);
        if (!lane.folds.empty()) throw EmulatorError("a thread ended before its folds had been read");
        lane.do_folds();
        lane.do_atomics();
    } catch (const std::exception& error) {
        if (lane.block->error.empty()) lane.block->error = error.what();
    }
    lane.state = State::done;
}

// Runs a warp until no lane of it can go on.
inline bool run_warp(Block& block, int warp) {
    const int first = warp * block.width, end = std::min(first + block.width, block.threads);
    bool moved = false;
    while (true) {
        int shuffling = 0, blocked = 0;
        for (int n = first; n < end; ++n) {
            const int i = block.backwards() ? first + end - 1 - n : n;
            Lane& lane = block.lanes[static_cast<std::size_t>(i)];
            if (lane.state == State::waiting && !lane.waits()) lane.state = State::ready;
            if (lane.state == State::ready) {
                lane.fiber.resume();
                moved = true;
                if (!block.error.empty()) return true;
            }
            if (lane.state == State::at_shuffle)
                ++shuffling;
            else
                ++blocked;
        }
        if (shuffling == 0) return moved;
        bool waiting = false;
        for (int i = first; i < end; ++i)
            waiting = waiting || block.lanes[static_cast<std::size_t>(i)].state == State::waiting;
        if (waiting) return moved;
        if (block.width == 32 && blocked != 0) {
            block.error = "a shuffle was reached by " + std::to_string(shuffling) + " of the " +
                          std::to_string(end - first) + " threads of warp " + std::to_string(warp);
            return true;
        }
        for (int i = first; i < end; ++i) {
            Lane& lane = block.lanes[static_cast<std::size_t>(i)];
            if (lane.state != State::at_shuffle) continue;
            const int other =
                lane.shuffle_lane < 0 ? first + ((i - first) ^ lane.shuffle_mask) : i / unit * unit + lane.shuffle_lane;
            const bool there = other < end && block.lanes[static_cast<std::size_t>(other)].state == State::at_shuffle &&
                               block.lanes[static_cast<std::size_t>(other)].shuffle_mask == lane.shuffle_mask &&
                               block.lanes[static_cast<std::size_t>(other)].shuffle_lane == lane.shuffle_lane;
            if (!there) {
                block.error = "a shuffle of thread " + std::to_string(i) + " has no partner: thread " +
                              std::to_string(other) + " did not reach it";
                return true;
            }
            lane.shuffle_result = block.lanes[static_cast<std::size_t>(other)].shuffle_value;
        }
        for (int i = first; i < end; ++i) {
            Lane& lane = block.lanes[static_cast<std::size_t>(i)];
            if (lane.state == State::at_shuffle) lane.state = State::ready;
        }
        ++block.warp_time[static_cast<std::size_t>(warp)];
    }
}

// Runs a block until none of its threads can go on. Returns whether any did.
inline bool run_block(Block& block) {
    const int warps = (block.threads + block.width - 1) / block.width;
    bool moved = false;
    while (true) {
        for (int n = 0; n < warps; ++n) {
            moved = run_warp(block, block.backwards() ? warps - 1 - n : n) || moved;
            if (!block.error.empty()) return true;
        }
        int at_barrier = 0, done = 0;
        for (const Lane& lane : block.lanes) {
            at_barrier += lane.state == State::at_barrier;
            done += lane.state == State::done;
        }
        if (at_barrier == 0 || at_barrier + done < block.threads) return moved;
        const auto& place = block.lanes[0].barrier_place;
        for (const Lane& lane : block.lanes) {
            const bool same = lane.state == State::at_barrier && lane.barrier_place.line() == place.line() &&
                              std::strcmp(lane.barrier_place.file_name(), place.file_name()) == 0;
            if (same) continue;
            block.error = "a barrier was reached by only part of block " + std::to_string(block.index) + ": thread " +
                          std::to_string(lane.thread) +
                          (lane.state == State::done ? " has ended" : " is at another one");
            return true;
        }
        ++block.time;
        for (Lane& lane : block.lanes) lane.state = State::ready;
    }
}

}  // namespace detail

// Runs `blocks` blocks, `together` of them at a time.
template <class Kernel>
void launch(i64 blocks, const typename Kernel::Params& params, int width, int together) {
    using Shared = typename Kernel::Shared;
    static thread_local std::deque<Block> pool;  // stacks are dear; they are kept
    if (pool.size() < static_cast<std::size_t>(together)) pool.resize(static_cast<std::size_t>(together));
    u32 arrived = 0;
    for (i64 start = 0; start < blocks; start += together) {
        const i64 count = std::min<i64>(together, blocks - start);
        for (i64 b = 0; b < count; ++b) {
            Block& block = pool[static_cast<std::size_t>(b)];
            block.index = static_cast<u32>(start + b);
            block.grid_blocks = static_cast<u32>(blocks);
            block.arrived = &arrived;
            block.threads = Kernel::threads;
            block.width = width;
            block.time = 1;
            block.warp_time.assign(static_cast<std::size_t>((Kernel::threads + width - 1) / width), 1);
            block.shared_bytes = sizeof(Shared);
            block.shared_storage = std::make_unique<std::byte[]>(sizeof(Shared) + 64);
            void* at = block.shared_storage.get();
            std::size_t room = sizeof(Shared) + 64;
            block.shared = static_cast<std::byte*>(std::align(16, sizeof(Shared), at, room));
            std::memset(block.shared, 0xA5, sizeof(Shared));
            block.shadow.assign(sizeof(Shared), {});
            block.error.clear();
            block.body = &detail::body<Kernel>;
            block.params = &params;
            while (block.lanes.size() < static_cast<std::size_t>(Kernel::threads)) block.lanes.emplace_back();
            while (block.lanes.size() > static_cast<std::size_t>(Kernel::threads)) block.lanes.pop_back();
            for (int i = 0; i < Kernel::threads; ++i) {
                Lane& lane = block.lanes[static_cast<std::size_t>(i)];
                lane.block = &block;
                lane.thread = i;
                lane.state = State::ready;
                lane.waits_for_bytes = nullptr;
                lane.copies.clear();
                lane.commits.clear();
                lane.uncommitted = 0;
                lane.fiber.start(&detail::enter, &lane);
            }
        }
        bool left = true;
        while (left) {
            left = false;
            bool moved = false;
            for (i64 n = 0; n < count; ++n) {
                Block& block = pool[static_cast<std::size_t>(width == 64 ? count - 1 - n : n)];
                moved = detail::run_block(block) || moved;
                if (!block.error.empty()) throw EmulatorError(block.error);
                for (const Lane& lane : block.lanes) left = left || lane.state != State::done;
            }
            if (left && !moved)
                throw EmulatorError("threads wait for a count that nobody will reach, or a note that nobody leaves");
        }
    }
}

}  // namespace octet::emulator
