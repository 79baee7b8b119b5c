// Groups as the kernels look them up: many, in order of their rows, and with offsets that are none.
#include "gpu/quantize_checks.hpp"
#include "reference/quantize.hpp"

namespace octet::gpu {
namespace {

// More groups than a block has room for.
TEST(GpuPlan, OfManyGroups) {
    for (const Scaling scaling : {Scaling::rowwise, Scaling::mx}) {
        Case c(3, 32, scaling);
        c.m = 700;
        c.k = 40;
        c.alignment = scaling == Scaling::mx ? 32 : 16;
        for (const std::size_t count : {82u, 83u, 140u, 141u, 254u, 255u, 600u}) {
            if (every > 1 && count != 83 && count != 141 && count != 255) continue;
            c.ends.resize(count);
            for (std::size_t g = 0; g < count; ++g)
                c.ends[g] = static_cast<std::int32_t>(std::min<std::size_t>(g + g / 7, 690));
            SCOPED_TRACE(testing::Message() << count << " groups");
            for (const QuantizerTuning& tuning :
                 {QuantizerTuning{}, without_whole_columns(), without_strips(), ranked()}) {
                c.runner = EmulatorRunner(32, 3, tuning);
                ASSERT_NO_THROW(check_columns(c));
                ASSERT_NO_THROW(check_pair(c));
            }
            ASSERT_NO_THROW(check_transposed(c));
            if (testing::Test::HasFailure()) return;
        }
    }
}

// More experts than a block has room for, which need no looking up.
TEST(GpuPlan, OfManyExperts) {
    for (const Scaling scaling : {Scaling::rowwise, Scaling::mx, Scaling::blockwise})
        for (const std::int64_t experts : {82, 83, 140, 141, 300}) {
            if (every > 1 && experts != 83 && experts != 141) continue;
            for (int i = 0; i < 3; ++i) {
                Case c(static_cast<std::uint64_t>(i), 32, scaling);
                c.m = one_of<std::int64_t>(c.random, {3, 16, 130});
                c.k = 40;
                c.many_experts = experts;
                SCOPED_TRACE(testing::Message() << experts << " experts of [" << c.m << ", 40]");
                c.runner = EmulatorRunner(32, 3, without_strips());
                ASSERT_NO_THROW(check_weights(c));
                EXPECT_EQ(c.runner.launches(), 1u);
                if (testing::Test::HasFailure()) return;
            }
        }
}

// Notes, which a block clears that looks groups up for itself, or a plan where there are too many of these.
TEST(GpuPlan, OfManyGroupsThatLeaveNotes) {
    for (const std::size_t count : {140u, 141u, 600u}) {
        Case c(count, 32, Scaling::rowwise);
        c.input = Format::bf16;
        c.options.scale_rounding = ScaleRounding::power_of_two;
        c.m = 700;
        c.k = 300;
        c.alignment = 16;
        c.ends.resize(count);
        for (std::size_t g = 0; g < count; ++g)
            c.ends[g] = static_cast<std::int32_t>(std::min<std::size_t>(3 * g + g / 7, 690));
        c.runner = EmulatorRunner(32, 3, without_strips());
        SCOPED_TRACE(testing::Message() << count << " groups");
        ASSERT_NO_THROW(check_pair(c));
        EXPECT_EQ(c.runner.launches(), count > 140 ? 2u : 1u);
        c.with_codec(
            [&](auto codec) { EXPECT_TRUE((c.runner.launched_last<NotedTilesKernel<Bf16In, decltype(codec)>>())); });
    }
}

// Groups that wait for their turn: those with many rows come first, and of equal ones the first.
TEST(GpuPlan, RanksGroupsByTheirRows) {
    const std::vector<std::int32_t> sizes = {7, 300, 0, 300, 17, 1200, 64, 5}, order = {5, 1, 3, 6, 4, 7, 2};
    std::vector<std::int32_t> ends;
    std::vector<u32> padded = {0};
    for (const std::int32_t size : sizes) {
        ends.push_back((ends.empty() ? 0 : ends.back()) + size);
        padded.push_back(padded.back() + static_cast<u32>(round_up(size, 16)));
    }
    for (const int width : {32, 64}) {
        std::vector<Span> spans(order.size(), Span{~0u, -1, ~0u, ~0u});
        RankParams p{};
        p.ends = ends.data();
        p.groups = static_cast<i64>(sizes.size());
        p.rows = ends.back();
        p.tiling.alignment = 16;
        p.plan.span = spans.data();
        p.first = 1;
        emulator::launch<RankKernel>(1, p, width, 1);
        for (std::size_t i = 0; i < order.size(); ++i) {
            SCOPED_TRACE(testing::Message() << "rank " << i << ", " << width << " wide");
            const auto g = static_cast<std::size_t>(order[i]);
            EXPECT_EQ(spans[i].first_item, g);
            EXPECT_EQ(spans[i].rows, sizes[g]);
            EXPECT_EQ(spans[i].position, static_cast<u32>(ends[g - 1]));
            EXPECT_EQ(spans[i].padded_begin, padded[g]);
        }
    }
}

// Offsets that decrease or run past the tensor are clamped: nothing is written outside, nothing waits for ever.
void check_clamped(std::int64_t rows, const std::vector<std::int32_t>& bad, const std::vector<std::int32_t>& clamped) {
    Random random(1);
    constexpr std::int64_t features = 48;
    Strided x = random_input(random, Format::bf16, {rows, features}, 0);
    QuantizeOptions options;
    const auto count = static_cast<std::int64_t>(bad.size()), padded = padded_bound(rows, count, 16);
    Operand expected(options, 0, {features, padded}, {count, features});
    reference::quantize_columns(x.view(), {clamped.data(), count, {}}, 16, options, expected.view(), Execution{});
    QuantizerTuning by_rank = ranked();
    by_rank.strip_tokens = static_cast<int>(rows / 4);
    for (const QuantizerTuning& tuning : {QuantizerTuning{}, without_whole_columns(), without_strips(), by_rank}) {
        EmulatorRunner runner(32, 3, tuning);
        Operand given(options, 0, {features, padded}, {count, features});
        call_columns(runner, x.view(), {}, {bad.data(), count, {}}, 16, options, given.view(), {});
        EXPECT_EQ(runner.launches(), tuning.ranked_rows == 0 ? 2u : 1u);
        EXPECT_EQ((runner.launched_last<WholeColumnsKernel<E4M3, false>>()),
                  rows <= tuning.strip_tokens && rows <= tuning.whole_columns);
        expect_same("columns", expected, given);
    }
    // Both ways, by tiles that fold maxima, by such that leave notes, out of rows, and by strips.
    Operand expected_both(options, 0, {rows, features}, {rows});
    reference::quantize_rows(x.view(), options, expected_both.view(), Execution{});
    QuantizerTuning folds = without_strips(), notes = folds, from_rows = folds;
    folds.noted_rows = 0;
    notes.noted_rows = 1 << 20;
    from_rows.from_rows = 1;
    for (const QuantizerTuning& tuning : {folds, notes, from_rows, QuantizerTuning{}}) {
        // 24: rows in parts, which blocks share. From the last thread on, which may see a group that is none.
        EmulatorRunner runner(tuning.from_rows == 1 ? 64 : 32, tuning.from_rows == 1 ? 24 : 3, tuning);
        Operand given_rows(options, 0, {rows, features}, {rows}),
            given(options, 0, {features, padded}, {count, features});
        call_pair(runner, x.view(), {bad.data(), count, {}}, 16, options, given_rows.view(), given.view());
        expect_same("rows of both", expected_both, given_rows);
        expect_same("columns of both", expected, given);
        if (tuning.noted_rows == 1 << 20) {
            EXPECT_TRUE((runner.launched_last<NotedTilesKernel<Bf16In, E4M3>>()));
        }
        if (tuning.from_rows == 1) {
            EXPECT_EQ(runner.launched_last<ColumnsFromRowsKernel<E4M3>>(), rows * features * 2 >= count * 1024);
        }
    }
    // And rows of a transposed tensor, by each of their kernels.
    Strided turned(Format::bf16, {3, rows}, 0);
    for (std::int64_t i = 0; i < turned.storage.elements(); ++i)
        turned.storage.as<std::uint16_t>()[i] = BF16::encode(value_of(random, 0));
    Operand expected_rows(options, 0, {3, padded}, {count, 3});
    reference::quantize_transposed(turned.view(), {clamped.data(), count, {}}, 16, options, expected_rows.view(),
                                   Execution{});
    QuantizerTuning whole = without_strips();
    whole.whole_rows = 8;
    for (const QuantizerTuning& tuning : {QuantizerTuning{}, without_strips(), whole}) {
        EmulatorRunner runner(32, 3, tuning);
        Operand given_rows(options, 0, {3, padded}, {count, 3});
        call_transposed(runner, turned.view(), {bad.data(), count, {}}, 16, options, given_rows.view());
        expect_same("transposed", expected_rows, given_rows);
        if (tuning.whole_rows == 8) {
            EXPECT_EQ(runner.launches(), 1u);  // without a plan
        }
    }
}

TEST(GpuPlan, ClampsBadOffsets) {
    check_clamped(24, {5, 3, -7, 1 << 30, 2, 9}, {5, 5, 5, 24, 24, 24});
    // A group that is most of the tensor, offsets in both halves of a unit's, and as many as there can be.
    std::vector<std::int32_t> bad, clamped;
    for (std::int32_t g = 0; g < 64; ++g) {
        bad.push_back(g % 5 == 3 ? g - 3 : g == 40 ? 600 : g < 40 ? 2 * g : 90 + 9 * g);
        clamped.push_back(std::max(clamped.empty() ? 0 : clamped.back(), std::min(bad.back(), 640)));
    }
    check_clamped(640, bad, clamped);
    // A long group, in strips.
    check_clamped(1304, {9, -4, 1200, 40, 1250, 1 << 30, 7, 7}, {9, 9, 1200, 1200, 1250, 1304, 1304, 1304});
    // Rows 100 to 900 seem to be in two groups.
    check_clamped(1304, {900, 100, 500, 1200, 1250, 1304, 1304, 1304}, {900, 900, 900, 1200, 1250, 1304, 1304, 1304});
}

}  // namespace
}  // namespace octet::gpu
