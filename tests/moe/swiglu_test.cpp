// SwiGLU with the router's weight, against f64.
#include <gtest/gtest.h>

#include "cpu/simd.hpp"

#include "moe/layer_f64.hpp"

namespace octet::testing {
namespace {

TEST(Swiglu, ForwardAndBackwardAgreeWithF64) {
    for (const cpu::Target target : cpu::supported_targets()) {
        const cpu::ForcedTarget forced(target);
        SCOPED_TRACE(cpu::name(target));
        Random random(51);
        for (const std::int64_t h : {1, 15, 16, 100, 333}) {
            const std::int64_t m = 9;
            const Tensor gate_up = make_normal(Format::f32, {m, 2 * h}, random, 4.0f),
                         ds = make_normal(Format::f32, {m, h}, random);
            const Tensor weights = make_normal(Format::f32, {m}, random);
            Tensor s = make_poisoned(Format::f32, {m, h}), d = make_poisoned(Format::f32, {m, 2 * h}),
                   dw = make_poisoned(Format::f32, {m});
            swiglu(gate_up, weights.as<float>(), s);
            swiglu_backward(gate_up, weights.as<float>(), ds, d, dw.as<float>());
            std::vector<double> s_want, d_want, dw_want;
            for (std::int64_t i = 0; i < m; ++i) {
                const double weight = double(weights.as<float>()[i]);
                std::vector<double> dup;
                double sum = 0;
                for (std::int64_t j = 0; j < h; ++j) {
                    const double g = double(load(gate_up.view(), i, j)), u = double(load(gate_up.view(), i, h + j));
                    const double up = double(load(ds.view(), i, j)), sig = 1 / (1 + std::exp(-g)), silu = g * sig;
                    s_want.push_back(weight * silu * u);
                    d_want.push_back(up * weight * u * (sig * (1 + g * (1 - sig))));
                    dup.push_back(up * weight * silu);
                    sum += up * silu * u;
                }
                d_want.insert(d_want.end(), dup.begin(), dup.end());
                dw_want.push_back(sum);
            }
            EXPECT_FALSE(!(relative_error(to_doubles(s), s_want) <= 3e-7)) << relative_error(to_doubles(s), s_want);
            EXPECT_FALSE(!(relative_error(to_doubles(d), d_want) <= 3e-7)) << relative_error(to_doubles(d), d_want);
            EXPECT_FALSE(!(relative_error(to_doubles(dw), dw_want) <= 1e-6)) << relative_error(to_doubles(dw), dw_want);
        }
    }
}

TEST(Swiglu, LargeGatesDoNotOverflowAndNanSurfaces) {
    Tensor gate_up(Format::f32, {1, 10}), s(Format::f32, {1, 5});
    const float values[] = {200.0f, -200.0f, std::nanf(""), 1e30f, 0.0f, 1, 1, 1, 1, 1};
    std::copy_n(values, 10, gate_up.as<float>());
    swiglu(gate_up, nullptr, s);
    EXPECT_EQ(s.as<float>()[0], 200.0f);
    EXPECT_NEAR(s.as<float>()[1], 0.0f, 1e-30f);
    EXPECT_TRUE(std::isnan(s.as<float>()[2]));
    EXPECT_EQ(s.as<float>()[3], 1e30f);
    EXPECT_EQ(s.as<float>()[4], 0.0f);
}

TEST(Swiglu, Bf16IsTheF32ResultRoundedOnce) {
    Random random(52);
    const Tensor half = make_normal(Format::bf16, {40, 66}, random);
    Tensor single(Format::f32, half.extents()), s16(Format::bf16, {40, 33}), s32(Format::f32, {40, 33});
    for (std::int64_t i = 0; i < half.elements(); ++i)
        single.as<float>()[i] = BF16::decode(half.as<std::uint16_t>()[i]);
    swiglu(half, nullptr, s16);
    swiglu(single, nullptr, s32);
    for (std::int64_t i = 0; i < s16.elements(); ++i)
        ASSERT_EQ(s16.as<std::uint16_t>()[i], BF16::encode(s32.as<float>()[i]));
}

}  // namespace
}  // namespace octet::testing
