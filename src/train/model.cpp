#include "train/model.hpp"

#include <cmath>
#include <cstring>

#include "core/zeros.hpp"
#include "linear/stopwatch.hpp"
#include "octet/error.hpp"
#include "train/embedding.hpp"
#include "train/head.hpp"
#include "train/init.hpp"
#include "train/layer.hpp"

namespace octet::train {
namespace {

float* numbers(const TensorView& view) { return static_cast<float*>(view.data); }

}  // namespace

struct Model::Parts {
    ModelConfig config;
    ModelOptions options;
    Execution on{};
    Tensor embedding, embedding_gradient;  // [V, D]
    Tensor lm_head, lm_head_gradient;      // [V, D], empty where tied
    Tensor norm, norm_gradient;            // [D]
    std::vector<std::unique_ptr<Layer>> layers{};
    Head head;
    RotaryTable rotary;

    std::vector<Parameter> parameters{};
    std::vector<NamedTensor> buffers{};

    std::vector<std::unique_ptr<LayerKept>> kept{};  // one a layer, made when a backward pass will follow
    std::unique_ptr<LayerKept> passing;              // of evaluation: all layers use the same
    LayerWorkspace workspace{};
    ReusedTensor embedded{}, h{}, x{}, inverse{}, dx{}, dh{}, last{};
    ModelStatistics statistics{};

    Parts(const ModelConfig& c, const ModelOptions& o)
        : config(c),
          options(o),
          embedding(zeros({c.vocabulary, c.hidden})),
          embedding_gradient(zeros({c.vocabulary, c.hidden})),
          norm(zeros({c.hidden})),
          norm_gradient(zeros({c.hidden})),
          head(c.vocabulary, c.hidden, o.activations),
          rotary(c.rope_theta, c.head_dim) {
        on.threads = o.threads;
        parameters.push_back({"model.embed_tokens.weight", embedding, embedding_gradient, false});
        for (std::int64_t index = 0; index < c.layers; ++index) {
            layers.push_back(std::make_unique<Layer>(c, o, index));
            layers.back()->add_parameters(parameters);
            layers.back()->add_buffers(buffers);
        }
        parameters.push_back({"model.norm.weight", norm, norm_gradient, false});
        if (!c.tied_head) {
            lm_head = zeros({c.vocabulary, c.hidden});
            lm_head_gradient = zeros({c.vocabulary, c.hidden});
            parameters.push_back({"lm_head.weight", lm_head, lm_head_gradient, true});
        }
        for (const Parameter& parameter : parameters) initialize(parameter, config, options.seed);
        reset_statistics();
    }

    Tensor& head_weights() { return config.tied_head ? embedding : lm_head; }
    Tensor& head_gradient() { return config.tied_head ? embedding_gradient : lm_head_gradient; }

    void reset_statistics() {
        statistics = {};
        for (std::int64_t index = 0; index < config.layers; ++index) {
            if (config.dense_layer(index)) continue;
            statistics.moe_layers.push_back(index);
            statistics.tokens_per_expert.emplace_back(static_cast<std::size_t>(config.experts), 0);
        }
    }

    AttentionShape shape_of(const Batch& batch) {
        const std::int64_t t = batch.sequences * batch.length;
        require(batch.sequences >= 1 && batch.length >= 1 && static_cast<std::int64_t>(batch.tokens.size()) == t,
                "a batch of ", batch.sequences, " sequences of ", batch.length, " has ", batch.tokens.size(),
                " tokens; expected ", t, ", at least 1");
        rotary.reserve(batch.length);
        return {batch.sequences, batch.length, config.heads, config.kv_heads, config.head_dim};
    }

    // Everything but the head: x [T, D] normed.
    ConstTensorView forward(const Batch& batch, const AttentionShape& shape, Keep keep) {
        const std::int64_t t = shape.tokens(), d = config.hidden;
        const MoeOptions moe = Layer::moe_options(config, options);
        const TensorView first = embedded.reshape(Format::f32, {t, d});
        embed(batch.tokens, embedding, first, on);
        if (workspace.probe != nullptr) workspace.probe->look(-1, "embedding", first);
        Stream stream{first, {}};
        for (std::size_t i = 0; i < layers.size(); ++i) {
            if (keep == Keep::for_backward && kept.size() <= i) kept.push_back(std::make_unique<LayerKept>(moe));
            if (keep == Keep::nothing && passing == nullptr) passing = std::make_unique<LayerKept>(moe);
            LayerKept& place = keep == Keep::for_backward ? *kept[i] : *passing;
            stream = layers[i]->forward(stream, shape, rotary, place, keep, workspace, on);
        }
        const TensorView normed = x.reshape(options.activations, {t, d});
        rms_norm({stream.before, stream.branch, h.reshape(Format::f32, {t, d})}, norm.as<float>(), config.norm_eps,
                 normed, numbers(inverse.reshape(Format::f32, {t})), on);
        if (workspace.probe != nullptr) workspace.probe->look(-1, "output of the last norm", normed);
        return normed;
    }

    std::int64_t counted_targets(const Batch& batch) const {
        require(batch.targets.size() == batch.tokens.size(), "a batch has ", batch.tokens.size(), " tokens and ",
                batch.targets.size(), " targets");
        std::int64_t counted = 0;
        for (std::size_t i = 0; i < batch.targets.size(); ++i) {
            require(batch.targets[i] < config.vocabulary, "target ", i, " is ", batch.targets[i],
                    "; the vocabulary has 0 to ", config.vocabulary - 1);
            counted += batch.targets[i] >= 0;
        }
        require(counted > 0, "a batch of ", batch.targets.size(), " targets has none that counts");
        return counted;
    }

    StepResult forward_backward(const Batch& batch, double scale) {
        const AttentionShape shape = shape_of(batch);
        StepResult result;
        result.counted = counted_targets(batch);
        const ConstTensorView normed = forward(batch, shape, Keep::for_backward);
        const TensorView dnormed = dx.reshape(Format::f32, {shape.tokens(), config.hidden});
        const double of_each = scale / static_cast<double>(result.counted);
        const double total =
            head.loss_and_gradient(normed, head_weights(), batch.targets, of_each, dnormed, head_gradient(), on);
        result.loss = total / static_cast<double>(result.counted);
        count_tokens(result);
        statistics.kept_bytes = kept_bytes();

        if (workspace.probe != nullptr) workspace.probe->look(-1, "gradient of the last norm's output", dnormed);
        const TensorView gradient = dh.reshape(Format::f32, {shape.tokens(), config.hidden});
        std::memset(gradient.data, 0, dh.bytes());
        rms_norm_backward(h.view(), numbers(inverse.view()), norm.as<float>(), dnormed, gradient,
                          norm_gradient.as<float>(), workspace.partial, on);
        for (std::size_t i = layers.size(); i-- > 0;)
            layers[i]->backward(gradient, shape, rotary, *kept[i], scale, workspace, on);
        embed_backward(batch.tokens, gradient, embedding_gradient, on);
        return result;
    }

    void count_tokens(StepResult& result) {
        for (std::size_t row = 0; row < statistics.moe_layers.size(); ++row) {
            const Router& router = kept[static_cast<std::size_t>(statistics.moe_layers[row])]->moe.router;
            result.auxiliary_loss += static_cast<double>(router.auxiliary_loss());
            std::int32_t begin = 0;
            for (std::size_t e = 0; e < statistics.tokens_per_expert[row].size(); ++e) {
                const std::int32_t end = router.routing().groups.ends[e];
                statistics.tokens_per_expert[row][e] += end - begin;
                begin = end;
            }
        }
    }

    std::size_t kept_bytes() const {
        std::size_t bytes = h.bytes() + x.bytes() + inverse.bytes();
        for (std::size_t i = 0; i < layers.size(); ++i) bytes += layers[i]->kept_bytes(*kept[i]);
        return bytes;
    }

    void take_times() {
        for (const auto& layer : layers) {
            const LinearReport report = layer->report();
            statistics.cast_seconds += report.cast_seconds;
            statistics.product_seconds += report.product_seconds;
            layer->reset_report();
        }
        statistics.product_seconds += head.product_seconds();
        statistics.attention_seconds += workspace.attention_seconds;
        head.reset_report();
        workspace.attention_seconds = 0;
    }
};

Model::Model(const ModelConfig& config, const ModelOptions& options) {
    check(config);
    require(options.activations == Format::bf16 || options.activations == Format::f32, "activations of format ",
            name(options.activations), " were asked for, expected bf16 or f32");
    parts_ = std::make_unique<Parts>(config, options);
}
Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;

const ModelConfig& Model::config() const { return parts_->config; }
const ModelOptions& Model::options() const { return parts_->options; }
std::span<const Parameter> Model::parameters() const { return parts_->parameters; }
std::span<const NamedTensor> Model::buffers() const { return parts_->buffers; }
ModelStatistics Model::statistics() const { return parts_->statistics; }
void Model::reset_statistics() { parts_->reset_statistics(); }

StepResult Model::forward_backward(const Batch& batch, double scale, Observe observe) {
    Parts& parts = *parts_;
    ScaleObserver observer(parts.statistics.scales, parts.options.recipe);
    if (observe == Observe::scales && parts.options.recipe.quantizes()) {
        parts.statistics.scales.clear();
        parts.workspace.scales = &observer;
    }
    StepResult result;
    timed(parts.statistics.total_seconds, [&] { result = parts.forward_backward(batch, scale); });
    parts.workspace.scales = nullptr;
    parts.take_times();
    return result;
}

StepResult Model::loss(const Batch& batch) {
    Parts& parts = *parts_;
    StepResult result;
    timed(parts.statistics.total_seconds, [&] {
        result.counted = parts.counted_targets(batch);
        const ConstTensorView x = parts.forward(batch, parts.shape_of(batch), Keep::nothing);
        result.loss =
            parts.head.loss(x, parts.head_weights(), batch.targets, parts.on) / static_cast<double>(result.counted);
    });
    parts.take_times();
    return result;
}

void Model::logits(const Batch& batch, std::span<float> out) {
    Parts& parts = *parts_;
    const AttentionShape shape = parts.shape_of(batch);
    const std::int64_t t = shape.tokens(), v = parts.config.vocabulary;
    require(static_cast<std::int64_t>(out.size()) == t * v, "room for ", out.size(), " logits was given, expected ", t,
            " * ", v);
    const ConstTensorView x = parts.forward(batch, shape, Keep::nothing);
    parts.head.logits(x, parts.head_weights(), {out.data(), Format::f32, {t, v}}, parts.on);
}

void Model::next_logits(const Batch& batch, std::span<float> out) {
    Parts& parts = *parts_;
    const AttentionShape shape = parts.shape_of(batch);
    const std::int64_t b = batch.sequences, v = parts.config.vocabulary;
    require(static_cast<std::int64_t>(out.size()) == b * v, "room for ", out.size(), " logits was given, expected ", b,
            " * ", v);
    const ConstTensorView x = parts.forward(batch, shape, Keep::nothing);
    const TensorView last = parts.last.reshape(x.format, {b, x.size(1)});
    const auto row = static_cast<std::size_t>(x.size(1) * bytes_of(x.format));
    for (std::int64_t sequence = 0; sequence < b; ++sequence) {
        const auto from = static_cast<std::size_t>((sequence + 1) * batch.length - 1),
                   to = static_cast<std::size_t>(sequence);
        std::memcpy(static_cast<char*>(last.data) + to * row, static_cast<const char*>(x.data) + from * row, row);
    }
    parts.head.logits(last, parts.head_weights(), {out.data(), Format::f32, {b, v}}, parts.on);
}

void Model::weights_changed() {
    for (const auto& layer : parts_->layers) layer->weights_changed();
    parts_->head.weights_changed();
}

void Model::zero_gradients() {
    for (const Parameter& parameter : parts_->parameters) {
        const std::span<float> gradient = values(parameter.gradient);
        std::memset(gradient.data(), 0, gradient.size_bytes());
    }
}

void Model::step_taken() {
    for (const auto& layer : parts_->layers) layer->step_taken();
    weights_changed();
}

std::optional<NonFinite> Model::find_non_finite(const Batch& batch) {
    Parts& parts = *parts_;
    Probe probe;
    for (const Parameter& parameter : parts.parameters) probe.look(-1, parameter.name, parameter.value);
    if (probe.found()) return probe.found();

    // The pass must leave no trace: gradients, token counts and statistics are put back.
    std::vector<std::vector<float>> gradients;
    for (const Parameter& parameter : parts.parameters) {
        const std::span<float> gradient = values(parameter.gradient);
        gradients.emplace_back(gradient.begin(), gradient.end());
    }
    std::vector<std::vector<std::int64_t>> counts;
    for (const auto& layer : parts.layers) {
        const std::span<std::int64_t> of_layer =
            layer->moe() == nullptr ? std::span<std::int64_t>{} : layer->moe()->balance_counts();
        counts.emplace_back(of_layer.begin(), of_layer.end());
    }
    const ModelStatistics statistics = parts.statistics;
    zero_gradients();
    parts.workspace.probe = &probe;
    parts.forward_backward(batch, 1.0);
    parts.workspace.probe = nullptr;
    for (const Parameter& parameter : parts.parameters)
        probe.look(-1, "gradient of " + parameter.name, parameter.gradient);
    for (std::size_t i = 0; i < gradients.size(); ++i)
        std::copy(gradients[i].begin(), gradients[i].end(), values(parts.parameters[i].gradient).begin());
    for (std::size_t i = 0; i < counts.size(); ++i)
        if (parts.layers[i]->moe() != nullptr)
            std::copy(counts[i].begin(), counts[i].end(), parts.layers[i]->moe()->balance_counts().begin());
    parts.take_times();
    parts.statistics = statistics;
    return probe.found();
}

}  // namespace octet::train
