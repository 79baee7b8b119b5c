// Every CPU operation against the scalar reference, bit for bit, over random shapes, groups, strides and options, with
// every instruction set this machine has and several numbers of threads.
#include "cpu/quantize.hpp"

#include <string>

#include "cpu/cases.hpp"
#include "cpu/simd.hpp"
#include "reference/quantize.hpp"

namespace octet::cpu::test {
namespace {

// Runs f(execution) with every target, and with every number of threads on one of them.
template <class F>
void on_every_target(std::uint32_t seed, F f) {
    constexpr int thread_counts[] = {1, 2, 3, 7};
    std::uint32_t i = seed;
    for (const Target target : supported_targets()) {
        SCOPED_TRACE(std::string(name(target)));
        const ForcedTarget forced(target);
        Execution on;
        on.threads = thread_counts[i++ % 4];
        f(on);
        if (::testing::Test::HasFailure()) return;
    }
}

std::string describe(const QuantizeOptions& options, Format input) {
    return std::string(name(input)) + " to " + std::string(name(options.format)) + " " +
           std::string(name(options.scaling)) + " " + std::string(name(options.scale_rounding)) + " " +
           std::string(name(options.mx_mode));
}

Format random_input(Random& random) { return random.pick({Format::bf16, Format::bf16, Format::f32}); }

std::vector<std::int64_t> row_scales(const QuantizeOptions& options, std::int64_t rows, std::int64_t columns) {
    if (options.scaling == Scaling::rowwise) return {rows};
    return {rows, ceil_div(columns, block_of(options.scaling))};
}

std::vector<std::int64_t> token_scales(const QuantizeOptions& options, const RandomGroups& groups,
                                       std::int64_t features) {
    if (options.scaling == Scaling::rowwise) return {static_cast<std::int64_t>(groups.ends.size()), features};
    return {features, groups.padded / block_of(options.scaling)};
}

std::vector<std::int64_t> weight_scales(const QuantizeOptions& options, std::int64_t experts, std::int64_t rows,
                                        std::int64_t columns) {
    const std::int64_t block = block_of(options.scaling);
    switch (options.scaling) {
        case Scaling::rowwise: return {experts, rows};
        case Scaling::blockwise: return {experts, ceil_div(rows, block), ceil_div(columns, block)};
        case Scaling::mx: break;
    }
    return {experts, rows, ceil_div(columns, block)};
}

// Gives what dequantize reads: the reference's own output.
ConstQuantizedView readable(Output& out) { return ConstQuantizedView(out.view()); }

class Quantize : public ::testing::TestWithParam<std::uint32_t> {
protected:
    static constexpr int rounds = 12;

    // body(random) once a round, each with its own seed.
    template <class F>
    void repeat(F body) {
        for (std::uint32_t round = 0; round < rounds && !HasFailure(); ++round) {
            const std::uint32_t seed = GetParam() * 1000 + round;
            SCOPED_TRACE("seed " + std::to_string(seed));
            Random random(seed);
            body(random, seed);
        }
    }
};

TEST_P(Quantize, RowsAndBack) {
    repeat([](Random& random, std::uint32_t seed) {
        const QuantizeOptions options = random_options(random);
        const Format input = random_input(random);
        SCOPED_TRACE(describe(options, input));
        const std::int64_t m = random_size(60, random), k = random_size(700, random);
        Poisoned x = make_input(input, {m, k}, random);
        const Output blank = make_output({m, k}, row_scales(options, m, k), options, random);
        Output expected = blank;
        reference::quantize_rows(x.view(), options, expected.view(), {});
        const Poisoned blank_back(random_input(random), with_gaps({m, k}, random));
        Poisoned expected_back = blank_back;
        reference::dequantize_rows(readable(expected), options, expected_back.view(), {});
        on_every_target(seed, [&](const Execution& on) {
            Output given = blank;
            cpu::quantize_rows(x.view(), options, given.view(), on);
            ASSERT_TRUE(same("rows", expected, given));
            Poisoned back = blank_back;
            cpu::dequantize_rows(readable(expected), options, back.view(), on);
            ASSERT_TRUE(same("dequantized rows", expected_back, back));
        });
    });
}

TEST_P(Quantize, ColumnsAndBack) {
    repeat([](Random& random, std::uint32_t seed) {
        const QuantizeOptions options = random_options(random);
        const Format input = random_input(random);
        SCOPED_TRACE(describe(options, input));
        const RandomGroups groups = random_groups(options, 500, random);
        const std::int64_t k = random_size(300, random);
        Poisoned x = make_input(input, {groups.tokens, k}, random);
        const Output blank = make_output({k, groups.padded}, token_scales(options, groups, k), options, random);
        Output expected = blank;
        reference::quantize_columns(x.view(), groups.view(), groups.alignment, options, expected.view(), {});
        const Poisoned blank_back(random_input(random), with_gaps({groups.tokens, k}, random));
        Poisoned expected_back = blank_back;
        reference::dequantize_columns(readable(expected), groups.view(), groups.alignment, options,
                                      expected_back.view(), {});
        on_every_target(seed, [&](const Execution& on) {
            Output given = blank;
            cpu::quantize_columns(x.view(), groups.view(), groups.alignment, options, given.view(), on);
            ASSERT_TRUE(same("columns", expected, given));
            Poisoned back = blank_back;
            cpu::dequantize_columns(readable(expected), groups.view(), groups.alignment, options, back.view(), on);
            ASSERT_TRUE(same("dequantized columns", expected_back, back));
        });
    });
}

TEST_P(Quantize, DualColumns) {
    repeat([](Random& random, std::uint32_t seed) {
        const QuantizeOptions options = random_options(random);
        const Format input = random_input(random);
        SCOPED_TRACE(describe(options, input));
        const RandomGroups groups = random_groups(options, 300, random);
        const std::int64_t k0 = random_size(150, random), k1 = random_size(150, random);
        Poisoned x0 = make_input(input, {groups.tokens, k0}, random);
        Poisoned x1 = make_input(input, {groups.tokens, k1}, random);
        const Output blank0 = make_output({k0, groups.padded}, token_scales(options, groups, k0), options, random);
        const Output blank1 = make_output({k1, groups.padded}, token_scales(options, groups, k1), options, random);
        Output expected0 = blank0, expected1 = blank1;
        reference::quantize_columns_dual(x0.view(), x1.view(), groups.view(), groups.alignment, options,
                                         expected0.view(), expected1.view(), {});
        on_every_target(seed, [&](const Execution& on) {
            Output given0 = blank0, given1 = blank1;
            cpu::quantize_columns_dual(x0.view(), x1.view(), groups.view(), groups.alignment, options, given0.view(),
                                       given1.view(), on);
            ASSERT_TRUE(same("first", expected0, given0));
            ASSERT_TRUE(same("second", expected1, given1));
        });
    });
}

TEST_P(Quantize, Pair) {
    repeat([](Random& random, std::uint32_t seed) {
        const QuantizeOptions options = random_options(random);
        const Format input = random_input(random);
        SCOPED_TRACE(describe(options, input));
        const RandomGroups groups = random_groups(options, 500, random);
        const std::int64_t m = groups.tokens, k = random_size(400, random);
        Poisoned x = make_input(input, {m, k}, random);
        const Output blank_rows = make_output({m, k}, row_scales(options, m, k), options, random);
        const Output blank_columns = make_output({k, groups.padded}, token_scales(options, groups, k), options, random);
        Output expected_rows = blank_rows, expected_columns = blank_columns;
        reference::quantize_pair(x.view(), groups.view(), groups.alignment, options, expected_rows.view(),
                                 expected_columns.view(), {});
        on_every_target(seed, [&](const Execution& on) {
            Output rows = blank_rows, columns = blank_columns;
            cpu::quantize_pair(x.view(), groups.view(), groups.alignment, options, rows.view(), columns.view(), on);
            ASSERT_TRUE(same("rows", expected_rows, rows));
            ASSERT_TRUE(same("columns", expected_columns, columns));
        });
    });
}

TEST_P(Quantize, TransposedAndBack) {
    repeat([](Random& random, std::uint32_t seed) {
        const QuantizeOptions options = random_options(random);
        const Format input = random_input(random);
        SCOPED_TRACE(describe(options, input));
        const RandomGroups groups = random_groups(options, 700, random);
        const std::int64_t n = random_size(60, random);
        Poisoned x = make_input(input, {n, groups.tokens}, random);
        const Output blank = make_output({n, groups.padded}, token_scales(options, groups, n), options, random);
        Output expected = blank;
        reference::quantize_transposed(x.view(), groups.view(), groups.alignment, options, expected.view(), {});
        const Poisoned blank_back(random_input(random), with_gaps({n, groups.tokens}, random));
        Poisoned expected_back = blank_back;
        reference::dequantize_transposed(readable(expected), groups.view(), groups.alignment, options,
                                         expected_back.view(), {});
        on_every_target(seed, [&](const Execution& on) {
            Output given = blank;
            cpu::quantize_transposed(x.view(), groups.view(), groups.alignment, options, given.view(), on);
            ASSERT_TRUE(same("transposed", expected, given));
            Poisoned back = blank_back;
            cpu::dequantize_transposed(readable(expected), groups.view(), groups.alignment, options, back.view(), on);
            ASSERT_TRUE(same("dequantized transposed", expected_back, back));
        });
    });
}

TEST_P(Quantize, WeightsAndBack) {
    repeat([](Random& random, std::uint32_t seed) {
        const QuantizeOptions options = random_options(random);
        const Format input = random_input(random);
        SCOPED_TRACE(describe(options, input));
        const std::int64_t e = random.between(1, 4), n = random_size(300, random), k = random_size(300, random);
        Poisoned w = make_input(input, {e, n, k}, random);
        const Output blank_k = make_output({e, n, k}, weight_scales(options, e, n, k), options, random);
        const Output blank_n = make_output({e, k, n}, weight_scales(options, e, k, n), options, random);
        Output expected_k = blank_k, expected_n = blank_n;
        reference::quantize_weights(w.view(), options, expected_k.view(), expected_n.view(), {});
        const Poisoned blank_back(random_input(random), with_gaps({e, n, k}, random));
        on_every_target(seed, [&](const Execution& on) {
            Output both_k = blank_k, both_n = blank_n, only_k = blank_k, only_n = blank_n;
            cpu::quantize_weights(w.view(), options, both_k.view(), both_n.view(), on);
            ASSERT_TRUE(same("along K, with the other", expected_k, both_k));
            ASSERT_TRUE(same("along N, with the other", expected_n, both_n));
            cpu::quantize_weights(w.view(), options, only_k.view(), {}, on);
            ASSERT_TRUE(same("along K", expected_k, only_k));
            cpu::quantize_weights(w.view(), options, {}, only_n.view(), on);
            ASSERT_TRUE(same("along N", expected_n, only_n));
            for (const auto orientation : {WeightOrientation::along_k, WeightOrientation::along_n}) {
                Output& q = orientation == WeightOrientation::along_k ? expected_k : expected_n;
                Poisoned expected_back = blank_back, back = blank_back;
                reference::dequantize_weights(readable(q), orientation, options, expected_back.view(), {});
                cpu::dequantize_weights(readable(q), orientation, options, back.view(), on);
                ASSERT_TRUE(same("dequantized weights", expected_back, back));
            }
        });
    });
}

// Bytes of any format, moved and not changed.
Poisoned random_bytes(Format format, Extents extents, Random& random) {
    Poisoned x(format, extents);
    const auto slack = static_cast<std::size_t>(x.start() - x.bytes().data());
    for (std::size_t i = 0; i < x.bytes().size() - slack; ++i) x.start()[i] = static_cast<std::uint8_t>(random.bits());
    return x;
}

TEST_P(Quantize, PadAndUnpad) {
    repeat([](Random& random, std::uint32_t seed) {
        const RandomGroups groups = random_groups({}, 200, random);
        const Format format = random.pick({Format::f32, Format::bf16, Format::e4m3, Format::e8m0});
        const std::int64_t k = random.between(1, 90);
        Poisoned x = random_bytes(format, with_gaps({groups.tokens, k}, random), random);
        const Poisoned blank(format, with_gaps({groups.padded, k}, random));
        const Poisoned blank_back(format, with_gaps({groups.tokens, k}, random));
        Poisoned expected = blank, expected_back = blank_back;
        std::vector<std::int32_t> expected_ends(groups.ends.size(), -7);
        reference::pad_groups(x.view(), groups.view(), groups.alignment, expected.view(), expected_ends.data(), {});
        reference::unpad_groups(expected.view(), groups.view(), groups.alignment, expected_back.view(), {});
        on_every_target(seed, [&](const Execution& on) {
            Poisoned padded = blank, back = blank_back, without_ends = blank;
            std::vector<std::int32_t> ends(groups.ends.size(), -7);
            cpu::pad_groups(x.view(), groups.view(), groups.alignment, padded.view(), ends.data(), on);
            cpu::pad_groups(x.view(), groups.view(), groups.alignment, without_ends.view(), nullptr, on);
            cpu::unpad_groups(expected.view(), groups.view(), groups.alignment, back.view(), on);
            ASSERT_EQ(expected.bytes(), padded.bytes());
            ASSERT_EQ(expected.bytes(), without_ends.bytes());
            ASSERT_EQ(expected_ends, ends);
            ASSERT_EQ(expected_back.bytes(), back.bytes());
        });
    });
}

TEST_P(Quantize, Swizzle) {
    repeat([](Random& random, std::uint32_t seed) {
        const std::int64_t e = random.between(1, 3), r = random_size(300, random), c = random_size(40, random);
        const bool experts = random.chance(0.5);
        std::vector<std::int64_t> shape = {r, c};
        if (experts) shape.insert(shape.begin(), e);
        Poisoned scale = random_bytes(Format::e8m0, shuffled(shape, random), random);
        const std::int64_t size = swizzled_rows(r) * swizzled_columns(c);
        const Poisoned blank(Format::e8m0, experts ? Extents{e, size} : Extents{size});
        const Poisoned blank_back(Format::e8m0, shuffled(shape, random));
        Poisoned expected = blank, expected_back = blank_back;
        reference::swizzle_scales(scale.view(), expected.view(), {});
        reference::unswizzle_scales(expected.view(), expected_back.view(), {});
        on_every_target(seed, [&](const Execution& on) {
            Poisoned blocked = blank, back = blank_back;
            cpu::swizzle_scales(scale.view(), blocked.view(), on);
            cpu::unswizzle_scales(expected.view(), back.view(), on);
            ASSERT_EQ(expected.bytes(), blocked.bytes());
            ASSERT_EQ(expected_back.bytes(), back.bytes());
        });
    });
}

TEST_P(Quantize, SwizzleGroups) {
    repeat([](Random& random, std::uint32_t seed) {
        const RandomGroups groups = random_groups({}, 600, random);
        const std::int64_t c = random_size(40, random);
        Poisoned scale = random_bytes(Format::e8m0, shuffled({groups.tokens, c}, random), random);
        const std::int64_t size = swizzled_group_rows(groups.tokens, groups.view().count) * swizzled_columns(c);
        const Poisoned blank(Format::e8m0, {size}), blank_back(Format::e8m0, shuffled({groups.tokens, c}, random));
        Poisoned expected = blank, expected_back = blank_back;
        reference::swizzle_group_scales(scale.view(), groups.view(), expected.view(), {});
        reference::unswizzle_group_scales(expected.view(), groups.view(), expected_back.view(), {});
        on_every_target(seed, [&](const Execution& on) {
            Poisoned blocked = blank, back = blank_back;
            cpu::swizzle_group_scales(scale.view(), groups.view(), blocked.view(), on);
            cpu::unswizzle_group_scales(expected.view(), groups.view(), back.view(), on);
            ASSERT_EQ(expected.bytes(), blocked.bytes());
            ASSERT_EQ(expected_back.bytes(), back.bytes());
        });
    });
}

INSTANTIATE_TEST_SUITE_P(Seeds, Quantize, ::testing::Range<std::uint32_t>(1, 9));

}  // namespace
}  // namespace octet::cpu::test
