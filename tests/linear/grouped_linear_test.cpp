// GroupedLinear: gradients against central differences, each recipe against the operations it stands for, what it
// keeps, what it casts, and what it refuses.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>

#include "core/refusal.hpp"
#include "octet/linear.hpp"
#include "products/operands.hpp"

namespace octet::testing {
namespace {

struct Step {
    LinearShape shape;
    std::int64_t tokens;
    std::vector<std::int32_t> ends;
    Tensor a, w, dy;
    Tensor y, da, dw;
    Groups groups() const { return groups_of(ends); }
};

Step make_step(LinearShape shape, std::int64_t tokens, std::vector<std::int32_t> ends, Format format, Random& random) {
    Step step{shape,
              tokens,
              std::move(ends),
              make_normal(format, {tokens, shape.in_features}, random),
              make_normal(format, {shape.experts, shape.out_features, shape.in_features}, random),
              make_normal(format, {tokens, shape.out_features}, random),
              make_poisoned(Format::f32, {tokens, shape.out_features}),
              make_poisoned(Format::f32, {tokens, shape.in_features}),
              make_poisoned(Format::f32, {shape.experts, shape.out_features, shape.in_features})};
    return step;
}

void run(GroupedLinear& layer, Step& step, Update update = Update::overwrite) {
    LinearKept kept;
    LinearWorkspace workspace;
    layer.bind_weights(step.w);
    layer.forward(step.a, step.groups(), step.y, &kept, workspace);
    layer.backward(step.dy, step.groups(), kept, step.da, step.dw, update, workspace);
}

// sum(dy * forward(a, w)) in f64: what the gradients are gradients of.
double objective(const Step& step, const std::vector<double>& a, const std::vector<double>& w) {
    const auto dy = to_doubles(step.dy);
    const auto [experts, n, k] = step.shape;
    double sum = 0;
    for_each_group(step.groups(), 1, [&, n = n, k = k](const GroupRange& g) {
        for (std::int64_t i = g.begin; i < g.end; ++i)
            for (std::int64_t j = 0; j < n; ++j)
                for (std::int64_t c = 0; c < k; ++c)
                    sum += dy[std::size_t(i * n + j)] * a[std::size_t(i * k + c)] *
                           w[std::size_t((g.index * n + j) * k + c)];
    });
    return sum;
}

void expect_central_differences(const std::function<double(const std::vector<double>&)>& f, std::vector<double> x,
                                const std::vector<double>& gradient, const char* what) {
    constexpr double h = 1e-4;
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        const double middle = x[i];
        x[i] = middle + h;
        const double up = f(x);
        x[i] = middle - h;
        const double down = f(x);
        x[i] = middle;
        const double slope = (up - down) / (2 * h);
        difference += (slope - gradient[i]) * (slope - gradient[i]);
        size += slope * slope;
    }
    EXPECT_FALSE(!(std::sqrt(difference / size) <= 1e-6)) << what << ": " << std::sqrt(difference / size);
}

TEST(GroupedLinear, GradientsAgreeWithCentralDifferences) {
    Random random(21);
    Step step = make_step({3, 5, 7}, 11, {4, 4, 11}, Format::f32, random);
    GroupedLinear layer(step.shape, Recipe::of(RecipeKind::bf16));
    run(layer, step);
    const auto a = to_doubles(step.a), w = to_doubles(step.w);
    expect_central_differences([&](const std::vector<double>& x) { return objective(step, x, w); }, a,
                               to_doubles(step.da), "dA");
    expect_central_differences([&](const std::vector<double>& x) { return objective(step, a, x); }, w,
                               to_doubles(step.dw), "dW");
}

bool same_bits(const Tensor& x, const Tensor& y) {
    return x.bytes() == y.bytes() && std::memcmp(x.as<char>(), y.as<char>(), x.bytes()) == 0;
}

void poison(Tensor& x) { std::memset(x.as<char>(), 0xA5, x.bytes()); }

Tensor copy_of(const Tensor& x) {
    Tensor copy = make_poisoned(x.format(), x.extents());
    std::memcpy(copy.as<char>(), x.as<char>(), x.bytes());
    return copy;
}

// Each recipe is the sequence of operations that docs/design.md lists, bit for bit.
TEST(GroupedLinear, IsTheSequenceOfOperationsThatItsRecipeNames) {
    for (const char* text :
         {"fp8_rowwise", "fp8_rowwise:scales=exact,gradient=e5m2", "fp8_rowwise:format=e4m3fnuz,gradient=e4m3fnuz",
          "fp8_blockwise", "fp8_blockwise:gradient=e5m2,scales=power_of_two", "mxfp8", "mxfp8:mx=floor",
          "fp8_rowwise:wgrad=bf16", "mxfp8:wgrad=bf16,gradient=e5m2", "fp8_rowwise:forward=bf16",
          "fp8_rowwise:dgrad=bf16", "fp8_rowwise:forward=bf16,dgrad=bf16", "fp8_blockwise:forward=bf16,dgrad=bf16",
          "mxfp8:dgrad=bf16,wgrad=bf16", "mxfp8:forward=bf16,gradient=e5m2",
          "fp8_rowwise:forward=bf16,dgrad=bf16,wgrad=bf16", "bf16"}) {
        SCOPED_TRACE(text);
        Random random(22);
        const Recipe recipe = parse_recipe(text);
        Step step = make_step({4, 70, 150}, 90, {30, 30, 31, 80}, Format::bf16, random);
        GroupedLinear layer(step.shape, recipe);
        run(layer, step);

        Tensor y = make_poisoned(Format::f32, step.y.extents()), da = make_poisoned(Format::f32, step.da.extents());
        Tensor dw = make_poisoned(Format::f32, step.dw.extents());
        const Groups groups = step.groups();
        const bool forward8 = recipe.quantizes() && recipe.forward != ProductPrecision::bf16;
        const bool dgrad8 = recipe.quantizes() && recipe.dgrad != ProductPrecision::bf16;
        if (!forward8) grouped_forward(step.a.view(), step.w.view(), groups, y);
        if (!dgrad8) grouped_dgrad(step.dy.view(), step.w.view(), groups, da);
        if (recipe.wgrad == WgradPrecision::bf16) grouped_wgrad(step.dy.view(), step.a.view(), groups, 1, dw);
        if (recipe.quantizes()) {
            const Scaling scaling = recipe.scaling();
            const QuantizeOptions options{scaling, recipe.format, recipe.scale_rounding, recipe.mx_mode};
            const QuantizeOptions gradient{scaling, recipe.gradient_format, recipe.scale_rounding, recipe.mx_mode};
            const std::int64_t alignment = token_alignment(scaling, {});
            auto a_rows = quantized_rows(step.a, options), dy_rows = quantized_rows(step.dy, gradient);
            auto wk = quantized_weights(step.w, WeightOrientation::along_k, options);
            auto wn = quantized_weights(step.w, WeightOrientation::along_n, options);
            if (forward8) grouped_forward(a_rows.operand(), wk.operand(), groups, y);
            if (dgrad8) grouped_dgrad(dy_rows.operand(), wn.operand(), groups, da);
            if (recipe.wgrad == WgradPrecision::fp8) {
                auto a_columns = quantized_columns(step.a, groups, alignment, options);
                auto dy_columns = quantized_columns(step.dy, groups, alignment, gradient);
                grouped_wgrad(dy_columns.operand(), a_columns.operand(), groups, alignment, dw);
            }
        }
        EXPECT_TRUE(same_bits(step.y, y));
        EXPECT_TRUE(same_bits(step.da, da));
        EXPECT_TRUE(same_bits(step.dw, dw));
    }
}

TEST(GroupedLinear, KeepsOnlyTheEightBitCopyAndCastsEachTensorOnce) {
    Random random(23);
    const LinearShape shape{8, 48, 96};
    struct Case {
        const char* recipe;
        std::int64_t tokens;
    };
    for (const auto& [text, tokens] : {Case{"fp8_rowwise", 4096}, Case{"mxfp8", 8192}, Case{"fp8_blockwise", 32768}}) {
        SCOPED_TRACE(text);
        std::vector<std::int32_t> ends;
        for (std::int64_t e = 1; e <= shape.experts; ++e)
            ends.push_back(static_cast<std::int32_t>(tokens * e / shape.experts));
        Step step = make_step(shape, tokens, ends, Format::bf16, random);
        GroupedLinear plain(shape, Recipe::of(RecipeKind::bf16)), layer(shape, parse_recipe(text));
        run(plain, step);
        EXPECT_EQ(plain.report().kept_bytes, step.a.bytes());
        EXPECT_EQ(plain.report().activation_casts + plain.report().gradient_casts + plain.report().weight_casts, 0);

        LinearKept kept;
        LinearWorkspace workspace;
        layer.bind_weights(step.w);
        for (int i = 0; i < 3; ++i) {
            layer.forward(step.a, step.groups(), step.y, &kept, workspace);
            layer.backward(step.dy, step.groups(), kept, step.da, step.dw, Update::overwrite, workspace);
        }
        EXPECT_EQ(layer.report().activation_casts, 3);
        EXPECT_EQ(layer.report().gradient_casts, 3);
        EXPECT_EQ(layer.report().weight_casts, 1);
        EXPECT_EQ(layer.report().kept_bytes, kept.bytes());
        const double share = double(kept.bytes()) / double(plain.report().kept_bytes);
        EXPECT_FALSE(!(share <= 0.55)) << share;
        layer.weights_changed();
        layer.forward(step.a, step.groups(), step.y, nullptr, workspace);
        EXPECT_EQ(layer.report().weight_casts, 2);
    }
}

// Each mix, every product against the scalar reference of the operands that the mix names, in f64.
TEST(GroupedLinear, EveryMixOfPrecisionsAgreesWithTheReference) {
    for (const char* kind : {"fp8_rowwise", "fp8_blockwise", "mxfp8"})
        for (const char* forward : {"fp8", "bf16"})
            for (const char* dgrad : {"fp8", "bf16"})
                for (const char* wgrad : {"fp8", "bf16"}) {
                    const std::string text =
                        std::string(kind) + ":forward=" + forward + ",dgrad=" + dgrad + ",wgrad=" + wgrad;
                    SCOPED_TRACE(text);
                    Random random(31);
                    Step fast = make_step({3, 48, 130}, 77, {20, 20, 70}, Format::bf16, random);
                    GroupedLinear layer(fast.shape, parse_recipe(text)), oracle(fast.shape, parse_recipe(text));
                    run(layer, fast);
                    const auto y = to_doubles(fast.y), da = to_doubles(fast.da), dw = to_doubles(fast.dw);
                    LinearKept kept;
                    LinearWorkspace workspace;
                    const Execution by_reference{.backend = Backend::reference};
                    oracle.bind_weights(fast.w);
                    oracle.forward(fast.a, fast.groups(), fast.y, &kept, workspace, by_reference);
                    oracle.backward(fast.dy, fast.groups(), kept, fast.da, fast.dw, Update::overwrite, workspace,
                                    by_reference);
                    EXPECT_FALSE(!(relative_error(y, to_doubles(fast.y)) <= 1e-6 * std::sqrt(130.0)));
                    EXPECT_FALSE(!(relative_error(da, to_doubles(fast.da)) <= 1e-6 * std::sqrt(48.0)));
                    EXPECT_FALSE(!(relative_error(dw, to_doubles(fast.dw)) <= 1e-6 * std::sqrt(77.0)));
                    EXPECT_EQ(layer.report().weight_casts, parse_recipe(text).forward == ProductPrecision::fp8 ||
                                                               parse_recipe(text).dgrad == ProductPrecision::fp8);
                    EXPECT_EQ(to_string(layer.choice(77)),
                              std::string("forward ") + forward + ", dgrad " + dgrad + ", wgrad " + wgrad);
                }
}

// The order of casts and products is the same on every device; the halves themselves are a GPU's.
TEST(GroupedLinear, ArrangementsOfCastsGiveTheSameBits) {
    for (const char* text : {"fp8_rowwise", "fp8_blockwise", "mxfp8", "fp8_rowwise:wgrad=bf16",
                             "fp8_rowwise:dgrad=bf16", "fp8_rowwise:forward=bf16"}) {
        SCOPED_TRACE(text);
        const Recipe recipe = parse_recipe(text);
        Random random(31);
        Step step = make_step({3, 64, 96}, 70, {30, 30, 66}, Format::bf16, random);
        GroupedLinear plain(step.shape, recipe);
        run(plain, step);
        const Tensor y = copy_of(step.y), da = copy_of(step.da), dw = copy_of(step.dw);
        for (const char* beside :
             {"none", "A and forward", "dY and dgrad", "W and forward", "A and forward, W and forward, dY and dgrad"}) {
            SCOPED_TRACE(beside);
            GroupedLinear layer(step.shape, recipe);
            layer.arrange_casts(parse_casts_beside(beside));
            for (const int casts : {1, 0}) {  // the second step finds them
                for (Tensor* out : {&step.y, &step.da, &step.dw}) poison(*out);
                LinearKept kept;
                LinearWorkspace workspace;
                if (casts > 0) layer.bind_weights(step.w);
                layer.reset_report();
                layer.forward(step.a, step.groups(), step.y, &kept, workspace);
                layer.backward(step.dy, step.groups(), kept, step.da, step.dw, Update::overwrite, workspace);
                EXPECT_EQ(layer.report().weight_casts, casts);
                EXPECT_TRUE(same_bits(step.y, y));
                EXPECT_TRUE(same_bits(step.da, da));
                EXPECT_TRUE(same_bits(step.dw, dw));
            }
        }
    }
}

// A cast of tokens that is refused comes between the two halves of the weights': the second half counts as not made.
TEST(GroupedLinear, ARefusedCastLeavesNoHalfCastWeightsBehind) {
    Random random(32);
    Step step = make_step({3, 64, 96}, 70, {30, 30, 66}, Format::bf16, random);
    GroupedLinear plain(step.shape, Recipe::of(RecipeKind::fp8_rowwise));
    run(plain, step);
    const Tensor da = copy_of(step.da), dw = copy_of(step.dw);
    GroupedLinear layer(step.shape, Recipe::of(RecipeKind::fp8_rowwise));
    layer.arrange_casts(parse_casts_beside("W and forward"));
    layer.bind_weights(step.w);
    LinearKept kept;
    LinearWorkspace workspace;
    EXPECT_THROW(layer.forward(step.a, groups_of({30, 30, 71}), step.y, &kept, workspace), Error);
    EXPECT_EQ(layer.report().weight_casts, 1);
    layer.forward(step.a, step.groups(), step.y, &kept, workspace);
    EXPECT_EQ(layer.report().weight_casts, 2);  // along N again
    poison(step.da);
    poison(step.dw);
    layer.backward(step.dy, step.groups(), kept, step.da, step.dw, Update::overwrite, workspace);
    EXPECT_TRUE(same_bits(step.da, da));
    EXPECT_TRUE(same_bits(step.dw, dw));
    EXPECT_THROW(layer.arrange_casts(parse_casts_beside("W and wgrad")), Error);
}

// Forward, then the activation is overwritten: backward must not have needed it.
TEST(GroupedLinear, DoesNotReadTheActivationAgain) {
    Random random(24);
    Step step = make_step({2, 33, 40}, 50, {20, 50}, Format::bf16, random);
    GroupedLinear layer(step.shape, Recipe::of(RecipeKind::fp8_rowwise));
    run(layer, step);
    Tensor dw = make_poisoned(Format::f32, step.dw.extents());
    LinearKept kept;
    LinearWorkspace workspace;
    layer.forward(step.a, step.groups(), step.y, &kept, workspace);
    std::memset(step.a.as<char>(), 0, step.a.bytes());
    layer.backward(step.dy, step.groups(), kept, {}, dw, Update::overwrite, workspace);
    EXPECT_TRUE(same_bits(dw, step.dw));
}

TEST(GroupedLinear, SeesNewWeightsWhenToldAndNotBefore) {
    Random random(25);
    Step step = make_step({2, 33, 40}, 50, {20, 50}, Format::bf16, random);
    GroupedLinear layer(step.shape, Recipe::of(RecipeKind::mxfp8));
    run(layer, step);
    Tensor first(Format::f32, step.y.extents());
    LinearWorkspace workspace;
    layer.forward(step.a, step.groups(), first, nullptr, workspace);
    std::memset(step.w.as<char>(), 0, step.w.bytes());
    layer.forward(step.a, step.groups(), step.y, nullptr, workspace);
    EXPECT_TRUE(same_bits(first, step.y));
    layer.weights_changed();
    layer.forward(step.a, step.groups(), step.y, nullptr, workspace);
    for (const double value : to_doubles(step.y)) EXPECT_EQ(value, 0.0);
}

TEST(GroupedLinear, AddsIntoTheGradientAndLeavesEmptyExpertsAlone) {
    Random random(26);
    for (const char* text : {"bf16", "fp8_rowwise", "fp8_blockwise", "mxfp8"}) {
        SCOPED_TRACE(text);
        Step step = make_step({3, 20, 24}, 40, {15, 15, 40}, Format::bf16, random);
        GroupedLinear layer(step.shape, parse_recipe(text));
        run(layer, step);
        const auto once = to_doubles(step.dw);
        for (std::size_t i = once.size() / 3; i < 2 * once.size() / 3; ++i) ASSERT_EQ(once[i], 0.0);
        run(layer, step, Update::add);
        const auto twice = to_doubles(step.dw);
        for (std::size_t i = 0; i < once.size(); ++i) ASSERT_EQ(twice[i], 2 * once[i]);
    }
}

TEST(GroupedLinear, TakesNoTokensAtAll) {
    Random random(27);
    for (const char* text : {"bf16", "fp8_rowwise", "fp8_blockwise", "mxfp8"}) {
        SCOPED_TRACE(text);
        Step step = make_step({2, 20, 24}, 0, {0, 0}, Format::bf16, random);
        GroupedLinear layer(step.shape, parse_recipe(text));
        run(layer, step);
        for (const double value : to_doubles(step.dw)) ASSERT_EQ(value, 0.0);
    }
}

TEST(GroupedLinear, SqnrAgainstBf16IsAboveTheFloors) {
    Random random(28);
    Step plain = make_step({2, 256, 384}, 512, {200, 512}, Format::bf16, random);
    GroupedLinear exact(plain.shape, Recipe::of(RecipeKind::bf16));
    run(exact, plain);
    const auto y = to_doubles(plain.y), da = to_doubles(plain.da), dw = to_doubles(plain.dw);
    for (const char* text : {"fp8_rowwise", "fp8_rowwise:scales=exact", "fp8_blockwise", "mxfp8"}) {
        SCOPED_TRACE(text);
        GroupedLinear layer(plain.shape, parse_recipe(text));
        run(layer, plain);
        EXPECT_FALSE(!(sqnr_db(to_doubles(plain.y), y) >= 27));
        EXPECT_FALSE(!(sqnr_db(to_doubles(plain.da), da) >= 25));
        EXPECT_FALSE(!(sqnr_db(to_doubles(plain.dw), dw) >= 24));
    }
}

TEST(GroupedLinear, RefusesWhatDoesNotFitNamingBothSidesAndWritesNothing) {
    Random random(29);
    Step step = make_step({2, 20, 24}, 40, {15, 40}, Format::bf16, random);
    GroupedLinear layer(step.shape, Recipe::of(RecipeKind::fp8_rowwise));
    LinearKept kept;
    LinearWorkspace workspace;
    const auto forward = [&](const Tensor& a, const std::vector<std::int32_t>& ends) {
        return message_of([&] { layer.forward(a, groups_of(ends), step.y, &kept, workspace); });
    };
    EXPECT_NE(forward(step.a, step.ends).find("bind_weights"), std::string::npos);
    const Tensor narrow = make_normal(Format::bf16, {2, 20, 23}, random);
    const std::string weights = message_of([&] { layer.bind_weights(narrow); });
    EXPECT_NE(weights.find("[2, 20, 23]"), std::string::npos) << weights;
    EXPECT_NE(weights.find("[2, 20, 24]"), std::string::npos) << weights;
    layer.bind_weights(step.w);
    const Tensor wide = make_normal(Format::bf16, {40, 25}, random);
    const std::string message = forward(wide, step.ends);
    EXPECT_NE(message.find("[40, 25]"), std::string::npos) << message;
    EXPECT_NE(message.find("[2, 20, 24]"), std::string::npos) << message;
    EXPECT_NE(forward(step.a, {15, 20, 40}).find("3 groups"), std::string::npos);
    EXPECT_NE(forward(step.a, {15, 41}).find("41"), std::string::npos);
    EXPECT_NE(forward(step.a, {15, 14}).find("14"), std::string::npos);
    const std::string nothing = message_of(
        [&] { layer.backward(step.dy, step.groups(), kept, step.da, step.dw, Update::overwrite, workspace); });
    EXPECT_NE(nothing.find("forward"), std::string::npos) << nothing;
    for (const Tensor* tensor : {&step.y, &step.da, &step.dw})
        for (std::size_t i = 0; i < tensor->bytes(); ++i) ASSERT_EQ(tensor->as<std::uint8_t>()[i], 0xA5);
    layer.forward(step.a, step.groups(), step.y, &kept, workspace);
    layer.weights_changed();
    const std::string changed = message_of(
        [&] { layer.backward(step.dy, step.groups(), kept, step.da, step.dw, Update::overwrite, workspace); });
    EXPECT_NE(changed.find("weights changed"), std::string::npos) << changed;
}

// An output that does not fit is refused before the other is written, and one that would destroy what is read too.
TEST(GroupedLinear, ChecksEveryOutputBeforeWritingOne) {
    Random random(33);
    for (const char* recipe : {"bf16", "fp8_rowwise"}) {
        SCOPED_TRACE(recipe);
        Step step = make_step({2, 24, 24}, 40, {15, 40}, Format::f32, random);
        GroupedLinear layer(step.shape, parse_recipe(recipe));
        layer.bind_weights(step.w);
        LinearKept kept;
        LinearWorkspace workspace;
        const auto has = [](const std::string& message, const char* part) {
            EXPECT_NE(message.find(part), std::string::npos) << message << "; expected " << part;
        };
        has(message_of([&] { layer.forward(step.a, step.groups(), step.a, &kept, workspace); }), "share memory");
        layer.forward(step.a, step.groups(), step.y, &kept, workspace);
        const auto backward = [&](const TensorView& da, const TensorView& dw, Update update) {
            return message_of([&] { layer.backward(step.dy, step.groups(), kept, da, dw, update, workspace); });
        };
        Tensor half = make_poisoned(Format::bf16, step.dw.extents()), flat = make_poisoned(Format::f32, {2 * 24 * 24});
        TensorView crooked = step.dw.view();
        crooked.data = static_cast<char*>(crooked.data) + 1;
        has(backward(step.da, flat, Update::overwrite), "dw has shape");
        has(backward(step.da, crooked, Update::overwrite), "dw lies at an address");
        has(backward(step.da, half, Update::add), "dw is bf16");
        has(backward(step.da, step.w, Update::overwrite), "dw and w share memory");
        has(backward({step.dw.view().data, Format::f32, step.da.extents()}, step.dw, Update::overwrite),
            "dw and da share memory");
        for (const Tensor* tensor : {&step.da, &step.dw, &half, &flat})
            for (std::size_t i = 0; i < tensor->bytes(); ++i) ASSERT_EQ(tensor->as<std::uint8_t>()[i], 0xA5);
    }
}

}  // namespace
}  // namespace octet::testing
