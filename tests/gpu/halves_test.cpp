// Casts both ways in two kernels: columns by the maxima that rows found, or out of the rows themselves.
#include <algorithm>

#include "gpu/quantize_checks.hpp"

namespace octet::gpu {
namespace {

// A cast both ways in two halves: short and long rows, empty and one-row groups, more groups than threads, rows nobody
// owns, padding to 16 and to more.
class GpuHalves : public testing::TestWithParam<std::tuple<std::int64_t, int>> {};

TEST_P(GpuHalves, EqualTheReference) {
    const auto [columns, width] = GetParam();
    const bool long_rows = columns > 512;  // they take long: few of them
    for (int i = 0; i < (long_rows ? 5 : 12); i += every) {
        const auto seed = static_cast<std::uint64_t>(columns * 100 + i);
        Case c(seed, width, Scaling::rowwise);
        c.input = Format::bf16;
        c.k = columns;
        c.alignment = one_of<std::int64_t>(c.random, {16, 48, 128});
        c.gap = one_of<std::int64_t>(c.random, {0, 16});
        if (long_rows) {
            c.m = one_of<std::int64_t>(c.random, {1, 20, 70, 140});
            c.ends.resize(std::min<std::size_t>(c.ends.size(), 5));
            for (auto& end : c.ends) end = std::min(end, static_cast<std::int32_t>(c.m));
        }
        c.ends.back() = static_cast<std::int32_t>(c.m - c.m / 10);
        c.runner.let_wait(true);
        SCOPED_TRACE(testing::Message() << "seed " << seed << ", [" << c.m << ", " << c.k << "], " << c.ends.size()
                                        << " groups, alignment " << c.alignment);
        ASSERT_NO_THROW(check_pair(c));
        if (!long_rows) {
            ASSERT_NO_THROW(check_columns(c));
        }
        ASSERT_NO_THROW(check_weights(c));
        c.runner.let_wait(i / every % 2 == 0);
        ASSERT_NO_THROW(check_two_visits(c));
        if (testing::Test::HasFailure()) return;
    }
}

// Columns out of quantized rows: as above, and groups of several parts.
class GpuColumnsFromRows : public testing::TestWithParam<std::tuple<std::int64_t, int>> {};

TEST_P(GpuColumnsFromRows, EqualTheReference) {
    const auto [columns, width] = GetParam();
    const bool long_rows = columns > 512;
    for (int i = 0; i < (long_rows ? 5 : 24); i += every) {
        const auto seed = static_cast<std::uint64_t>(columns * 100 + i);
        Case c(seed, width, Scaling::rowwise);
        c.input = Format::bf16;
        c.options.scale_rounding = ScaleRounding::power_of_two;
        c.k = columns;
        c.alignment = one_of<std::int64_t>(c.random, {16, 48, 128});
        c.gap = one_of<std::int64_t>(c.random, {0, 16});
        c.input_gap = one_of<std::int64_t>(c.random, {0, 8});
        if (long_rows) {
            c.m = one_of<std::int64_t>(c.random, {1, 20, 70, 140});
            c.ends.resize(std::min<std::size_t>(c.ends.size(), 5));
            for (auto& end : c.ends) end = std::min(end, static_cast<std::int32_t>(c.m));
        } else if (i % 4 == 0) {
            c.m = one_of<std::int64_t>(c.random, {700, 1100});
            c.ends = {3, static_cast<std::int32_t>(c.m - 2), 0};
        } else {
            c.m = std::max<std::int64_t>(c.m, 1);
        }
        c.ends.back() = static_cast<std::int32_t>(c.m - c.m / 10);
        QuantizerTuning tuning;
        tuning.from_rows = 1;
        tuning.strip_rows = tuning.strip_tokens = 0;
        c.ends.resize(std::min<std::size_t>(c.ends.size(), static_cast<std::size_t>(c.m * c.k * 2 / 1024)));
        if (c.ends.empty()) c.ends = {static_cast<std::int32_t>(c.m - c.m / 10)};
        c.runner = EmulatorRunner(width, 3, tuning);
        SCOPED_TRACE(testing::Message() << "seed " << seed << ", [" << c.m << ", " << c.k << "], " << c.ends.size()
                                        << " groups, alignment " << c.alignment);
        ASSERT_NO_THROW(check_pair(c));
        c.m = round_up(c.m, 16);
        ASSERT_NO_THROW(check_weights(c));
        if (testing::Test::HasFailure()) return;
    }
}

INSTANTIATE_TEST_SUITE_P(All, GpuColumnsFromRows,
                         testing::Combine(testing::Values(16, 32, 64, 80, 496, 1568, 5120), testing::Values(32, 64)));

// Rows that say nothing of x, beside ones that nearly say enough: bytes of one word must not reach into each other.
TEST(GpuColumnsFromRows, RowsWithNanBesideOthers) {
    for (const Format format : {Format::e4m3, Format::e5m2, Format::e4m3fnuz}) {
        Case c(5, 32, Scaling::rowwise);
        c.options.format = format;
#if defined(OCTET_ONE_FORMAT)
        c.options.format = Format::e4m3;
#endif
        c.options.scale_rounding = ScaleRounding::power_of_two;
        c.m = 1024;
        c.k = 128;
        c.gap = 0;
        c.alignment = 16;
        c.ends = {500, 1024};
        QuantizerTuning tuning = without_strips();
        tuning.from_rows = 1;
        c.runner = EmulatorRunner(32, 3, tuning);
        Strided x(Format::bf16, {c.m, c.k}, 0);
        std::normal_distribution<float> normal;
        for (std::int64_t i = 0; i < c.m * c.k; ++i) {
            const std::int64_t row = i / c.k, column = i % c.k;
            const bool small = row % 4 == 1, nan = row % 4 == 0 && column == 77;
            const int power = static_cast<int>(column % 3) - (small ? 4 + static_cast<int>(row % 5) : 0);
            x.storage.as<std::uint16_t>()[i] = BF16::encode(nan ? NAN : std::ldexp(normal(c.random), power));
        }
        ASSERT_NO_THROW(check_pair_of(c, x));
        c.with_codec([&](auto codec) {
            EXPECT_TRUE(c.runner.template launched_last<ColumnsFromRowsKernel<decltype(codec)>>());
        });
    }
}

// That columns come out of quantized rows where they can, and only there.
TEST(GpuColumnsFromRows, AreTakenWhereTheyCan) {
    struct Kind {
        std::int64_t columns = 64, alignment = 16, gap = 0;
        Format input = Format::bf16;
        ScaleRounding rounding = ScaleRounding::power_of_two;
        int least = 4;
        bool later = false;
    };
    const auto taken = [](const Kind& kind) {
        Case c(11, 32, Scaling::rowwise);
        c.options.format = Format::e4m3;
        c.options.scale_rounding = kind.rounding;
        c.input = kind.input;
        c.m = 64;
        c.k = kind.columns;
        c.gap = kind.gap;
        c.alignment = kind.alignment;
        c.ends = {10, 64};
        QuantizerTuning tuning = without_strips();
        tuning.from_rows = kind.least;
        c.runner = EmulatorRunner(32, 3, tuning);
        c.runner.let_wait(kind.later);
        Strided x(kind.input, {c.m, c.k}, 0);
        Operand rows = c.rows_operand(), tokens = c.tokens_operand(c.k);
        call_pair(c.runner, x.view(), c.groups(), c.alignment, c.options, rows.view(), tokens.view());
        c.runner.run_later();
        return c.runner.launched_last<ColumnsFromRowsKernel<E4M3>>();
    };
    EXPECT_TRUE(taken({}));                                   // 4 KiB a group
    EXPECT_TRUE(taken({.columns = 80, .gap = 16}));           // a strip and a part of one
    EXPECT_FALSE(taken({.least = 5}));                        // fewer than are asked
    EXPECT_FALSE(taken({.least = 0}));                        // never
    EXPECT_FALSE(taken({.columns = 72}));                     // no whole sixteens
    EXPECT_FALSE(taken({.gap = 8}));                          // rows that do not start on 16
    EXPECT_FALSE(taken({.alignment = 1}));                    // nor groups
    EXPECT_FALSE(taken({.input = Format::f32}));              // more bits than two casts share
    EXPECT_FALSE(taken({.rounding = ScaleRounding::exact}));  // scales that do more than shift
    EXPECT_FALSE(taken({.later = true}));                     // beside a product a block should be smaller
}

// Parts follow each other, and hold all rows.
TEST(GpuHalves, PartsHoldAllRows) {
    for (const RowParts& parts : {RowParts{1, 70, 70, 0}, RowParts{4, 1301, 268, 40}, RowParts{3, 20, 12, 4},
                                  RowParts{49, 16640, 272, 0}, RowParts{2, 8, 4, 8}}) {
        SCOPED_TRACE(testing::Message() << parts.count << " parts of " << parts.rows << " rows");
        EXPECT_EQ(parts.begin(0), 0);
        for (std::int64_t part = 0; part < parts.count; ++part) {
            EXPECT_LE(parts.begin(part), parts.begin(part + 1));
            const std::int64_t rows = parts.begin(part + 1) - parts.begin(part);
            if (parts.begin(part + 2) < parts.rows) {
                EXPECT_EQ(parts.begin(part + 2) - parts.begin(part + 1), rows + parts.more);
            }
        }
        EXPECT_EQ(parts.begin(parts.count), parts.rows);
    }
    EXPECT_EQ((RowParts{4, 1301, 268, 40}).begin(3), 268 + 308 + 348);
}

// Counts one block fewer as done with a part than there are, before columns are cast.
struct RunnerWithALateBlock : EmulatorRunner {
    using EmulatorRunner::EmulatorRunner;
    std::int64_t late_part = -1, parts = 0;
    template <class Kernel>
    void launch_next(std::int64_t blocks, const typename Kernel::Params& params) {
        if constexpr (std::is_same_v<Kernel, ColumnsFromRowsKernel<E4M3>>) {
            parts = params.done ? params.parts.count : 0;
            if (0 <= late_part && late_part < parts) --const_cast<u32*>(params.done)[late_part * counter_words];
        }
        EmulatorRunner::launch_next<Kernel>(blocks, params);
    }
};

// Columns of a group wait for all blocks of every part that has rows of it: were one forgotten, nobody would miss it
// here.
TEST(GpuColumnsFromRows, WaitForAllPartsOfTheirGroup) {
    Case c(7, 32, Scaling::rowwise);
    c.options.format = Format::e4m3;
    c.options.scale_rounding = ScaleRounding::power_of_two;
    c.m = 1301;
    c.k = 32;
    c.gap = 0;
    c.alignment = 16;
    QuantizerTuning tuning = without_strips();
    tuning.from_rows = 1;
    Strided x(Format::bf16, {c.m, c.k}, 0);
    for (std::int64_t i = 0; i < c.m * c.k; ++i) x.storage.as<std::uint16_t>()[i] = BF16::encode(1.0f);
    const auto error_with = [&](std::int64_t late_part) -> std::string {
        RunnerWithALateBlock runner(32, 40, tuning);
        runner.late_part = late_part;
        Operand rows = c.rows_operand(), tokens = c.tokens_operand(c.k);
        try {
            quantize_pair<E4M3>(runner, x.view(), c.groups(), c.alignment, c.options, rows.view(), tokens.view());
        } catch (const emulator::EmulatorError& error) {
            return error.what();
        }
        EXPECT_EQ(runner.parts, 5);
        return "";
    };
    // Groups that end within parts and where parts end (0, 200, 432, 696, 992), one of all parts, and empty ones.
    for (const std::vector<std::int32_t>& ends :
         {std::vector<std::int32_t>{300, 310, 1000, 1301}, std::vector<std::int32_t>{200, 432, 992, 1301},
          std::vector<std::int32_t>{0, 0, 1301, 1301}}) {
        c.ends = ends;
        EXPECT_EQ(error_with(-1), "");
        for (std::int64_t part = 0; part < 5; ++part)
            EXPECT_NE(error_with(part).find("nobody will reach"), std::string::npos) << "part " << part;
    }
    // Rows that nobody owns are nobody's to wait for.
    c.ends = {100, 150, 180, 200};
    EXPECT_EQ(error_with(1), "");
    EXPECT_NE(error_with(0), "");
}

// Rows in several parts, which blocks share: more blocks than elsewhere here.
TEST(GpuHalves, RowsInParts) {
    for (int i = 0; i < 24; i += every) {
        const int width = i % 2 ? 64 : 32;
        Case c(static_cast<std::uint64_t>(i), width, Scaling::rowwise);
        c.input = Format::bf16;
        c.options.scale_rounding = ScaleRounding::power_of_two;
        c.k = one_of<std::int64_t>(c.random, {16, 48, 1552, 2064});
        c.m = one_of<std::int64_t>(c.random, {255, 256, 513, 700, 1301});
        c.alignment = one_of<std::int64_t>(c.random, {16, 128});
        c.gap = 0;
        c.ends.resize(one_of<std::size_t>(c.random, {2, 3, 5, 80}));
        for (auto& end : c.ends) end = static_cast<std::int32_t>(below(c.random, c.m + 1));
        std::sort(c.ends.begin(), c.ends.end());
        QuantizerTuning tuning = without_strips();
        tuning.from_rows = i / every % 4 < 2 ? 1 : 0;
        c.runner = EmulatorRunner(width, one_of<std::int64_t>(c.random, {16, 40, 100}), tuning);
        c.runner.let_wait(tuning.from_rows == 0);
        SCOPED_TRACE(testing::Message() << "case " << i << ", [" << c.m << ", " << c.k << "], " << c.ends.size()
                                        << " groups");
        ASSERT_NO_THROW(check_pair(c));
        c.m = round_up(c.m, 16);
        ASSERT_NO_THROW(check_weights(c));
        if (testing::Test::HasFailure()) return;
    }
}

// Where no maxima are kept the two visits are two calls like any others.
TEST(GpuHalves, TwoVisitsOfAnyWeights) {
    for (const Scaling scaling : {Scaling::rowwise, Scaling::blockwise, Scaling::mx})
        for (const Format input : {Format::bf16, Format::f32})
            for (const std::int64_t columns : {64, 72, 76}) {
                Case c(static_cast<std::uint64_t>(columns), 32, scaling);
                c.input = input;
                c.k = columns;
                c.gap = 0;
                c.runner.let_wait(true);
                SCOPED_TRACE(testing::Message() << name(input) << ", " << columns << " columns");
                ASSERT_NO_THROW(check_two_visits(c));
            }
}

INSTANTIATE_TEST_SUITE_P(All, GpuHalves,
                         testing::Combine(testing::Values(8, 32, 40, 96, 496, 512, 1568, 2048, 2064, 3104, 5120, 7168,
                                                          9216),
                                          testing::Values(32, 64)));

// That the halves are taken where they can be, and only there.
TEST(GpuHalves, AreTakenWhereTheyCan) {
    const auto later = [](std::int64_t columns, std::int64_t alignment, Format format) {
        Case c(11, 32, Scaling::rowwise);
        c.input = format;
        c.m = 64;
        c.k = columns;
        c.gap = 0;
        c.alignment = alignment;
        c.ends = {10, 64};
        c.runner.let_wait(true);
        Strided x(format, {c.m, c.k}, 0);
        Operand rows = c.rows_operand(), tokens = c.tokens_operand(c.k);
        call_pair(c.runner, x.view(), c.groups(), c.alignment, c.options, rows.view(), tokens.view());
        return c.runner.run_later();
    };
    EXPECT_EQ(later(64, 16, Format::bf16), 1u);
    EXPECT_EQ(later(40, 16, Format::bf16), 1u);  // a strip and a part of one
    EXPECT_EQ(later(44, 16, Format::bf16), 0u);  // no whole eights
    EXPECT_EQ(later(64, 1, Format::bf16), 0u);   // groups that do not start on 16
    EXPECT_EQ(later(64, 16, Format::f32), 0u);
}

}  // namespace
}  // namespace octet::gpu
