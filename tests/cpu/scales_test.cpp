// Many scales at a time against the scale rules one at a time.
#include "cpu/scales.hpp"

#include <gtest/gtest.h>

#include <string>

#include "cpu/cases.hpp"
#include "octet/scale.hpp"

namespace octet::cpu::test {
namespace {

// Every bf16 magnitude, what surrounds each power of two, and random magnitudes; NaN and infinity among them.
std::vector<std::uint32_t> magnitudes() {
    std::vector<std::uint32_t> values;
    for (std::uint32_t i = 0; i < 0x8000; ++i) values.push_back(i << 16);
    for (std::uint32_t exponent = 1; exponent < 256; ++exponent)
        for (std::uint32_t near = (exponent << 23) - 3; near != (exponent << 23) + 4; ++near)
            if (near <= 0x7FFFFFFFu) values.push_back(near);
    Random random(11);
    for (int i = 0; i < 200'000; ++i) values.push_back(random.bits() & 0x7FFFFFFFu);
    return values;
}

TEST(Scales, MxInEveryModeAndFormat) {
    const std::vector<std::uint32_t> amax = magnitudes();
    std::vector<float> multiplier(amax.size());
    std::vector<std::uint8_t> codes(amax.size());
    for (const Format format : {Format::e4m3, Format::e4m3fnuz, Format::e5m2}) {
        for (const MxMode mode : {MxMode::rceil, MxMode::floor, MxMode::ceil, MxMode::even}) {
            SCOPED_TRACE(std::string(name(format)) + " " + std::string(name(mode)));
            QuantizeOptions options;
            options.scaling = Scaling::mx;
            options.format = format;
            options.mx_mode = mode;
            make_scales(options, amax.data(), static_cast<std::int64_t>(amax.size()), multiplier.data(), codes.data());
            for (std::size_t i = 0; i < amax.size(); ++i) {
                const std::uint8_t expected = with_fp8(format, [&](auto codec) {
                    return mx_scale_of<decltype(codec)>(octet::detail::f32_from_bits(amax[i]), mode);
                });
                ASSERT_EQ(int{expected}, int{codes[i]}) << amax[i];
                ASSERT_EQ(octet::detail::f32_bits(mx_multiplier(expected)), octet::detail::f32_bits(multiplier[i]));
            }
        }
    }
}

// Whoever is promised that products are in range casts without clamping: hold the promise to the format's own rounding.
TEST(Scales, InRangeMeansNothingSaturates) {
    for (const Format format : {Format::e4m3, Format::e4m3fnuz, Format::e5m2}) {
        for (const Scaling scaling : {Scaling::rowwise, Scaling::mx}) {
            for (const ScaleRounding rounding : {ScaleRounding::power_of_two, ScaleRounding::exact}) {
                for (const MxMode mode : {MxMode::rceil, MxMode::floor, MxMode::ceil, MxMode::even}) {
                    QuantizeOptions options;
                    options.scaling = scaling;
                    options.format = format;
                    options.scale_rounding = rounding;
                    options.mx_mode = mode;
                    for (const std::uint32_t amax : magnitudes()) {
                        float multiplier = 0;
                        std::uint8_t code = 0;
                        if (!make_scales(options, &amax, 1, &multiplier, &code)) continue;
                        const float largest = octet::detail::f32_from_bits(amax) * multiplier;
                        ASSERT_LE(largest, max_of(format) * (1 + 0x1p-22f)) << amax;
                    }
                }
            }
        }
    }
    const std::uint32_t infinity = 0x7F800000u, nan = 0x7FC00000u;
    float multiplier = 0;
    std::uint8_t code = 0;
    EXPECT_FALSE(make_scales({}, &infinity, 1, &multiplier, &code));
    EXPECT_FALSE(make_scales({}, &nan, 1, &multiplier, &code));
}

}  // namespace
}  // namespace octet::cpu::test
