#include "train/layer.hpp"

#include "core/zeros.hpp"
#include "linear/stopwatch.hpp"

namespace octet::train {
namespace {

// `rows` rows of a matrix [N, K] from `first` on, as a tensor of its own.
TensorView rows_of(const TensorView& w, std::int64_t first, std::int64_t rows) {
    return {static_cast<float*>(w.data) + first * w.size(1), Format::f32, {rows, w.size(1)}};
}

// The one expert of [1, N, K] as a matrix.
TensorView matrix(const TensorView& w) { return {w.data, w.format, {w.size(1), w.size(2)}}; }

float* numbers(const TensorView& view) { return static_cast<float*>(view.data); }

}  // namespace

MoeOptions Layer::moe_options(const ModelConfig& config, const ModelOptions& options) {
    MoeOptions moe;
    moe.hidden = config.hidden;
    moe.expert_hidden = config.expert_intermediate;
    moe.shared_hidden = config.shared_experts * config.expert_intermediate;
    moe.router.experts = config.experts > 0 ? config.experts : 1;  // a model without experts has unused options
    moe.router.top_k = config.experts_per_token > 0 ? config.experts_per_token : 1;
    moe.router.score = config.router_score;
    moe.router.weights = config.router_weights;
    moe.router.scaling = static_cast<float>(config.router_scaling);
    moe.router.balance = config.router_balance;
    moe.router.balance_rate = static_cast<float>(config.router_balance_rate);
    moe.router.auxiliary_loss = static_cast<float>(config.router_auxiliary_loss);
    moe.recipe = options.recipe;
    moe.activations = options.activations;
    return moe;
}

Layer::Layer(const ModelConfig& config, const ModelOptions& options, std::int64_t index)
    : index_(index),
      prefix_("model.layers." + std::to_string(index) + "."),
      config_(config),
      activations_(options.activations),
      qkv_(config.query_features() + 2 * config.kv_features(), config.hidden, options.dense, options.activations),
      o_(config.hidden, config.query_features(), options.dense, options.activations),
      norm_attention_(zeros({config.hidden})),
      norm_attention_gradient_(zeros({config.hidden})),
      norm_mlp_(zeros({config.hidden})),
      norm_mlp_gradient_(zeros({config.hidden})) {
    if (config.dense_layer(index)) {
        mlp_ = std::make_unique<Experts>("mlp", ExpertShape{1, config.hidden, config.dense_intermediate},
                                         options.activations, options.dense);
    } else {
        moe_ = std::make_unique<MoeLayer>(moe_options(config, options));
    }
}

void Layer::add_parameters(std::vector<Parameter>& all) {
    const std::int64_t q = config_.query_features(), kv = config_.kv_features();
    const TensorView w = qkv_.weights(), g = qkv_.gradient();
    all.push_back({named("input_layernorm.weight"), norm_attention_, norm_attention_gradient_, false});
    all.push_back({named("self_attn.q_proj.weight"), rows_of(w, 0, q), rows_of(g, 0, q), true});
    all.push_back({named("self_attn.k_proj.weight"), rows_of(w, q, kv), rows_of(g, q, kv), true});
    all.push_back({named("self_attn.v_proj.weight"), rows_of(w, q + kv, kv), rows_of(g, q + kv, kv), true});
    all.push_back({named("self_attn.o_proj.weight"), o_.weights(), o_.gradient(), true});
    all.push_back({named("post_attention_layernorm.weight"), norm_mlp_, norm_mlp_gradient_, false});
    if (mlp_ != nullptr) {
        const std::vector<octet::Parameter> parts = mlp_->parameters();
        all.push_back({named("mlp.gate_up_proj.weight"), matrix(parts[0].value), matrix(parts[0].gradient), true});
        all.push_back({named("mlp.down_proj.weight"), matrix(parts[1].value), matrix(parts[1].gradient), true});
        return;
    }
    const auto of = [&](const char* name) { return moe_->parameter(name); };
    all.push_back({named("mlp.gate.weight"), of("router").value, of("router").gradient, true});
    const octet::Parameter gate_up = of("experts.gate_up"), down = of("experts.down");
    all.push_back({named("mlp.experts.gate_up_proj"), gate_up.value, gate_up.gradient, true});
    all.push_back({named("mlp.experts.down_proj"), down.value, down.gradient, true});
    if (config_.shared_experts == 0) return;
    const octet::Parameter shared_up = of("shared.gate_up"), shared_down = of("shared.down");
    all.push_back(
        {named("mlp.shared_experts.gate_up_proj.weight"), matrix(shared_up.value), matrix(shared_up.gradient), true});
    all.push_back(
        {named("mlp.shared_experts.down_proj.weight"), matrix(shared_down.value), matrix(shared_down.gradient), true});
}

void Layer::add_buffers(std::vector<NamedTensor>& all) {
    if (moe_ == nullptr || config_.router_balance != RouterBalance::bias) return;
    const std::span<float> bias = moe_->balance_bias();
    all.push_back({named("mlp.gate.e_score_correction_bias"),
                   {bias.data(), Format::f32, {static_cast<std::int64_t>(bias.size())}}});
}

void Layer::weights_changed() {
    qkv_.weights_changed();
    o_.weights_changed();
    if (moe_ != nullptr) moe_->weights_changed();
    if (mlp_ != nullptr) mlp_->weights_changed();
}

void Layer::step_taken() {
    if (moe_ != nullptr) moe_->update_balance();
}

Stream Layer::forward(const Stream& in, const AttentionShape& shape, const RotaryTable& rotary, LayerKept& kept,
                      Keep keep, LayerWorkspace& workspace, const Execution& on) {
    const std::int64_t t = shape.tokens(), d = config_.hidden;
    const bool keeps = keep == Keep::for_backward;
    const auto look = [&](const char* what, const ConstTensorView& x) {
        if (workspace.probe != nullptr) workspace.probe->look(index_, what, x);
    };

    NormInput input{in.before, in.branch, {}};
    kept.first = in.branch.null() ? in.before : ConstTensorView{};
    if (!in.branch.null()) input.h = kept.h_attention.reshape(Format::f32, {t, d});
    const ConstTensorView h_attention = in.branch.null() ? in.before : ConstTensorView(input.h);
    const TensorView x_attention = kept.x_attention.reshape(activations_, {t, d});
    rms_norm(input, norm_attention_.as<float>(), config_.norm_eps, x_attention,
             numbers(kept.inverse_attention.reshape(Format::f32, {t})), on);
    look("attention input", x_attention);

    const TensorView qkv = kept.qkv.reshape(Format::f32, {t, shape.features()});
    qkv_.forward(x_attention, qkv, keeps ? &kept.qkv_kept : nullptr, workspace.linear, on);
    look("queries, keys and values", qkv);
    const TensorView context = kept.context.reshape(activations_, {t, config_.query_features()});
    timed(workspace.attention_seconds, [&] {
        float* log_sums = numbers(kept.log_sums.reshape(Format::f32, {config_.heads, t}));
        attention(shape, rotary, qkv, context, keeps ? log_sums : nullptr, on);
    });
    const TensorView attended = workspace.attention_branch.reshape(Format::f32, {t, d});
    o_.forward(context, attended, keeps ? &kept.o_kept : nullptr, workspace.linear, on);
    look("attention output", attended);

    const TensorView h_mlp = kept.h_mlp.reshape(Format::f32, {t, d});
    const TensorView x_mlp = kept.x_mlp.reshape(activations_, {t, d});
    rms_norm({h_attention, attended, h_mlp}, norm_mlp_.as<float>(), config_.norm_eps, x_mlp,
             numbers(kept.inverse_mlp.reshape(Format::f32, {t})), on);
    look("experts' input", x_mlp);
    const TensorView branch = workspace.branch.reshape(activations_, {t, d});
    if (moe_ != nullptr) {
        moe_->forward(x_mlp, branch, keeps ? &kept.moe : nullptr, workspace.moe, on);
    } else {
        kept.token_end = static_cast<std::int32_t>(t);
        mlp_->forward(x_mlp, {&kept.token_end, 1, {}}, nullptr, branch, keeps ? &kept.mlp : nullptr,
                      workspace.moe.experts, on);
    }
    look("experts' output", branch);
    return {h_mlp, branch};
}

void Layer::backward(TensorView dh, const AttentionShape& shape, const RotaryTable& rotary, LayerKept& kept,
                     double auxiliary_scale, LayerWorkspace& workspace, const Execution& on) {
    const std::int64_t t = shape.tokens(), d = config_.hidden;
    const auto look = [&](const char* what, const ConstTensorView& x) {
        if (workspace.probe != nullptr) workspace.probe->look(index_, what, x);
    };

    ConstTensorView dy = dh;
    if (activations_ == Format::bf16) {
        const TensorView rounded = workspace.dy.reshape(Format::bf16, {t, d});
        convert(dh, rounded, on);
        dy = rounded;
    }
    const TensorView dx = workspace.dx.reshape(activations_, {t, d});
    if (moe_ != nullptr) {
        moe_->backward(dy, kept.moe, dx, static_cast<float>(auxiliary_scale), workspace.moe, on);
        if (workspace.scales != nullptr) workspace.scales->observe(index_, *moe_, kept.moe, dy, on);
    } else {
        mlp_->backward(dy, {&kept.token_end, 1, {}}, nullptr, kept.mlp, dx, nullptr, workspace.moe.experts, on);
    }
    look("gradient of the experts' input", dx);
    rms_norm_backward(kept.h_mlp.view(), numbers(kept.inverse_mlp.view()), norm_mlp_.as<float>(), dx, dh,
                      norm_mlp_gradient_.as<float>(), workspace.partial, on);

    const TensorView dcontext = workspace.dcontext.reshape(Format::f32, {t, config_.query_features()});
    o_.backward(dh, kept.o_kept, dcontext, workspace.linear, on);
    look("gradient of the attention output", dcontext);
    const TensorView dqkv = workspace.dqkv.reshape(Format::f32, {t, shape.features()});
    timed(workspace.attention_seconds, [&] {
        attention_backward(shape, rotary, kept.qkv.view(), numbers(kept.log_sums.view()), dcontext, dqkv, on);
    });
    look("gradient of queries, keys and values", dqkv);
    const TensorView dx_attention = workspace.dx_attention.reshape(Format::f32, {t, d});
    qkv_.backward(dqkv, kept.qkv_kept, dx_attention, workspace.linear, on);
    const ConstTensorView h_attention = kept.first.null() ? ConstTensorView(kept.h_attention.view()) : kept.first;
    rms_norm_backward(h_attention, numbers(kept.inverse_attention.view()), norm_attention_.as<float>(), dx_attention,
                      dh, norm_attention_gradient_.as<float>(), workspace.partial, on);
    look("gradient of the layer's input", dh);
}

std::size_t Layer::kept_bytes(const LayerKept& kept) const {
    std::size_t bytes = kept.h_mlp.bytes() + kept.inverse_attention.bytes() + kept.inverse_mlp.bytes() +
                        kept.qkv.bytes() + kept.log_sums.bytes();
    bytes += kept.first.null() ? kept.h_attention.bytes()
                               : static_cast<std::size_t>(kept.first.extents.elements()) * sizeof(float);
    bytes += kept.qkv_kept.bytes() + kept.o_kept.bytes();  // what they borrow included
    if (mlp_ != nullptr) return bytes + kept.mlp.bytes();
    // The router borrows x; shared experts that borrow it too have counted it.
    const Recipe& recipe = moe_->options().recipe;
    const bool borrows = !recipe.quantizes() || recipe.wgrad == WgradPrecision::bf16;
    const bool counted = config_.shared_experts > 0 && borrows;
    return bytes + kept.moe.bytes() + (counted ? 0 : kept.x_mlp.bytes());
}

LinearReport Layer::report() const {
    LinearReport report = moe_ != nullptr ? moe_->report().linear : mlp_->report();
    report += qkv_.report();
    return report += o_.report();
}

void Layer::reset_report() {
    qkv_.reset_report();
    o_.reset_report();
    if (moe_ != nullptr) moe_->reset_report();
    if (mlp_ != nullptr) mlp_->reset_report();
}

}  // namespace octet::train
