// Tiles that exchange maxima: held and split groups, tall tiles, and tiles that leave notes.
#include "gpu/quantize_checks.hpp"

namespace octet::gpu {
namespace {

// As many tiles that share maxima as fit, and one more: the last fused ones, and the first split ones. Tiles of 128
// rows, and columns alone in tiles of 256.
TEST(GpuSlabs, FusedAndSplit) {
    for (const int tall : {0, 1})
        for (const std::int64_t blocks : {1, 3, 8})
            for (const std::int64_t more : {-1, 0, 1}) {
                if (tall && blocks == 8) continue;  // which would take minutes where it is sanitized
                const std::int64_t tile = tall ? 256 : 128;
                Case c(7, 32, Scaling::rowwise);
                c.input = Format::bf16;
                c.options.scale_rounding = ScaleRounding::power_of_two;
                // Both ways by atomics, and by notes.
                const auto check_pairs = [&] {
                    for (const int noted : {0, 1 << 20}) {
                        QuantizerTuning tuning = without_strips();
                        tuning.noted_rows = noted;
                        c.runner = EmulatorRunner(32, blocks, tuning);
                        check_pair(c);
                        c.with_codec([&](auto codec) {
                            EXPECT_EQ((c.runner.launched_last<NotedTilesKernel<Bf16In, decltype(codec)>>()), noted > 0);
                        });
                    }
                };
                c.k = 9;
                c.m = tile * (3 * blocks + more) + 50;
                c.ends = {40, static_cast<std::int32_t>(c.m - 10), static_cast<std::int32_t>(c.m - 10)};
                QuantizerTuning tuning = without_strips();
                tuning.tall_tiles = tall;
                c.runner = EmulatorRunner(32, blocks, tuning);
                SCOPED_TRACE(testing::Message() << c.m << " rows, " << blocks << " blocks, tall " << tall);
                ASSERT_NO_THROW(check_columns(c));
                c.with_codec([&](auto codec) {
                    using Codec = decltype(codec);
                    EXPECT_EQ((c.runner.launched_last<TilesKernel<Bf16In, Codec, TileScales::slab, false, 1>>()),
                              tall == 1);
                });
                ASSERT_NO_THROW(check_pairs());
                c.k = 300;
                c.m = tile * (3 * blocks + more);
                c.ends = {1, static_cast<std::int32_t>(c.m)};
                ASSERT_NO_THROW(check_pairs());
                c.runner = EmulatorRunner(32, blocks, tuning);
                ASSERT_NO_THROW(check_columns(c));
                ASSERT_NO_THROW(check_weights(c));
                if (testing::Test::HasFailure()) return;
            }
}

// Both ways one more tile of a block is held: it hands in while its block waits, be it of the same group or of the
// next. Every tile has a largest magnitude of its own.
TEST(GpuSlabs, HeldWithAFourthTile) {
    for (const std::int64_t blocks : {1, 2, 3})
        for (const std::int64_t more : {-2, -1, 0, 1}) {
            Case c(static_cast<std::uint64_t>(10 * blocks + more), 32, Scaling::rowwise);
            c.input = Format::bf16;
            c.options.scale_rounding = ScaleRounding::power_of_two;
            c.k = 5;
            c.alignment = 16;
            c.gap = 0;
            const std::int64_t rows = 128 * (4 * blocks + more);
            c.ends = {static_cast<std::int32_t>(rows), static_cast<std::int32_t>(2 * rows),
                      static_cast<std::int32_t>(3 * rows)};
            c.m = 3 * rows;
            Strided x(Format::bf16, {c.m, c.k}, 0);
            std::normal_distribution<float> normal;
            for (std::int64_t i = 0; i < c.m * c.k; ++i) {
                const std::int64_t tile = i / c.k % rows / 128, tiles = rows / 128;
                const auto power = static_cast<int>(more % 2 == 0 ? tile : tiles - tile);
                x.storage.as<std::uint16_t>()[i] = BF16::encode(std::ldexp(normal(c.random), power));
            }
            QuantizerTuning tuning = without_strips();
            tuning.noted_rows = 0;
            c.runner = EmulatorRunner(32, blocks, tuning);
            SCOPED_TRACE(testing::Message() << blocks << " blocks, " << rows / 128 << " tiles a group");
            ASSERT_NO_THROW(check_pair_of(c, x));
            if (testing::Test::HasFailure()) return;
        }
}

// That long groups' columns are taken in tall tiles, and no others.
TEST(GpuSlabs, TallTilesOfLongGroups) {
    const auto taken = [](std::int64_t rows, std::size_t groups, Format input, int least) {
        Case c(3, 32, Scaling::rowwise);
        c.options.format = Format::e4m3;
        c.input = input;
        c.m = rows;
        c.k = 8;
        c.ends.assign(groups, static_cast<std::int32_t>(rows));
        QuantizerTuning tuning = without_strips();
        tuning.tall_tiles = least;
        c.runner = EmulatorRunner(32, 2, tuning);
        Strided x(input, {rows, c.k}, 0);
        Operand columns = c.tokens_operand(c.k);
        call_columns(c.runner, x.view(), {}, c.groups(), c.alignment, c.options, columns.view(), {});
        return c.runner.launched_last<TilesKernel<Bf16In, E4M3, TileScales::slab, false, 1>>();
    };
    EXPECT_TRUE(taken(400, 1, Format::bf16, 400));
    EXPECT_TRUE(taken(400, 2, Format::bf16, 200));
    EXPECT_FALSE(taken(400, 2, Format::bf16, 201));
    EXPECT_FALSE(taken(400, 1, Format::bf16, 0));
    EXPECT_FALSE(taken(400, 1, Format::f32, 1));  // for which there is no room
}

// Tiles that leave notes, of any case: small tensors, few and many groups, any alignment, tiles held and split.
TEST(GpuNotes, OfAnyCase) {
    for (int i = 0; i < 24; i += every) {
        const auto seed = static_cast<std::uint64_t>(500 + i);
        Case c(seed, i % 2 ? 32 : 64, Scaling::rowwise);
        c.input = Format::bf16;
        c.options.scale_rounding = ScaleRounding::power_of_two;
        QuantizerTuning tuning = without_strips();
        tuning.noted_rows = 1 << 20;
        tuning.fused_tiles = i % 5;
        c.runner = EmulatorRunner(i % 2 ? 32 : 64, one_of<std::int64_t>(c.random, {1, 3, 7}), tuning);
        SCOPED_TRACE(testing::Message() << "seed " << seed << ", [" << c.m << ", " << c.k << "], " << c.ends.size()
                                        << " groups, alignment " << c.alignment);
        ASSERT_NO_THROW(check_pair(c));
        c.with_codec([&](auto codec) {
            EXPECT_EQ((c.runner.launched_last<NotedTilesKernel<Bf16In, decltype(codec)>>()), c.m > 0);
        });
        // Weights leave none.
        ASSERT_NO_THROW(check_weights(c));
        c.with_codec(
            [&](auto codec) { EXPECT_FALSE((c.runner.launched_last<NotedTilesKernel<Bf16In, decltype(codec)>>())); });
        if (testing::Test::HasFailure()) return;
    }
}

// Tiles that leave notes: rows as wide as such are, and groups with more tiles above each other than are read at once,
// held and split.
class GpuNotes : public testing::TestWithParam<std::tuple<std::int64_t, int>> {};

TEST_P(GpuNotes, EqualTheReference) {
    const auto [columns, width] = GetParam();
    const bool long_groups = columns < 300;
    for (const std::int64_t blocks : {3, 20}) {
        Case c(static_cast<std::uint64_t>(columns + blocks), width, Scaling::rowwise);
        c.input = Format::bf16;
        c.k = columns;
        c.m = (columns < 10 ? 68 : long_groups ? 18 : 0) * 128 + 300;
        const auto end = static_cast<std::int32_t>(c.m - 9);
        if (long_groups)
            c.ends = {1, 1, 40, end - 160, end};
        else
            c.ends = {128, 129, 129, 270, end};
        QuantizerTuning tuning = without_strips();
        tuning.noted_rows = 2048;
        tuning.from_rows = 0;
        c.options.scale_rounding = ScaleRounding::power_of_two;
        if (blocks == 3) c.alignment = 1024;  // tiles that are padding alone
        c.runner = EmulatorRunner(width, blocks, tuning);
        SCOPED_TRACE(testing::Message() << columns << " columns, " << blocks << " blocks, alignment " << c.alignment);
        ASSERT_NO_THROW(check_pair(c));
        c.with_codec([&](auto codec) {
            EXPECT_TRUE((c.runner.template launched_last<NotedTilesKernel<Bf16In, decltype(codec)>>()));
        });
        if (testing::Test::HasFailure()) return;
    }
}

INSTANTIATE_TEST_SUITE_P(All, GpuNotes,
                         testing::Combine(testing::Values(9, 136, 1400, 2047, 2048), testing::Values(32, 64)));

TEST(GpuNotes, AreLeftWhereFewTilesShare) {
    const auto left = [](std::int64_t rows, std::int64_t columns, std::size_t groups, Format input, int most,
                         ScaleRounding rounding = ScaleRounding::power_of_two) {
        Case c(3, 32, Scaling::rowwise);
        c.options.format = Format::e4m3;
        c.input = input;
        c.m = rows;
        c.k = columns;
        c.ends.assign(groups, static_cast<std::int32_t>(rows));
        QuantizerTuning tuning = without_strips();
        tuning.noted_rows = most;
        tuning.from_rows = 0;
        c.options.scale_rounding = rounding;
        c.runner = EmulatorRunner(32, 2, tuning);
        check_pair(c);
        using Plain16 = TilesKernel<Bf16In, E4M3, TileScales::slab, true>;
        using Plain32 = TilesKernel<F32In, E4M3, TileScales::slab, true>;
        const bool plain = c.runner.launched_last<Plain16>() || c.runner.launched_last<Plain32>();
        EXPECT_NE(plain, (c.runner.launched_last<NotedTilesKernel<Bf16In, E4M3>>()));
        return !plain;
    };
    EXPECT_TRUE(left(60, 2048, 1, Format::bf16, 60));
    EXPECT_FALSE(left(60, 2049, 1, Format::bf16, 60));
    EXPECT_FALSE(left(61, 40, 1, Format::bf16, 60));
    EXPECT_TRUE(left(61, 40, 2, Format::bf16, 60));
    EXPECT_FALSE(left(60, 40, 1, Format::f32, 60));
    EXPECT_FALSE(left(60, 40, 1, Format::bf16, 0));
    EXPECT_FALSE(left(60, 40, 1, Format::bf16, 60, ScaleRounding::exact));
    EXPECT_FALSE(left(32769, 1, 600, Format::bf16, 60));
}

}  // namespace
}  // namespace octet::gpu
