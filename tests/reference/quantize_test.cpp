// The oracle itself: worked examples whose answers are written out by hand, and the rules that must hold for any input.
#include "octet/quantize.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "octet/memory.hpp"
#include "octet/scale.hpp"

namespace octet {
namespace {

const Execution oracle{.backend = Backend::reference};
constexpr float infinity = std::numeric_limits<float>::infinity();
const float nan = std::nanf("");

Tensor f32(Extents extents, const std::vector<float>& values) {
    Tensor tensor(Format::f32, extents);
    std::memcpy(tensor.as<float>(), values.data(), tensor.bytes());
    return tensor;
}

Tensor poisoned(Format format, Extents extents) {
    Tensor tensor(format, extents);
    std::memset(tensor.as<std::uint8_t>(), 0xA5, tensor.bytes());
    return tensor;
}

std::vector<float> decoded(const Tensor& tensor) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < tensor.elements(); ++i) values.push_back(E4M3::decode(tensor.as<std::uint8_t>()[i]));
    return values;
}

TEST(ScaleRule, BringsTheLargestToTheFormatsLargest) {
    EXPECT_EQ(scale_of(4.0f, 448.0f, ScaleRounding::exact), 112.0f);
    EXPECT_EQ(scale_of(4.0f, 448.0f, ScaleRounding::power_of_two), 64.0f);
    EXPECT_EQ(scale_of(3.5f, 448.0f, ScaleRounding::power_of_two), 128.0f);  // 448 / 3.5 is a power of two already
    EXPECT_EQ(scale_of(0.0f, 448.0f, ScaleRounding::power_of_two), std::ldexp(1.0f, 48));
    EXPECT_EQ(scale_of(0.0f, 448.0f, ScaleRounding::exact), 448e12f);
    EXPECT_EQ(scale_of(1e-13f, 448.0f, ScaleRounding::exact), 448e12f);  // 1e-12 is the least that counts
    EXPECT_EQ(scale_of(infinity, 448.0f, ScaleRounding::power_of_two), 0.0f);
    EXPECT_TRUE(std::isnan(scale_of(nan, 448.0f, ScaleRounding::power_of_two)));
}

TEST(ScaleRule, PowerOfTwoIsTheLargestNotAboveTheExactScale) {
    std::mt19937 random(3);
    for (int i = 0; i < 1'000'000; ++i) {
        const float amax = detail::f32_from_bits(static_cast<std::uint32_t>(random()) & 0x7FFFFFFFu);
        if (!std::isfinite(amax)) continue;
        const float exact = scale_of(amax, 448.0f, ScaleRounding::exact);
        const float rounded = scale_of(amax, 448.0f, ScaleRounding::power_of_two);
        int exponent;
        ASSERT_EQ(std::frexp(rounded, &exponent), 0.5f) << amax;
        ASSERT_LE(rounded, exact) << amax;
        ASSERT_GT(2.0 * rounded, static_cast<double>(exact)) << amax;
    }
}

TEST(ScaleRule, OneNanMakesTheMaximumNanAndStays) {
    EXPECT_TRUE(std::isnan(fold_amax(fold_amax(1.0f, nan), infinity)));
    EXPECT_EQ(fold_amax(-3.0f, 2.0f), 3.0f);
    EXPECT_EQ(fold_amax(0.0f, -infinity), infinity);
}

// mx scale bytes in all four modes, by their definitions in f64.
TEST(ScaleRule, MxModes) {
    EXPECT_EQ(mx_scale_of<E4M3>(448.0f, MxMode::rceil), 127);
    EXPECT_EQ(mx_scale_of<E4M3>(448.5f, MxMode::rceil), 128);
    EXPECT_EQ(mx_scale_of<E4M3>(256.0f, MxMode::floor), 127);
    EXPECT_EQ(mx_scale_of<E4M3>(511.0f, MxMode::floor), 127);
    EXPECT_EQ(mx_scale_of<E4M3>(256.0f, MxMode::ceil), 127);
    EXPECT_EQ(mx_scale_of<E4M3>(257.0f, MxMode::ceil), 128);
    EXPECT_EQ(mx_scale_of<E4M3>(479.0f, MxMode::even), 127);
    EXPECT_EQ(mx_scale_of<E4M3>(496.0f, MxMode::even), 128);  // 1.9375 rounds half up to 2.0
    EXPECT_EQ(mx_scale_of<E5M2>(57344.0f, MxMode::rceil), 127);
    EXPECT_EQ(mx_scale_of<E4M3Fnuz>(240.0f, MxMode::rceil), 127);
    for (const MxMode mode : {MxMode::rceil, MxMode::floor, MxMode::ceil, MxMode::even}) {
        EXPECT_EQ(mx_scale_of<E4M3>(0.0f, mode), 0);
        EXPECT_EQ(mx_scale_of<E4M3>(infinity, mode), 255);
        EXPECT_EQ(mx_scale_of<E4M3>(nan, mode), 255);
    }
    std::mt19937 random(5);
    for (int i = 0; i < 1'000'000; ++i) {
        const float amax = detail::f32_from_bits(static_cast<std::uint32_t>(random()) & 0x7FFFFFFFu);
        if (!std::isfinite(amax) || amax < 1e-30f) continue;
        const double unit = std::ldexp(1.0, mx_scale_of<E4M3>(amax, MxMode::rceil) - 127);
        ASSERT_LE(static_cast<double>(amax), 448.0 * unit * (1 + 1e-7)) << amax;  // nothing saturates
        ASSERT_GT(static_cast<double>(amax), 448.0 * unit / 2 * (1 - 1e-7)) << amax;
        const int floor_exponent = static_cast<int>(std::floor(std::log2(static_cast<double>(amax)) + 1e-12));
        ASSERT_NEAR(mx_scale_of<E4M3>(amax, MxMode::floor) - 127, floor_exponent - 8, 0) << amax;
    }
}

TEST(Rows, WorkedExample) {
    const Tensor x = f32({3, 4}, {1, -2, 3, -4, 0, -0.0f, 0, 0, 1, infinity, -infinity, nan});
    Tensor data = poisoned(Format::e4m3, {3, 4}), scale = poisoned(Format::f32, {3}),
           inverse = poisoned(Format::f32, {3});
    quantize_rows(x, {}, {data, scale, inverse}, oracle);
    const std::vector<float> values = decoded(data);
    EXPECT_EQ(scale.as<float>()[0], 64.0f);
    EXPECT_EQ(inverse.as<float>()[0], 1.0f / 64);
    EXPECT_EQ(std::vector<float>(values.begin(), values.begin() + 4), (std::vector<float>{64, -128, 192, -256}));
    EXPECT_EQ(scale.as<float>()[1], std::ldexp(1.0f, 48));
    EXPECT_EQ(data.as<std::uint8_t>()[5], 0x80);                              // -0 is kept
    for (std::size_t i = 8; i < 12; ++i) EXPECT_TRUE(std::isnan(values[i]));  // one NaN makes all of its row NaN
    EXPECT_TRUE(std::isnan(scale.as<float>()[2]));
}

TEST(Rows, InfinityMakesItselfNanAndTheFiniteOnesZero) {
    const Tensor x = f32({1, 3}, {5, -infinity, -7});
    Tensor data = poisoned(Format::e4m3, {1, 3}), scale = poisoned(Format::f32, {1});
    quantize_rows(x, {}, {data, scale, {}}, oracle);
    EXPECT_EQ(scale.as<float>()[0], 0.0f);
    EXPECT_EQ(data.as<std::uint8_t>()[0], 0x00);
    EXPECT_TRUE(E4M3::is_nan(data.as<std::uint8_t>()[1]));
    EXPECT_EQ(data.as<std::uint8_t>()[2], 0x80);
}

TEST(Columns, WorkedExample) {
    // Two tokens for group 0, none for group 1, one for group 2; the last row belongs to nobody. Groups start on
    // multiples of 4, so group 0 takes columns 0..3 and group 2 columns 4..7.
    const Tensor x = f32({4, 2}, {1, 8, 2, -16, 3, 5, 99, 99});
    const std::vector<std::int32_t> ends{2, 2, 3};
    Tensor data = poisoned(Format::e4m3, {2, 12}), scale = poisoned(Format::f32, {3, 2});
    quantize_columns(x, {ends.data(), 3, {}}, 4, {}, {data, scale, {}}, oracle);
    // Feature 0: group 0 has amax 2 -> 224 -> 128; group 2 has amax 3 -> 149.3 -> 128. Feature 1: 16 -> 28 -> 16; 5
    // -> 89.6 -> 64.
    const float zero_scale = std::ldexp(1.0f, 48);
    const std::vector<float> scales(scale.as<float>(), scale.as<float>() + 6);
    EXPECT_EQ(scales, (std::vector<float>{128, 16, zero_scale, zero_scale, 128, 64}));
    const std::vector<float> values = decoded(data);
    EXPECT_EQ(std::vector<float>(values.begin(), values.begin() + 8),
              (std::vector<float>{128, 256, 0, 0, 384, 0, 0, 0}));
    EXPECT_EQ(std::vector<float>(values.begin() + 12, values.begin() + 20),
              (std::vector<float>{128, -256, 0, 0, 320, 0, 0, 0}));
    for (int i = 8; i < 12; ++i) EXPECT_EQ(data.as<std::uint8_t>()[i], 0xA5) << "written past the last group";
}

TEST(Columns, PaddingIsZeroEvenBesideNan) {
    const Tensor x = f32({1, 1}, {nan});
    const std::vector<std::int32_t> ends{1};
    Tensor data = poisoned(Format::e4m3, {1, 4}), scale = poisoned(Format::f32, {1, 1});
    quantize_columns(x, {ends.data(), 1, {}}, 4, {}, {data, scale, {}}, oracle);
    EXPECT_TRUE(E4M3::is_nan(data.as<std::uint8_t>()[0]));
    for (int i = 1; i < 4; ++i) EXPECT_EQ(data.as<std::uint8_t>()[i], 0);
}

TEST(Weights, BothOrientationsOfOneExpert) {
    const Tensor w = f32({1, 2, 3}, {1, 2, 4, 8, 16, 32});  // N = 2, K = 3
    Tensor k_data = poisoned(Format::e4m3, {1, 2, 3}), k_scale = poisoned(Format::f32, {1, 2});
    Tensor n_data = poisoned(Format::e4m3, {1, 3, 2}), n_scale = poisoned(Format::f32, {1, 3});
    quantize_weights(w, {}, {k_data, k_scale, {}}, {n_data, n_scale, {}}, oracle);
    EXPECT_EQ(k_scale.as<float>()[0], 64.0f);
    EXPECT_EQ(k_scale.as<float>()[1], 8.0f);
    EXPECT_EQ(decoded(k_data), (std::vector<float>{64, 128, 256, 64, 128, 256}));
    EXPECT_EQ(std::vector<float>(n_scale.as<float>(), n_scale.as<float>() + 3), (std::vector<float>{32, 16, 8}));
    EXPECT_EQ(decoded(n_data), (std::vector<float>{32, 256, 32, 256, 32, 256}));
}

TEST(Blockwise, EveryBlockHasItsOwnScale) {
    std::vector<float> values(2 * 130, 1.0f);
    values[129] = 4.0f;      // row 0, second block: a tail of two
    values[130 + 5] = 1e6f;  // row 1, first block
    const Tensor x = f32({2, 130}, values);
    QuantizeOptions options;
    options.scaling = Scaling::blockwise;
    options.scale_rounding = ScaleRounding::exact;
    Tensor data = poisoned(Format::e4m3, {2, 130}), scale = poisoned(Format::f32, {2, 2});
    quantize_rows(x, options, {data, scale, {}}, oracle);
    EXPECT_EQ(std::vector<float>(scale.as<float>(), scale.as<float>() + 4),
              (std::vector<float>{448, 112, 448e-6f, 448}));
    EXPECT_EQ(decoded(data)[129], 448.0f);
    EXPECT_EQ(decoded(data)[128], 112.0f);

    const Tensor w = f32({1, 2, 130}, values);
    Tensor w_data = poisoned(Format::e4m3, {1, 2, 130}), w_scale = poisoned(Format::f32, {1, 1, 2});
    quantize_weights(w, options, {w_data, w_scale, {}}, {}, oracle);
    EXPECT_EQ(w_scale.as<float>()[0], 448e-6f);  // one scale for both rows
    EXPECT_EQ(w_scale.as<float>()[1], 112.0f);
}

TEST(Mx, ScaleBytesAndData) {
    std::vector<float> values(33, 0.0f);
    values[0] = 448.0f;
    values[1] = -0.0f;
    values[32] = 1.0f;
    const Tensor x = f32({1, 33}, values);
    QuantizeOptions options;
    options.scaling = Scaling::mx;
    Tensor data = poisoned(Format::e4m3, {1, 33}), scale = poisoned(Format::e8m0, {1, 2});
    quantize_rows(x, options, {data, scale, {}}, oracle);
    EXPECT_EQ(scale.as<std::uint8_t>()[0], 127);
    EXPECT_EQ(decoded(data)[0], 448.0f);
    EXPECT_EQ(data.as<std::uint8_t>()[1], 0x80);
    EXPECT_EQ(scale.as<std::uint8_t>()[1], 127 - 8);  // 1/448 rounded up is 2^-8
    EXPECT_EQ(decoded(data)[32], 256.0f);
}

TEST(Dequantize, GivesBackWhatEightBitsHold) {
    std::mt19937 random(17);
    std::normal_distribution<float> normal;
    std::vector<float> values(7 * 96);
    for (float& value : values) value = normal(random);
    const Tensor x = f32({7, 96}, values);
    for (const Scaling scaling : {Scaling::rowwise, Scaling::blockwise, Scaling::mx}) {
        QuantizeOptions options;
        options.scaling = scaling;
        const std::int64_t block = block_of(scaling);
        Tensor data(Format::e4m3, {7, 96});
        Tensor scale(scaling == Scaling::mx ? Format::e8m0 : Format::f32,
                     block ? Extents{7, ceil_div(96, block)} : Extents{7});
        Tensor back = poisoned(Format::f32, {7, 96});
        quantize_rows(x, options, {data, scale, {}}, oracle);
        dequantize_rows({data.view(), scale.view(), {}}, options, back, oracle);
        double error = 0, power = 0;
        for (std::size_t i = 0; i < values.size(); ++i) {
            const double difference = static_cast<double>(back.as<float>()[i]) - values[i];
            error += difference * difference;
            power += static_cast<double>(values[i]) * values[i];
            ASSERT_LE(std::fabs(difference), 0.0625 * std::fabs(values[i]) + 0.02) << name(scaling);
        }
        EXPECT_GT(10 * std::log10(power / error), 28.0) << name(scaling);  // decibels
    }
}

TEST(Swizzle, PutsByteWhereTheLayoutSays) {
    Tensor scale(Format::e8m0, {130, 5});
    for (std::int64_t i = 0; i < scale.elements(); ++i)
        scale.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(i % 251 + 1);
    Tensor blocked = poisoned(Format::e8m0, {256 * 8});
    swizzle_scales(scale, blocked, oracle);
    const std::uint8_t* bytes = blocked.as<std::uint8_t>();
    const auto at = [&](int row, int column) { return scale.as<std::uint8_t>()[row * 5 + column]; };
    EXPECT_EQ(bytes[0], at(0, 0));
    EXPECT_EQ(bytes[4], at(32, 0));  // rows 0, 32, 64, 96 lie together
    EXPECT_EQ(bytes[16], at(1, 0));
    EXPECT_EQ(bytes[3], at(0, 3));
    EXPECT_EQ(bytes[512], at(0, 4));     // the second tile across
    EXPECT_EQ(bytes[513], 0);            // padding
    EXPECT_EQ(bytes[1024], at(128, 0));  // the first tile of the second row of tiles
    Tensor back = poisoned(Format::e8m0, {130, 5});
    unswizzle_scales(blocked, back, oracle);
    EXPECT_EQ(std::memcmp(back.as<char>(), scale.as<char>(), scale.bytes()), 0);
}

TEST(Padding, MovesGroupsToAlignedStartsAndBack) {
    const Tensor x = f32({4, 1}, {1, 2, 3, 4});
    const std::vector<std::int32_t> ends{1, 1, 3};
    Tensor padded = poisoned(Format::f32, {12, 1}), back = poisoned(Format::f32, {4, 1});
    std::int32_t padded_ends[3];
    pad_groups(x, {ends.data(), 3, {}}, 4, padded, padded_ends, oracle);
    EXPECT_EQ(std::vector<float>(padded.as<float>(), padded.as<float>() + 8),
              (std::vector<float>{1, 0, 0, 0, 2, 3, 0, 0}));
    EXPECT_EQ(std::vector<std::int32_t>(padded_ends, padded_ends + 3), (std::vector<std::int32_t>{4, 4, 8}));
    unpad_groups(padded, {ends.data(), 3, {}}, 4, back, oracle);
    EXPECT_EQ(std::memcmp(back.as<float>(), x.as<float>(), 12), 0);
    EXPECT_EQ(back.as<std::uint8_t>()[12], 0xA5) << "the row nobody owns was written";
}

TEST(Groups, PaddedBoundHoldsForAnyOffsets) {
    std::mt19937 random(23);
    const auto below = [&](std::int64_t end) { return static_cast<std::int64_t>(random()) % end; };
    for (int i = 0; i < 100'000; ++i) {
        const std::int64_t tokens = below(300), count = 1 + below(40), alignment = 1 + below(130);
        std::vector<std::int64_t> ends(static_cast<std::size_t>(count));
        for (auto& end : ends) end = below(tokens + 1);
        std::sort(ends.begin(), ends.end());
        std::int64_t begin = 0, total = 0;
        for (const std::int64_t end : ends) {
            total += (end - begin + alignment - 1) / alignment * alignment;
            begin = end;
        }
        ASSERT_LE(total, padded_bound(tokens, count, alignment));
    }
    // And is reached: one token a group, the rest in the last.
    EXPECT_EQ(padded_bound(4, 3, 4), 12);
    EXPECT_EQ(padded_bound(2, 5, 128), 256);
}

}  // namespace
}  // namespace octet
