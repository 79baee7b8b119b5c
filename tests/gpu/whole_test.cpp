// Whole rows of transposed tensors, and whole columns of small ones.
#include "gpu/quantize_checks.hpp"

namespace octet::gpu {
namespace {

// Rows of a transposed tensor taken whole: groups of whole eights and not, empty ones, ones that are long and just not,
// as many as there are threads, tokens that are nobody's, the longest row.
TEST(GpuWholeRows, EqualTheReference) {
    QuantizerTuning tuning;
    tuning.whole_rows = 8;
    tuning.strip_tokens = 0;
    tuning.short_groups = 1 << 20;
    const auto check = [&](std::int64_t tokens, std::vector<std::int32_t> ends) {
        for (const int width : {32, 64})
            for (const std::int64_t alignment : {16, 48, 512}) {
                Case c(static_cast<std::uint64_t>(tokens + alignment), width, Scaling::rowwise);
                c.input = Format::bf16;
                c.gap = 0;
                c.input_gap = alignment == 48 ? 8 : 0;
                c.alignment = alignment;
                c.k = 3;
                c.m = tokens;
                c.ends = ends;
                c.runner = EmulatorRunner(width, 3, tuning);
                SCOPED_TRACE(testing::Message() << tokens << " tokens, alignment " << alignment);
                ASSERT_NO_THROW(check_transposed(c));
                EXPECT_EQ(c.runner.launches(), 1u);  // the other kernel has a plan before it
                if (testing::Test::HasFailure()) return;
            }
    };
    check(400, {8, 8, 200, 272, 384});
    check(400, {3, 3, 200, 271, 399});
    check(4096, {16, 1040, 1040, 2072, 2080, 3600, 4090});
    using Two = WholeRowsKernel<E4M3, 2>;
    using One = WholeRowsKernel<E4M3, 1>;
    check(Two::most_tokens, {5, 1040, 16500});
    check(Two::most_tokens, {16000, Two::most_tokens});
    check(Two::most_tokens + 8, {5, 1040, 16500});
    check(One::most_tokens, {30000, One::most_tokens - 3});
    std::vector<std::int32_t> many;
    for (std::int32_t g = 0; g < Two::most_groups; ++g) many.push_back(g * 7 + g % 3);
    check(2048, many);
    many.resize(One::most_groups);
    for (std::int32_t& end : many) end *= 32;  // and some long ones
    many[3] = 5000;
    std::sort(many.begin(), many.end());
    check(One::most_tokens, many);
    many.assign(One::most_groups, 7);  // out of order from the first on
    many[0] = static_cast<std::int32_t>(One::most_tokens);
    check(One::most_tokens, many);
}

// Whether the last launch took columns whole, and rows with them.
bool by_whole_columns(Case& c, bool with_rows) {
    bool taken = false;
    c.with_codec([&](auto codec) {
        using Codec = decltype(codec);
        taken = with_rows ? c.runner.launched_last<WholeColumnsKernel<Codec, true>>()
                          : c.runner.launched_last<WholeColumnsKernel<Codec, false>>();
    });
    return taken;
}

// Columns of small tensors taken whole: groups that begin anywhere, empty ones, one-row ones, as many as there can be,
// one that is all of the tensor, tokens that are nobody's, the longest column, strips of which a part is there.
TEST(GpuWholeColumns, EqualTheReference) {
    const auto check = [](std::int64_t tokens, std::int64_t columns, std::vector<std::int32_t> ends) {
        for (const int width : {32, 64})
            for (const std::int64_t alignment : {16, 48, 128}) {
                Case c(static_cast<std::uint64_t>(tokens + columns + alignment), width, Scaling::rowwise);
                c.input = Format::bf16;
                c.gap = alignment == 48 ? 16 : 0;
                c.input_gap = alignment == 48 ? 8 : 0;
                c.alignment = alignment;
                c.k = columns;
                c.m = tokens;
                c.ends = ends;
                c.runner = EmulatorRunner(width, 3, {});
                SCOPED_TRACE(testing::Message() << tokens << " tokens, " << ends.size() << " groups, alignment "
                                                << alignment << ", " << width << " wide");
                ASSERT_NO_THROW(check_columns(c));
                EXPECT_TRUE(by_whole_columns(c, false));
                ASSERT_NO_THROW(check_pair(c));
                EXPECT_TRUE(by_whole_columns(c, true));
                c.other = 24;
                ASSERT_NO_THROW(check_dual(c));
                EXPECT_TRUE(by_whole_columns(c, false));
                if (testing::Test::HasFailure()) return;
            }
    };
    check(1, 8, {1});
    check(64, 40, {0, 64});
    check(200, 24, {3, 3, 4, 140, 141, 190, 190, 195});
    check(520, 16, {17, 33, 33, 400, 401, 480, 511, 517});
    check(1024, 16, {1024});
    check(1024, 8, {0, 1, 1023, 1024});
    std::vector<std::int32_t> many, one_each, skewed;
    for (std::int32_t g = 0; g < 63; ++g) {
        many.push_back(g * 9 + g % 4);
        one_each.push_back(g / 2);
        skewed.push_back(g < 40 ? g : 900 + g);
    }
    check(600, 16, many);
    check(31, 16, one_each);
    one_each.push_back(31);
    check(33, 24, one_each);
    check(1000, 8, skewed);
}

// And where else they are not, with the same bits.
TEST(GpuWholeColumns, AreTakenWhereTheyCan) {
    struct Kind {
        std::int64_t tokens = 64, columns = 16, alignment = 16, input_gap = 0, gap = 0;
        std::size_t groups = 3;
        Format input = Format::bf16;
        int most = 1024;
    };
    const auto taken = [](const Kind& kind) {
        Case c(5, 32, Scaling::rowwise);
        c.input = kind.input;
        c.m = kind.tokens;
        c.k = kind.columns;
        c.alignment = kind.alignment;
        c.input_gap = kind.input_gap;
        c.gap = kind.gap;
        c.ends.assign(kind.groups, static_cast<std::int32_t>(c.m));
        c.ends.front() = static_cast<std::int32_t>(c.m / 2);
        QuantizerTuning tuning;
        tuning.whole_columns = kind.most;
        c.runner = EmulatorRunner(32, 3, tuning);
        check_columns(c);
        const bool columns = by_whole_columns(c, false);
        check_pair(c);
        EXPECT_EQ(by_whole_columns(c, true), columns);
        return columns;
    };
    EXPECT_TRUE(taken({}));
    EXPECT_TRUE(taken({.groups = 64}));
    EXPECT_TRUE(taken({.most = 64}));
    EXPECT_TRUE(taken({.alignment = 3072}));  // of three groups as many tokens as are listed at most
    EXPECT_FALSE(taken({.alignment = 3088}));
    EXPECT_FALSE(taken({.alignment = 8}));
    EXPECT_FALSE(taken({.tokens = 1025}));
    EXPECT_FALSE(taken({.columns = 20}));
    EXPECT_FALSE(taken({.input_gap = 4}));
    EXPECT_FALSE(taken({.gap = 8}));
    EXPECT_FALSE(taken({.groups = 65}));
    EXPECT_FALSE(taken({.input = Format::f32}));
    EXPECT_FALSE(taken({.most = 63}));
    EXPECT_FALSE(taken({.most = 0}));
}

}  // namespace
}  // namespace octet::gpu
