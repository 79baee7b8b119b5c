// What a configuration may say, and what the model it describes needs.
#include <cmath>

#include "octet/error.hpp"
#include "train/config.hpp"

namespace octet::train {
namespace {

constexpr std::int64_t most = std::int64_t{1} << 31;  // features, rows and tokens are counted in 32 bits

void at_least(const char* field, std::int64_t value, std::int64_t least) {
    require(value >= least && value < most, field, " is ", value, ", expected ", least, " to ", most - 1);
}

void positive(const char* field, double value) {
    require(value > 0 && std::isfinite(value), field, " is ", value, ", expected a positive number");
}

void not_negative(const char* field, double value) {
    require(value >= 0 && std::isfinite(value), field, " is ", value, ", expected 0 or a positive number");
}

}  // namespace

void check(const ModelConfig& c) {
    at_least("model.vocabulary", c.vocabulary, 2);
    at_least("model.layers", c.layers, 1);
    at_least("model.hidden", c.hidden, 1);
    at_least("model.heads", c.heads, 1);
    at_least("model.kv_heads", c.kv_heads, 1);
    require(c.heads % c.kv_heads == 0, "model.kv_heads is ", c.kv_heads,
            ", expected a divisor of model.heads, which is ", c.heads);
    at_least("model.head_dim", c.head_dim, 2);
    require(c.head_dim % 2 == 0, "model.head_dim is ", c.head_dim,
            ", expected an even number: rotary positions turn pairs of features");
    at_least("model.heads * head_dim", c.query_features() + 2 * c.kv_features(), 1);
    at_least("model.sequence_length", c.sequence_length, 1);
    positive("model.rope_theta", c.rope_theta);
    positive("model.norm_eps", c.norm_eps);

    at_least("dense.layers", c.dense_layers, 0);
    require(c.dense_layers <= c.layers, "dense.layers is ", c.dense_layers,
            ", expected at most model.layers, which is ", c.layers);
    if (c.dense_layers > 0) at_least("dense.intermediate", c.dense_intermediate, 1);
    at_least("experts.shared", c.shared_experts, 0);
    if (c.dense_layers < c.layers) {
        at_least("experts.count", c.experts, 1);
        at_least("experts.per_token", c.experts_per_token, 1);
        require(c.experts_per_token <= c.experts, "experts.per_token is ", c.experts_per_token,
                ", expected at most experts.count, which is ", c.experts);
        at_least("experts.intermediate", c.expert_intermediate, 1);
    }
    positive("router.scaling", c.router_scaling);
    not_negative("router.balance_rate", c.router_balance_rate);
    not_negative("router.auxiliary_loss", c.router_auxiliary_loss);
}

void check(const TrainingConfig& c) {
    at_least("training.steps", c.steps, 0);
    at_least("training.batch", c.batch, 1);
    at_least("training.accumulate", c.accumulate, 1);
    at_least("training.warmup_steps", c.warmup_steps, 0);
    positive("training.learning_rate", c.learning_rate);
    not_negative("training.final_learning_rate", c.final_learning_rate);
    require(c.beta1 >= 0 && c.beta1 < 1, "training.beta1 is ", c.beta1, ", expected at least 0 and below 1");
    require(c.beta2 >= 0 && c.beta2 < 1, "training.beta2 is ", c.beta2, ", expected at least 0 and below 1");
    positive("training.epsilon", c.epsilon);
    not_negative("training.weight_decay", c.weight_decay);
    not_negative("training.clip_norm", c.clip_norm);
}

ModelConfig with_layers(ModelConfig config, std::int64_t layers) {
    require(layers >= 1 && layers <= config.layers, "--layers is ", layers, ", expected 1 to the model's ",
            config.layers);
    config.layers = layers;
    config.dense_layers = config.dense_layers < layers ? config.dense_layers : layers;
    return config;
}

ModelCounts count(const ModelConfig& c) {
    ModelCounts n;
    const std::int64_t attention = c.hidden * (2 * c.query_features() + 2 * c.kv_features());
    const std::int64_t one_expert = 3 * c.hidden * c.expert_intermediate;
    const std::int64_t embedding = c.vocabulary * c.hidden;
    std::int64_t products = c.vocabulary * c.hidden;  // weights that one token is multiplied with: first the head
    n.parameters = embedding + (c.tied_head ? 0 : embedding) + c.hidden;
    n.active_parameters = c.hidden + products + c.hidden;  // a row, the head, the last norm
    if (c.tied_head) n.active_parameters -= c.hidden;      // the row is the head's
    for (std::int64_t layer = 0; layer < c.layers; ++layer) {
        std::int64_t all = attention + 2 * c.hidden, active = all;
        if (c.dense_layer(layer)) {
            all += 3 * c.hidden * c.dense_intermediate;
            active = all;
        } else {
            const std::int64_t router = c.experts * c.hidden;
            all += router + (c.experts + c.shared_experts) * one_expert;
            active += router + (c.experts_per_token + c.shared_experts) * one_expert;
            n.expert_parameters += (c.experts + c.shared_experts) * one_expert;
        }
        n.parameters += all;
        n.active_parameters += active;
        products += active - 2 * c.hidden;
    }
    // Scores and mixing: 2 products of head_dim a query and key; a query sees half the sequence on average.
    const double seen = 0.5 * static_cast<double>(c.sequence_length + 1);
    const double attending = 4.0 * static_cast<double>(c.layers * c.query_features()) * seen;
    n.forward_flops_per_token = 2.0 * static_cast<double>(products) + attending;
    n.training_flops_per_token = 3.0 * n.forward_flops_per_token;
    n.weight_bytes = 4 * n.parameters;
    n.gradient_bytes = 4 * n.parameters;
    n.optimizer_bytes = 8 * n.parameters;
    return n;
}

}  // namespace octet::train
