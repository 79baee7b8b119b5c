// Every quantizer kernel of src/gpu in the emulator, bit for bit against the scalar reference: odd shapes, empty and
// one-row groups, rows nobody owns, odd strides, special values, outputs poisoned beforehand.
#include "reference/quantize.hpp"
#include "gpu/quantize_case.hpp"

namespace octet::gpu {
namespace {

const Execution by_reference{};

// Tiles for columns, whatever the sizes.
QuantizerTuning without_strips() {
    QuantizerTuning tuning;
    tuning.strip_rows = tuning.strip_tokens = 0;
    return tuning;
}

// Strips for columns of small tensors.
QuantizerTuning without_whole_columns() {
    QuantizerTuning tuning;
    tuning.whole_columns = 0;
    return tuning;
}

// Strips, and groups taken by their rows, whatever the sizes.
QuantizerTuning ranked() {
    QuantizerTuning tuning;
    tuning.strip_tokens = 100;
    tuning.ranked_rows = 0;
    return tuning;
}

void check_rows(Case& c) {
    Strided x = random_input(c.random, c.input, {c.m, c.k});
    Operand expected = c.rows_operand(), given = c.rows_operand();
    reference::quantize_rows(x.view(), c.options, expected.view(), by_reference);
    c.with_codec([&](auto codec) { quantize_rows<decltype(codec)>(c.runner, x.view(), c.options, given.view()); });
    expect_same("rows", expected, given);
}

void check_columns(Case& c) {
    Strided x = random_input(c.random, c.input, {c.m, c.k}, c.input_gap);
    Operand expected = c.tokens_operand(c.k), given = c.tokens_operand(c.k);
    reference::quantize_columns(x.view(), c.groups(), c.alignment, c.options, expected.view(), by_reference);
    c.with_codec([&](auto codec) {
        quantize_columns<decltype(codec)>(c.runner, x.view(), {}, c.groups(), c.alignment, c.options, given.view(), {});
    });
    c.runner.run_later();
    expect_same("columns", expected, given);
}

void check_dual(Case& c) {
    const std::int64_t other = c.other > 0 ? c.other : one_of<std::int64_t>(c.random, {3, 128, 300});
    Strided x0 = random_input(c.random, c.input, {c.m, c.k}, c.input_gap),
            x1 = random_input(c.random, c.input, {c.m, other}, c.input_gap);
    Operand expected0 = c.tokens_operand(c.k), given0 = c.tokens_operand(c.k);
    Operand expected1 = c.tokens_operand(other), given1 = c.tokens_operand(other);
    reference::quantize_columns_dual(x0.view(), x1.view(), c.groups(), c.alignment, c.options, expected0.view(),
                                     expected1.view(), by_reference);
    c.with_codec([&](auto codec) {
        quantize_columns<decltype(codec)>(c.runner, x0.view(), x1.view(), c.groups(), c.alignment, c.options,
                                          given0.view(), given1.view());
    });
    expect_same("first", expected0, given0);
    expect_same("second", expected1, given1);
}

void check_pair_of(Case& c, Strided& x) {
    Operand expected_rows = c.rows_operand(), given_rows = c.rows_operand();
    Operand expected = c.tokens_operand(c.k), given = c.tokens_operand(c.k);
    reference::quantize_pair(x.view(), c.groups(), c.alignment, c.options, expected_rows.view(), expected.view(),
                             by_reference);
    c.with_codec([&](auto codec) {
        quantize_pair<decltype(codec)>(c.runner, x.view(), c.groups(), c.alignment, c.options, given_rows.view(),
                                       given.view());
    });
    expect_same("rows", expected_rows, given_rows);  // of a cast in two halves: the first
    c.runner.run_later();
    expect_same("columns", expected, given);
}

void check_pair(Case& c) {
    Strided x = random_input(c.random, c.input, {c.m, c.k}, c.input_gap);
    check_pair_of(c, x);
}

void check_transposed(Case& c) {
    Strided x = random_input(c.random, c.input, {c.k, c.m}, c.input_gap);
    for (std::int64_t feature = 0; feature < c.k; ++feature)  // nobody's tokens are no part of any maximum
        for (std::int64_t token = c.ends.back(); token < c.m; ++token) {
            const std::int64_t at = feature * x.extents.strides[0] + token;
            if (c.input == Format::f32)
                x.storage.as<float>()[at] = 3e38f;
            else
                x.storage.as<std::uint16_t>()[at] = BF16::encode(3e38f);
        }
    Operand expected = c.tokens_operand(c.k), given = c.tokens_operand(c.k);
    reference::quantize_transposed(x.view(), c.groups(), c.alignment, c.options, expected.view(), by_reference);
    c.with_codec([&](auto codec) {
        quantize_transposed<decltype(codec)>(c.runner, x.view(), c.groups(), c.alignment, c.options, given.view());
    });
    expect_same("transposed", expected, given);
}

void check_weights(Case& c) {
    const std::int64_t experts = 1 + below(c.random, 3), n = std::max<std::int64_t>(1, c.m);
    Strided w = random_input(c.random, c.input, {experts, n, c.k});
    Operand expected_k = c.weights_operand(experts, n, c.k), given_k = c.weights_operand(experts, n, c.k);
    Operand expected_n = c.weights_operand(experts, c.k, n), given_n = c.weights_operand(experts, c.k, n);
    const std::int64_t which = below(c.random, 3);
    const auto k_of = [&](Operand& o) { return which == 1 ? QuantizedView{} : o.view(); };
    const auto n_of = [&](Operand& o) { return which == 0 ? QuantizedView{} : o.view(); };
    reference::quantize_weights(w.view(), c.options, k_of(expected_k), n_of(expected_n), by_reference);
    c.with_codec([&](auto codec) {
        quantize_weights<decltype(codec)>(c.runner, w.view(), c.options, k_of(given_k), n_of(given_n));
    });
    expect_same("along_k", expected_k, given_k);
    c.runner.run_later();
    expect_same("along_n", expected_n, given_n);
}

// Weights both ways in two calls.
void check_two_visits(Case& c) {
    const std::int64_t experts = 1 + below(c.random, 3), n = round_up(std::max<std::int64_t>(1, c.m), 16);
    Strided w = random_input(c.random, c.input, {experts, n, c.k});
    Operand expected_k = c.weights_operand(experts, n, c.k), given_k = c.weights_operand(experts, n, c.k);
    Operand expected_n = c.weights_operand(experts, c.k, n), given_n = c.weights_operand(experts, c.k, n);
    reference::quantize_weights(w.view(), c.options, expected_k.view(), expected_n.view(), by_reference);
    const bool keeps = c.options.scaling == Scaling::rowwise && c.input == Format::bf16 && c.k % 8 == 0 &&
                       w.extents.strides[1] % 8 == 0;
    EXPECT_EQ(keeps_maxima<E4M3>(w.view(), c.options), keeps);
    c.with_codec([&](auto codec) {
        c.runner.set_visit(WeightVisit::first);
        quantize_weights<decltype(codec)>(c.runner, w.view(), c.options, given_k.view(), {});
        expect_same("along_k", expected_k, given_k);
        c.runner.set_visit(WeightVisit::second);
        quantize_weights<decltype(codec)>(c.runner, w.view(), c.options, {}, given_n.view());
    });
    c.runner.set_visit(WeightVisit::only);
    EXPECT_EQ(c.runner.run_later(), keeps && c.runner.may_wait() ? 1u : 0u);
    expect_same("along_n", expected_n, given_n);
}

void check_dequantize(Case& c) {
    // Of every layout, with whatever bytes a quantizer could have written.
    Strided x = random_input(c.random, c.input, {c.m, c.k});
    Operand q = c.rows_operand();
    reference::quantize_rows(x.view(), c.options, q.view(), by_reference);
    Strided expected(c.input, {c.m, c.k}, 3), given(c.input, {c.m, c.k}, 3);
    reference::dequantize_rows(q.view(), c.options, expected.view(), by_reference);
    dequantize_rows(c.runner, q.view(), c.options, given.view());
    expect_same("rows", expected, given);

    Operand columns = c.tokens_operand(c.k);
    reference::quantize_columns(x.view(), c.groups(), c.alignment, c.options, columns.view(), by_reference);
    reference::dequantize_columns(columns.view(), c.groups(), c.alignment, c.options, expected.view(), by_reference);
    dequantize_tokens(c.runner, columns.view(), c.groups(), c.alignment, c.options, given.view(), false);
    expect_same("columns", expected, given);

    Strided expected_t(c.input, {c.k, c.m}, 0), given_t(c.input, {c.k, c.m}, 0);
    reference::dequantize_transposed(columns.view(), c.groups(), c.alignment, c.options, expected_t.view(),
                                     by_reference);
    dequantize_tokens(c.runner, columns.view(), c.groups(), c.alignment, c.options, given_t.view(), true);
    expect_same("transposed", expected_t, given_t);

    const std::int64_t n = std::max<std::int64_t>(1, c.m / 2);
    Strided w = random_input(c.random, c.input, {2, n, c.k});
    Operand along_k = c.weights_operand(2, n, c.k), along_n = c.weights_operand(2, c.k, n);
    reference::quantize_weights(w.view(), c.options, along_k.view(), along_n.view(), by_reference);
    for (const auto orientation : {WeightOrientation::along_k, WeightOrientation::along_n}) {
        Operand& o = orientation == WeightOrientation::along_k ? along_k : along_n;
        Strided expected_w(c.input, {2, n, c.k}, 1), given_w(c.input, {2, n, c.k}, 1);
        reference::dequantize_weights(o.view(), orientation, c.options, expected_w.view(), by_reference);
        dequantize_weights(c.runner, o.view(), orientation, c.options, given_w.view());
        expect_same("weights", expected_w, given_w);
    }
}

void check_padding(Case& c) {
    const std::int64_t count = static_cast<std::int64_t>(c.ends.size()), bound = padded_bound(c.m, count, c.alignment);
    Strided x = random_input(c.random, c.input, {c.m, c.k});
    Strided expected(c.input, {bound, c.k}, 4), given(c.input, {bound, c.k}, 4);
    std::vector<std::int32_t> expected_ends(c.ends.size()), given_ends(c.ends.size());
    reference::pad_groups(x.view(), c.groups(), c.alignment, expected.view(), expected_ends.data(), by_reference);
    pad_or_unpad(c.runner, x.view(), given.view(), c.groups(), c.m, c.alignment, given_ends.data(), false);
    expect_same("padded", expected, given);
    EXPECT_EQ(expected_ends, given_ends);
    Strided back(c.input, {c.m, c.k}, 0), back_given(c.input, {c.m, c.k}, 0);
    reference::unpad_groups(expected.view(), c.groups(), c.alignment, back.view(), by_reference);
    pad_or_unpad(c.runner, expected.view(), back_given.view(), c.groups(), c.m, c.alignment, nullptr, true);
    expect_same("unpadded", back, back_given);
}

void check_swizzle(Case& c) {
    const std::int64_t columns = c.k % 20 + 1, rows = std::max<std::int64_t>(1, c.m), experts = 1 + below(c.random, 3);
    Strided scale(Format::e8m0, {experts, rows, columns}, 3);
    for (std::size_t i = 0; i < scale.storage.bytes(); ++i)
        scale.storage.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(c.random());
    const std::int64_t bytes = swizzled_rows(rows) * swizzled_columns(columns);
    Strided expected(Format::e8m0, {experts, bytes}, 0), given(Format::e8m0, {experts, bytes}, 0);
    reference::swizzle_scales(scale.view(), expected.view(), by_reference);
    swizzle(c.runner, scale.view().data, given.view().data, scale.extents, nullptr, false);
    expect_same("blocked", expected, given);
    Strided back(Format::e8m0, {experts, rows, columns}, 3), back_given(Format::e8m0, {experts, rows, columns}, 3);
    reference::unswizzle_scales(expected.view(), back.view(), by_reference);
    swizzle(c.runner, expected.view().data, back_given.view().data, back.extents, nullptr, true);
    expect_same("unblocked", back, back_given);

    const Groups groups = c.groups();
    Strided tokens(Format::e8m0, {c.m, columns}, 0);
    for (std::size_t i = 0; i < tokens.storage.bytes(); ++i)
        tokens.storage.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(c.random());
    const std::int64_t grouped = swizzled_group_rows(c.m, groups.count) * swizzled_columns(columns);
    Strided blocked(Format::e8m0, {grouped}, 0), blocked_given(Format::e8m0, {grouped}, 0);
    reference::swizzle_group_scales(tokens.view(), groups, blocked.view(), by_reference);
    swizzle(c.runner, tokens.view().data, blocked_given.view().data, tokens.extents, &groups, false);
    expect_same("blocked groups", blocked, blocked_given);
    Strided token_back(Format::e8m0, {c.m, columns}, 0), token_given(Format::e8m0, {c.m, columns}, 0);
    reference::unswizzle_group_scales(blocked.view(), groups, token_back.view(), by_reference);
    swizzle(c.runner, blocked.view().data, token_given.view().data, tokens.extents, &groups, true);
    expect_same("unblocked groups", token_back, token_given);
}

struct Check {
    const char* name;
    void (*check)(Case&);
    int cases;
};

constexpr Check checks[] = {{"rows", check_rows, 10},
                            {"columns", check_columns, 10},
                            {"dual", check_dual, 4},
                            {"pair", check_pair, 9},
                            {"transposed", check_transposed, 8},
                            {"weights", check_weights, 9},
                            {"dequantize", check_dequantize, 2},
                            {"padding", check_padding, 3},
                            {"swizzle", check_swizzle, 3}};

class GpuQuantizers : public testing::TestWithParam<std::tuple<int, Scaling, int>> {};

TEST_P(GpuQuantizers, EqualTheReference) {
    const auto [which, scaling, width] = GetParam();
    const Check& check = checks[which];
    for (int i = 0; i < check.cases; i += every) {
        const auto seed = static_cast<std::uint64_t>(i * 1000 + which * 10 + static_cast<int>(scaling));
        Case c(seed, width, scaling);
        SCOPED_TRACE(testing::Message() << check.name << ", seed " << seed << ", " << name(c.input) << " [" << c.m
                                        << ", " << c.k << "] to " << name(c.options.format) << ", " << c.ends.size()
                                        << " groups, alignment " << c.alignment);
        ASSERT_NO_THROW(check.check(c));
        if (testing::Test::HasFailure()) return;
    }
}

INSTANTIATE_TEST_SUITE_P(All, GpuQuantizers,
                         testing::Combine(testing::Range(0, static_cast<int>(std::size(checks))),
                                          testing::Values(Scaling::rowwise, Scaling::blockwise, Scaling::mx),
                                          testing::Values(32, 64)),
                         [](const auto& parameter) {
                             return std::string(checks[std::get<0>(parameter.param)].name) + "_" +
                                    std::string(name(std::get<1>(parameter.param))) + "_" +
                                    std::to_string(std::get<2>(parameter.param));
                         });

// Rows that take every width of the kernel that finds both scales, and the longest, which no block can hold.
class GpuLongRows : public testing::TestWithParam<std::int64_t> {};

TEST_P(GpuLongRows, EqualTheReference) {
    for (const Format input : {Format::bf16, Format::f32}) {
        Case c(static_cast<std::uint64_t>(GetParam()), input == Format::bf16 ? 32 : 64, Scaling::rowwise);
        c.input = input;
        c.k = GetParam();
        c.m = 7;
        c.ends = {3, 3, 6};
        SCOPED_TRACE(testing::Message() << name(c.input) << " [" << c.m << ", " << c.k << "]");
        ASSERT_NO_THROW(check_pair(c));
        c.m = 2;
        ASSERT_NO_THROW(check_weights(c));
        if (testing::Test::HasFailure()) return;
    }
}

INSTANTIATE_TEST_SUITE_P(All, GpuLongRows, testing::Values(2056, 5120, 8192, 9000, 16400));

// Teams of every width, and tokens that their registers do not hold.
class GpuLongGroups : public testing::TestWithParam<std::int64_t> {};

TEST_P(GpuLongGroups, EqualTheReference) {
    for (const int width : {32, 64})
        for (const int short_groups : {0, 1 << 20})   // eights a thread: 8, 4
            for (const std::int64_t past : {0, 5}) {  // tokens past whole eights
                Case c(static_cast<std::uint64_t>(GetParam()), width, Scaling::rowwise);
                c.input = Format::bf16;
                c.options.scale_rounding = past ? ScaleRounding::exact : ScaleRounding::power_of_two;
                c.gap = 0;
                c.alignment = 16;
                c.k = 3;
                c.ends = {static_cast<std::int32_t>(GetParam() + past)};
                c.m = GetParam() + 16;  // the last ones are nobody's
                QuantizerTuning tuning;
                tuning.short_groups = short_groups;
                tuning.whole_rows = 0;
                if (past) tuning.strip_tokens = 0;  // a plan, whatever the sizes
                c.runner = EmulatorRunner(width, 3, tuning);
                check_transposed(c);
            }
}

INSTANTIATE_TEST_SUITE_P(All, GpuLongGroups,
                         testing::Values(104, 248, 504, 1016, 2040, 4096, 12304, 16376, 16400, 24576, 28008, 30000,
                                         33000));

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
        quantize_pair<E4M3>(c.runner, x.view(), c.groups(), c.alignment, c.options, rows.view(), tokens.view());
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
        c.with_codec([&](auto codec) {
            quantize_pair<decltype(codec)>(c.runner, x.view(), c.groups(), c.alignment, c.options, rows.view(),
                                           tokens.view());
        });
        return c.runner.run_later();
    };
    EXPECT_EQ(later(64, 16, Format::bf16), 1u);
    EXPECT_EQ(later(40, 16, Format::bf16), 1u);  // a strip and a part of one
    EXPECT_EQ(later(44, 16, Format::bf16), 0u);  // no whole eights
    EXPECT_EQ(later(64, 1, Format::bf16), 0u);   // groups that do not start on 16
    EXPECT_EQ(later(64, 16, Format::f32), 0u);
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

// As many tiles that share maxima as fit, and one more: the last fused ones, and the first split ones. Tiles of 128
// rows, and columns alone in tiles of 256.
TEST(GpuSlabs, FusedAndSplit) {
    for (const int tall : {0, 1})
        for (const std::int64_t blocks : {1, 3, 8})
            for (const std::int64_t more : {-1, 0, 1}) {
                if (tall && blocks == 8) continue;  // which would take minutes where it is sanitized
                const std::int64_t tile = tall ? 256 : 128;
                Case c(7, 32, Scaling::rowwise);
                if (tall) c.input = Format::bf16;
                c.k = 9;
                c.m = tile * (3 * blocks + more) + 50;
                c.ends = {40, static_cast<std::int32_t>(c.m - 10), static_cast<std::int32_t>(c.m - 10)};
                QuantizerTuning tuning = without_strips();
                tuning.tall_tiles = tall;
                c.runner = EmulatorRunner(32, blocks, tuning);
                SCOPED_TRACE(testing::Message() << c.m << " rows, " << blocks << " blocks, tall " << tall);
                ASSERT_NO_THROW(check_columns(c));
                if (c.input == Format::bf16)
                    c.with_codec([&](auto codec) {
                        using Codec = decltype(codec);
                        EXPECT_EQ((c.runner.launched_last<TilesKernel<Bf16In, Codec, TileScales::slab, false, 1>>()),
                                  tall == 1);
                    });
                ASSERT_NO_THROW(check_pair(c));
                c.k = 300;
                c.m = tile * (3 * blocks + more);
                c.ends = {1, static_cast<std::int32_t>(c.m)};
                ASSERT_NO_THROW(check_pair(c));
                ASSERT_NO_THROW(check_columns(c));
                ASSERT_NO_THROW(check_weights(c));
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
        quantize_columns<E4M3>(c.runner, x.view(), {}, c.groups(), c.alignment, c.options, columns.view(), {});
        return c.runner.launched_last<TilesKernel<Bf16In, E4M3, TileScales::slab, false, 1>>();
    };
    EXPECT_TRUE(taken(400, 1, Format::bf16, 400));
    EXPECT_TRUE(taken(400, 2, Format::bf16, 200));
    EXPECT_FALSE(taken(400, 2, Format::bf16, 201));
    EXPECT_FALSE(taken(400, 1, Format::bf16, 0));
    EXPECT_FALSE(taken(400, 1, Format::f32, 1));  // for which there is no room
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
    EXPECT_FALSE(left(32769, 1, 40000, Format::bf16, 60));
}

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
    Strided x = random_input(random, Format::bf16, {rows, 40});
    QuantizeOptions options;
    const auto count = static_cast<std::int64_t>(bad.size()), padded = padded_bound(rows, count, 16);
    Operand expected(options, 0, {40, padded}, {count, 40});
    reference::quantize_columns(x.view(), {clamped.data(), count, {}}, 16, options, expected.view(), by_reference);
    QuantizerTuning by_rank = ranked();
    by_rank.strip_tokens = static_cast<int>(rows / 4);
    for (const QuantizerTuning& tuning : {QuantizerTuning{}, without_whole_columns(), without_strips(), by_rank}) {
        EmulatorRunner runner(32, 3, tuning);
        Operand given(options, 0, {40, padded}, {count, 40});
        quantize_columns<E4M3>(runner, x.view(), {}, {bad.data(), count, {}}, 16, options, given.view(), {});
        EXPECT_EQ(runner.launches(), tuning.ranked_rows == 0 ? 2u : 1u);
        EXPECT_EQ((runner.launched_last<WholeColumnsKernel<E4M3, false>>()),
                  rows <= tuning.strip_tokens && rows <= tuning.whole_columns);
        expect_same("columns", expected, given);
    }
    // And rows of a transposed tensor, by each of their kernels.
    Strided turned(Format::bf16, {3, rows}, 0);
    for (std::int64_t i = 0; i < turned.storage.elements(); ++i)
        turned.storage.as<std::uint16_t>()[i] = BF16::encode(value_of(random, 0));
    Operand expected_rows(options, 0, {3, padded}, {count, 3});
    reference::quantize_transposed(turned.view(), {clamped.data(), count, {}}, 16, options, expected_rows.view(),
                                   by_reference);
    QuantizerTuning whole = without_strips();
    whole.whole_rows = 8;
    for (const QuantizerTuning& tuning : {QuantizerTuning{}, without_strips(), whole}) {
        EmulatorRunner runner(32, 3, tuning);
        Operand given_rows(options, 0, {3, padded}, {count, 3});
        quantize_transposed<E4M3>(runner, turned.view(), {bad.data(), count, {}}, 16, options, given_rows.view());
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
}

}  // namespace
}  // namespace octet::gpu
