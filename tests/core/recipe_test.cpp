#include "octet/recipe.hpp"

#include <gtest/gtest.h>

#include "octet/error.hpp"

namespace octet {
namespace {

TEST(Recipe, DefaultsPrintAsTheirNames) {
    for (const char* text : {"bf16", "fp8_rowwise", "fp8_blockwise", "mxfp8"})
        EXPECT_EQ(to_string(parse_recipe(text)), text);
    EXPECT_EQ(parse_recipe("fp8_rowwise").scale_rounding, ScaleRounding::power_of_two);
    EXPECT_EQ(parse_recipe("fp8_blockwise").scale_rounding, ScaleRounding::exact);
}

TEST(Recipe, EveryCombinationOfOptionsSurvivesARoundTrip) {
    int tried = 0;
    for (const RecipeKind kind : {RecipeKind::fp8_rowwise, RecipeKind::fp8_blockwise, RecipeKind::mxfp8})
        for (const Format format : {Format::e4m3, Format::e4m3fnuz, Format::e5m2})
            for (const Format gradient : {Format::e4m3, Format::e5m2})
                for (const auto rounding : {ScaleRounding::power_of_two, ScaleRounding::exact})
                    for (const auto mode : {MxMode::rceil, MxMode::floor, MxMode::ceil, MxMode::even})
                        for (const auto wgrad : {WgradPrecision::fp8, WgradPrecision::bf16})
                            for (const auto accumulation : {Accumulation::promoted, Accumulation::fast}) {
                                static constexpr ProductPrecision precisions[] = {
                                    ProductPrecision::automatic, ProductPrecision::fp8, ProductPrecision::bf16};
                                Recipe recipe = Recipe::of(kind);
                                recipe.format = format;
                                recipe.gradient_format = gradient;
                                if (kind == RecipeKind::mxfp8) {
                                    recipe.mx_mode = mode;
                                } else {
                                    recipe.scale_rounding = rounding;
                                }
                                recipe.forward = precisions[tried % 3];
                                recipe.dgrad = precisions[tried / 3 % 3];
                                recipe.weight_uses = 1 + tried % 4;
                                recipe.wgrad = wgrad;
                                recipe.accumulation = accumulation;
                                ASSERT_EQ(parse_recipe(to_string(recipe)), recipe) << to_string(recipe);
                                ++tried;
                            }
    EXPECT_GT(tried, 500);
}

TEST(Recipe, BadTextIsRefusedWithWhatWasGiven) {
    const auto message = [](const char* text) -> std::string {
        try {
            parse_recipe(text);
        } catch (const Error& error) {
            return error.what();
        }
        return "accepted";
    };
    EXPECT_NE(message("fp9").find("fp9"), std::string::npos);
    EXPECT_NE(message("fp9").find("fp8_rowwise"), std::string::npos);
    EXPECT_NE(message("fp8_rowwise:speed=11").find("speed"), std::string::npos);
    EXPECT_NE(message("fp8_rowwise:scales").find("name=value"), std::string::npos);
    EXPECT_NE(message("fp8_rowwise:format=bf16").find("8-bit"), std::string::npos);
    EXPECT_NE(message("fp8_rowwise:mx=floor").find("has no option"), std::string::npos);
    EXPECT_NE(message("bf16:format=e4m3").find("has no option"), std::string::npos);
    EXPECT_NE(message("bf16:dgrad=fp8").find("has no option"), std::string::npos);
    EXPECT_NE(message("fp8_rowwise:forward=f32").find("forward precision 'f32'"), std::string::npos);
    for (const char* text : {"fp8_rowwise:weight_uses=0", "fp8_rowwise:weight_uses=2x", "fp8_rowwise:weight_uses=-1"})
        EXPECT_NE(message(text).find("whole number"), std::string::npos) << text;
    EXPECT_NE(message("").find("unknown recipe"), std::string::npos);
    EXPECT_NE(message("fp8_rowwise:").find("no value"), std::string::npos);
}

TEST(Recipe, OnlyQuantizingOnesHaveAScaling) {
    EXPECT_EQ(parse_recipe("mxfp8").scaling(), Scaling::mx);
    EXPECT_THROW(parse_recipe("bf16").scaling(), Error);
}

}  // namespace
}  // namespace octet
