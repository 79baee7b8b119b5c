// The vector converts against the scalar ones: every bf16, every code, every edge of f32's binades, random f32.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "cpu/cases.hpp"
#include "cpu/row_kernels.hpp"
#include "cpu/simd.hpp"

namespace octet::cpu::test {
namespace {

constexpr Format formats[] = {Format::e4m3, Format::e4m3fnuz, Format::e5m2};

std::uint8_t encode(Format format, float x) {
    return with_fp8(format, [&](auto codec) { return codec.encode(x); });
}

template <class F>
void on_every_target(F f) {
    for (const Target target : supported_targets()) {
        SCOPED_TRACE(std::string(name(target)));
        const ForcedTarget forced(target);
        for (const Format format : formats) {
            SCOPED_TRACE(std::string(name(format)));
            f(format);
        }
    }
}

TEST(Kernels, CastEveryBf16) {
    std::vector<std::uint16_t> x(65536);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<std::uint16_t>(i);
    std::vector<std::uint8_t> out(x.size());
    on_every_target([&](Format format) {
        for (const float multiplier :
             {1.0f, 0.0f, 0x1p-6f, 0x1p40f, 0x1p-127f, 3.7f, octet::detail::f32_from_bits(0x7FC00000u)}) {
            row_kernels(Format::bf16, format).cast(x.data(), 65536, whole_row, &multiplier, false, false, out.data());
            for (std::size_t i = 0; i < x.size(); ++i) {
                const std::uint8_t expected = encode(format, BF16::decode(x[i]) * multiplier);
                if (nan_code(format, expected)) {
                    ASSERT_TRUE(nan_code(format, out[i])) << i << " * " << multiplier;
                } else {
                    ASSERT_EQ(int{expected}, int{out[i]}) << i << " * " << multiplier;
                }
            }
        }
    });
}

std::vector<float> hard_floats() {
    std::vector<float> values;
    const auto around = [&](std::uint32_t bits) {
        for (std::uint32_t near = bits - 2; near != bits + 3; ++near) {
            values.push_back(octet::detail::f32_from_bits(near & 0x7FFFFFFFu));
            values.push_back(octet::detail::f32_from_bits(near | 0x80000000u));
        }
    };
    for (std::uint32_t exponent = 0; exponent < 256; ++exponent)
        for (std::uint32_t eighth = 0; eighth < 32; ++eighth) around(exponent << 23 | eighth << 18);  // all the halves
    Random random(5);
    for (int i = 0; i < 500'000; ++i) values.push_back(octet::detail::f32_from_bits(random.bits()));
    for (int i = 0; i < 500'000; ++i)
        values.push_back(random.normal() * octet::detail::pow2(static_cast<int>(random.between(-16, 16))));
    return values;
}

TEST(Kernels, CastHardF32) {
    const std::vector<float> values = hard_floats();
    const float one = 1.0f;
    std::vector<std::uint8_t> out(values.size());
    on_every_target([&](Format format) {
        for (const bool in_range : {false, true}) {
            // What a multiplier may bring a maximum to: a rounding above the largest value.
            const float most = max_of(format) * (1 + 0x1p-22f);
            std::vector<float> x = values;
            if (in_range) std::erase_if(x, [&](float value) { return !(std::fabs(value) <= most); });
            const auto count = static_cast<std::int64_t>(x.size());
            row_kernels(Format::f32, format).cast(x.data(), count, whole_row, &one, in_range, false, out.data());
            for (std::size_t i = 0; i < x.size(); ++i) {
                const std::uint8_t expected = encode(format, x[i]);
                if (nan_code(format, expected)) {
                    ASSERT_TRUE(nan_code(format, out[i])) << x[i];
                } else {
                    ASSERT_EQ(int{expected}, int{out[i]}) << x[i];
                }
            }
        }
    });
}

TEST(Kernels, DecodeEveryCode) {
    std::vector<std::uint8_t> codes(256 + 3);  // and a tail
    for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i);
    on_every_target([&](Format format) {
        for (const float inverse : {1.0f, 0x1p-30f, 1.0f / 3.0f, octet::detail::f32_from_bits(0x7F800000u)}) {
            std::vector<float> f32(codes.size());
            std::vector<std::uint16_t> bf16(codes.size());
            const auto count = static_cast<std::int64_t>(codes.size());
            row_kernels(Format::f32, format).decode(codes.data(), count, whole_row, &inverse, f32.data());
            row_kernels(Format::bf16, format).decode(codes.data(), count, whole_row, &inverse, bf16.data());
            for (std::size_t i = 0; i < codes.size(); ++i) {
                const float expected = with_fp8(format, [&](auto codec) { return codec.decode(codes[i]); }) * inverse;
                if (octet::detail::is_nan(expected)) {
                    ASSERT_TRUE(octet::detail::is_nan(f32[i])) << int{codes[i]};
                    ASSERT_TRUE(octet::detail::is_nan(BF16::decode(bf16[i]))) << int{codes[i]};
                } else {
                    ASSERT_EQ(octet::detail::f32_bits(expected), octet::detail::f32_bits(f32[i])) << int{codes[i]};
                    ASSERT_EQ(BF16::encode(expected), bf16[i]) << int{codes[i]};
                }
            }
        }
    });
}

TEST(Kernels, AForcedTargetEndsWithItsScope) {
    const Target best = active_target();
    {
        const ForcedTarget forced(supported_targets().front());
        EXPECT_EQ(active_target(), supported_targets().front());
    }
    EXPECT_EQ(active_target(), best);
}

}  // namespace
}  // namespace octet::cpu::test
