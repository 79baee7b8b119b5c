// The only file of the tests that compiles the kernels that cast, because they take long.
#include "gpu/quantize_checks.hpp"

#include "reference/quantize.hpp"

namespace octet::gpu {
namespace {

const Execution by_reference{};

}  // namespace

void call_rows(EmulatorRunner& runner, const ConstTensorView& x, const QuantizeOptions& options,
               const QuantizedView& out) {
    with_codec(options.format, [&](auto codec) { quantize_rows<decltype(codec)>(runner, x, options, out); });
}

void call_columns(EmulatorRunner& runner, const ConstTensorView& x0, const ConstTensorView& x1, const Groups& groups,
                  std::int64_t alignment, const QuantizeOptions& options, const QuantizedView& out0,
                  const QuantizedView& out1) {
    with_codec(options.format, [&](auto codec) {
        quantize_columns<decltype(codec)>(runner, x0, x1, groups, alignment, options, out0, out1);
    });
}

void call_pair(EmulatorRunner& runner, const ConstTensorView& x, const Groups& groups, std::int64_t alignment,
               const QuantizeOptions& options, const QuantizedView& rows, const QuantizedView& columns) {
    with_codec(options.format, [&](auto codec) {
        quantize_pair<decltype(codec)>(runner, x, groups, alignment, options, rows, columns);
    });
}

void call_transposed(EmulatorRunner& runner, const ConstTensorView& x, const Groups& groups, std::int64_t alignment,
                     const QuantizeOptions& options, const QuantizedView& out) {
    with_codec(options.format,
               [&](auto codec) { quantize_transposed<decltype(codec)>(runner, x, groups, alignment, options, out); });
}

void call_weights(EmulatorRunner& runner, const ConstTensorView& w, const QuantizeOptions& options,
                  const QuantizedView& along_k, const QuantizedView& along_n) {
    with_codec(options.format,
               [&](auto codec) { quantize_weights<decltype(codec)>(runner, w, options, along_k, along_n); });
}

void check_rows(Case& c) {
    Strided x = random_input(c.random, c.input, {c.m, c.k});
    Operand expected = c.rows_operand(), given = c.rows_operand();
    reference::quantize_rows(x.view(), c.options, expected.view(), by_reference);
    call_rows(c.runner, x.view(), c.options, given.view());
    expect_same("rows", expected, given);
}

void check_columns(Case& c) {
    Strided x = random_input(c.random, c.input, {c.m, c.k}, c.input_gap);
    Operand expected = c.tokens_operand(c.k), given = c.tokens_operand(c.k);
    reference::quantize_columns(x.view(), c.groups(), c.alignment, c.options, expected.view(), by_reference);
    call_columns(c.runner, x.view(), {}, c.groups(), c.alignment, c.options, given.view(), {});
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
    call_columns(c.runner, x0.view(), x1.view(), c.groups(), c.alignment, c.options, given0.view(), given1.view());
    expect_same("first", expected0, given0);
    expect_same("second", expected1, given1);
}

void check_pair_of(Case& c, Strided& x) {
    Operand expected_rows = c.rows_operand(), given_rows = c.rows_operand();
    Operand expected = c.tokens_operand(c.k), given = c.tokens_operand(c.k);
    reference::quantize_pair(x.view(), c.groups(), c.alignment, c.options, expected_rows.view(), expected.view(),
                             by_reference);
    call_pair(c.runner, x.view(), c.groups(), c.alignment, c.options, given_rows.view(), given.view());
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
    call_transposed(c.runner, x.view(), c.groups(), c.alignment, c.options, given.view());
    expect_same("transposed", expected, given);
}

void check_weights(Case& c) {
    const std::int64_t experts = c.many_experts ? c.many_experts : 1 + below(c.random, 3),
                       n = std::max<std::int64_t>(1, c.m);
    Strided w = random_input(c.random, c.input, {experts, n, c.k});
    Operand expected_k = c.weights_operand(experts, n, c.k), given_k = c.weights_operand(experts, n, c.k);
    Operand expected_n = c.weights_operand(experts, c.k, n), given_n = c.weights_operand(experts, c.k, n);
    const std::int64_t which = below(c.random, 3);
    const auto k_of = [&](Operand& o) { return which == 1 ? QuantizedView{} : o.view(); };
    const auto n_of = [&](Operand& o) { return which == 0 ? QuantizedView{} : o.view(); };
    reference::quantize_weights(w.view(), c.options, k_of(expected_k), n_of(expected_n), by_reference);
    call_weights(c.runner, w.view(), c.options, k_of(given_k), n_of(given_n));
    expect_same("along_k", expected_k, given_k);
    c.runner.run_later();
    expect_same("along_n", expected_n, given_n);
}

void check_two_visits(Case& c) {
    const std::int64_t experts = 1 + below(c.random, 3), n = round_up(std::max<std::int64_t>(1, c.m), 16);
    Strided w = random_input(c.random, c.input, {experts, n, c.k});
    Operand expected_k = c.weights_operand(experts, n, c.k), given_k = c.weights_operand(experts, n, c.k);
    Operand expected_n = c.weights_operand(experts, c.k, n), given_n = c.weights_operand(experts, c.k, n);
    reference::quantize_weights(w.view(), c.options, expected_k.view(), expected_n.view(), by_reference);
    const bool keeps = c.options.scaling == Scaling::rowwise && c.input == Format::bf16 && c.k % 8 == 0 &&
                       w.extents.strides[1] % 8 == 0;
    EXPECT_EQ(keeps_maxima<E4M3>(w.view(), c.options), keeps);
    c.runner.set_visit(WeightVisit::first);
    call_weights(c.runner, w.view(), c.options, given_k.view(), {});
    expect_same("along_k", expected_k, given_k);
    c.runner.set_visit(WeightVisit::second);
    call_weights(c.runner, w.view(), c.options, {}, given_n.view());
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

}  // namespace octet::gpu
