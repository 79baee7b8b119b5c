// What a model is made of, read from TOML: a preset's name or a file. docs/model.md lists every field.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "octet/moe.hpp"

namespace octet::train {

// [model], [dense], [experts] and [router] of the file.
struct ModelConfig {
    std::int64_t vocabulary = 0, layers = 0, hidden = 0;
    std::int64_t heads = 0, kv_heads = 0, head_dim = 0;  // kv_heads divides heads; equal: plain multi-head attention
    double rope_theta = 10000.0;
    double norm_eps = 1e-5;
    std::int64_t sequence_length = 0;  // what it is trained on
    bool tied_head = false;            // the output head is the embedding

    std::int64_t dense_layers = 0;  // the first layers, which have a plain MLP instead of experts
    std::int64_t dense_intermediate = 0;

    std::int64_t experts = 0, experts_per_token = 0, expert_intermediate = 0;
    std::int64_t shared_experts = 0;  // each of expert_intermediate

    RouterScore router_score = RouterScore::softmax;
    RouterWeights router_weights = RouterWeights::normalized;
    RouterBalance router_balance = RouterBalance::none;
    double router_scaling = 1.0, router_balance_rate = 1e-3, router_auxiliary_loss = 0.0;

    std::int64_t query_features() const { return heads * head_dim; }
    std::int64_t kv_features() const { return kv_heads * head_dim; }
    bool dense_layer(std::int64_t layer) const { return layer < dense_layers; }
    friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

// [training] of the file: what the loop uses where the command line says nothing.
struct TrainingConfig {
    std::int64_t steps = 1000, batch = 8, accumulate = 1;  // batch: sequences a forward pass
    std::int64_t warmup_steps = 100;
    double learning_rate = 1e-3, final_learning_rate = 1e-4;
    double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
    double weight_decay = 0.1, clip_norm = 1.0;
    friend bool operator==(const TrainingConfig&, const TrainingConfig&) = default;
};

struct Config {
    std::string name;  // the preset's, or the file's without folder and ending
    ModelConfig model{};
    TrainingConfig training{};
};

// A preset's name ("tiny") or the path of a TOML file. Every unknown, missing or impossible field is an error that
// names the field, the value and what is allowed.
Config load_config(const std::string& preset_or_path);
Config parse_config(std::string_view toml, const std::string& name);  // `name` stands for the file in error texts
std::vector<std::string> preset_names();
std::string_view preset_text(std::string_view name);  // throws naming the presets there are

// Throws when the parts do not fit together. load_config has called it; call it after changing a field.
void check(const ModelConfig& config);
void check(const TrainingConfig& config);

// The same model with another depth: the first layers stay.
ModelConfig with_layers(ModelConfig config, std::int64_t layers);

// As TOML again; parse_config(to_toml(c)) is c. Goes into checkpoints.
std::string to_toml(const Config& config);

// What a model needs, without making it.
struct ModelCounts {
    std::int64_t parameters = 0;         // all that is trained
    std::int64_t active_parameters = 0;  // those that one token meets; of the embedding one row
    std::int64_t expert_parameters = 0;  // in routed and shared experts
    double forward_flops_per_token = 0;  // products and attention at the full sequence length, causal
    double training_flops_per_token = 0;
    std::int64_t weight_bytes = 0;     // f32 masters
    std::int64_t gradient_bytes = 0;   // f32
    std::int64_t optimizer_bytes = 0;  // two f32 moments
    std::int64_t training_bytes() const { return weight_bytes + gradient_bytes + optimizer_bytes; }
};
ModelCounts count(const ModelConfig& config);

}  // namespace octet::train
