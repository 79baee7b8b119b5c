#include <cmath>
#include <cstring>
#include <limits>

#include "core/zeros.hpp"
#include "linear/stopwatch.hpp"
#include "octet/error.hpp"
#include "octet/moe.hpp"
#include "ops/check.hpp"

namespace octet {
namespace {

const MoeOptions& checked(const MoeOptions& options) {
    constexpr std::int64_t most = std::int64_t{1} << 30;  // gate and up together are counted in 32 bits
    const auto within = [](std::int64_t value, std::int64_t least) { return value >= least && value <= most; };
    require(within(options.hidden, 1) && within(options.expert_hidden, 1) && within(options.shared_hidden, 0),
            "a layer of hidden ", options.hidden, ", expert hidden ", options.expert_hidden, " and shared hidden ",
            options.shared_hidden, " was asked for; expected at least 1, at least 1, and 0 or more, none above ", most);
    Router::check(options.router);
    require(options.activations == Format::bf16 || options.activations == Format::f32, "activations of format ",
            name(options.activations), " were asked for, expected bf16 or f32");
    return options;
}

void zero(TensorView view) {
    std::memset(view.data, 0, static_cast<std::size_t>(view.extents.elements() * bytes_of(view.format)));
}

Groups one_group(const std::int32_t& end) { return {&end, 1, {}}; }

}  // namespace

MoeLayer::MoeLayer(const MoeOptions& options)
    : options_(checked(options)),
      router_weights_(zeros({1, options.router.experts, options.hidden})),
      router_gradient_(zeros({1, options.router.experts, options.hidden})),
      experts_("experts", {options.router.experts, options.hidden, options.expert_hidden}, options.activations,
               options.recipe),
      inference_router_(options.router),
      balance_bias_(static_cast<std::size_t>(options.router.experts), 0.0f),
      balance_counts_(static_cast<std::size_t>(options.router.experts), 0) {
    if (options.shared_hidden > 0)
        shared_.emplace_back("shared", ExpertShape{1, options.hidden, options.shared_hidden}, options.activations,
                             options.recipe);
    reset_report();
}

std::vector<Parameter> MoeLayer::parameters() {
    const Extents flat{options_.router.experts, options_.hidden};
    std::vector<Parameter> all{{"router",
                                {router_weights_.view().data, Format::f32, flat},
                                {router_gradient_.view().data, Format::f32, flat}}};
    for (Parameter& parameter : experts_.parameters()) all.push_back(std::move(parameter));
    for (Experts& shared : shared_)
        for (Parameter& parameter : shared.parameters()) all.push_back(std::move(parameter));
    return all;
}

Parameter MoeLayer::parameter(std::string_view name) {
    std::string known;
    for (Parameter& parameter : parameters()) {
        if (parameter.name == name) return std::move(parameter);
        known += (known.empty() ? "" : ", ") + parameter.name;
    }
    fail(Status::invalid_argument, "the layer has no parameter '", name, "'; it has ", known);
}

void MoeLayer::weights_changed() {
    experts_.weights_changed();
    for (Experts& shared : shared_) shared.weights_changed();
}

void MoeLayer::zero_gradients() {
    for (const Parameter& parameter : parameters()) zero(parameter.gradient);
}

void MoeLayer::check_tokens(const char* what, const ConstTensorView& x) const {
    require(x.rank() == 2 && x.size(1) == options_.hidden && x.format == options_.activations, what, " has shape ",
            to_string(x.extents), " and format ", name(x.format), "; the layer takes [tokens, ", options_.hidden, "] ",
            name(options_.activations));
    check::dense(what, x, {options_.activations}, {x.size(0), options_.hidden});
    check::same_device("the layer", {}, what, x.device);
    require(x.size(0) <= std::numeric_limits<std::int32_t>::max() / options_.router.top_k, what, " has ", x.size(0),
            " tokens; with top_k ", options_.router.top_k, " that is more rows than 32 bits can count");
}

const Routing& MoeLayer::route(ConstTensorView x, Router& router, const std::int32_t& token_end,
                               MoeWorkspace& workspace, const Execution& on) {
    const TensorView logits = workspace.logits.reshape(Format::f32, {x.size(0), options_.router.experts});
    grouped_forward(x, router_weights_.view(), one_group(token_end), logits, {}, on);
    const bool biased = options_.router.balance == RouterBalance::bias;
    return router.route(logits, biased ? balance_bias_.data() : nullptr, on);
}

void MoeLayer::forward(ConstTensorView x, TensorView y, MoeKept* kept, MoeWorkspace& workspace, const Execution& on) {
    check_tokens("x", x);
    check_tokens("y", y);
    require(x.size(0) == y.size(0), "x has ", x.size(0), " tokens and y has ", y.size(0));
    check::disjoint({{"x", x}}, {{"y", y}});  // backward reads x again
    if (kept != nullptr) kept->x = {};        // nothing is kept until all of it is
    const auto token_end = static_cast<std::int32_t>(x.size(0));
    Router& router = kept != nullptr ? kept->router : inference_router_;
    timed(report_.router_seconds, [&] { route(x, router, token_end, workspace, on); });
    const Routing& routing = router.routing();
    report_.auxiliary_loss = router.auxiliary_loss();
    for (std::size_t e = 0; e < report_.tokens_per_expert.size(); ++e) {
        const std::int32_t count = routing.groups.ends[e] - (e == 0 ? 0 : routing.groups.ends[e - 1]);
        report_.tokens_per_expert[e] += count;
        if (kept != nullptr) balance_counts_[e] += count;
    }

    const bool keep_rows = kept != nullptr && experts_.borrows_input();
    const Extents row_shape{routing.rows(), options_.hidden};
    const TensorView rows = (keep_rows ? kept->experts.input : workspace.rows).reshape(options_.activations, row_shape);
    timed(report_.permutation_seconds, [&] { gather_rows(routing, x, rows, on); });
    const TensorView outputs = workspace.outputs.reshape(options_.activations, row_shape);
    experts_.forward(rows, routing.groups, routing.row_weights, outputs, kept != nullptr ? &kept->experts : nullptr,
                     workspace.experts, on);

    ConstTensorView addend;
    for (Experts& shared : shared_) {
        const TensorView out = workspace.shared.reshape(options_.activations, {x.size(0), options_.hidden});
        shared.forward(x, one_group(token_end), nullptr, out, kept != nullptr ? &kept->shared : nullptr,
                       workspace.experts, on);
        addend = out;
    }
    timed(report_.permutation_seconds, [&] { sum_rows(routing, outputs, std::span(&addend, shared_.size()), y, on); });
    if (kept == nullptr) return;
    kept->x = x;
    kept->token_end = token_end;
    report_.kept_bytes = kept->bytes();
}

void MoeLayer::backward(ConstTensorView dy, MoeKept& kept, TensorView dx, float auxiliary_scale,
                        MoeWorkspace& workspace, const Execution& on) {
    check_tokens("dy", dy);
    check_tokens("dx", dx);
    require(kept.x.rank() == 2, "backward was called with nothing kept; call forward with it first");
    require(kept.x.size(0) == dy.size(0) && dx.size(0) == dy.size(0), "forward kept ", kept.x.size(0),
            " tokens; backward was given dy of ", dy.size(0), " and dx of ", dx.size(0));
    require(std::isfinite(auxiliary_scale), "auxiliary_scale is ", auxiliary_scale, ", expected a finite number");
    const Routing& routing = kept.router.routing();
    const Extents row_shape{routing.rows(), options_.hidden}, token_shape{dy.size(0), options_.hidden};

    const TensorView doutputs = workspace.rows.reshape(options_.activations, row_shape);
    timed(report_.permutation_seconds, [&] { gather_rows(routing, dy, doutputs, on); });
    const TensorView drows = workspace.drows.reshape(options_.activations, row_shape);
    auto* row_gradients = static_cast<float*>(workspace.row_gradients.reshape(Format::f32, {routing.rows()}).data);
    experts_.backward(doutputs, routing.groups, routing.row_weights, kept.experts, drows, row_gradients,
                      workspace.experts, on);

    ConstTensorView addends[2];
    std::size_t count = 0;
    for (Experts& shared : shared_) {
        const TensorView dshared = workspace.shared.reshape(options_.activations, token_shape);
        shared.backward(dy, one_group(kept.token_end), nullptr, kept.shared, dshared, nullptr, workspace.experts, on);
        addends[count++] = dshared;
    }
    timed(report_.router_seconds, [&] {
        const Groups all = one_group(kept.token_end);
        const TensorView dlogits = workspace.dlogits.reshape(Format::f32, {dy.size(0), options_.router.experts});
        kept.router.backward(row_gradients, auxiliary_scale, dlogits, on);
        const TensorView dx_router = workspace.dx_router.reshape(Format::f32, token_shape);
        grouped_wgrad(dlogits, kept.x, all, 1, router_gradient_, {Update::add}, on);
        grouped_dgrad(dlogits, router_weights_.view(), all, dx_router, {}, on);
        addends[count++] = dx_router;
    });
    timed(report_.permutation_seconds, [&] { sum_rows(routing, drows, std::span(addends, count), dx, on); });
}

void MoeLayer::update_balance() {
    if (options_.router.balance == RouterBalance::bias) {
        std::int64_t total = 0;
        for (const std::int64_t count : balance_counts_) total += count;
        const std::int64_t experts = options_.router.experts;
        for (std::size_t e = 0; e < balance_bias_.size(); ++e) {
            const std::int64_t over = balance_counts_[e] * experts - total;  // above the mean, times the experts
            if (over > 0) balance_bias_[e] -= options_.router.balance_rate;
            if (over < 0) balance_bias_[e] += options_.router.balance_rate;
        }
    }
    balance_counts_.assign(balance_counts_.size(), 0);
}

MoeReport MoeLayer::report() const {
    MoeReport report = report_;
    report.linear = experts_.report();
    report.activation_seconds = experts_.activation_seconds();
    for (const Experts& shared : shared_) {
        report.linear += shared.report();
        report.activation_seconds += shared.activation_seconds();
    }
    return report;
}

void MoeLayer::reset_report() {
    report_ = {};
    report_.tokens_per_expert.assign(static_cast<std::size_t>(options_.router.experts), 0);
    experts_.reset_report();
    for (Experts& shared : shared_) shared.reset_report();
}

}  // namespace octet
