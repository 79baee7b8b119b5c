// Every quantizer kernel of src/gpu in the emulator, bit for bit against the scalar reference: odd shapes, empty and
// one-row groups, rows nobody owns, odd strides, special values, outputs poisoned beforehand. Files beside this one
// have what single kernels ask for.
#include "gpu/quantize_checks.hpp"

namespace octet::gpu {
namespace {

struct Check {
    const char* name;
    void (*check)(Case&);
    int cases;
};

constexpr Check checks[] = {{"rows", check_rows, 10},
                            {"columns", check_columns, 10},
                            {"dual", check_dual, 4},
                            {"pair", check_pair, 9},
                            {"transposed", check_transposed, 8},
                            {"weights", check_weights, 9},
                            {"dequantize", check_dequantize, 2},
                            {"padding", check_padding, 3},
                            {"swizzle", check_swizzle, 3}};

class GpuQuantizers : public testing::TestWithParam<std::tuple<int, Scaling, int>> {};

TEST_P(GpuQuantizers, EqualTheReference) {
    const auto [which, scaling, width] = GetParam();
    const Check& check = checks[which];
    for (int i = 0; i < check.cases; i += every) {
        const auto seed = static_cast<std::uint64_t>(i * 1000 + which * 10 + static_cast<int>(scaling));
        Case c(seed, width, scaling);
        SCOPED_TRACE(testing::Message() << check.name << ", seed " << seed << ", " << name(c.input) << " [" << c.m
                                        << ", " << c.k << "] to " << name(c.options.format) << ", " << c.ends.size()
                                        << " groups, alignment " << c.alignment);
        ASSERT_NO_THROW(check.check(c));
        if (testing::Test::HasFailure()) return;
    }
}

INSTANTIATE_TEST_SUITE_P(All, GpuQuantizers,
                         testing::Combine(testing::Range(0, static_cast<int>(std::size(checks))),
                                          testing::Values(Scaling::rowwise, Scaling::blockwise, Scaling::mx),
                                          testing::Values(32, 64)),
                         [](const auto& parameter) {
                             return std::string(checks[std::get<0>(parameter.param)].name) + "_" +
                                    std::string(name(std::get<1>(parameter.param))) + "_" +
                                    std::to_string(std::get<2>(parameter.param));
                         });

// Rows that take every width of the kernel that finds both scales, and the longest, which no block can hold.
class GpuLongRows : public testing::TestWithParam<std::int64_t> {};

TEST_P(GpuLongRows, EqualTheReference) {
    for (const Format input : {Format::bf16, Format::f32}) {
        Case c(static_cast<std::uint64_t>(GetParam()), input == Format::bf16 ? 32 : 64, Scaling::rowwise);
        c.input = input;
        c.k = GetParam();
        c.m = 7;
        c.ends = {3, 3, 6};
        SCOPED_TRACE(testing::Message() << name(c.input) << " [" << c.m << ", " << c.k << "]");
        ASSERT_NO_THROW(check_pair(c));
        c.m = 2;
        ASSERT_NO_THROW(check_weights(c));
        if (testing::Test::HasFailure()) return;
    }
}

INSTANTIATE_TEST_SUITE_P(All, GpuLongRows, testing::Values(2056, 5120, 8192, 9000, 16400));

// Teams of every width, and tokens that their registers do not hold.
class GpuLongGroups : public testing::TestWithParam<std::int64_t> {};

TEST_P(GpuLongGroups, EqualTheReference) {
    for (const int width : {32, 64})
        for (const int short_groups : {0, 1 << 20})   // eights a thread: 8, 4
            for (const std::int64_t past : {0, 5}) {  // tokens past whole eights
                Case c(static_cast<std::uint64_t>(GetParam()), width, Scaling::rowwise);
                c.input = Format::bf16;
                c.options.scale_rounding = past ? ScaleRounding::exact : ScaleRounding::power_of_two;
                c.gap = 0;
                c.alignment = 16;
                c.k = 3;
                c.ends = {static_cast<std::int32_t>(GetParam() + past)};
                c.m = GetParam() + 16;  // the last ones are nobody's
                QuantizerTuning tuning;
                tuning.short_groups = short_groups;
                tuning.whole_rows = 0;
                if (past) tuning.strip_tokens = 0;  // a plan, whatever the sizes
                c.runner = EmulatorRunner(width, 3, tuning);
                check_transposed(c);
            }
}

INSTANTIATE_TEST_SUITE_P(All, GpuLongGroups,
                         testing::Values(104, 248, 504, 1016, 2040, 4096, 12304, 16376, 16400, 24576, 28008, 30000,
                                         33000));

}  // namespace
}  // namespace octet::gpu
