// Grouped products: the CPU against the f64 reference of the quantized operands, the reference against dequantized
// tensors, SQNR against unquantized ones.
#include "octet/product.hpp"

#include <gtest/gtest.h>

#include "cpu/product_rows.hpp"
#include "cpu/simd.hpp"
#include "octet/error.hpp"
#include "ops/check.hpp"
#include "products/operands.hpp"

namespace octet::testing {
namespace {

const Execution on_reference{Backend::reference};
const Execution on_cpu{Backend::cpu};
constexpr Format fp8_formats[] = {Format::e4m3, Format::e4m3fnuz, Format::e5m2};
constexpr Scaling scalings[] = {Scaling::rowwise, Scaling::blockwise, Scaling::mx};

// The bound of docs/numerics.md for f32 accumulation; bf16 outputs add their own rounding.
double bound(std::int64_t reduction, Format output) {
    return 1e-6 * std::sqrt(static_cast<double>(reduction)) + (output == Format::bf16 ? 0x1p-8 : 0.0);
}

QuantizeOptions options_of(Scaling scaling, Format format, Random& random) {
    QuantizeOptions options{scaling, format};
    options.scale_rounding = uniform(random, 0, 1) ? ScaleRounding::exact : ScaleRounding::power_of_two;
    options.mx_mode = static_cast<MxMode>(uniform(random, 0, 3));
    return options;
}

struct Shape {
    std::int64_t m, n, k, e;
    friend std::ostream& operator<<(std::ostream& out, const Shape& s) {
        return out << "M=" << s.m << " N=" << s.n << " K=" << s.k << " E=" << s.e;
    }
};

// Mostly small and odd, some large enough for several tiles and chunks.
Shape random_shape(Random& random) {
    const bool large = uniform(random, 0, 11) == 0;
    if (large)
        return {uniform(random, 1, 700), uniform(random, 1, 900), uniform(random, 1, 700), uniform(random, 1, 3)};
    return {uniform(random, 1, 90), uniform(random, 1, 150), uniform(random, 1, 300), uniform(random, 1, 9)};
}

void expect_close(const Tensor& got, const Tensor& want, std::int64_t reduction) {
    const double error = relative_error(to_doubles(got), to_doubles(want));
    EXPECT_FALSE(!(error <= bound(reduction, got.format()))) << "relative error " << error;
}

// Poison stays where nobody owns a row: compared byte for byte.
void expect_rows_untouched(const Tensor& y, std::int64_t from) {
    const std::size_t row = static_cast<std::size_t>(y.extents().shape[1] * bytes_of(y.format()));
    for (std::size_t i = static_cast<std::size_t>(from) * row; i < y.bytes(); ++i)
        ASSERT_EQ(y.as<std::uint8_t>()[i], 0xA5) << "byte " << i;
}

TEST(ProductRows, EveryCodeDecodesAsTheCodecSays) {
    for (const cpu::Target target : cpu::supported_targets())
        for (const Format format : fp8_formats) {
            const cpu::ForcedTarget forced(target);
            SCOPED_TRACE(cpu::name(target));
            std::vector<std::uint8_t> codes(256 + 7);
            for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i);
            std::vector<float> out(codes.size());
            const float one = 1.0f;
            const auto count = static_cast<std::int64_t>(codes.size());
            cpu::product_rows().decode_of(format)(codes.data(), count, count, &one, out.data());
            with_fp8(format, [&](auto codec) {
                for (std::size_t i = 0; i < codes.size(); ++i) {
                    const float want = codec.decode(codes[i]);
                    if (std::isnan(want)) {
                        EXPECT_TRUE(std::isnan(out[i])) << name(format) << " code " << i;
                    } else {
                        EXPECT_EQ(std::bit_cast<std::uint32_t>(out[i]), std::bit_cast<std::uint32_t>(want))
                            << name(format) << " code " << i;
                    }
                }
            });
        }
}

TEST(Product, ForwardAndDgradMatchTheReferenceOverARandomSweep) {
    Random random(3);
    for (int round = 0; round < 120; ++round) {
        const Shape s = random_shape(random);
        const Scaling scaling = scalings[round % 3];
        const QuantizeOptions left = options_of(scaling, fp8_formats[uniform(random, 0, 2)], random);
        const QuantizeOptions right = options_of(scaling, fp8_formats[uniform(random, 0, 2)], random);
        const Format output = uniform(random, 0, 2) ? Format::f32 : Format::bf16;
        SCOPED_TRACE(::testing::Message()
                     << "round " << round << ": " << s << " " << name(scaling) << " " << name(left.format) << " x "
                     << name(right.format) << " -> " << name(output));
        const auto ends = make_ends(random, s.m, s.e);
        const Groups groups = groups_of(ends);
        const Tensor a = make_normal(round % 2 ? Format::bf16 : Format::f32, {s.m, s.k}, random);
        const Tensor dy = make_normal(Format::bf16, {s.m, s.n}, random);
        const Tensor w = make_normal(Format::bf16, {s.e, s.n, s.k}, random, 0.1f);
        auto qa = quantized_rows(a, left);
        auto qdy = quantized_rows(dy, left);
        auto wk = quantized_weights(w, WeightOrientation::along_k, right);
        auto wn = quantized_weights(w, WeightOrientation::along_n, right);

        Tensor y = make_poisoned(output, {s.m, s.n}), y_want = make_poisoned(output, {s.m, s.n});
        grouped_forward(qa.operand(), wk.operand(), groups, y, {}, on_cpu);
        grouped_forward(qa.operand(), wk.operand(), groups, y_want, {}, on_reference);
        expect_close(y, y_want, s.k);
        expect_rows_untouched(y, ends.back());

        Tensor da = make_poisoned(output, {s.m, s.k}), da_want = make_poisoned(output, {s.m, s.k});
        grouped_dgrad(qdy.operand(), wn.operand(), groups, da, {}, on_cpu);
        grouped_dgrad(qdy.operand(), wn.operand(), groups, da_want, {}, on_reference);
        expect_close(da, da_want, s.n);
        expect_rows_untouched(da, ends.back());
    }
}

// In both formats, the sum that follows from the product itself: bf16 is rounded before it is added, and then again.
TEST(Product, TokensAddToWhatIsThere) {
    Random random(8);
    for (int round = 0; round < 24; ++round) {
        const Shape s = random_shape(random);
        const Scaling scaling = scalings[round % 3];
        const Format output = round % 2 ? Format::f32 : Format::bf16;
        const Execution& on = round % 4 < 2 ? on_cpu : on_reference;
        SCOPED_TRACE(::testing::Message()
                     << "round " << round << ": " << s << " " << name(scaling) << " -> " << name(output));
        const auto ends = make_ends(random, s.m, s.e);
        const Groups groups = groups_of(ends);
        const QuantizeOptions options = options_of(scaling, Format::e4m3, random);
        const Tensor dy = make_normal(Format::bf16, {s.m, s.n}, random);
        const Tensor w = make_normal(Format::bf16, {s.e, s.n, s.k}, random, 0.1f);
        auto rows = quantized_rows(dy, options);
        auto along_n = quantized_weights(w, WeightOrientation::along_n, options);
        Tensor alone = make_poisoned(output, {s.m, s.k}), sum = make_normal(output, {s.m, s.k}, random);
        const auto before = to_doubles(sum);
        grouped_dgrad(rows.operand(), along_n.operand(), groups, alone, {}, on);
        grouped_dgrad(rows.operand(), along_n.operand(), groups, sum, {Update::add}, on);
        const auto product = to_doubles(alone), after = to_doubles(sum);
        for (std::int64_t i = 0; i < s.m * s.k; ++i) {
            const auto at = static_cast<std::size_t>(i);
            const bool owned = i / s.k < ends.back();
            const auto want = static_cast<float>(before[at] + (owned ? product[at] : 0.0));
            if (output == Format::bf16)
                ASSERT_EQ(after[at], static_cast<double>(BF16::decode(BF16::encode(want)))) << i;
            else
                ASSERT_NEAR(after[at], static_cast<double>(want), 1e-6 * (1 + std::fabs(want))) << i;
        }
    }
}

TEST(Product, WgradMatchesTheReferenceOverARandomSweep) {
    Random random(4);
    for (int round = 0; round < 90; ++round) {
        const Shape s = random_shape(random);
        const Scaling scaling = scalings[round % 3];
        const QuantizeOptions left = options_of(scaling, fp8_formats[uniform(random, 0, 2)], random);
        const QuantizeOptions right = options_of(scaling, fp8_formats[uniform(random, 0, 2)], random);
        const std::int64_t alignment = least_alignment(scaling) * uniform(random, 1, 3);
        const bool add = uniform(random, 0, 1);
        const Format output = add || uniform(random, 0, 1) ? Format::f32 : Format::bf16;
        SCOPED_TRACE(::testing::Message()
                     << "round " << round << ": " << s << " " << name(scaling) << " " << name(left.format) << " x "
                     << name(right.format) << " -> " << name(output) << (add ? " added" : ""));
        const auto ends = make_ends(random, s.m, s.e);
        const Groups groups = groups_of(ends);
        const Tensor a = make_normal(Format::bf16, {s.m, s.k}, random),
                     dy = make_normal(Format::bf16, {s.m, s.n}, random);
        auto qa = quantized_columns(a, groups, alignment, right);
        auto qdy = quantized_columns(dy, groups, alignment, left);
        const ProductOptions options{add ? Update::add : Update::overwrite};
        Tensor dw = add ? make_normal(output, {s.e, s.n, s.k}, random) : make_poisoned(output, {s.e, s.n, s.k});
        Tensor want(output, dw.extents());
        std::memcpy(want.as<char>(), dw.as<char>(), dw.bytes());
        const auto before = to_doubles(dw);
        grouped_wgrad(qdy.operand(), qa.operand(), groups, alignment, dw, options, on_cpu);
        grouped_wgrad(qdy.operand(), qa.operand(), groups, alignment, want, options, on_reference);
        expect_close(dw, want, s.m);
        const auto after = to_doubles(dw);
        for (std::int64_t g = 0; g < s.e; ++g) {
            const std::int32_t begin = g ? ends[static_cast<std::size_t>(g - 1)] : 0;
            if (ends[static_cast<std::size_t>(g)] != begin) continue;
            for (std::int64_t i = g * s.n * s.k; i < (g + 1) * s.n * s.k; ++i)
                ASSERT_EQ(after[static_cast<std::size_t>(i)], add ? before[static_cast<std::size_t>(i)] : 0.0)
                    << "empty expert " << g;
        }
    }
}

TEST(Product, PlainOperandsMatchTheReference) {
    Random random(5);
    for (int round = 0; round < 60; ++round) {
        const Shape s = random_shape(random);
        const Format format = round % 2 ? Format::bf16 : Format::f32,
                     other = round % 4 < 2 ? Format::bf16 : Format::f32;
        SCOPED_TRACE(::testing::Message() << "round " << round << ": " << s << " " << name(format));
        const auto ends = make_ends(random, s.m, s.e);
        const Groups groups = groups_of(ends);
        const Tensor a = make_normal(format, {s.m, s.k}, random), dy = make_normal(other, {s.m, s.n}, random);
        const Tensor w = make_normal(other, {s.e, s.n, s.k}, random);
        Tensor y = make_poisoned(Format::f32, {s.m, s.n}), y_want = make_poisoned(Format::f32, {s.m, s.n});
        grouped_forward(a.view(), w.view(), groups, y, {}, on_cpu);
        grouped_forward(a.view(), w.view(), groups, y_want, {}, on_reference);
        expect_close(y, y_want, s.k);
        Tensor da = make_poisoned(Format::f32, {s.m, s.k}), da_want = make_poisoned(Format::f32, {s.m, s.k});
        grouped_dgrad(dy.view(), w.view(), groups, da, {}, on_cpu);
        grouped_dgrad(dy.view(), w.view(), groups, da_want, {}, on_reference);
        expect_close(da, da_want, s.n);
        expect_rows_untouched(da, ends.back());
        Tensor dw = make_poisoned(Format::f32, {s.e, s.n, s.k}), dw_want = make_poisoned(Format::f32, {s.e, s.n, s.k});
        grouped_wgrad(dy.view(), a.view(), groups, 1, dw, {}, on_cpu);
        grouped_wgrad(dy.view(), a.view(), groups, 1, dw_want, {}, on_reference);
        expect_close(dw, dw_want, s.m);
    }
}

// The reference itself, against dequantized tensors and a product written here.
TEST(Product, TheReferenceIsTheProductOfTheDequantizedOperands) {
    Random random(6);
    for (const Scaling scaling : scalings) {
        const Shape s{37, 131, 140, 3};
        const QuantizeOptions options{scaling, Format::e4m3};
        const std::vector<std::int32_t> ends{9, 9, 33};
        const Groups groups = groups_of(ends);
        const std::int64_t alignment = least_alignment(scaling);
        const Tensor a = make_normal(Format::f32, {s.m, s.k}, random),
                     dy = make_normal(Format::f32, {s.m, s.n}, random);
        const Tensor w = make_normal(Format::f32, {s.e, s.n, s.k}, random);
        auto qa = quantized_rows(a, options), ca = quantized_columns(a, groups, alignment, options),
             cdy = quantized_columns(dy, groups, alignment, options);
        auto wk = quantized_weights(w, WeightOrientation::along_k, options);
        Tensor a_back(Format::f32, a.extents()), w_back(Format::f32, w.extents());
        Tensor ca_back = make_normal(Format::f32, a.extents(), random),
               cdy_back = make_normal(Format::f32, dy.extents(), random);
        dequantize_rows(qa.view(), options, a_back, on_reference);
        dequantize_weights(wk.view(), WeightOrientation::along_k, options, w_back, on_reference);
        dequantize_columns(ca.view(), groups, alignment, options, ca_back, on_reference);
        dequantize_columns(cdy.view(), groups, alignment, options, cdy_back, on_reference);
        Tensor y(Format::f32, {s.m, s.n}), dw(Format::f32, {s.e, s.n, s.k});
        grouped_forward(qa.operand(), wk.operand(), groups, y, {}, on_reference);
        grouped_wgrad(cdy.operand(), ca.operand(), groups, alignment, dw, {}, on_reference);
        std::vector<double> y_want, dw_want, y_got;
        for_each_group(groups, 1, [&](const GroupRange& g) {
            for (std::int64_t i = g.begin; i < g.end; ++i)
                for (std::int64_t n = 0; n < s.n; ++n) {
                    double sum = 0;
                    for (std::int64_t k = 0; k < s.k; ++k)
                        sum += double(at<float>(a_back.view(), i, k)) * double(at<float>(w_back.view(), g.index, n, k));
                    y_want.push_back(sum);
                    y_got.push_back(double(at<float>(y.view(), i, n)));
                }
            for (std::int64_t n = 0; n < s.n; ++n)
                for (std::int64_t k = 0; k < s.k; ++k) {
                    double sum = 0;
                    for (std::int64_t i = g.begin; i < g.end; ++i)
                        sum += double(at<float>(cdy_back.view(), i, n)) * double(at<float>(ca_back.view(), i, k));
                    dw_want.push_back(sum);
                }
        });
        EXPECT_FALSE(!(relative_error(y_got, y_want) <= 1e-7)) << name(scaling);
        EXPECT_FALSE(!(relative_error(to_doubles(dw), dw_want) <= 1e-7)) << name(scaling);
    }
}

TEST(Product, SqnrAgainstUnquantizedProductsIsAboveTheFloors) {
    Random random(7);
    const Shape s{512, 256, 512, 2};
    const std::vector<std::int32_t> ends{200, 512};
    const Groups groups = groups_of(ends);
    const Tensor a = make_normal(Format::bf16, {s.m, s.k}, random), dy = make_normal(Format::bf16, {s.m, s.n}, random);
    const Tensor w = make_normal(Format::bf16, {s.e, s.n, s.k}, random);
    Tensor y_plain(Format::f32, {s.m, s.n}), da_plain(Format::f32, {s.m, s.k}), dw_plain(Format::f32, {s.e, s.n, s.k});
    grouped_forward(a.view(), w.view(), groups, y_plain);
    grouped_dgrad(dy.view(), w.view(), groups, da_plain);
    grouped_wgrad(dy.view(), a.view(), groups, 1, dw_plain);
    for (const Scaling scaling : scalings) {
        const QuantizeOptions options{scaling, Format::e4m3};
        const std::int64_t alignment = least_alignment(scaling);
        Tensor y(Format::f32, {s.m, s.n}), da(Format::f32, {s.m, s.k}), dw(Format::f32, {s.e, s.n, s.k});
        auto qa = quantized_rows(a, options), qdy = quantized_rows(dy, options);
        auto wk = quantized_weights(w, WeightOrientation::along_k, options);
        auto wn = quantized_weights(w, WeightOrientation::along_n, options);
        auto ca = quantized_columns(a, groups, alignment, options),
             cdy = quantized_columns(dy, groups, alignment, options);
        grouped_forward(qa.operand(), wk.operand(), groups, y);
        grouped_dgrad(qdy.operand(), wn.operand(), groups, da);
        grouped_wgrad(cdy.operand(), ca.operand(), groups, alignment, dw);
        const double forward = sqnr_db(to_doubles(y), to_doubles(y_plain));
        const double dgrad = sqnr_db(to_doubles(da), to_doubles(da_plain));
        const double wgrad = sqnr_db(to_doubles(dw), to_doubles(dw_plain));
        RecordProperty("sqnr_" + std::string(name(scaling)),
                       std::to_string(forward) + " " + std::to_string(dgrad) + " " + std::to_string(wgrad));
        EXPECT_FALSE(!(forward >= 27)) << name(scaling) << " forward " << forward << " dB";
        EXPECT_FALSE(!(dgrad >= 25)) << name(scaling) << " dgrad " << dgrad << " dB";
        EXPECT_FALSE(!(wgrad >= 24)) << name(scaling) << " wgrad " << wgrad << " dB";
    }
}

TEST(Product, BitsDoNotDependOnTheNumberOfThreads) {
    Random random(8);
    const Shape s{1100, 720, 600, 3};
    const std::vector<std::int32_t> ends{17, 900, 1100};
    const Groups groups = groups_of(ends);
    const QuantizeOptions options{Scaling::rowwise, Format::e4m3};
    const Tensor a = make_normal(Format::bf16, {s.m, s.k}, random), dy = make_normal(Format::bf16, {s.m, s.n}, random);
    const Tensor w = make_normal(Format::bf16, {s.e, s.n, s.k}, random);
    auto qa = quantized_rows(a, options);
    auto wk = quantized_weights(w, WeightOrientation::along_k, options);
    auto ca = quantized_columns(a, groups, 16, options), cdy = quantized_columns(dy, groups, 16, options);
    Tensor y_one(Format::f32, {s.m, s.n}), dw_one(Format::f32, {s.e, s.n, s.k});
    grouped_forward(qa.operand(), wk.operand(), groups, y_one, {}, {Backend::cpu, 1});
    grouped_wgrad(cdy.operand(), ca.operand(), groups, 16, dw_one, {}, {Backend::cpu, 1});
    for (const int threads : {0, 2, 3, 8}) {
        Tensor y = make_poisoned(Format::f32, {s.m, s.n}), dw = make_poisoned(Format::f32, {s.e, s.n, s.k});
        grouped_forward(qa.operand(), wk.operand(), groups, y, {}, {Backend::cpu, threads});
        grouped_wgrad(cdy.operand(), ca.operand(), groups, 16, dw, {}, {Backend::cpu, threads});
        EXPECT_EQ(std::memcmp(y.as<char>(), y_one.as<char>(), y.bytes()), 0) << threads << " threads";
        EXPECT_EQ(std::memcmp(dw.as<char>(), dw_one.as<char>(), dw.bytes()), 0) << threads << " threads";
    }
}

TEST(Product, BadValuesSurfaceInTheirOwnRowsOnly) {
    Random random(9);
    const std::vector<std::int32_t> ends{20};
    for (const Scaling scaling : scalings) {
        const QuantizeOptions options{scaling, Format::e4m3};
        Tensor a = make_normal(Format::f32, {20, 150}, random);
        const Tensor w = make_normal(Format::f32, {1, 33, 150}, random);
        at<float>(a.view(), 3, 140) = std::nanf("");
        at<float>(a.view(), 7, 2) = std::numeric_limits<float>::infinity();
        for (std::int64_t k = 0; k < 150; ++k) at<float>(a.view(), 11, k) = 0.0f;
        auto qa = quantized_rows(a, options);
        auto wk = quantized_weights(w, WeightOrientation::along_k, options);
        for (const Execution& on : {on_reference, on_cpu}) {
            Tensor y = make_poisoned(Format::bf16, {20, 33});
            grouped_forward(qa.operand(), wk.operand(), groups_of(ends), y, {}, on);
            for (std::int64_t i = 0; i < 20; ++i)
                for (std::int64_t n = 0; n < 33; ++n) {
                    const float value = load(y.view(), i, n);
                    if (i == 3 || i == 7) {
                        EXPECT_TRUE(std::isnan(value)) << name(scaling) << " row " << i;
                    } else {
                        EXPECT_TRUE(std::isfinite(value)) << name(scaling) << " row " << i;
                    }
                    if (i == 11) {
                        EXPECT_EQ(value, 0.0f);
                    }
                }
        }
    }
}

// Ranges follow one another, padded starts are aligned, the bound holds, and what is no list of offsets is refused.
TEST(Product, AMillionOffsetVectorsThroughTheGroupHandling) {
    Random random(10);
    constexpr std::int64_t most_groups = 16, most_tokens = 300;
    constexpr std::int64_t alignments[] = {1, 16, 32, 128};
    std::int32_t ends[most_groups];
    for (int round = 0; round < 1'000'000; ++round) {
        const std::uint64_t bits = random();
        const std::int64_t count = 1 + static_cast<std::int64_t>(bits % most_groups);
        const std::int64_t tokens = static_cast<std::int64_t>((bits >> 8) % (most_tokens + 1));
        const std::int64_t alignment = alignments[bits >> 20 & 3];
        std::uint64_t draw = random();
        for (std::int64_t g = 0; g < count; ++g) {
            ends[g] = static_cast<std::int32_t>(draw % static_cast<std::uint64_t>(tokens + 1));
            draw = draw * 6364136223846793005u + 1442695040888963407u;
            draw ^= draw >> 29;
        }
        std::sort(ends, ends + count);
        const Groups groups{ends, count, {}};
        check::groups(groups, tokens, {});
        std::int64_t begin = 0, padded = 0, index = 0;
        for_each_group(groups, alignment, [&](const GroupRange& g) {
            ASSERT_EQ(g.index, index++);
            ASSERT_EQ(g.begin, begin);
            ASSERT_EQ(g.end, ends[g.index]);
            ASSERT_EQ(g.padded_begin, padded);
            ASSERT_EQ(g.padded_begin % alignment, 0);
            ASSERT_GE(g.padded_end - g.padded_begin, g.rows());
            ASSERT_LT(g.padded_end - g.padded_begin - g.rows(), alignment);
            begin = g.end;
            padded = g.padded_end;
        });
        ASSERT_LE(padded, padded_bound(tokens, count, alignment));
        if (round % 16 != 0) continue;
        const std::int64_t spoiled = static_cast<std::int64_t>((bits >> 30) % static_cast<std::uint64_t>(count));
        const std::int32_t previous = spoiled == 0 ? 0 : ends[spoiled - 1];
        ends[spoiled] = bits >> 40 & 1 ? previous - 1 : static_cast<std::int32_t>(tokens) + 1;
        ASSERT_THROW(check::groups(groups, tokens, {}), Error) << "round " << round;
    }
}

// Whole products and weight gradients, small enough to be summed here.
TEST(Product, ManyOffsetVectorsThroughWholeProducts) {
    Random random(11);
    constexpr std::int64_t tokens = 12, most_groups = 6;
    Tensor a(Format::f32, {tokens, 1}), w(Format::f32, {most_groups, 1, 1}), y(Format::f32, {tokens, 1});
    Tensor dw(Format::f32, {most_groups, 1, 1});
    for (std::int64_t i = 0; i < tokens; ++i) a.as<float>()[i] = static_cast<float>(i + 1);
    for (std::int64_t e = 0; e < most_groups; ++e) w.as<float>()[e] = static_cast<float>(2 * e + 3);
    for (int round = 0; round < 50'000; ++round) {
        const auto ends = make_ends(random, tokens, uniform(random, 1, most_groups));
        const Groups groups = groups_of(ends);
        for (std::int64_t i = 0; i < tokens; ++i) y.as<float>()[i] = -1.0f;
        const ConstTensorView weights(w.view().data, Format::f32, {groups.count, 1, 1});
        const TensorView gradient(dw.view().data, Format::f32, {groups.count, 1, 1});
        grouped_forward(a.view(), weights, groups, y, {}, {Backend::cpu, 1});
        grouped_wgrad(a.view(), a.view(), groups, 1, gradient, {}, {Backend::cpu, 1});
        std::int64_t i = 0;
        for (std::int64_t g = 0; g < groups.count; ++g) {
            float squares = 0;
            for (; i < groups.ends[g]; ++i) {
                const float x = a.as<float>()[i];
                ASSERT_EQ(y.as<float>()[i], x * w.as<float>()[g]) << "round " << round;
                squares += x * x;
            }
            ASSERT_EQ(dw.as<float>()[g], squares) << "round " << round << " group " << g;
        }
        for (; i < tokens; ++i) ASSERT_EQ(y.as<float>()[i], -1.0f) << "round " << round;
    }
}

}  // namespace
}  // namespace octet::testing
