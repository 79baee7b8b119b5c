// The MoE layer: against its f64 twin, gradients against central differences, recipes against f32, what it keeps.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

#include "core/refusal.hpp"
#include "moe/layer_f64.hpp"

namespace octet::testing {
namespace {

MoeOptions small_options() {
    MoeOptions options;
    options.hidden = 6;
    options.expert_hidden = 5;
    options.shared_hidden = 4;
    options.router = {.experts = 4, .top_k = 2};
    options.recipe = Recipe::of(RecipeKind::bf16);
    options.activations = Format::f32;
    return options;
}

void fill_parameters(MoeLayer& layer, Random& random, float sigma) {
    for (const Parameter& parameter : layer.parameters()) fill_normal(parameter.value, random, sigma);
    layer.weights_changed();
}

struct Outcome {
    Tensor y, dx;
    std::vector<std::vector<double>> gradients;
};

Outcome run(MoeLayer& layer, const Tensor& x, const Tensor& dy, int threads = 0) {
    Outcome result{make_poisoned(x.format(), x.extents()), make_poisoned(x.format(), x.extents()), {}};
    MoeKept kept(layer.options());
    MoeWorkspace workspace;
    const Execution on{Backend::automatic, threads};
    layer.zero_gradients();
    layer.forward(x, result.y, &kept, workspace, on);
    layer.backward(dy, kept, result.dx, 1.0f, workspace, on);
    for (const Parameter& parameter : layer.parameters()) result.gradients.push_back(doubles_of(parameter.gradient));
    return result;
}

void expect_central_differences(const std::function<double()>& f, std::vector<double>& x,
                                const std::vector<double>& gradient, const std::string& what) {
    constexpr double h = 1e-6;
    std::vector<double> slopes;
    for (double& value : x) {
        const double middle = value;
        value = middle + h;
        const double up = f();
        value = middle - h;
        const double down = f();
        value = middle;
        slopes.push_back((up - down) / (2 * h));
    }
    const double error = relative_error(gradient, slopes);
    EXPECT_FALSE(!(error <= 2e-6)) << what << ": " << error;
}

// Every input and parameter, for every kind of router.
TEST(MoeLayer, GradientsAgreeWithCentralDifferencesOfTheF64Twin) {
    Random random(61);
    for (const RouterScore score : {RouterScore::softmax, RouterScore::sigmoid})
        for (const RouterWeights weights : {RouterWeights::as_scored, RouterWeights::normalized})
            for (const float auxiliary : {0.0f, 0.5f}) {
                MoeOptions options = small_options();
                options.router.score = score;
                options.router.weights = weights;
                options.router.scaling = 1.5f;
                options.router.auxiliary_loss = auxiliary;
                options.router.balance = auxiliary > 0 ? RouterBalance::bias : RouterBalance::none;
                SCOPED_TRACE(std::string(name(score)) + " " + std::string(name(weights)) + " auxiliary " +
                             std::to_string(auxiliary));
                MoeLayer layer(options);
                fill_parameters(layer, random, 0.7f);
                if (auxiliary > 0) layer.balance_bias()[1] = 0.3f;
                const Tensor x = make_normal(Format::f32, {7, options.hidden}, random);
                const Tensor dy = make_normal(Format::f32, {7, options.hidden}, random);
                const Outcome result = run(layer, x, dy);

                LayerF64 twin = to_f64(layer);
                std::vector<double> inputs = to_doubles(x);
                const std::vector<double> slope = to_doubles(dy);
                const auto objective = [&] {
                    const LayerF64::Result out = twin.forward(inputs);
                    return std::inner_product(out.y.begin(), out.y.end(), slope.begin(), out.auxiliary);
                };
                const LayerF64::Result forward = twin.forward(inputs);
                EXPECT_FALSE(!(relative_error(to_doubles(result.y), forward.y) <= 1e-6));
                EXPECT_NEAR(double(layer.report().auxiliary_loss), forward.auxiliary, 1e-6);
                expect_central_differences(objective, inputs, to_doubles(result.dx), "x");
                expect_central_differences(objective, twin.router, result.gradients[0], "router");
                expect_central_differences(objective, twin.gate_up, result.gradients[1], "experts.gate_up");
                expect_central_differences(objective, twin.down, result.gradients[2], "experts.down");
                expect_central_differences(objective, twin.shared_gate_up, result.gradients[3], "shared.gate_up");
                expect_central_differences(objective, twin.shared_down, result.gradients[4], "shared.down");
            }
}

MoeOptions medium_options(const char* recipe, Format activations) {
    MoeOptions options;
    options.hidden = 160;
    options.expert_hidden = 96;
    options.shared_hidden = 128;
    options.router = {.experts = 8, .top_k = 3, .score = RouterScore::sigmoid, .scaling = 2.0f};
    options.recipe = parse_recipe(recipe);
    options.activations = activations;
    return options;
}

// The floors are a few dB below what is measured: 8-bit noise of two products in a row, and of their gradients.
TEST(MoeLayer, EveryRecipeStaysCloseToF32) {
    for (const char* recipe :
         {"bf16", "fp8_rowwise", "fp8_rowwise:gradient=e5m2", "fp8_rowwise:wgrad=bf16", "fp8_blockwise", "mxfp8"}) {
        Random random(62);
        SCOPED_TRACE(recipe);
        MoeLayer exact(medium_options("bf16", Format::f32)), layer(medium_options(recipe, Format::bf16));
        fill_parameters(exact, random, 0.08f);
        for (const Parameter& parameter : layer.parameters())
            std::memcpy(parameter.value.data, exact.parameter(parameter.name).value.data,
                        std::size_t(parameter.value.extents.elements()) * sizeof(float));
        layer.weights_changed();
        const Tensor x16 = make_normal(Format::bf16, {200, 160}, random),
                     dy16 = make_normal(Format::bf16, {200, 160}, random);
        Tensor x(Format::f32, x16.extents()), dy(Format::f32, x16.extents());
        for (std::int64_t i = 0; i < x.elements(); ++i) {
            x.as<float>()[i] = BF16::decode(x16.as<std::uint16_t>()[i]);
            dy.as<float>()[i] = BF16::decode(dy16.as<std::uint16_t>()[i]);
        }
        const Outcome want = run(exact, x, dy), got = run(layer, x16, dy16);
        const bool plain = std::string(recipe) == "bf16",
                   coarse = std::string(recipe).find("e5m2") != std::string::npos;
        const double floor = plain ? 40 : coarse ? 17 : 21;
        const auto expect_above = [&](const std::vector<double>& g, const std::vector<double>& w,
                                      const std::string& what) {
            const double db = sqnr_db(g, w);
            RecordProperty(std::string(recipe) + " " + what, std::to_string(db));
            EXPECT_FALSE(!(db >= floor)) << what << " " << db << " dB";
        };
        expect_above(to_doubles(got.y), to_doubles(want.y), "y");
        expect_above(to_doubles(got.dx), to_doubles(want.dx), "dx");
        for (std::size_t i = 0; i < want.gradients.size(); ++i)
            expect_above(got.gradients[i], want.gradients[i], layer.parameters()[i].name);
    }
}

TEST(MoeLayer, BitsDoNotDependOnThreadsOrRepetition) {
    for (const char* recipe : {"bf16", "fp8_rowwise", "fp8_blockwise", "mxfp8"}) {
        Random random(63);
        SCOPED_TRACE(recipe);
        MoeLayer layer(medium_options(recipe, Format::bf16));
        fill_parameters(layer, random, 0.08f);
        const Tensor x = make_normal(Format::bf16, {300, 160}, random),
                     dy = make_normal(Format::bf16, {300, 160}, random);
        const Outcome one = run(layer, x, dy, 1);
        for (const int threads : {1, 2, 5}) {
            const Outcome other = run(layer, x, dy, threads);
            EXPECT_EQ(std::memcmp(one.y.as<char>(), other.y.as<char>(), one.y.bytes()), 0) << threads;
            EXPECT_EQ(std::memcmp(one.dx.as<char>(), other.dx.as<char>(), one.dx.bytes()), 0) << threads;
            EXPECT_EQ(one.gradients, other.gradients) << threads;
        }
    }
}

TEST(MoeLayer, AddsGradientsOfMicroBatches) {
    Random random(64);
    MoeLayer layer(medium_options("fp8_rowwise", Format::bf16));
    fill_parameters(layer, random, 0.08f);
    const Tensor x = make_normal(Format::bf16, {64, 160}, random), dy = make_normal(Format::bf16, {64, 160}, random);
    const Outcome once = run(layer, x, dy);
    MoeKept kept(layer.options());
    MoeWorkspace workspace;
    Tensor y(Format::bf16, x.extents()), dx(Format::bf16, x.extents());
    layer.forward(x, y, &kept, workspace);
    layer.backward(dy, kept, dx, 1.0f, workspace);
    const auto parameters = layer.parameters();
    for (std::size_t p = 0; p < parameters.size(); ++p) {
        const auto twice = doubles_of(parameters[p].gradient);
        for (std::size_t i = 0; i < twice.size(); ++i)
            ASSERT_EQ(twice[i], 2 * once.gradients[p][i]) << parameters[p].name;
    }
}

TEST(MoeLayer, KeepsLessThanBf16AndCastsEachTensorOnce) {
    Random random(65);
    MoeLayer plain(medium_options("bf16", Format::bf16)), layer(medium_options("fp8_rowwise", Format::bf16));
    fill_parameters(plain, random, 0.08f);
    fill_parameters(layer, random, 0.08f);
    const Tensor x = make_normal(Format::bf16, {600, 160}, random), dy = make_normal(Format::bf16, {600, 160}, random);
    run(plain, x, dy);
    run(layer, x, dy);
    run(layer, x, dy);
    const MoeReport report = layer.report();
    // Two products in the experts, two in the shared ones.
    EXPECT_EQ(report.linear.weight_casts, 4);
    EXPECT_EQ(report.linear.activation_casts, 8);
    EXPECT_EQ(report.linear.gradient_casts, 8);
    const double share = double(report.linear.kept_bytes) / double(plain.report().linear.kept_bytes);
    EXPECT_FALSE(!(share <= 0.55)) << share;
    EXPECT_LT(report.kept_bytes, plain.report().kept_bytes);
    std::int64_t tokens = 0;
    for (const std::int64_t count : report.tokens_per_expert) tokens += count;
    EXPECT_EQ(tokens, 2 * 600 * 3);
}

TEST(MoeLayer, InferenceGivesTheSameOutputAndCountsNothingForTheBalance) {
    Random random(66);
    MoeLayer layer(medium_options("mxfp8", Format::bf16));
    fill_parameters(layer, random, 0.08f);
    const Tensor x = make_normal(Format::bf16, {50, 160}, random), dy = make_normal(Format::bf16, {50, 160}, random);
    MoeWorkspace workspace;
    Tensor y = make_poisoned(Format::bf16, x.extents());
    layer.forward(x, y, nullptr, workspace);
    for (const std::int64_t count : layer.balance_counts()) EXPECT_EQ(count, 0);
    const Outcome trained = run(layer, x, dy);
    EXPECT_EQ(std::memcmp(y.as<char>(), trained.y.as<char>(), y.bytes()), 0);
}

TEST(MoeLayer, TheBalanceMovesTokensToIdleExperts) {
    Random random(67);
    MoeOptions options = medium_options("bf16", Format::f32);
    options.shared_hidden = 0;
    options.router = {
        .experts = 4, .top_k = 1, .score = RouterScore::sigmoid, .balance = RouterBalance::bias, .balance_rate = 0.01f};
    MoeLayer layer(options);
    fill_parameters(layer, random, 0.05f);
    const Tensor x = make_normal(Format::f32, {400, 160}, random);
    Tensor y(Format::f32, x.extents());
    MoeKept kept(options);
    MoeWorkspace workspace;
    layer.balance_bias()[2] = 0.5f;  // nearly everything goes to expert 2 at first
    const auto spread = [&] {
        layer.forward(x, y, &kept, workspace);
        const auto counts = layer.balance_counts();
        return *std::max_element(counts.begin(), counts.end()) - *std::min_element(counts.begin(), counts.end());
    };
    EXPECT_GT(spread(), 350);
    layer.update_balance();
    EXPECT_FLOAT_EQ(layer.balance_bias()[2], 0.49f);
    EXPECT_FLOAT_EQ(layer.balance_bias()[0], 0.01f);
    std::int64_t last = 0;
    for (int step = 0; step < 60; ++step) {
        last = spread();
        layer.update_balance();
    }
    EXPECT_LT(last, 120);
}

TEST(MoeLayer, TakesNoTokensAndOneToken) {
    Random random(68);
    for (const char* recipe : {"bf16", "fp8_rowwise", "fp8_blockwise", "mxfp8"}) {
        SCOPED_TRACE(recipe);
        MoeLayer layer(medium_options(recipe, Format::bf16));
        fill_parameters(layer, random, 0.08f);
        for (const std::int64_t tokens : {0, 1}) {
            const Tensor x = make_normal(Format::bf16, {tokens, 160}, random),
                         dy = make_normal(Format::bf16, {tokens, 160}, random);
            const Outcome result = run(layer, x, dy);
            for (const auto& gradient : result.gradients)
                for (const double value : gradient) {
                    ASSERT_TRUE(std::isfinite(value));
                    if (tokens == 0) {
                        ASSERT_EQ(value, 0.0);
                    }
                }
        }
    }
}

TEST(MoeLayer, RefusesWhatDoesNotFitNamingBothSides) {
    Random random(69);
    MoeLayer layer(small_options());
    MoeKept kept(layer.options());
    MoeWorkspace workspace;
    const Tensor wide = make_normal(Format::f32, {3, 7}, random), half = make_normal(Format::bf16, {3, 6}, random);
    const Tensor x = make_normal(Format::f32, {3, 6}, random), more = make_normal(Format::f32, {4, 6}, random);
    Tensor y = make_poisoned(Format::f32, {3, 6});
    const auto has = [](const std::string& message, const char* part) {
        EXPECT_NE(message.find(part), std::string::npos) << message << "; expected " << part;
    };
    const std::string shape = message_of([&] { layer.forward(wide, y, &kept, workspace); });
    has(shape, "[3, 7]");
    has(shape, "6");
    const std::string format = message_of([&] { layer.forward(half, y, &kept, workspace); });
    has(format, "bf16");
    has(format, "f32");
    has(message_of([&] { layer.forward(more, y, &kept, workspace); }), "4 tokens");
    has(message_of([&] { layer.backward(x, kept, y, 1.0f, workspace); }), "forward");
    for (std::size_t i = 0; i < y.bytes(); ++i) ASSERT_EQ(y.as<std::uint8_t>()[i], 0xA5);
    layer.forward(x, y, &kept, workspace);
    has(message_of([&] { layer.backward(more, kept, y, 1.0f, workspace); }), "3 tokens");
    has(message_of([&] { layer.parameter("gate"); }), "experts.gate_up");
    MoeOptions bad = small_options();
    bad.router.top_k = 9;
    has(message_of([&] { MoeLayer refused(bad); }), "top_k 9");
    bad = small_options();
    bad.router.experts = -1;
    has(message_of([&] { MoeLayer refused(bad); }), "-1 experts");
    bad = small_options();
    bad.expert_hidden = std::int64_t{1} << 62;
    has(message_of([&] { MoeLayer refused(bad); }), "expert hidden 4611686018427387904");
}

// What is refused leaves gradients, balance and what forward kept as they were.
TEST(MoeLayer, ChecksItsTensorsBeforeItChangesAnything) {
    Random random(70);
    MoeOptions options = small_options();
    options.router.balance = RouterBalance::bias;
    MoeLayer layer(options);
    fill_parameters(layer, random, 0.3f);
    layer.zero_gradients();
    MoeKept kept(layer.options());
    MoeWorkspace workspace;
    const Tensor dy = make_normal(Format::f32, {3, 6}, random);
    Tensor x = make_normal(Format::f32, {3, 6}, random), y = make_poisoned(Format::f32, {3, 6});
    const auto has = [](const std::string& message, const char* part) {
        EXPECT_NE(message.find(part), std::string::npos) << message << "; expected " << part;
    };
    TensorView crooked = y.view(), nothing = y.view();
    crooked.data = static_cast<char*>(crooked.data) + 1;
    nothing.data = nullptr;
    has(message_of([&] { layer.forward(x, crooked, &kept, workspace); }), "y lies at an address");
    has(message_of([&] { layer.forward(x, x, &kept, workspace); }), "y and x share memory");
    layer.update_balance();
    for (const float bias : layer.balance_bias()) EXPECT_EQ(bias, 0.0f);
    layer.forward(x, y, &kept, workspace);
    has(message_of([&] { layer.forward(x, nothing, &kept, workspace); }), "y of shape [3, 6] has a null data pointer");
    has(message_of([&] { layer.backward(dy, kept, nothing, 1.0f, workspace); }), "dx of shape [3, 6]");
    const float nan = std::numeric_limits<float>::quiet_NaN();
    has(message_of([&] { layer.backward(dy, kept, y, nan, workspace); }), "auxiliary_scale is nan");
    for (const Parameter& parameter : layer.parameters())
        for (const double value : doubles_of(parameter.gradient)) ASSERT_EQ(value, 0.0);
    layer.backward(dy, kept, y, 1.0f, workspace);
}

}  // namespace
}  // namespace octet::testing
