// Tiles of groups that are not held, which are read again as rows.
#include "gpu/quantize_checks.hpp"

namespace octet::gpu {
namespace {

QuantizerTuning split() {
    QuantizerTuning tuning = without_strips();
    tuning.split_tiles = 1;
    tuning.from_rows = 0;
    return tuning;
}

template <class Codec>
bool taken(const Case& c) {
    return c.runner.launched_last<SplitTilesKernel<Codec>>();
}

class GpuSplitTiles : public testing::TestWithParam<std::tuple<std::int64_t, int>> {};

// Groups that are held beside such that are not, of as many tiles as are held and a few more or less; parts of tiles
// at the right and below, padding, rows nobody owns, and all kinds of numbers.
TEST_P(GpuSplitTiles, EqualTheReference) {
    const auto [blocks, width] = GetParam();
    for (int i = 0; i < 12; i += every) {
        const auto seed = static_cast<std::uint64_t>(100 * blocks + i);
        Case c(seed, width, Scaling::rowwise);
        c.input = Format::bf16;
        c.options.scale_rounding = ScaleRounding::power_of_two;
        c.alignment = one_of<std::int64_t>(c.random, {16, 32, 64, 128});
        c.gap = one_of<std::int64_t>(c.random, {0, 16});
        c.input_gap = one_of<std::int64_t>(c.random, {0, 8});
        const std::int64_t across = 1 + below(c.random, std::min<std::int64_t>(blocks, 3));
        c.k = 128 * across - one_of<std::int64_t>(c.random, {0, 16, 96});
        std::int64_t end = 0;
        c.ends.clear();
        for (int group = 0; group < 3; ++group) {
            const std::int64_t tiles = 3 * blocks + below(c.random, 3 * blocks + 4) - 2;
            c.ends.push_back(static_cast<std::int32_t>(end));  // an empty one
            end += 128 * tiles / across + one_of<std::int64_t>(c.random, {0, 1, 77, 128});
            c.ends.push_back(static_cast<std::int32_t>(end));
        }
        c.m = end + one_of<std::int64_t>(c.random, {0, 5, 300});
        c.runner = EmulatorRunner(width, blocks, split());
        SCOPED_TRACE(testing::Message() << "seed " << seed << ", [" << c.m << ", " << c.k << "], " << blocks
                                        << " blocks, alignment " << c.alignment);
        ASSERT_NO_THROW(check_pair(c));
        c.with_codec([&](auto codec) { EXPECT_TRUE(taken<decltype(codec)>(c)); });
        c.m = 16 * (1 + 8 * (3 * blocks + below(c.random, 3 * blocks)) / across);
        ASSERT_NO_THROW(check_weights(c));
        if (testing::Test::HasFailure()) return;
    }
}

INSTANTIATE_TEST_SUITE_P(All, GpuSplitTiles, testing::Combine(testing::Values(1, 2, 3, 5), testing::Values(32, 64)));

// A second visit reads what its own block wrote: whichever block a round begins with, each item of the second round of
// visits is of one tile, and of that tile's block.
TEST(GpuSplitTiles, BothVisitsAreOfOneBlock) {
    for (const std::uint32_t round : {1u, 3u, 264u})
        for (const std::uint32_t rounds : {1u, 2u, 7u})
            for (std::uint32_t held = 2 * round + 1; held <= 3 * round; held += round / 5 + 1) {
                const std::uint32_t twice = rounds * round, tiles = twice + held;
                std::vector<bool> seen(twice, false);
                for (std::uint32_t item = tiles; item < tiles + twice; ++item) {
                    const std::uint32_t tile = again(item, tiles, twice, round);
                    ASSERT_LT(tile, twice);
                    EXPECT_EQ(tile % round, item % round);
                    EXPECT_FALSE(seen[tile]) << tile << " twice";
                    seen[tile] = true;
                }
                EXPECT_GE(again(tiles, tiles, twice, round), twice - round) << "the last ones may be in the cache";
            }
}

// That tiles are read again as rows where they can be, and only there.
TEST(GpuSplitTiles, AreTakenWhereTheyCan) {
    struct Kind {
        std::int64_t columns = 64, alignment = 16, gap = 0;
        Format input = Format::bf16;
        ScaleRounding rounding = ScaleRounding::power_of_two;
        int least = 4;
        bool later = false;
    };
    const auto taken_of = [](const Kind& kind) {
        Case c(11, 32, Scaling::rowwise);
        c.options.format = Format::e4m3;
        c.options.scale_rounding = kind.rounding;
        c.input = kind.input;
        c.m = 64;
        c.k = kind.columns;
        c.gap = kind.gap;
        c.alignment = kind.alignment;
        c.ends = {10, 64};
        QuantizerTuning tuning = split();
        tuning.split_tiles = kind.least;
        c.runner = EmulatorRunner(32, 3, tuning);
        c.runner.let_wait(kind.later);
        Strided x(kind.input, {c.m, c.k}, 0);
        Operand rows = c.rows_operand(), tokens = c.tokens_operand(c.k);
        call_pair(c.runner, x.view(), c.groups(), c.alignment, c.options, rows.view(), tokens.view());
        c.runner.run_later();
        return taken<E4M3>(c);
    };
    EXPECT_TRUE(taken_of({}));                                   // 4 KiB a group
    EXPECT_TRUE(taken_of({.columns = 80, .gap = 16}));           // a tile's part
    EXPECT_TRUE(taken_of({.columns = 384}));                     // as many tiles of a row as blocks
    EXPECT_FALSE(taken_of({.columns = 400}));                    // one more, which might not be held
    EXPECT_FALSE(taken_of({.alignment = 48}));                   // tiles that are padding alone might not be, either
    EXPECT_FALSE(taken_of({.alignment = 256}));                  //
    EXPECT_FALSE(taken_of({.least = 5}));                        // fewer than are asked
    EXPECT_FALSE(taken_of({.least = 0}));                        // never
    EXPECT_FALSE(taken_of({.columns = 72}));                     // no whole sixteens
    EXPECT_FALSE(taken_of({.gap = 8}));                          // rows that do not start on 16
    EXPECT_FALSE(taken_of({.alignment = 1}));                    // nor groups
    EXPECT_FALSE(taken_of({.input = Format::f32}));              // more bits than two casts share
    EXPECT_FALSE(taken_of({.rounding = ScaleRounding::exact}));  // scales that do more than shift
    EXPECT_FALSE(taken_of({.later = true}));                     // beside a product
}

}  // namespace
}  // namespace octet::gpu
