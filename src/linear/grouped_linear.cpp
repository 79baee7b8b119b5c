#include <algorithm>

#include "linear/choice.hpp"
#include "linear/stopwatch.hpp"
#include "octet/error.hpp"
#include "octet/linear.hpp"
#include "ops/check.hpp"

namespace octet {

std::size_t LinearKept::bytes() const {
    if (tokens_ == none) return 0;
    if (borrowed_.null()) return columns_.bytes();
    return static_cast<std::size_t>(tokens_ * shape_.in_features * bytes_of(format_));
}

LinearReport& LinearReport::operator+=(const LinearReport& other) {
    activation_casts += other.activation_casts;
    gradient_casts += other.gradient_casts;
    weight_casts += other.weight_casts;
    kept_bytes += other.kept_bytes;
    cast_seconds += other.cast_seconds;
    product_seconds += other.product_seconds;
    return *this;
}

GroupedLinear::GroupedLinear(LinearShape shape, Recipe recipe) : shape_(shape), recipe_(recipe) {
    require(shape.experts >= 1 && shape.out_features >= 1 && shape.in_features >= 1, "a grouped linear of ",
            shape.experts, " experts, ", shape.out_features, " out-features and ", shape.in_features,
            " in-features was asked for; expected at least 1 of each");
    require(!recipe.quantizes() || (is_fp8(recipe.format) && is_fp8(recipe.gradient_format)), "recipe ",
            name(recipe.kind), " has formats ", name(recipe.format), " and ", name(recipe.gradient_format),
            ", expected 8-bit ones");
}

void GroupedLinear::bind_weights(ConstTensorView w) {
    const bool fits = w.rank() == 3 && w.size(0) == shape_.experts && w.size(1) == shape_.out_features &&
                      w.size(2) == shape_.in_features;
    require(fits, "weights of shape ", to_string(w.extents), " were given to a grouped linear of [", shape_.experts,
            ", ", shape_.out_features, ", ", shape_.in_features, "]");
    require(w.format == Format::bf16 || w.format == Format::f32, "weights of format ", name(w.format),
            " were given, expected bf16 or f32");
    require(!w.null(), "weights of shape ", to_string(w.extents), " have a null data pointer");
    weights_ = w;
    weights_changed();
}

void GroupedLinear::weights_changed() {
    ++weights_version_;
    along_k_cached_ = along_n_cached_ = false;
}

StepChoice GroupedLinear::choice(std::int64_t tokens, Format activations) const {
    // A bf16 product takes bf16 on both sides; anything else can only be quantized.
    const Format plain = weights_.format == Format::bf16 ? activations : weights_.format;
    return choose_step(recipe_, shape_, tokens, plain, weights_.device);
}

void GroupedLinear::arrange_casts(const CastsBeside& beside) {
    require(
        beside.weights != Beside::wgrad,
        "a grouped linear was asked to cast its weights beside wgrad; it keeps both casts from forward on, expected "
        "beside forward or nothing");
    arranged_ = beside;
}

CastsBeside GroupedLinear::beside(const StepChoice& now, std::int64_t tokens, bool casts_weights) const {
    if (!arranged_)
        return casts_beside(recipe_, now, shape_, tokens, casts_weights ? WeightCasts::in_forward : WeightCasts::none,
                            weights_.device);
    CastsBeside asked = *arranged_;
    if (!casts_weights) asked.weights = Beside::nothing;
    return asked;
}

QuantizeOptions GroupedLinear::options_for(Format format) const {
    return {recipe_.scaling(), format, recipe_.scale_rounding, recipe_.mx_mode};
}

void GroupedLinear::check_activation(const char* what, const ConstTensorView& x, std::int64_t features) const {
    require(x.rank() == 2 && x.size(1) == features, what, " has shape ", to_string(x.extents),
            " and the layer's weights are ", to_string(weights_.extents), "; expected [tokens, ", features, "]");
    check::dense(what, x, {Format::bf16, Format::f32}, {x.size(0), features});
}

namespace {

// An Execution with a workspace of `bytes`, unless the caller brought one or none is needed.
Execution with_workspace(Execution on, ReusedTensor& memory, Device device, std::size_t bytes) {
    if (on.workspace != nullptr || bytes == 0) return on;
    on.workspace = memory.reshape(Format::e8m0, {static_cast<std::int64_t>(bytes)}, device).data;
    on.workspace_bytes = bytes;
    return on;
}

}  // namespace

// The orientations that are asked for, from one visit.
void GroupedLinear::cache_weights(bool along_k, bool along_n, ReusedTensor& scratch, const Execution& on) {
    if (!along_k && !along_n) return;
    const QuantizeOptions options = options_for(recipe_.format);
    QuantizedView forward{}, dgrad{};
    if (along_k)
        forward =
            along_k_.reshape_weights(options, shape_.experts, shape_.out_features, shape_.in_features, weights_.device);
    if (along_n)
        dgrad =
            along_n_.reshape_weights(options, shape_.experts, shape_.in_features, shape_.out_features, weights_.device);
    const Execution quantize_on = with_workspace(
        on, scratch, weights_.device,
        weight_workspace_bytes(weights_.device, shape_.experts, shape_.out_features, shape_.in_features));
    timed(report_.cast_seconds, [&] { quantize_weights(weights_, options, forward, dgrad, quantize_on); });
    ++report_.weight_casts;
    along_k_cached_ = along_k_cached_ || along_k;
    along_n_cached_ = along_n_cached_ || (along_n && on.later == nullptr);  // what is left for later is not there yet
}

// The orientations of x that are asked for, from one visit.
void GroupedLinear::cast_tokens(ConstTensorView x, Groups groups, std::int64_t alignment,
                                const QuantizeOptions& options, QuantizedView rows, QuantizedView columns,
                                LinearWorkspace& workspace, const Execution& on) {
    const std::size_t scratch = token_workspace_bytes(x.device, x.size(0), x.size(1), groups.count);
    const Execution quantize_on = with_workspace(on, workspace.scratch, x.device, scratch);
    timed(report_.cast_seconds, [&] {
        if (columns.data.null()) {
            quantize_rows(x, options, rows, quantize_on);
        } else if (rows.data.null()) {
            quantize_columns(x, groups, alignment, options, columns, quantize_on);
        } else {
            quantize_pair(x, groups, alignment, options, rows, columns, quantize_on);
        }
    });
}

void GroupedLinear::forward(ConstTensorView a, Groups groups, TensorView y, LinearKept* kept,
                            LinearWorkspace& workspace, const Execution& on) {
    require(!weights_.null(), "forward was called on a grouped linear that has no weights; call bind_weights first");
    check_activation("a", a, shape_.in_features);
    require(groups.count == shape_.experts, groups.count, " groups were given to a grouped linear of ", shape_.experts,
            " experts");
    require(y.rank() == 2 && y.size(0) == a.size(0) && y.size(1) == shape_.out_features, "y has shape ",
            to_string(y.extents), " for a of shape ", to_string(a.extents), " and weights of shape ",
            to_string(weights_.extents), "; expected [", a.size(0), ", ", shape_.out_features, "]");
    check::dense("y", y, {Format::bf16, Format::f32}, {a.size(0), shape_.out_features});
    check::same_device("a", a.device, "y", y.device);
    check::disjoint({{"a", a}, {"w", weights_}, check::offsets(groups)}, {{"y", y}});
    if (kept != nullptr) kept->forget();
    const std::int64_t tokens = a.size(0);

    const StepChoice now = choice(tokens, a.format);
    LaterCasts later;
    Execution cast_on = on, weights_on = on;
    // A cast that waits keeps its workspace: two of them need two.
    const bool casts_weights = !along_k_cached_ && !along_n_cached_ && on.workspace == nullptr && recipe_.quantizes() &&
                               (arranged_ || keeps_maxima(weights_, options_for(recipe_.format)));
    const CastsBeside halves = beside(now, tokens, casts_weights);
    const bool cast_rows = now.forward == ProductPrecision::fp8;
    if (halves.activations || !cast_rows) cast_on.later = &later;  // without rows nothing is for this product
    if (halves.weights == Beside::forward) weights_on.later = &later;
    const bool cast_along_n = cast_rows && now.dgrad == ProductPrecision::fp8 && !along_n_cached_;
    Operand left(a), right(weights_);
    const bool cast_columns = kept != nullptr && wgrad_in_8_bits();
    if (cast_rows || cast_columns) {
        const QuantizeOptions options = options_for(recipe_.format);
        QuantizedView rows{}, columns{};
        if (cast_rows) {
            cache_weights(!along_k_cached_, cast_along_n,
                          weights_on.later != nullptr ? workspace.weight_scratch : workspace.scratch, weights_on);
            rows = workspace.activation_rows.reshape_rows(options, tokens, shape_.in_features, a.device);
            left = workspace.activation_rows.operand();
            right = along_k_.operand();
        }
        std::int64_t alignment = 0;
        if (cast_columns) {
            alignment = kept_alignment(options.scaling, tokens, groups.count, a.device);
            columns =
                kept->columns_.reshape_columns(options, tokens, groups.count, alignment, shape_.in_features, a.device);
        }
        cast_tokens(a, groups, alignment, options, rows, columns, workspace, cast_on);
        ++report_.activation_casts;
    }
    const ProductOptions options{Update::overwrite, recipe_.accumulation};
    timed(report_.product_seconds, [&] {
        grouped_forward(left, right, groups, y, options,
                        with_workspace(on, workspace.scratch, a.device, product_workspace_bytes(left, right)));
    });
    later.run(on.stream);
    along_n_cached_ = along_n_cached_ || cast_along_n;

    if (kept == nullptr) return;
    kept->tokens_ = tokens;
    kept->groups_ = groups.count;
    kept->weights_version_ = weights_version_;
    kept->shape_ = shape_;
    kept->format_ = a.format;
    kept->borrowed_ = wgrad_in_8_bits() ? ConstTensorView{} : a;
    report_.kept_bytes = kept->bytes();
}

void GroupedLinear::backward(ConstTensorView dy, Groups groups, const LinearKept& kept, TensorView da, TensorView dw,
                             Update update, LinearWorkspace& workspace, const Execution& on) {
    check_activation("dy", dy, shape_.out_features);
    require(kept.tokens_ != LinearKept::none, "backward was called with nothing kept; call forward with it first");
    require(kept.shape_ == shape_ && kept.tokens_ == dy.size(0) && kept.groups_ == groups.count, "forward kept ",
            kept.tokens_, " tokens in ", kept.groups_, " groups of a [", kept.shape_.experts, ", ",
            kept.shape_.out_features, ", ", kept.shape_.in_features, "] layer; backward was given ", dy.size(0),
            " tokens in ", groups.count, " groups for [", shape_.experts, ", ", shape_.out_features, ", ",
            shape_.in_features, "]");
    require(!recipe_.quantizes() || kept.weights_version_ == weights_version_ || da.null(),
            "the weights changed between forward and backward; the input gradient needs those of forward");
    const bool wants_da = !da.null(), wants_dw = !dw.null();
    if (!wants_da && !wants_dw) return;
    const std::int64_t tokens = dy.size(0);
    // Of both outputs, before the first is written.
    if (wants_da) {
        check::dense("da", da, {Format::bf16, Format::f32}, {tokens, shape_.in_features});
        check::same_device("dy", dy.device, "da", da.device);
    }
    if (wants_dw) {
        check::dense("dw", dw, {Format::bf16, Format::f32}, {shape_.experts, shape_.out_features, shape_.in_features});
        check::same_device("dy", dy.device, "dw", dw.device);
        require(update == Update::overwrite || dw.format == Format::f32, "dw is ", name(dw.format),
                ", and gradients that are summed over many steps would be rounded at each; expected f32");
    }
    check::disjoint({{"dy", dy}, {"w", weights_}, {"the a of forward", kept.borrowed_}, check::offsets(groups)},
                    {{"da", da}, {"dw", dw}});
    const std::int64_t alignment = recipe_.quantizes() ? token_alignment(recipe_.scaling(), dy.device) : 1;

    const StepChoice now = choice(tokens, dy.format);
    LaterCasts later;
    Execution cast_on = on;
    const bool cast_rows = wants_da && now.dgrad == ProductPrecision::fp8;
    const bool cast_columns = wants_dw && wgrad_in_8_bits();
    if (wants_da && (!cast_rows || beside(now, tokens, false).gradients)) cast_on.later = &later;
    Operand rows(dy), columns(dy);
    if (cast_rows || cast_columns) {
        const QuantizeOptions options = options_for(recipe_.gradient_format);
        QuantizedView rows_out{}, columns_out{};
        if (cast_rows) {
            // There since forward, unless that was in bf16.
            cache_weights(false, !along_n_cached_, workspace.scratch, on);
            rows_out = workspace.gradient_rows.reshape_rows(options, tokens, shape_.out_features, dy.device);
            rows = workspace.gradient_rows.operand();
        }
        if (cast_columns) {
            columns_out = workspace.gradient_columns.reshape_columns(options, tokens, groups.count, alignment,
                                                                     shape_.out_features, dy.device);
            columns = workspace.gradient_columns.operand();
        }
        cast_tokens(dy, groups, alignment, options, rows_out, columns_out, workspace, cast_on);
        ++report_.gradient_casts;
    }
    timed(report_.product_seconds, [&] {
        if (wants_da) {
            const Operand w = cast_rows ? along_n_.operand() : Operand(weights_);
            grouped_dgrad(rows, w, groups, da, {Update::overwrite, recipe_.accumulation},
                          with_workspace(on, workspace.scratch, dy.device, product_workspace_bytes(rows, w)));
            later.run(on.stream);
        }
        if (wants_dw) {
            const Operand a = wgrad_in_8_bits() ? kept.columns_.operand() : Operand(kept.borrowed_);
            Execution wgrad_on = with_workspace(on, workspace.scratch, dy.device, wgrad_workspace_bytes(columns, a));
            wgrad_on.tickets = workspace.tickets.on(dy.device);
            grouped_wgrad(columns, a, groups, alignment, dw, {update, recipe_.accumulation}, wgrad_on);
        }
    });
}

}  // namespace octet
