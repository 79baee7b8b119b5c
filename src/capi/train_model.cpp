// The model and its optimizer at the C ABI.
#include <cmath>
#include <string>

#include "capi/handles.hpp"
#include "octet/octet_train.h"
#include "train/model.hpp"
#include "train/optimizer.hpp"
#include "train/safetensors.hpp"

using namespace octet;
using namespace octet::capi;

namespace octet::capi {

inline constexpr Tag model_tag = static_cast<Tag>(0x54435461);
inline constexpr Tag adamw_tag = static_cast<Tag>(0x54435462);

}  // namespace octet::capi

struct octet_model : Handle<model_tag> {
    octet_model(train::Config given, const train::ModelOptions& options)
        : config(std::move(given)), toml(train::to_toml(config)), model(config.model, options) {}
    train::Config config;
    std::string toml;
    train::Model model;
};
struct octet_adamw : Handle<adamw_tag> {
    octet_adamw(octet_model& of, int threads)
        : model(of), adamw(of.model.parameters(), train::adamw_options(of.config.training, threads)) {}
    octet_model& model;
    train::AdamW adamw;
};

namespace {

train::Config config_of(const std::string& given) {
    if (given.find('\n') == std::string::npos) return train::load_config(given);
    return train::parse_config(given, "the configuration");
}

train::Batch batch_of(const std::int32_t* tokens, const std::int32_t* targets, std::int64_t sequences,
                      std::int64_t length) {
    constexpr std::int64_t most = std::int64_t{1} << 31;
    require(sequences >= 1 && length >= 1 && sequences < most && length < most && sequences * length < most,
            "a batch of ", sequences, " sequences of ", length, " tokens was given; expected at least 1 of each, and ",
            most - 1, " tokens at most");
    require(tokens != nullptr, "tokens is NULL, expected ", sequences * length, " of them");
    const auto count = static_cast<std::size_t>(sequences * length);
    return {{tokens, count}, {targets, targets == nullptr ? 0 : count}, sequences, length};
}

}  // namespace

extern "C" {

octet_status octet_model_create(const char* config, const char* recipe, const char* dense_recipe,
                                const char* activations, uint64_t seed, int32_t threads, octet_model** model) {
    return guarded(__func__, [&] {
        auto& out = checked_pointer(model, "model");
        train::ModelOptions options;
        options.recipe = parse_recipe(checked_text(recipe, "recipe"));
        options.dense = parse_recipe(checked_text(dense_recipe, "dense_recipe"));
        options.activations = parse_format(checked_text(activations, "activations"));
        options.seed = seed;
        options.threads = threads;
        require(threads >= 0, "threads is ", threads, ", expected 0 or more");
        out = new octet_model(config_of(std::string(checked_text(config, "config"))), options);
    });
}

void octet_model_destroy(octet_model* model) { destroy(__func__, model); }

octet_status octet_model_config(const octet_model* model, const char** toml) {
    return guarded(__func__, [&] { checked_pointer(toml, "toml") = checked(model, "model").toml.c_str(); });
}

octet_status octet_model_parameter_count(const octet_model* model, int64_t* count) {
    return guarded(__func__, [&] {
        checked_pointer(count, "count") = static_cast<std::int64_t>(checked(model, "model").model.parameters().size());
    });
}

octet_status octet_model_parameter(const octet_model* model, int64_t index, const char** name, float** value,
                                   float** gradient, int32_t* rank, int64_t* shape, int32_t* decays) {
    return guarded(__func__, [&] {
        const auto all = checked(model, "model").model.parameters();
        require(index >= 0 && index < static_cast<std::int64_t>(all.size()), "index is ", index, "; the model has ",
                all.size(), " parameters");
        const train::Parameter& parameter = all[static_cast<std::size_t>(index)];
        if (name != nullptr) *name = parameter.name.c_str();
        if (value != nullptr) *value = static_cast<float*>(parameter.value.data);
        if (gradient != nullptr) *gradient = static_cast<float*>(parameter.gradient.data);
        if (rank != nullptr) *rank = parameter.value.rank();
        if (shape != nullptr)
            for (int axis = 0; axis < parameter.value.rank(); ++axis) shape[axis] = parameter.value.size(axis);
        if (decays != nullptr) *decays = parameter.decays ? 1 : 0;
    });
}

octet_status octet_model_weights_changed(octet_model* model) {
    return guarded(__func__, [&] { checked(model, "model").model.weights_changed(); });
}

octet_status octet_model_zero_gradients(octet_model* model) {
    return guarded(__func__, [&] { checked(model, "model").model.zero_gradients(); });
}

octet_status octet_model_save(const octet_model* model, const char* path) {
    return guarded(__func__, [&] {
        const octet_model& self = checked(model, "model");
        std::vector<train::StoredTensor> tensors;
        for (const train::Parameter& p : self.model.parameters()) tensors.push_back(train::stored(p.name, p.value));
        for (const train::NamedTensor& b : self.model.buffers()) tensors.push_back(train::stored(b.name, b.value));
        train::replace_file(std::string(checked_text(path, "path")), [&](const std::filesystem::path& file) {
            train::write_safetensors(file, tensors, {{"format", "pt"}});
        });
    });
}

octet_status octet_model_forward_backward(octet_model* model, const int32_t* tokens, const int32_t* targets,
                                          int64_t sequences, int64_t length, double scale, double* loss,
                                          double* auxiliary_loss) {
    return guarded(__func__, [&] {
        octet_model& self = checked(model, "model");
        require(std::isfinite(static_cast<float>(scale)), "scale is ", scale, ", expected a number that an f32 holds");
        const auto result = self.model.forward_backward(batch_of(tokens, targets, sequences, length), scale);
        if (loss != nullptr) *loss = result.loss;
        if (auxiliary_loss != nullptr) *auxiliary_loss = result.auxiliary_loss;
    });
}

octet_status octet_model_loss(octet_model* model, const int32_t* tokens, const int32_t* targets, int64_t sequences,
                              int64_t length, double* loss) {
    return guarded(__func__, [&] {
        octet_model& self = checked(model, "model");
        auto& out = checked_pointer(loss, "loss");
        out = self.model.loss(batch_of(tokens, targets, sequences, length)).loss;
    });
}

octet_status octet_model_logits(octet_model* model, const int32_t* tokens, int64_t sequences, int64_t length,
                                float* logits, int64_t capacity) {
    return guarded(__func__, [&] {
        octet_model& self = checked(model, "model");
        const train::Batch batch = batch_of(tokens, nullptr, sequences, length);
        const std::int64_t needed = sequences * length * self.config.model.vocabulary;
        require(logits != nullptr && capacity >= needed, "logits has room for ", logits == nullptr ? 0 : capacity,
                " numbers, expected ", needed);
        self.model.logits(batch, {logits, static_cast<std::size_t>(needed)});
    });
}

octet_status octet_adamw_create(octet_model* model, octet_adamw** optimizer) {
    return guarded(__func__, [&] {
        octet_model& self = checked(model, "model");
        auto& out = checked_pointer(optimizer, "optimizer");
        out = new octet_adamw(self, self.model.options().threads);
    });
}

void octet_adamw_destroy(octet_adamw* optimizer) { destroy(__func__, optimizer); }

octet_status octet_adamw_step(octet_adamw* optimizer, double learning_rate, double* gradient_norm) {
    return guarded(__func__, [&] {
        octet_adamw& self = checked(optimizer, "optimizer");
        require(std::isfinite(learning_rate), "learning_rate is ", learning_rate, ", expected a finite number");
        const double norm = self.adamw.step(learning_rate);
        if (std::isfinite(norm)) self.model.model.step_taken();
        if (gradient_norm != nullptr) *gradient_norm = norm;
    });
}

}  // extern "C"
