// The emulator itself: it must see what a GPU would pass over in silence.
#include "emulator/grid.hpp"

#include <gtest/gtest.h>

namespace octet::emulator {
namespace {

struct Params {
    u32* out;
    int which;
};

struct ProbeKernel {
    static constexpr int threads = 128;
    using Params = emulator::Params;
    struct Shared {
        alignas(16) u32 value[128];
    };
    template <class T>
    static void run(T& t, const Params& p, Shared& s) {
        const int me = t.thread();
        switch (p.which) {
            case 0:  // sound: reverse through shared memory, then a sum over 32 threads, and number 5 of them
            {
                t.store_shared(&s.value[me], static_cast<u32>(me));
                t.barrier();
                u32 value = t.load_shared(&s.value[127 - me]);
                for (int mask = 1; mask < 32; mask *= 2) value += t.shuffle_xor(value, mask);
                p.out[t.block() * 128 + static_cast<u32>(me)] = value + t.shuffle(static_cast<u32>(me), 5);
                break;
            }
            case 1:  // half of the block skips the barrier
                if (me < 64) t.barrier();
                break;
            case 2:  // both halves meet a barrier, but not the same one
                if (me < 64) {
                    t.barrier();
                } else {
                    t.barrier();
                }
                break;
            case 3:  // nobody wrote value[1]
                if (me == 0) t.store_shared(&s.value[0], 1u);
                t.barrier();
                p.out[me] = t.load_shared(&s.value[1]);
                break;
            case 4:  // no barrier between the write and the read
                t.store_shared(&s.value[me], 1u);
                p.out[me] = t.load_shared(&s.value[(me + 64) % 128]);
                break;
            case 5:  // no barrier between the read and the next write
                t.store_shared(&s.value[me], 1u);
                t.barrier();
                p.out[me] = t.load_shared(&s.value[(me + 64) % 128]);
                t.store_shared(&s.value[me], 2u);
                break;
            case 6:  // part of a warp shuffles
                if (me % 32 < 7) p.out[me] = t.shuffle_xor(1u, 1);
                break;
            case 7:  // nobody ever signals
                if (me == 0) t.wait(p.out, 1u);
                t.barrier();
                break;
            case 8: t.load16(reinterpret_cast<const unsigned char*>(p.out) + 4); break;
            case 10:  // sound: a copy of its own, awaited
            case 11:  // the second copy is not awaited
                if (me >= 2) break;
                for (int i = 0; i < 2; ++i) {
                    t.copy_async(reinterpret_cast<Vec16*>(s.value) + 2 * me + i, p.out + 4 * i, true);
                    t.commit_copies();
                }
                if (p.which == 10)
                    t.template await_copies<0>();
                else
                    t.template await_copies<1>();
                t.load_shared(&s.value[8 * me]);
                t.load_shared(&s.value[8 * me + 4]);
                break;
            case 12:  // sound: an atomic whose answer is awaited
            case 13:  // nobody awaits it
                if (me != 0) break;
                t.atomic_max(p.out, 7u);
                if (p.which == 12) t.await_answer(0u);
                p.out[1] = t.load_fresh(p.out);
                break;
            case 14:  // sound: maxima of all threads in one word
            case 15:  // no barrier before it is read
            case 16:  // nor between a plain write and the maxima
                if (me == 5) t.store_shared(&s.value[0], 1u);
                if (p.which != 16) t.barrier();
                t.atomic_max_shared(&s.value[0], static_cast<u32>(me) ^ 77u);
                if (p.which != 15) t.barrier();
                p.out[me] = t.load_shared(&s.value[0]);
                break;
            case 17:  // sound: numbers folded out of shared memory, and the memory written again
            case 18:  // written by threads that do not admit it
            case 19:  // nobody awaits that it is read
            case 20:  // one that is not finite
            case 21:  // written again while it may still be read
            {
                u16* const numbers = reinterpret_cast<u16*>(s.value);
                t.store_shared(numbers + me, static_cast<u16>(p.which == 20 && me == 9 ? 0x7F80 : 100 + me));
                if (p.which != 18 || me == 0) t.admit_folds();
                t.barrier();
                t.fold_max(reinterpret_cast<u16*>(p.out), numbers, 128);
                if (p.which == 19) break;
                if (p.which != 21) t.await_folds_read();
                t.barrier();
                t.store_shared(numbers + me, u16{1});
                t.barrier();
                t.await_folds();
                break;
            }
            default:  // blocks wait for each other
                if (me == 0) {
                    t.atomic_add(p.out, 1u);
                    t.wait(p.out, t.blocks());
                }
                t.barrier();
                break;
        }
    }
};

std::string error_of(int which, int width) {
    alignas(16) u32 out[256] = {};
    try {
        launch<ProbeKernel>(2, {out, which}, width, 2);
    } catch (const EmulatorError& error) {
        return error.what();
    }
    return "";
}

class Emulator : public testing::TestWithParam<int> {};

TEST_P(Emulator, RunsBarriersAndShuffles) {
    u32 out[256] = {};
    launch<ProbeKernel>(2, {out, 0}, GetParam(), 2);
    for (u32 i = 0; i < 256; ++i) {
        const u32 first = 96 - i % 128 / 32 * 32;  // of the 32 reversed values
        EXPECT_EQ(out[i], 32 * first + 31 * 16 + i % 128 / 32 * 32 + 5);
    }
}

TEST_P(Emulator, ReportsABarrierReachedByPartOfABlock) {
    EXPECT_NE(error_of(1, GetParam()).find("barrier was reached by only part"), std::string::npos);
    EXPECT_NE(error_of(2, GetParam()).find("barrier was reached by only part"), std::string::npos);
}

TEST_P(Emulator, ReportsSharedMemoryThatNobodyWrote) {
    EXPECT_NE(error_of(3, GetParam()).find("nobody wrote"), std::string::npos);
}

TEST_P(Emulator, ReportsRacesInSharedMemory) {
    EXPECT_NE(error_of(4, GetParam()), "");
    EXPECT_NE(error_of(5, GetParam()).find("race"), std::string::npos);
}

TEST_P(Emulator, ReportsShufflesOfPartOfAWarp) {
    EXPECT_NE(error_of(6, GetParam()).find("shuffle"), std::string::npos);
}

TEST_P(Emulator, ReportsWaitsWithoutEnd) {
    EXPECT_NE(error_of(7, GetParam()).find("nobody will reach"), std::string::npos);
}

TEST_P(Emulator, ReportsMisalignedAccess) { EXPECT_NE(error_of(8, GetParam()).find("aligned"), std::string::npos); }

TEST_P(Emulator, ReportsReadsOfCopiesOnTheirWay) {
    EXPECT_EQ(error_of(10, GetParam()), "");
    EXPECT_NE(error_of(11, GetParam()).find("nobody wrote"), std::string::npos);
}

TEST_P(Emulator, DoesAtomicsWhenTheirAnswerIsAwaited) {
    for (const int which : {12, 13}) {
        u32 out[2] = {};
        launch<ProbeKernel>(1, {out, which}, GetParam(), 1);
        EXPECT_EQ(out[0], 7u);  // when the kernel has ended, in either case
        EXPECT_EQ(out[1], which == 12 ? 7u : 0u);
    }
}

TEST_P(Emulator, TakesMaximaInSharedMemory) {
    u32 out[256] = {};
    launch<ProbeKernel>(1, {out, 14}, GetParam(), 1);
    for (u32 i = 0; i < 128; ++i) EXPECT_EQ(out[i], 127u);
    EXPECT_NE(error_of(15, GetParam()).find("race"), std::string::npos);
    EXPECT_NE(error_of(16, GetParam()), "");
}

TEST_P(Emulator, FoldsSharedMemoryIntoOthersMaxima) {
    alignas(16) u32 out[256] = {};
    out[1] = 150u << 16 | 7u;  // numbers 2 and 3
    launch<ProbeKernel>(2, {out, 17}, GetParam(), 2);
    for (u32 i = 0; i < 64; ++i) EXPECT_EQ(out[i], (i == 1 ? 150u : 101u + 2 * i) << 16 | (100u + 2 * i)) << i;
    EXPECT_EQ(out[64], 0u);
    EXPECT_NE(error_of(18, GetParam()).find("did not admit"), std::string::npos);
    EXPECT_NE(error_of(19, GetParam()).find("before its folds had been read"), std::string::npos);
    EXPECT_NE(error_of(20, GetParam()).find("not finite"), std::string::npos);
    // What is written too soon is what is folded.
    alignas(16) u32 late[256] = {};
    launch<ProbeKernel>(1, {late, 21}, GetParam(), 1);
    EXPECT_EQ(late[0], 1u << 16 | 1u);
}

TEST_P(Emulator, RunsBlocksThatWaitForEachOther) { EXPECT_EQ(error_of(9, GetParam()), ""); }

INSTANTIATE_TEST_SUITE_P(Widths, Emulator, testing::Values(32, 64));

}  // namespace
}  // namespace octet::emulator
