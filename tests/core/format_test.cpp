// The formats against a definition written another way: every value a format has, listed in f64, and the nearest of
// them found by search, ties to the even code.
#include "octet/format.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "octet/error.hpp"

namespace octet {
namespace {

struct SlowFormat {
    const char* name;
    int exponent_bits, mantissa_bits, bias;
    double max;
    // The non-negative finite values in increasing order; the index is the code.
    std::vector<double> values;

    SlowFormat(const char* label, int e, int m, int b, double largest)
        : name(label), exponent_bits(e), mantissa_bits(m), bias(b), max(largest) {
        for (int code = 0; code < 128; ++code) {
            const int field = code >> m, mantissa = code % (1 << m);
            const double value =
                field == 0 ? std::ldexp(mantissa, 1 - b - m) : std::ldexp(1.0 + std::ldexp(mantissa, -m), field - b);
            if (value <= largest) values.push_back(value);
        }
    }

    int encode_magnitude(double x) const {
        if (x >= max) return static_cast<int>(values.size()) - 1;
        const auto above = std::lower_bound(values.begin(), values.end(), x);
        const int high = static_cast<int>(above - values.begin());
        if (*above == x) return high;
        const double to_high = values[static_cast<std::size_t>(high)] - x;
        const double to_low = x - values[static_cast<std::size_t>(high - 1)];
        if (to_high == to_low) return high % 2 == 0 ? high : high - 1;
        return to_high < to_low ? high : high - 1;
    }
};

template <class Codec>
struct Slow;
template <>
struct Slow<E4M3> {
    static const SlowFormat& get() {
        static const SlowFormat format("e4m3", 4, 3, 7, 448.0);
        return format;
    }
    static bool nan(int code) { return (code & 0x7F) == 0x7F; }
    static int negative_zero() { return 0x80; }
};
template <>
struct Slow<E4M3Fnuz> {
    static const SlowFormat& get() {
        static const SlowFormat format("e4m3fnuz", 4, 3, 8, 240.0);
        return format;
    }
    static bool nan(int code) { return code == 0x80; }
    static int negative_zero() { return 0; }
};
template <>
struct Slow<E5M2> {
    static const SlowFormat& get() {
        static const SlowFormat format("e5m2", 5, 2, 15, 57344.0);
        return format;
    }
    static bool nan(int code) { return (code & 0x7F) > 0x7C; }
    static int negative_zero() { return 0x80; }
};

template <class Codec>
class Fp8 : public testing::Test {
public:
    static void check(float x) {
        const int code = Codec::encode(x);
        if (std::isnan(x)) {
            ASSERT_TRUE(Slow<Codec>::nan(code)) << "NaN gave code " << code;
            return;
        }
        const int magnitude = Slow<Codec>::get().encode_magnitude(std::fabs(static_cast<double>(x)));
        int expected = magnitude;
        if (std::signbit(x)) expected = magnitude == 0 ? Slow<Codec>::negative_zero() : magnitude + 128;
        ASSERT_EQ(code, expected) << "x = " << std::hexfloat << x;
    }
};

using Fp8Formats = testing::Types<E4M3, E4M3Fnuz, E5M2>;
TYPED_TEST_SUITE(Fp8, Fp8Formats);

TYPED_TEST(Fp8, EveryCodeDecodesToItsDefinition) {
    const SlowFormat& slow = Slow<TypeParam>::get();
    int finite = 0;
    for (int code = 0; code < 256; ++code) {
        const float value = TypeParam::decode(static_cast<std::uint8_t>(code));
        ASSERT_EQ(std::isnan(value), Slow<TypeParam>::nan(code)) << code;
        ASSERT_EQ(TypeParam::is_nan(static_cast<std::uint8_t>(code)), Slow<TypeParam>::nan(code)) << code;
        const auto magnitude = static_cast<std::size_t>(code & 0x7F);
        if (std::isnan(value) || magnitude >= slow.values.size()) continue;
        ASSERT_EQ(std::fabs(static_cast<double>(value)), slow.values[magnitude]) << code;
        ASSERT_EQ(std::signbit(value), code >= 128) << code;
        ++finite;
    }
    EXPECT_EQ(finite, 2 * static_cast<int>(slow.values.size()) - (TypeParam::has_negative_zero ? 0 : 1));
}

TYPED_TEST(Fp8, EveryFiniteCodeSurvivesARoundTrip) {
    for (int code = 0; code < 256; ++code) {
        const float value = TypeParam::decode(static_cast<std::uint8_t>(code));
        if (!std::isfinite(value)) continue;
        ASSERT_EQ(TypeParam::encode(value), code);
    }
}

TYPED_TEST(Fp8, EveryBf16Input) {
    for (int code = 0; code < 65536; ++code) this->check(BF16::decode(static_cast<std::uint16_t>(code)));
}

TYPED_TEST(Fp8, TiesAndTheirNeighbours) {
    const SlowFormat& slow = Slow<TypeParam>::get();
    for (std::size_t i = 0; i + 1 < slow.values.size(); ++i) {
        const auto middle = static_cast<float>((slow.values[i] + slow.values[i + 1]) / 2);
        for (const float x : {middle, std::nextafterf(middle, 0.0f), std::nextafterf(middle, 1e9f)}) {
            this->check(x);
            this->check(-x);
        }
    }
}

TYPED_TEST(Fp8, EveryBinadeEdge) {
    for (int exponent = -149; exponent <= 127; ++exponent) {
        const float edge = std::ldexp(1.0f, exponent);
        for (const float x : {edge, std::nextafterf(edge, 0.0f), std::nextafterf(edge, INFINITY)}) {
            this->check(x);
            this->check(-x);
        }
    }
}

TYPED_TEST(Fp8, SpecialValues) {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    for (const float x : {0.0f, -0.0f, infinity, -infinity, std::nanf(""), -std::nanf(""),
                          std::numeric_limits<float>::max(), std::numeric_limits<float>::denorm_min(), TypeParam::max,
                          std::nextafterf(TypeParam::max, infinity), -TypeParam::max})
        this->check(x);
    EXPECT_EQ(TypeParam::decode(TypeParam::encode(infinity)), TypeParam::max);  // saturates, even where infinity exists
}

TYPED_TEST(Fp8, TenMillionRandomFloats) {
    std::mt19937 random(20261115);
    // Half of them are any bits at all, half lie where the format has values.
    const SlowFormat& slow = Slow<TypeParam>::get();
    const double lowest = std::log2(slow.values[1]) - 2, highest = std::log2(slow.max) + 1;
    std::uniform_real_distribution<float> exponent(static_cast<float>(lowest), static_cast<float>(highest));
    for (int i = 0; i < 5'000'000 && !this->HasFatalFailure(); ++i)
        this->check(detail::f32_from_bits(static_cast<std::uint32_t>(random())));
    for (int i = 0; i < 5'000'000 && !this->HasFatalFailure(); ++i) {
        const float x = std::exp2(exponent(random));
        this->check(random() & 1u ? x : -x);
    }
}

// bf16, by the distance to the two neighbours in f64.
TEST(Bf16, RoundsToNearestEven) {
    std::mt19937 random(7);
    for (int i = 0; i < 2'000'000; ++i) {
        const float x = detail::f32_from_bits(static_cast<std::uint32_t>(random()));
        const std::uint16_t code = BF16::encode(x);
        const float back = BF16::decode(code);
        if (std::isnan(x)) {
            ASSERT_TRUE(std::isnan(back));
            continue;
        }
        const std::uint32_t bits = detail::f32_bits(x);
        const auto low = static_cast<std::uint16_t>(bits >> 16);  // towards zero
        const float low_value = BF16::decode(low), high_value = BF16::decode(static_cast<std::uint16_t>(low + 1));
        const double down = std::fabs(static_cast<double>(x) - low_value);
        // Infinity stands where the next binade would begin.
        const double high =
            std::isinf(high_value) ? std::copysign(std::ldexp(1.0, 128), x) : static_cast<double>(high_value);
        const double up = std::fabs(high - static_cast<double>(x));
        const std::uint16_t expected =
            down < up || (down == up && low % 2 == 0) ? low : static_cast<std::uint16_t>(low + 1);
        ASSERT_EQ(code, std::isinf(x) ? low : expected) << std::hexfloat << x;
    }
}

TEST(Bf16, EveryCodeSurvivesARoundTrip) {
    for (int code = 0; code < 65536; ++code) {
        const float value = BF16::decode(static_cast<std::uint16_t>(code));
        if (std::isnan(value)) {
            ASSERT_TRUE(std::isnan(BF16::decode(BF16::encode(value))));
        } else {
            ASSERT_EQ(BF16::encode(value), code);
        }
    }
}

TEST(E8m0, DecodesPowersOfTwo) {
    for (int code = 0; code < 255; ++code)
        ASSERT_EQ(static_cast<double>(E8M0::decode(static_cast<std::uint8_t>(code))), std::ldexp(1.0, code - 127));
    EXPECT_TRUE(std::isnan(E8M0::decode(255)));
}

TEST(E8m0, EncodeUpIsTheSmallestPowerOfTwoNotBelow) {
    const auto slow = [](float x) {
        for (int code = 0; code < 255; ++code)
            if (std::ldexp(1.0, code - 127) >= static_cast<double>(x)) return code;
        return 254;  // above the largest: saturates
    };
    std::mt19937 random(11);
    for (int i = 0; i < 1'000'000; ++i) {
        const float x = detail::f32_from_bits(static_cast<std::uint32_t>(random()) & 0x7FFFFFFFu);
        ASSERT_EQ(E8M0::encode_up(x), std::isfinite(x) ? slow(x) : 255) << std::hexfloat << x;
    }
    for (int exponent = -149; exponent <= 127; ++exponent) {
        const float edge = std::ldexp(1.0f, exponent);
        for (const float x : {edge, std::nextafterf(edge, 0.0f), std::nextafterf(edge, INFINITY)}) {
            if (!std::isfinite(x)) continue;
            ASSERT_EQ(E8M0::encode_up(x), slow(x)) << std::hexfloat << x;
        }
    }
}

TEST(Formats, AreConstexpr) {
    static_assert(E4M3::encode(448.0f) == 0x7E && E4M3::decode(0x7E) == 448.0f);
    static_assert(E4M3Fnuz::encode(-0.0f) == 0 && E5M2::encode(1.0f) == 0x3C);
    static_assert(E8M0::encode_up(1.5f) == 128 && BF16::encode(1.0f) == 0x3F80);
    static_assert(max_of(Format::e4m3fnuz) == 240.0f);
}

TEST(Formats, NamesParseBackAndUnknownOnesAreRefusedWithTheKnown) {
    for (const Format format : {Format::f32, Format::bf16, Format::e4m3, Format::e4m3fnuz, Format::e5m2, Format::e8m0})
        EXPECT_EQ(parse_format(name(format)), format);
    try {
        parse_format("e3m4");
        FAIL() << "accepted";
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("e3m4"), std::string::npos);
        EXPECT_NE(std::string(error.what()).find("e4m3fnuz"), std::string::npos);
    }
}

}  // namespace
}  // namespace octet
