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
    at_least("model.heads * head_dim", c.query_features(), 1);
    at_least("model.(heads + 2 kv_heads) * head_dim", c.query_features() + 2 * c.kv_features(), 1);
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
        at_least("experts.shared * intermediate", c.shared_experts * c.expert_intermediate, 0);
    }
    positive("router.scaling", c.router_scaling);
    not_negative("router.balance_rate", c.router_balance_rate);
    not_negative("router.auxiliary_loss", c.router_auxiliary_loss);
    count(c);
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
    // In doubles, which are exact for every model there can be and which no product of its numbers overflows.
    const auto real = [](std::int64_t value) { return static_cast<double>(value); };
    const double hidden = real(c.hidden), experts = real(c.experts), shared = real(c.shared_experts);
    const double dense_layers = real(c.dense_layers), moe_layers = real(c.layers - c.dense_layers);
    const double embedding = real(c.vocabulary) * hidden;  // and the head
    const double attention = 2 * hidden * real(c.query_features() + c.kv_features()), norms = 2 * hidden;
    const double dense = 3 * hidden * real(c.dense_intermediate), router = experts * hidden;
    const double one_expert = 3 * hidden * real(c.expert_intermediate);
    const double in_experts = moe_layers * (experts + shared) * one_expert;
    // What one token is multiplied with in all layers.
    const double met = real(c.layers) * attention + dense_layers * dense +
                       moe_layers * (router + (real(c.experts_per_token) + shared) * one_expert);
    const double in_norms = real(c.layers) * norms + hidden;
    const double parameters = (c.tied_head ? 1 : 2) * embedding + real(c.layers) * attention + dense_layers * dense +
                              moe_layers * router + in_experts + in_norms;
    constexpr double most_parameters = 1e15;
    require(parameters <= most_parameters, "the model has ", parameters, " parameters, expected at most ",
            most_parameters, "; look at its vocabulary, layers, hidden, experts and intermediate");
    ModelCounts n;
    n.parameters = static_cast<std::int64_t>(parameters);
    // Of the embedding a row, which is one of the head's where they are tied.
    n.active_parameters = static_cast<std::int64_t>((c.tied_head ? 0 : hidden) + embedding + met + in_norms);
    n.expert_parameters = static_cast<std::int64_t>(in_experts);
    // Scores and mixing: 2 products of head_dim a query and key; a query sees half the sequence on average.
    const double seen = 0.5 * real(c.sequence_length + 1);
    const double attending = 4.0 * real(c.layers) * real(c.query_features()) * seen;
    n.forward_flops_per_token = 2.0 * (embedding + met) + attending;
    n.training_flops_per_token = 3.0 * n.forward_flops_per_token;
    n.weight_bytes = 4 * n.parameters;
    n.gradient_bytes = 4 * n.parameters;
    n.optimizer_bytes = 8 * n.parameters;
    return n;
}

}  // namespace octet::train
