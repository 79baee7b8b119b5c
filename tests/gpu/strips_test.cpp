// Strips: groups of any length, and long ones among short ones.
#include "gpu/quantize_checks.hpp"

namespace octet::gpu {
namespace {

// Groups that a block holds, one that it just holds, and longer ones, parts of which it reads twice.
TEST(GpuStrips, OfAnyLength) {
    for (const Scaling scaling : {Scaling::rowwise, Scaling::mx, Scaling::blockwise})
        for (const std::int32_t rows : {3, 33, 128, 130, 384, 385, 513, 900}) {
            const int width = rows % 4 ? 32 : 64;
            Case c(static_cast<std::uint64_t>(rows), width, scaling);
            c.input = rows % 2 ? Format::f32 : Format::bf16;
            c.k = rows % 3 ? 72 : 67;
            c.m = rows + 70;  // the last ones are nobody's
            c.ends = {20, rows + 20, rows + 20, rows + 57};
            c.runner = EmulatorRunner(width, 3, without_whole_columns());
            SCOPED_TRACE(testing::Message() << rows << " rows, " << name(c.input));
            ASSERT_NO_THROW(check_columns(c));
            ASSERT_NO_THROW(check_pair(c));
            if (rows < 200) {
                ASSERT_NO_THROW(check_dual(c));
            }
            if (testing::Test::HasFailure()) return;
        }
}

// Short groups are taken in strips, and long ones among them in strips of fewer columns (still fewer where these are
// few for the blocks that there are), or some rows at a time.
class GpuSkewedGroups : public testing::TestWithParam<std::tuple<Scaling, int>> {};

TEST_P(GpuSkewedGroups, EqualTheReference) {
    const auto [scaling, width] = GetParam();
    int turn = 0;
    for (const std::int64_t long_rows : {1024, 1025, 1300, 1537}) {
        Case c(static_cast<std::uint64_t>(long_rows), width, scaling);
        c.input = turn == 2 ? Format::f32 : Format::bf16;
        c.m = 2 * long_rows + 700;
        c.k = 72;
        c.gap = 0;
        c.alignment = turn == 3 ? 1024 : scaling == Scaling::rowwise ? 16 : 128;
        const auto rows = static_cast<std::int32_t>(long_rows);
        c.ends = {0, 100, 100, 100 + rows, 180 + rows, 180 + 2 * rows};
        for (int g = 0; g < 6; ++g) c.ends.push_back(c.ends.back() + 80);
        c.runner = EmulatorRunner(width, ++turn, {});
        SCOPED_TRACE(testing::Message() << long_rows << " rows in one group");
        ASSERT_NO_THROW(check_columns(c));
        ASSERT_NO_THROW(check_dual(c));
        ASSERT_NO_THROW(check_pair(c));
        c.runner.let_wait(true);
        ASSERT_NO_THROW(check_columns(c));
        c.runner = EmulatorRunner(width, 40, {});
        ASSERT_NO_THROW(check_columns(c));
        if (testing::Test::HasFailure()) return;
    }
}

INSTANTIATE_TEST_SUITE_P(All, GpuSkewedGroups,
                         testing::Combine(testing::Values(Scaling::rowwise, Scaling::blockwise, Scaling::mx),
                                          testing::Values(32, 64)));

}  // namespace
}  // namespace octet::gpu
