// The GPU's scale arithmetic against octet/scale.hpp: every bf16 magnitude, and f32 around every mantissa boundary.
#include "gpu/scale.hpp"

#include <gtest/gtest.h>

#include <random>

namespace octet::gpu {
namespace {

template <class Codec>
void expect_same(u32 bits) {
    for (const auto rounding : {ScaleRounding::power_of_two, ScaleRounding::exact}) {
        const float expected = scale_of(std::bit_cast<float>(bits), Codec::max, rounding);
        const float given = scale_of_bits<Codec>(bits, rounding);
        if (detail::is_nan(expected) && detail::is_nan(given)) continue;
        ASSERT_EQ(std::bit_cast<u32>(expected), std::bit_cast<u32>(given)) << "amax bits " << std::hex << bits;
    }
    for (const auto mode : {MxMode::rceil, MxMode::ceil, MxMode::even, MxMode::floor})
        ASSERT_EQ(mx_scale_of<Codec>(std::bit_cast<float>(bits), mode), mx_scale_of_bits<Codec>(bits, mode))
            << "amax bits " << std::hex << bits << ", mode " << static_cast<int>(mode);
}

template <class Codec>
void check_all() {
    for (u32 high = 0; high < 0x8000u; ++high) expect_same<Codec>(high << 16);
    const u32 mantissas[] = {0, 1, 0x7FFFFF, 0x7FFFFE, 0x5FFFFF, 0x600000, 0x600001, 0x6FFFFF, 0x700000, 0x700001};
    for (u32 exponent = 0; exponent <= 255; ++exponent)
        for (const u32 mantissa : mantissas) expect_same<Codec>(exponent << 23 | mantissa);
    const u32 floor_bits = std::bit_cast<u32>(1e-12f);
    for (u32 bits = floor_bits - 1000; bits < floor_bits + 1000; ++bits) expect_same<Codec>(bits);
    std::mt19937 random(1);
    for (int i = 0; i < 200000; ++i) expect_same<Codec>(static_cast<u32>(random()) & 0x7FFFFFFFu);
}

TEST(GpuScale, EqualsTheRuleForE4M3) { check_all<E4M3>(); }
TEST(GpuScale, EqualsTheRuleForE4M3Fnuz) { check_all<E4M3Fnuz>(); }
TEST(GpuScale, EqualsTheRuleForE5M2) { check_all<E5M2>(); }

TEST(GpuScale, MultipliersOfEveryMxScale) {
    for (u32 code = 0; code < 256; ++code)
        EXPECT_EQ(std::bit_cast<u32>(mx_multiplier(static_cast<u8>(code))),
                  std::bit_cast<u32>(mx_multiplier_of(static_cast<u8>(code))))
            << code;
}

}  // namespace
}  // namespace octet::gpu
