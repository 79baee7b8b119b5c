// The permutation and SwiGLU kernels of src/gpu in the emulator, and the CPU's, bit for bit against the scalar
// reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "cpu/tokens.hpp"
#include "emulator/grid.hpp"
#include "gpu/emulator_runner.hpp"
#include "gpu/token_ops.hpp"
#include "octet/memory.hpp"
#include "reference/quantize.hpp"
#include "reference/tokens.hpp"

namespace octet::gpu {
namespace {

using Random = std::mt19937_64;
const Execution any{};

i64 below(Random& random, i64 end) { return static_cast<i64>(random() % static_cast<u64>(end)); }

// Rows `gap` elements further apart than they are long; what lies between must stay.
struct Rows {
    Tensor storage;
    Extents extents;
    Rows(Format format, i64 rows, i64 columns, i64 gap)
        : storage(format, {std::max<i64>(rows * (columns + gap), 1)}), extents({rows, columns}, {columns + gap, 1}) {
        std::memset(storage.as<char>(), 0xA5, storage.bytes());
    }
    TensorView view() { return {storage.as<char>(), storage.format(), extents}; }
};

float special(Random& random) {
    std::normal_distribution<float> normal(0.0f, 3.0f);
    const float ordinary = normal(random);
    switch (below(random, 40)) {
        case 0: return 0.0f * ordinary;
        case 1: return below(random, 8) == 0 ? NAN : ordinary;
        case 2: return below(random, 8) == 0 ? std::copysign(INFINITY, ordinary) : ordinary;
        case 3: return ordinary * 1e-39f;
        case 4: return ordinary * 40.0f;
        case 5: return ordinary * 1e30f;
        default: return ordinary;
    }
}

void fill(Random& random, Rows& x) {
    for (i64 i = 0; i < x.storage.elements(); ++i) {
        if (x.storage.format() == Format::f32)
            x.storage.as<float>()[i] = special(random);
        else
            x.storage.as<u16>()[i] = BF16::encode(special(random));
    }
}

// Most rows hold no NaN and nothing that overflows, which would be all that is left of a long row's scale.
void tame_most_rows(Random& random, Rows& x, Tensor* weights) {
    const i64 columns = x.extents.shape[1];
    for (i64 row = 1; row < x.extents.shape[0]; ++row) {
        if (row % 4 == 3) continue;
        if (weights) weights->as<float>()[row] = 0.25f * static_cast<float>(row);
        for (i64 i = 0; i < columns; ++i) {
            u16& element = x.storage.as<u16>()[row * x.extents.strides[0] + i];
            if (!(std::abs(BF16::decode(element)) < 1e3f)) element = BF16::encode(special(random) > 0 ? 2.0f : -100.0f);
        }
    }
}

bool same(Format format, const Tensor& a, const Tensor& b, i64 i) {
    const i64 size = bytes_of(format);
    if (std::memcmp(a.as<char>() + i * size, b.as<char>() + i * size, static_cast<std::size_t>(size)) == 0) return true;
    if (format == Format::f32) return std::isnan(a.as<float>()[i]) && std::isnan(b.as<float>()[i]);
    if (format == Format::bf16)
        return std::isnan(BF16::decode(a.as<u16>()[i])) && std::isnan(BF16::decode(b.as<u16>()[i]));
    if (!is_fp8(format)) return false;
    return with_fp8(format, [&](auto codec) { return codec.is_nan(a.as<u8>()[i]) && codec.is_nan(b.as<u8>()[i]); });
}

void expect_same(const std::string& what, const Tensor& expected, const Tensor& given) {
    for (i64 i = 0; i < expected.elements(); ++i)
        ASSERT_TRUE(same(expected.format(), expected, given, i)) << what << " differs at element " << i;
}

Tensor poisoned(Format format, Extents extents) {
    Tensor tensor(format, extents);
    if (tensor.bytes() > 0) std::memset(tensor.as<char>(), 0xA5, tensor.bytes());
    return tensor;
}

Tensor some_weights(Random& random, i64 count) {
    Tensor weights(Format::f32, {count});
    for (i64 i = 0; i < count; ++i) weights.as<float>()[i] = special(random);
    return weights;
}

// Slots in random order over the rows, some of them dropped, and where `bad`, lists that contradict each other.
struct Lists {
    std::vector<i32> row_of_slot, slot_of_row;
    TokenOrder order;
    Lists(Random& random, bool bad) {
        order.tokens = below(random, 40);
        order.top_k = 1 + below(random, 9);
        const i64 slots = order.slots();
        order.rows = slots + below(random, 3);
        row_of_slot.resize(static_cast<std::size_t>(slots));
        slot_of_row.assign(static_cast<std::size_t>(order.rows), -1);
        std::vector<i32> places(static_cast<std::size_t>(order.rows));
        for (std::size_t i = 0; i < places.size(); ++i) places[i] = static_cast<i32>(i);
        std::shuffle(places.begin(), places.end(), random);
        for (std::size_t i = 0; i < row_of_slot.size(); ++i) {
            row_of_slot[i] = places[i];
            slot_of_row[static_cast<std::size_t>(places[i])] = static_cast<i32>(i);
            if (below(random, 9) == 0) {  // dropped
                slot_of_row[static_cast<std::size_t>(places[i])] = -1;
                row_of_slot[i] = static_cast<i32>(order.rows + below(random, 5));
            }
            if (bad && below(random, 5) == 0)  // another slot's row, or none
                row_of_slot[i] =
                    static_cast<i32>(below(random, 2) ? below(random, order.rows) : below(random, 3) * 1000000007 - 5);
        }
        order.row_of_slot = row_of_slot.data();
        order.slot_of_row = slot_of_row.data();
    }
};

class GpuTokens : public testing::TestWithParam<int> {};

TEST_P(GpuTokens, PermutationEqualsTheReference) {
    for (int seed = 0; seed < 12; ++seed) {
        SCOPED_TRACE(seed);
        Random random(static_cast<u64>(seed));
        EmulatorRunner runner(GetParam(), 4, {});
        const Lists lists(random, seed % 4 == 3);
        const TokenOrder& order = lists.order;
        const Format format = seed % 2 ? Format::f32 : Format::bf16;
        const i64 columns = std::vector<i64>{1, 8, 40, 264, 300, 2056}[static_cast<std::size_t>(below(random, 6))];
        const i64 gap = below(random, 2) * 8 + (seed == 5 ? 1 : 0);
        Rows tokens(format, order.tokens, columns, gap), dy(format, order.tokens, columns, gap);
        fill(random, tokens), fill(random, dy);
        Rows rows(format, order.rows, columns, gap), given_rows(format, order.rows, columns, gap);
        reference::permute_tokens(order, tokens.view(), rows.view(), any);
        permute_tokens(runner, order, tokens.view(), given_rows.view());
        expect_same("rows", rows.storage, given_rows.storage);
        Rows cpu_rows(format, order.rows, columns, gap);
        cpu::permute_tokens(order, tokens.view(), cpu_rows.view(), any);
        expect_same("rows on the CPU", rows.storage, cpu_rows.storage);

        fill(random, rows);
        const Tensor weights = some_weights(random, order.slots());
        const float* given_weights = seed % 3 ? weights.as<float>() : nullptr;
        Rows addend0(Format::f32, order.tokens, columns, gap), addend1(Format::bf16, order.tokens, columns, gap);
        fill(random, addend0), fill(random, addend1);
        const ConstTensorView addends[] = {addend0.view(), addend1.view()};
        const std::span<const ConstTensorView> some(addends, static_cast<std::size_t>(seed % 3));
        const Format out = below(random, 2) ? Format::f32 : Format::bf16;
        Rows y(out, order.tokens, columns, gap), given_y(out, order.tokens, columns, gap),
            cpu_y(out, order.tokens, columns, gap);
        reference::combine_tokens(order, rows.view(), given_weights, some, y.view(), any);
        combine_tokens(runner, order, rows.view(), given_weights, some, given_y.view());
        expect_same("y", y.storage, given_y.storage);
        cpu::combine_tokens(order, rows.view(), given_weights, some, cpu_y.view(), any);
        expect_same("y on the CPU", y.storage, cpu_y.storage);

        Rows drows(format, order.rows, columns, gap), given_drows(format, order.rows, columns, gap),
            cpu_drows(format, order.rows, columns, gap);
        Tensor dw = poisoned(Format::f32, {order.slots()}), given_dw = poisoned(Format::f32, {order.slots()}),
               cpu_dw = poisoned(Format::f32, {order.slots()});
        const bool wants = seed % 5 != 4;
        reference::combine_tokens_backward(order, dy.view(), rows.view(), given_weights, drows.view(),
                                           wants ? dw.as<float>() : nullptr, any);
        combine_tokens_backward(runner, order, dy.view(), rows.view(), given_weights, given_drows.view(),
                                wants ? given_dw.as<float>() : nullptr);
        cpu::combine_tokens_backward(order, dy.view(), rows.view(), given_weights, cpu_drows.view(),
                                     wants ? cpu_dw.as<float>() : nullptr, any);
        expect_same("drows", drows.storage, given_drows.storage);
        expect_same("dw", dw, given_dw);
        expect_same("drows on the CPU", drows.storage, cpu_drows.storage);
        expect_same("dw on the CPU", dw, cpu_dw);
        if (testing::Test::HasFailure()) return;
    }
}

TEST_P(GpuTokens, SwigluEqualsTheReference) {
    for (int seed = 0; seed < 12; ++seed) {
        Random random(static_cast<u64>(seed + 100));
        EmulatorRunner runner(GetParam(), 1 + seed % 3, {});  // few blocks: a team takes several rows
        const Format format = seed % 2 ? Format::f32 : Format::bf16;
        const i64 m = below(random, 60),
                  h = std::vector<i64>{1, 8, 100, 256, 520, 2304, 4104}[static_cast<std::size_t>(below(random, 7))];
        SCOPED_TRACE(testing::Message() << "seed " << seed << ", " << name(format) << " [" << m << ", " << h << "]");
        const i64 gap = below(random, 2) * 8;
        Rows gate_up(format, m, 2 * h, gap), ds(format, m, h, gap);
        fill(random, gate_up), fill(random, ds);
        const Tensor weights = some_weights(random, m);
        const float* given_weights = seed % 3 ? weights.as<float>() : nullptr;
        Rows s(format, m, h, gap), given_s(format, m, h, gap), cpu_s(format, m, h, gap);
        reference::swiglu(gate_up.view(), given_weights, s.view(), any);
        swiglu(runner, {gate_up.view(), given_weights, {}, given_s.view(), nullptr});
        cpu::swiglu(gate_up.view(), given_weights, cpu_s.view(), any);
        expect_same("s", s.storage, given_s.storage);
        expect_same("s on the CPU", s.storage, cpu_s.storage);
        Rows d(format, m, 2 * h, gap), given_d(format, m, 2 * h, gap), cpu_d(format, m, 2 * h, gap);
        Tensor dw = poisoned(Format::f32, {m}), given_dw = poisoned(Format::f32, {m}),
               cpu_dw = poisoned(Format::f32, {m});
        reference::swiglu_backward(gate_up.view(), given_weights, ds.view(), d.view(), dw.as<float>(), any);
        swiglu(runner, {gate_up.view(), given_weights, ds.view(), given_d.view(), given_dw.as<float>()});
        cpu::swiglu_backward(gate_up.view(), given_weights, ds.view(), cpu_d.view(), cpu_dw.as<float>(), any);
        expect_same("dgate_up", d.storage, given_d.storage);
        expect_same("dw", dw, given_dw);
        expect_same("dgate_up on the CPU", d.storage, cpu_d.storage);
        expect_same("dw on the CPU", dw, cpu_dw);
        if (testing::Test::HasFailure()) return;
    }
}

// Data, scale and inverse of rows [m, k].
struct Quantized {
    Rows data;
    Tensor scale, inverse;
    Quantized(const QuantizeOptions& options, i64 m, i64 k)
        : data(options.format, m, k, k % 3),
          scale(poisoned(options.scaling == Scaling::mx ? Format::e8m0 : Format::f32, shape(options, m, k))),
          inverse(poisoned(Format::f32, shape(options, m, k))) {}
    static Extents shape(const QuantizeOptions& options, i64 m, i64 k) {
        const i64 block = block_of(options.scaling);
        return block == 0 ? Extents{m} : Extents{m, ceil_div(k, block)};
    }
    QuantizedView view() {
        return {data.view(), scale.view(), scale.format() == Format::e8m0 ? TensorView{} : inverse.view()};
    }
};

TEST_P(GpuTokens, FusedSwigluEqualsTheReference) {
    for (int seed = 0; seed < 30; ++seed) {
        Random random(static_cast<u64>(seed + 200));
        EmulatorRunner runner(GetParam(), 1 + seed % 3, {});
        QuantizeOptions options;
        options.scaling =
            std::vector<Scaling>{Scaling::rowwise, Scaling::blockwise, Scaling::mx}[static_cast<std::size_t>(seed % 3)];
        options.format = std::vector<Format>{Format::e4m3, Format::e5m2,
                                             Format::e4m3fnuz}[static_cast<std::size_t>(below(random, 3))];
#if defined(OCTET_ONE_FORMAT)
        options.format = Format::e4m3;
#endif
        options.scale_rounding = below(random, 2) ? ScaleRounding::exact : ScaleRounding::power_of_two;
        // Each width with each scaling. 16640 is longer than what is kept of a row.
        const i64 widths[] = {1, 100, 128, 256, 1408, 4224, 16640};
        const i64 h = widths[seed / 3 % 7], m = 2 + below(random, h < 300 ? 60 : 6);
        SCOPED_TRACE(testing::Message() << "seed " << seed << ", " << name(options.scaling) << " "
                                        << name(options.format) << " [" << m << ", " << h << "]");
        Rows gate_up(Format::bf16, m, 2 * h, 0), ds(Format::bf16, m, h, 8);
        fill(random, gate_up), fill(random, ds);
        Tensor weights = some_weights(random, m);
        tame_most_rows(random, gate_up, &weights), tame_most_rows(random, ds, nullptr);
        // An infinite weight on a row of ones: infinity, and no NaN from beside the row.
        weights.as<float>()[0] = INFINITY;
        for (i64 i = 0; i < 2 * h; ++i) gate_up.storage.as<u16>()[i] = BF16::encode(1.0f);
        for (i64 i = 0; i < h; ++i) ds.storage.as<u16>()[i] = BF16::encode(1.0f);
        Tensor s(Format::bf16, {m, h}), d(Format::bf16, {m, 2 * h});
        Tensor dw = poisoned(Format::f32, {m}), given_dw = poisoned(Format::f32, {m});
        reference::swiglu(gate_up.view(), weights.as<float>(), s, any);
        reference::swiglu_backward(gate_up.view(), weights.as<float>(), ds.view(), d, dw.as<float>(), any);
        const auto check = [&](const char* what, Tensor& plain, bool backward) {
            Quantized expected(options, m, plain.extents().shape[1]), given(options, m, plain.extents().shape[1]);
            reference::quantize_rows(plain, options, expected.view(), any);
            Tensor out = poisoned(Format::bf16, plain.extents());
            SwigluCall call{gate_up.view(), weights.as<float>(),
                            backward ? ConstTensorView(ds.view()) : ConstTensorView{},
                            seed % 2 ? out.view() : TensorView{}, given_dw.as<float>()};
            if (!swiglu_fuses(call, options)) return;
#if defined(OCTET_ONE_FORMAT)
            swiglu_rows<E4M3>(runner, call, options, given.view());
#else
            with_fp8(options.format,
                     [&](auto codec) { swiglu_rows<decltype(codec)>(runner, call, options, given.view()); });
#endif
            expect_same(std::string(what) + " data", expected.data.storage, given.data.storage);
            expect_same(std::string(what) + " scale", expected.scale, given.scale);
            if (options.scaling != Scaling::mx)
                expect_same(std::string(what) + " inverse", expected.inverse, given.inverse);
            if (seed % 2) expect_same(std::string(what) + " written", plain, out);
            if (backward) expect_same("dw", dw, given_dw);
        };
        check("s", s, false);
        check("dgate_up", d, true);
        if (testing::Test::HasFailure()) return;
    }
}

INSTANTIATE_TEST_SUITE_P(Widths, GpuTokens, testing::Values(32, 64));

// The rule itself: against f64 over the whole range, and monotone where it must be.
TEST(SwigluRule, SigmoidIsCloseToTheTrueOne) {
    constexpr swiglu_rule::HostMath math{};
    double worst = 0;
    for (float x = -86.0f; x < 86.0f; x += 0.00137f) {
        const double truth = 1.0 / (1.0 + std::exp(-static_cast<double>(x)));
        worst = std::max(worst, std::abs(static_cast<double>(swiglu_rule::sigmoid(math, x)) / truth - 1.0));
    }
    EXPECT_FALSE(!(worst <= 2.0 * 0x1p-23)) << worst;
    EXPECT_EQ(swiglu_rule::sigmoid(math, 0.0f), 0.5f);
    EXPECT_EQ(swiglu_rule::sigmoid(math, 200.0f), 1.0f);
    EXPECT_GT(swiglu_rule::sigmoid(math, -1e30f), 0.0f);
    EXPECT_LT(swiglu_rule::sigmoid(math, -1e30f), 1e-37f);
}

}  // namespace
}  // namespace octet::gpu
