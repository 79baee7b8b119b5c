// Checks that pass make no texts: in a small call on a GPU they cost as much as its launches.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "ops/check.hpp"

// The sanitizers have these of their own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {
thread_local int allocations = 0;
}

void* operator new(std::size_t bytes) {
    ++allocations;
    if (void* const memory = std::malloc(bytes)) return memory;
    throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace octet {
namespace {

TEST(CheckText, IsMadeOnlyWhereACheckFails) {
    // Long enough that none of their texts fits into a string without memory of its own.
    alignas(64) static char place[64];
    const ConstTensorView x(place, Format::bf16, {123456, 234567, 128});
    const std::int32_t ends[] = {1, 2};
    const int before = allocations;
    check::dense("x", x, {Format::f32, Format::bf16, Format::e4m3}, {123456, 234567, check::any_size});
    check::strided("x", x, {Format::f32, Format::bf16, Format::e4m3}, {123456, 234567, check::any_size});
    check::not_empty("x", x, {0, 1, 2});
    check::groups({ends, 2, {}}, 123456, {});
    check::same_device("x", x.device, "the other", {});
    EXPECT_EQ(allocations - before, 0);
    EXPECT_THROW(check::dense("x", x, {Format::bf16}, {1, 2, 3}), Error);
    EXPECT_GT(allocations - before, 0);  // the count counts
}

}  // namespace
}  // namespace octet

#endif
