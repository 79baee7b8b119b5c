// The rule that picks bf16 for forward or dgrad where casts cost more than 8 bits save: a pure function.
#include "linear/choice.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "octet/error.hpp"

namespace octet {
namespace {

std::string chosen(const char* recipe, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t e,
                   Format plain = Format::bf16, const StepRates* rates = &sm90_rates) {
    return to_string(choose_step(rates, parse_recipe(recipe), {e, n, k}, m, plain));
}
constexpr const char* all8 = "forward fp8, dgrad fp8, wgrad fp8";
constexpr const char* plain_products = "forward bf16, dgrad bf16, wgrad fp8";

TEST(StepChoice, TakesBf16WhereAnExpertHasTooFewTokensToPayForItsWeightsCasts) {
    const char* recipe = "fp8_rowwise:accumulation=fast";
    EXPECT_EQ(chosen(recipe, 16640, 8192, 5120, 64), plain_products);
    EXPECT_EQ(chosen(recipe, 16640, 1408, 2048, 64), plain_products);
    EXPECT_EQ(chosen(recipe, 16640, 8192, 5120, 1), all8);
    EXPECT_EQ(chosen(recipe, 16640, 8192, 5120, 4), all8);
    EXPECT_EQ(chosen(recipe, 16640, 8192, 5120, 16), all8);
    EXPECT_EQ(chosen(recipe, 98304, 1408, 2048, 64), all8);
    EXPECT_EQ(chosen(recipe, 98304, 2816, 2048, 8), all8);
    EXPECT_EQ(chosen(recipe, 32768, 2048, 7168, 8), all8);
    EXPECT_EQ(chosen(recipe, 32768, 4096, 7168, 8), all8);
}

TEST(StepChoice, CachedWeightsBringTheEightBitsBack) {
    EXPECT_EQ(chosen("fp8_rowwise:accumulation=fast,weight_uses=16", 16640, 8192, 5120, 64), all8);
    EXPECT_EQ(chosen("fp8_rowwise:accumulation=fast,weight_uses=16", 16640, 1408, 2048, 64), all8);
}

TEST(StepChoice, DoesWhatTheRecipeSaysWhereItSaysIt) {
    EXPECT_EQ(chosen("fp8_rowwise:forward=fp8,dgrad=fp8", 16640, 8192, 5120, 64), all8);
    EXPECT_EQ(chosen("fp8_rowwise:dgrad=bf16", 16640, 8192, 5120, 1), "forward fp8, dgrad bf16, wgrad fp8");
    EXPECT_EQ(chosen("fp8_rowwise:wgrad=bf16", 16640, 8192, 5120, 1), "forward fp8, dgrad fp8, wgrad bf16");
    EXPECT_EQ(chosen("bf16", 16640, 8192, 5120, 1), "forward bf16, dgrad bf16, wgrad bf16");
}

TEST(StepChoice, KeepsEightBitsWithoutATableOrWithoutBf16Operands) {
    EXPECT_EQ(chosen("fp8_rowwise", 16640, 8192, 5120, 64, Format::bf16, nullptr), all8);
    EXPECT_EQ(chosen("fp8_rowwise", 16640, 8192, 5120, 64, Format::f32), all8);
    EXPECT_EQ(step_rates({}), nullptr);
}

// Twice the tokens, and 8 bits never become the worse of the two.
TEST(StepChoice, IsMonotonousInTokens) {
    for (const LinearShape shape :
         {LinearShape{64, 8192, 5120}, LinearShape{64, 1408, 2048}, LinearShape{8, 4096, 7168}}) {
        bool eight = false;
        for (std::int64_t tokens = 128; tokens <= 1 << 22; tokens *= 2) {
            const StepChoice choice =
                choose_step(&sm90_rates, parse_recipe("fp8_rowwise:accumulation=fast"), shape, tokens, Format::bf16);
            const bool now = choice.forward == ProductPrecision::fp8 && choice.dgrad == ProductPrecision::fp8;
            EXPECT_TRUE(now || !eight) << tokens;
            eight = eight || now;
        }
        EXPECT_TRUE(eight);
    }
}

// In halves where groups are read twice anyway and the product is long; not where there is no room beside it.
TEST(CastsBeside, WhereTheyPay) {
    const auto beside = [](const char* recipe, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t e,
                           WeightCasts weights) {
        const Recipe parsed = parse_recipe(recipe);
        const StepChoice choice = choose_step(&sm90_rates, parsed, {e, n, k}, m, Format::bf16);
        return casts_beside(&sm90_rates, parsed, choice, {e, n, k}, m, weights);
    };
    const char* fast = "fp8_rowwise:accumulation=fast";
    constexpr WeightCasts in_forward = WeightCasts::in_forward, none = WeightCasts::none,
                          in_both = WeightCasts::in_both;
    EXPECT_EQ(beside(fast, 16640, 8192, 5120, 1, in_forward), (CastsBeside{true, true, Beside::forward}));
    EXPECT_EQ(beside(fast, 16640, 8192, 5120, 1, none), (CastsBeside{true, true, Beside::nothing}));
    EXPECT_EQ(beside(fast, 16640, 8192, 5120, 64, in_forward), CastsBeside{});  // bf16, and few tokens an expert
    EXPECT_EQ(beside("fp8_rowwise:accumulation=promoted", 16640, 8192, 5120, 1, in_forward), CastsBeside{});
    EXPECT_EQ(beside("mxfp8", 16640, 8192, 5120, 1, in_forward), CastsBeside{});
    EXPECT_EQ(beside("fp8_rowwise:accumulation=fast,dgrad=bf16", 16640, 8192, 5120, 1, in_forward),
              (CastsBeside{true, false, Beside::nothing}));
    EXPECT_EQ(beside(fast, 98304, 1408, 2048, 64, in_forward), (CastsBeside{false, true, Beside::nothing}));  // held
    EXPECT_EQ(beside(fast, 98304, 2816, 2048, 8, in_forward), (CastsBeside{true, true, Beside::nothing}));    // held
    EXPECT_EQ(beside(fast, 32768, 4096, 7168, 8, in_forward), (CastsBeside{true, true, Beside::forward}));
    EXPECT_EQ(beside(fast, 16640, 8192, 5120, 16, in_forward), (CastsBeside{false, true, Beside::forward}));
    // Weights beside wgrad, and then the gradients are cast whole: where those are few, or held.
    EXPECT_EQ(beside(fast, 98304, 1408, 2048, 64, in_both), (CastsBeside{false, false, Beside::wgrad}));
    EXPECT_EQ(beside(fast, 16640, 8192, 5120, 16, in_both), (CastsBeside{true, false, Beside::wgrad}));
    EXPECT_EQ(beside(fast, 98304, 2816, 2048, 8, in_both), (CastsBeside{true, true, Beside::nothing}));
    // What test_grouped_mm.py counts on, on a GPU.
    EXPECT_EQ(beside(fast, 16640, 1408, 2048, 2, in_both).weights, Beside::nothing);
    EXPECT_EQ(beside(fast, 33000, 3072, 4096, 4, in_both).weights, Beside::nothing);
    EXPECT_EQ(beside(fast, 32768, 2048, 4096, 8, in_both).weights, Beside::wgrad);
    EXPECT_EQ(beside(fast, 32768, 1408, 1024, 32, in_both).weights, Beside::wgrad);
    EXPECT_EQ(beside(fast, 33000, 2832, 2064, 16, in_both).weights, Beside::wgrad);
    EXPECT_EQ(beside("fp8_rowwise:accumulation=promoted", 98304, 1408, 2048, 64, in_both), CastsBeside{});
    EXPECT_EQ(casts_beside(nullptr, parse_recipe(fast), {}, {1, 8192, 5120}, 16640, in_forward), CastsBeside{});
}

TEST(CastsBeside, AreReadAsTheyAreWritten) {
    for (const char* text : {"none", "A and forward", "W and wgrad", "A and forward, W and forward, dY and dgrad"})
        EXPECT_EQ(to_string(parse_casts_beside(text)), text);
    EXPECT_EQ(parse_casts_beside("dY and dgrad, A and forward"),
              (CastsBeside{.activations = true, .gradients = true, .weights = Beside::nothing}));
    for (const char* text :
         {"A", "W and dgrad", "A and forward,dY and dgrad", "W and forward, W and wgrad", "A and forward, "}) {
        SCOPED_TRACE(text);
        EXPECT_THROW(parse_casts_beside(text), Error);
    }
}

TEST(KeptAlignment, PacksCloserWhereGroupsAreSmall) {
    const Device gpu{DeviceKind::cuda, 0};
    for (const auto& [tokens, groups] :
         {std::pair<std::int64_t, std::int64_t>{16640, 64}, {16640, 16}, {98304, 64}, {512, 8}}) {
        const std::int64_t alignment = kept_alignment(Scaling::rowwise, tokens, groups, gpu);
        const double share = double(padded_bound(tokens, groups, alignment)) / double(2 * tokens);
        EXPECT_FALSE(!(share <= (tokens > 1000 ? 0.545 : 0.7))) << tokens << " " << groups << " " << share;
    }
    EXPECT_EQ(kept_alignment(Scaling::rowwise, 98304, 8, gpu), 128);
    EXPECT_EQ(kept_alignment(Scaling::rowwise, 98304, 64, gpu), 128);
    EXPECT_EQ(kept_alignment(Scaling::rowwise, 16640, 16, gpu), 16);
    EXPECT_EQ(kept_alignment(Scaling::blockwise, 16640, 64, gpu), 128);
    EXPECT_EQ(kept_alignment(Scaling::mx, 16640, 64, {}), 32);
}

TEST(RowPitch, IsWholeLinesOfAGpuWhereThatIsLittleMore) {
    const Device gpu{DeviceKind::cuda, 0};
    for (const std::int64_t features : {128, 2048, 7168}) EXPECT_EQ(row_pitch(features, gpu), features);
    EXPECT_EQ(row_pitch(2064, gpu), 2176);
    EXPECT_EQ(row_pitch(2880, gpu), 2944);
    EXPECT_EQ(row_pitch(240, gpu), 256);
    EXPECT_EQ(row_pitch(144, gpu), 144);  // 256 would be much more
    EXPECT_EQ(row_pitch(0, gpu), 0);
    EXPECT_EQ(row_pitch(2064, {}), 2064);
}

TEST(StepChoice, ExplainsItselfInATable) {
    const std::string text = explain_step(sm90_rates, parse_recipe("fp8_rowwise"), {64, 8192, 5120}, 16640);
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 6);
    EXPECT_NE(text.find("forward bf16, dgrad bf16, wgrad fp8"), std::string::npos);
    EXPECT_EQ(text.find("<- chosen"), text.rfind("<- chosen"));
}

}  // namespace
}  // namespace octet
