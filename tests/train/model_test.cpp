#include "train/model.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "train/numeric_model.hpp"
#include "train/optimizer.hpp"

namespace octet::train {
namespace {

ModelConfig toy() {
    ModelConfig c;
    c.vocabulary = 23;
    c.layers = 2;
    c.hidden = 20;
    c.heads = 2;
    c.kv_heads = 1;
    c.head_dim = 6;
    c.sequence_length = 9;
    c.tied_head = true;
    c.dense_layers = 1;
    c.dense_intermediate = 28;
    c.experts = 4;
    c.experts_per_token = 2;
    c.expert_intermediate = 12;
    c.shared_experts = 1;
    return c;
}

struct Text {
    std::vector<std::int32_t> tokens, targets;
    Text(std::int64_t vocabulary, std::int64_t count, std::uint64_t seed) {
        std::mt19937_64 engine(seed);
        for (std::int64_t i = 0; i < count; ++i) {
            tokens.push_back(static_cast<std::int32_t>(engine() % static_cast<std::uint64_t>(vocabulary)));
            targets.push_back(static_cast<std::int32_t>(engine() % static_cast<std::uint64_t>(vocabulary)));
        }
    }
    Batch batch(std::int64_t sequences) const {
        return {tokens, targets, sequences, static_cast<std::int64_t>(tokens.size()) / sequences};
    }
};

ModelOptions options_of(const char* recipe, Format activations, int threads = 0) {
    ModelOptions options;
    options.recipe = parse_recipe(recipe);
    options.activations = activations;
    options.threads = threads;
    return options;
}

// Along each parameter's own gradient the loss must change as fast as the gradient is long.
TEST(Model, GradientsAreDirectionalDifferencesOfTheLoss) {
    for (const bool tied : {true, false}) {
        for (const RouterScore score : {RouterScore::softmax, RouterScore::sigmoid}) {
            ModelConfig config = toy();
            config.tied_head = tied;
            config.router_score = score;
            Model model(config, options_of("bf16", Format::f32));
            // A fresh model's logits are near zero and its loss near flat in most directions.
            for (const Parameter& p : model.parameters())
                for (float& x : values(p.value)) x *= p.name.find("norm") == std::string::npos ? 3.0f : 1.0f;
            model.weights_changed();
            const Text text(config.vocabulary, 27, 5);
            const StepResult result = model.forward_backward(text.batch(3));
            EXPECT_EQ(result.counted, 27);
            EXPECT_NEAR(model.loss(text.batch(3)).loss, result.loss, 1e-7);
            for (const Parameter& p : model.parameters()) {
                double length = 0;
                for (const float g : values(p.gradient)) length += static_cast<double>(g) * static_cast<double>(g);
                length = std::sqrt(length);
                ASSERT_GT(length, 0.0) << p.name;
                const double step = 2e-3;
                const std::vector<float> middle(values(p.value).begin(), values(p.value).end());
                const auto loss_at = [&](double distance) {
                    for (std::size_t i = 0; i < middle.size(); ++i)
                        values(p.value)[i] =
                            static_cast<float>(static_cast<double>(middle[i]) +
                                               distance * static_cast<double>(values(p.gradient)[i]) / length);
                    model.weights_changed();
                    return model.loss(text.batch(3)).loss;
                };
                const double slope = (loss_at(step) - loss_at(-step)) / (2 * step);
                loss_at(0.0);
                EXPECT_NEAR(slope, length, 5e-3 * length + 2e-4) << p.name;
            }
        }
    }
}

std::vector<float> weights_after(const char* recipe, int threads, std::int64_t steps, std::vector<double>* losses) {
    ModelConfig config = toy();
    config.router_balance = RouterBalance::bias;
    config.router_auxiliary_loss = 0.01;
    Model model(config, options_of(recipe, Format::bf16, threads));
    AdamWOptions options;
    options.threads = threads;
    AdamW adamw(model.parameters(), options);
    for (std::int64_t step = 0; step < steps; ++step) {
        const Text text(config.vocabulary, 140, static_cast<std::uint64_t>(step));
        losses->push_back(model.forward_backward(text.batch(2)).loss);
        losses->push_back(adamw.step(1e-2));
        model.step_taken();
    }
    std::vector<float> all;
    for (const Parameter& p : model.parameters()) all.insert(all.end(), values(p.value).begin(), values(p.value).end());
    for (const NamedTensor& b : model.buffers()) all.insert(all.end(), values(b.value).begin(), values(b.value).end());
    return all;
}

TEST(Model, TrainsToTheSameBitsForAnyThreads) {
    for (const char* recipe : {"bf16", "fp8_rowwise", "fp8_blockwise", "mxfp8"}) {
        std::vector<double> one, two, five;
        const std::vector<float> weights = weights_after(recipe, 1, 4, &one);
        EXPECT_EQ(weights, weights_after(recipe, 2, 4, &two)) << recipe;
        EXPECT_EQ(weights, weights_after(recipe, 5, 4, &five)) << recipe;
        EXPECT_EQ(one, two) << recipe;
        EXPECT_EQ(one, five) << recipe;
    }
}

TEST(Model, LearnsASequenceByHeart) {
    for (const char* recipe : {"bf16", "fp8_rowwise", "mxfp8"}) {
        Model model(toy(), options_of(recipe, Format::bf16));
        AdamW adamw(model.parameters(), {});
        const Text text(23, 18, 9);
        const double first = model.forward_backward(text.batch(2)).loss;
        for (int step = 0; step < 150; ++step) {
            adamw.step(1e-2);
            model.step_taken();
            model.forward_backward(text.batch(2));
        }
        EXPECT_LT(model.loss(text.batch(2)).loss, 0.2 * first) << recipe;
    }
}

TEST(Model, EvaluationLeavesNoTrace) {
    ModelConfig config = toy();
    config.router_balance = RouterBalance::bias;
    Model model(config, options_of("fp8_rowwise", Format::bf16)),
        other(config, options_of("fp8_rowwise", Format::bf16));
    const Text text(23, 18, 1), more(23, 36, 2);
    std::vector<float> logits(36 * 23);
    for (int step = 0; step < 2; ++step) {
        const double loss = model.forward_backward(text.batch(2)).loss;
        model.loss(more.batch(1));
        model.logits(more.batch(4), logits);
        EXPECT_FALSE(model.find_non_finite(more.batch(4)));
        model.step_taken();
        EXPECT_EQ(loss, other.forward_backward(text.batch(2)).loss);
        other.step_taken();
    }
    for (std::size_t i = 0; i < model.parameters().size(); ++i) {
        const auto ours = values(model.parameters()[i].gradient), theirs = values(other.parameters()[i].gradient);
        EXPECT_TRUE(std::equal(ours.begin(), ours.end(), theirs.begin())) << model.parameters()[i].name;
    }
    EXPECT_EQ(values(model.buffers()[0].value)[0], values(other.buffers()[0].value)[0]);
    EXPECT_EQ(model.statistics().tokens_per_expert, other.statistics().tokens_per_expert);
}

TEST(Model, NextLogitsAreTheLastOfAll) {
    Model model(toy(), options_of("bf16", Format::bf16));
    const Text text(23, 18, 1);
    std::vector<float> all(18 * 23), last(2 * 23);
    model.logits(text.batch(2), all);
    model.next_logits(text.batch(2), last);
    for (std::size_t i = 0; i < 23; ++i) {
        EXPECT_EQ(last[i], all[8 * 23 + i]);
        EXPECT_EQ(last[23 + i], all[17 * 23 + i]);
    }
}

TEST(Model, CuttingLayersKeepsTheOthersWeights) {
    Model whole(toy(), {}), cut(with_layers(toy(), 1), {});
    const auto find = [](const Model& model, const std::string& name) {
        for (const Parameter& p : model.parameters())
            if (p.name == name) return values(p.value);
        return std::span<float>{};
    };
    const auto ours = find(cut, "model.layers.0.self_attn.q_proj.weight");
    const auto theirs = find(whole, "model.layers.0.self_attn.q_proj.weight");
    ASSERT_FALSE(ours.empty());
    EXPECT_TRUE(std::equal(ours.begin(), ours.end(), theirs.begin(), theirs.end()));
}

TEST(Model, ObservedStepsReportScales) {
    Model model(toy(), options_of("fp8_rowwise", Format::bf16));
    const Text text(23, 18, 1);
    model.forward_backward(text.batch(2));
    EXPECT_TRUE(model.statistics().scales.empty());
    model.forward_backward(text.batch(2), 1.0, Observe::scales);
    const ModelStatistics statistics = model.statistics();
    ASSERT_EQ(statistics.scales.size(), 6u);  // one layer with experts
    for (const ScaleStatistics& s : statistics.scales) {
        EXPECT_EQ(s.layer, 1);
        EXPECT_GT(s.elements, 0) << s.tensor;
        EXPECT_GT(s.smallest_scale, 0.0) << s.tensor;
        EXPECT_GE(s.largest_scale, s.smallest_scale) << s.tensor;
        EXPECT_LT(s.underflowed + s.saturated, s.elements) << s.tensor;
    }
    EXPECT_GT(statistics.kept_bytes, 0u);
    EXPECT_GT(statistics.cast_seconds, 0.0);
    std::int64_t rows = 0;
    for (const std::int64_t count : statistics.tokens_per_expert[0]) rows += count;
    EXPECT_EQ(rows, 2 * 18 * 2);  // two steps, two experts a token
}

TEST(Model, EightBitsKeepLessForBackward) {
    ModelConfig config = toy();
    config.hidden = 64;
    config.expert_intermediate = 64;
    const Text text(23, 512, 1);
    std::size_t bytes[3];
    int i = 0;
    for (const char* recipe : {"bf16", "fp8_rowwise", "fp8_rowwise:wgrad=bf16"}) {
        Model model(config, options_of(recipe, Format::bf16));
        model.forward_backward(text.batch(4));
        bytes[i++] = model.statistics().kept_bytes;
    }
    EXPECT_LT(bytes[1], bytes[0]);
    EXPECT_EQ(bytes[2], bytes[0]);  // the same tensors, each counted once
}

TEST(Model, FindsWhereANanFirstAppears) {
    Model model(toy(), options_of("bf16", Format::bf16));
    const Text text(23, 18, 1);
    EXPECT_FALSE(model.find_non_finite(text.batch(2)));
    const auto at = [&](const std::string& name) -> float& {
        for (const Parameter& p : model.parameters())
            if (p.name == name) return values(p.value)[0];
        throw std::runtime_error(name);
    };
    float& gate = at("model.layers.1.mlp.experts.gate_up_proj");
    gate = std::numeric_limits<float>::quiet_NaN();
    model.weights_changed();
    ASSERT_TRUE(model.find_non_finite(text.batch(2)));
    EXPECT_EQ(model.find_non_finite(text.batch(2))->tensor, "model.layers.1.mlp.experts.gate_up_proj");
    gate = 0.0f;
    // Finite weights whose products are not.
    for (const Parameter& p : model.parameters())
        if (p.name == "model.layers.1.self_attn.v_proj.weight" || p.name == "model.layers.1.self_attn.o_proj.weight")
            for (float& x : values(p.value)) x = 3e38f;
    model.weights_changed();
    const std::optional<NonFinite> found = model.find_non_finite(text.batch(2));
    ASSERT_TRUE(found);
    EXPECT_EQ(found->layer, 1);
    EXPECT_EQ(found->tensor, "queries, keys and values");
}

TEST(Model, RefusesBadBatches) {
    Model model(toy(), {});
    Text text(23, 18, 1);
    EXPECT_ANY_THROW(model.forward_backward({text.tokens, text.targets, 2, 8}));
    EXPECT_ANY_THROW(model.forward_backward({text.tokens, {}, 2, 9}));
    text.tokens[4] = 23;
    EXPECT_ANY_THROW(model.forward_backward(text.batch(2)));
    text.tokens[4] = 0;
    text.targets[4] = 23;
    EXPECT_ANY_THROW(model.forward_backward(text.batch(2)));
    text.targets.assign(18, -1);
    EXPECT_ANY_THROW(model.loss(text.batch(2)));
}

}  // namespace
}  // namespace octet::train
