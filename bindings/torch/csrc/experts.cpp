// SwiGLU experts whole: two products and what lies between and around them, in as few visits of each tensor as Octet's
// kernels allow. Memory is taken stage by stage.
#include <algorithm>

#include "octet/activation.hpp"
#include "octet/error.hpp"
#include "octet/permute.hpp"
#include "step.hpp"
#include "token_lists.hpp"

namespace octet::torch_binding {
namespace {

const std::optional<Tensor> none;
const Given not_given{none, none};

struct Experts {
    Recipe recipe;
    Groups groups;
    Weights gate_up, down;
    std::int64_t hidden;              // features of the activation
    std::optional<TokenOrder> order;  // where tokens come as they are
    std::int64_t rows;
    Device device;

    Experts(const Tensor& x, const Tensor& gate_up_parameter, const Tensor& down_parameter, const Tensor& ends,
            const Text& recipe_text, const std::optional<Tensor>& slot_of_row, const std::optional<Tensor>& row_of_slot,
            std::int64_t top_k)
        : recipe(parse_recipe(recipe_text)),
          groups(groups_of(ends)),
          gate_up(weights_of_parameter("gate_up", gate_up_parameter)),
          down(weights_of_parameter("down", down_parameter)),
          hidden(down.k),
          rows(0),
          device(device_of(x)) {
        require(x.dim() == 2, "the tokens have ", x.dim(), " axes, expected 2: [tokens, features]");
        require(gate_up.experts == down.experts && gate_up.n == 2 * hidden && gate_up.k == down.n, "gate_up is [",
                gate_up.experts, ", ", gate_up.n, ", ", gate_up.k, "] and down [", down.experts, ", ", down.n, ", ",
                down.k, "]; expected [E, 2H, D] and [E, D, H]");
        require(x.size(1) == down.n, "the tokens have ", x.size(1), " features and the experts ", down.n);
        require(groups.count == down.experts, groups.count, " groups were given and the weights are of ", down.experts,
                " experts; every group needs its expert");
        require(slot_of_row.has_value() == row_of_slot.has_value(),
                "one list of the tokens' order was given; expected both or none");
        if (slot_of_row.has_value()) order = order_of(*slot_of_row, *row_of_slot, top_k);
        rows = order.has_value() ? order->rows : x.size(0);
    }

    QuantizeOptions activations() const { return options_for(recipe, recipe.format); }
    QuantizeOptions gradients() const { return options_for(recipe, recipe.gradient_format); }
    std::int64_t alignment() const { return token_alignment(recipe.scaling(), device); }

    // In the experts' order.
    Tensor moved(const Tensor& x) const {
        if (!order.has_value()) return with_dense_rows(x);
        Tensor out = allocate(x, format_of("the tokens", x), {rows, x.size(1)});
        octet::permute_tokens(*order, view_of("the tokens", with_dense_rows(x)), view_of("rows", out), Call(x).on());
        return out;
    }

    // A number a slot as a number a row, and back.
    std::optional<Tensor> by_row(const std::optional<Tensor>& weights) const {
        if (!order.has_value() || !weights.has_value()) return weights;
        return one_to_one(*weights, {order->slots(), 1, rows, order->row_of_slot, order->slot_of_row, device});
    }
    Tensor by_slot(const Tensor& weights) const {
        if (!order.has_value() || weights.numel() == 0) return weights;
        return one_to_one(weights, {rows, 1, order->slots(), order->slot_of_row, order->row_of_slot, device});
    }

    // x [T or M, F], cast as the product and the columns (null: none) need it, times the weights into `out` (none: only
    // the columns are wanted). Rows have scales of their own, so that tokens which go to several experts are cast
    // before they are moved.
    void multiply_tokens(const Tensor& x, const QuantizeOptions& options, Product product, const Weights& weights,
                         const QuantizedView& columns, const Tensor* out) const {
        const bool quantized = out != nullptr && in_8_bits(recipe, product, weights, rows, x);
        const bool wants_columns = !columns.data.null();
        const QuantizedShape few = rows_shape(options, x.size(0), x.size(1), device);
        const bool cast_first = order.has_value() && quantized && (few.scale.size() == 1 || few.scale_strides[1] == 1);
        const Tensor tokens = cast_first && !wants_columns ? x : moved(x);
        const ProductMemory memory(recipe, options.format, rows, weights, product, not_given);
        const std::size_t workspace =
            recipe.quantizes() ? token_workspace_bytes(device, rows, x.size(1), groups.count) : 0;
        const CastsBeside halves = casts_beside(recipe, weights, rows, x, WeightCasts::none);
        const bool beside =
            quantized && !cast_first && (product == Product::forward ? halves.activations : halves.gradients);
        CastPlaces casts(beside, workspace, quantized ? workspace_bytes(weights) : 0);
        Call call(x, casts.bytes() + (quantized ? memory.bytes() : 0) + (cast_first ? bytes_of(few) : 0));
        casts.take(call);
        const QuantizedView row_view = quantized ? take(call, memory.rows, device) : QuantizedView{};
        if (cast_first) {
            const QuantizedView first = take(call, few, device);
            octet::quantize_rows(view_of("the tokens", with_dense_rows(x)), options, first, call.on());
            octet::permute_tokens(*order, first.data, row_view.data, call.on());
            const bool mx = options.scaling == Scaling::mx;
            octet::permute_tokens(*order, as_matrix(mx ? first.scale : first.inverse),
                                  as_matrix(mx ? row_view.scale : row_view.inverse), call.on());
            if (wants_columns) quantize_tokens(tokens, groups, options, {}, columns, call.on());
        } else if (quantized || wants_columns) {
            quantize_tokens(tokens, groups, options, row_view, columns, casts.tokens());
        }
        if (quantized)
            multiply({row_view, recipe.scaling()},
                     weights_in_8_bits(weights, recipe, product, memory, not_given, call, call.on()), recipe, product,
                     groups, *out, call);
        else if (out != nullptr)
            multiply_plain(tokens, weights, recipe, product, groups, *out, call);
        casts.run_later(call);
    }

    // SwiGLU of gate_up's result, times the down projection. With ds (a gradient of the activation), SwiGLU's backward
    // instead, times the gate and up projections; dweights may be null.
    void multiply_activation(const Tensor& gate_up_result, const float* weights, const Tensor* ds, float* dweights,
                             const QuantizedView& columns, const Tensor* out) const {
        const bool backward = ds != nullptr;
        const Product product = backward ? Product::dgrad : Product::forward;
        const Weights& w = backward ? gate_up : down;
        const QuantizeOptions options = backward ? gradients() : activations();
        const TensorView in = view_of("gate_up's result", gate_up_result);
        const std::int64_t features = backward ? 2 * hidden : hidden;
        const bool quantized = out != nullptr && in_8_bits(recipe, product, w, rows, gate_up_result);
        const ProductMemory memory(recipe, options.format, rows, w, product, not_given);
        std::size_t workspace = swiglu_workspace_bytes(device, in.format, rows, features, groups.count);
        if (quantized) workspace = std::max(workspace, workspace_bytes(w));
        Call call(gate_up_result, aligned(workspace) + (quantized ? memory.bytes() : 0));
        call.take_workspace(workspace);
        if (quantized) {
            const QuantizedView row_view = take(call, memory.rows, device);
            if (backward)
                octet::swiglu_backward_quantize(in, weights, view_of("ds", *ds), groups, alignment(), options, row_view,
                                                columns, dweights, call.on());
            else
                octet::swiglu_quantize(in, weights, groups, alignment(), options, row_view, columns, call.on());
            return multiply({row_view, recipe.scaling()},
                            weights_in_8_bits(w, recipe, product, memory, not_given, call, call.on()), recipe, product,
                            groups, *out, call);
        }
        const Tensor result = activation(gate_up_result, weights, ds, dweights, call);
        if (!columns.data.null()) quantize_tokens(result, groups, options, {}, columns, call.on());
        if (out != nullptr) multiply_plain(result, w, recipe, product, groups, *out, call);
    }

    // SwiGLU, or its backward, in the tokens' own format.
    Tensor activation(const Tensor& gate_up_result, const float* weights, const Tensor* ds, float* dweights,
                      const Call& call) const {
        const TensorView in = view_of("gate_up's result", gate_up_result);
        Tensor out = allocate(gate_up_result, in.format, {rows, ds != nullptr ? 2 * hidden : hidden}, Contents::zeroed);
        if (ds != nullptr)
            octet::swiglu_backward(in, weights, view_of("ds", *ds), view_of("dgate_up", out), dweights, call.on());
        else
            octet::swiglu(in, weights, view_of("s", out), call.on());
        return out;
    }

private:
    // [M] scales as [M, 1].
    static TensorView as_matrix(TensorView view) {
        if (view.rank() == 1) view.extents = Extents{view.size(0), 1};
        return view;
    }

    static Tensor one_to_one(const Tensor& values, const TokenOrder& list) {
        Tensor out = allocate(values, Format::f32, {list.rows});
        const TensorView from(floats_of("the weights", values, list.tokens, values), Format::f32, {list.tokens, 1},
                              list.device);
        const TensorView to(address_of(out), Format::f32, {list.rows, 1}, list.device);
        octet::permute_tokens(list, from, to, Call(values).on());
        return out;
    }
};

Tensor as_parameter(const Tensor& gradient) { return ::torch::stable::transpose(gradient, 1, 2); }

}  // namespace

Six experts(Tensor x, Tensor gate_up, Tensor down, Tensor ends, std::optional<Tensor> weights, Text recipe, bool keep,
            std::optional<Tensor> slot_of_row, std::optional<Tensor> row_of_slot, std::int64_t top_k,
            std::optional<Tensor> addend) {
    const Experts layer(x, gate_up, down, ends, recipe, slot_of_row, row_of_slot, top_k);
    require(layer.order.has_value() || !addend.has_value(), "an addend was given without the tokens' order");
    const bool kept = keep && wgrad_in_8_bits(layer.recipe);
    const Format format = format_of("the tokens", x);
    const std::optional<Tensor> row_weights = layer.by_row(weights);
    const CastTokens kept_x = cast_columns(x, layer.rows, layer.gate_up.k, layer.activations(), layer.groups, kept);
    const CastTokens kept_s = cast_columns(x, layer.rows, layer.hidden, layer.activations(), layer.groups, kept);
    Tensor hidden = allocate(x, format, {layer.rows, 2 * layer.hidden}, Contents::zeroed);
    layer.multiply_tokens(x, layer.activations(), Product::forward, layer.gate_up, kept_x.view, &hidden);
    Tensor y = allocate(x, format, {layer.rows, layer.down.n}, Contents::zeroed);
    layer.multiply_activation(hidden, floats_of("the weights", row_weights, layer.rows, x), nullptr, nullptr,
                              kept_s.view, &y);
    if (!keep) hidden = allocate(x, format, {0});
    if (layer.order.has_value()) y = combine_tokens(y, none, *slot_of_row, *row_of_slot, top_k, addend);
    return {y, hidden, kept_x.data, kept_x.scale, kept_s.data, kept_s.scale};
}

Four experts_backward(Tensor dy, Tensor gate_up, Tensor down, Tensor ends, std::optional<Tensor> weights, Text recipe,
                      Tensor hidden, Tensor kept_x, std::optional<Tensor> kept_x_scale, Tensor kept_s,
                      Tensor kept_s_scale, bool wants_x, bool wants_weights, std::optional<Tensor> slot_of_row,
                      std::optional<Tensor> row_of_slot, std::int64_t top_k) {
    const Experts layer(dy, gate_up, down, ends, recipe, slot_of_row, row_of_slot, top_k);
    const Format format = format_of("the gradient", dy);
    const bool in_8 = wants_weights && wgrad_in_8_bits(layer.recipe), plain = wants_weights && !in_8;
    const Scaling scaling = in_8 ? layer.recipe.scaling() : Scaling::rowwise;
    const Format kept_format = layer.recipe.format;
    const std::optional<Tensor> row_weights = layer.by_row(weights);
    const float* const row_floats = floats_of("the weights", row_weights, layer.rows, dy);
    Tensor dweights = allocate(dy, Format::f32, {row_weights.has_value() ? layer.rows : 0});
    float* const dweight_floats = row_weights.has_value() ? static_cast<float*>(address_of(dweights)) : nullptr;
    Tensor dgate_up = allocate(dy, format, {0}), ddown = allocate(dy, format, {0});

    Tensor ds = allocate(dy, format, {layer.rows, layer.hidden}, Contents::zeroed);
    {
        const CastTokens columns = cast_columns(dy, layer.rows, layer.down.n, layer.gradients(), layer.groups, in_8);
        layer.multiply_tokens(dy, layer.gradients(), Product::dgrad, layer.down, columns.view, &ds);
        const Call call(dy);
        if (in_8)
            ddown = weight_gradient(layer.rows, {columns.view, scaling},
                                    operand_of_cast(kept_s, kept_s_scale, scaling, kept_format), layer.down,
                                    layer.recipe, layer.groups, call);
        if (plain)
            ddown = weight_gradient(layer.rows, view_of("dy", layer.moved(dy)),
                                    view_of("s", layer.activation(hidden, row_floats, nullptr, nullptr, call)),
                                    layer.down, layer.recipe, layer.groups, call);
    }
    Tensor dx = allocate(dy, format, wants_x ? Shape{layer.rows, layer.gate_up.k} : Shape{0}, Contents::zeroed);
    const CastTokens columns = cast_columns(dy, layer.rows, 2 * layer.hidden, layer.gradients(), layer.groups, in_8);
    layer.multiply_activation(hidden, row_floats, &ds, dweight_floats, columns.view, wants_x ? &dx : nullptr);
    const Call call(dy);
    if (in_8)
        dgate_up = weight_gradient(layer.rows, {columns.view, scaling},
                                   operand_of_cast(kept_x, kept_x_scale, scaling, kept_format), layer.gate_up,
                                   layer.recipe, layer.groups, call);
    if (plain)
        dgate_up =
            weight_gradient(layer.rows, view_of("dgate_up", layer.activation(hidden, row_floats, &ds, nullptr, call)),
                            view_of("x", layer.moved(kept_x)), layer.gate_up, layer.recipe, layer.groups, call);
    if (wants_x && layer.order.has_value()) dx = combine_tokens(dx, none, *slot_of_row, *row_of_slot, top_k, none);
    if (wants_weights) {
        dgate_up = as_parameter(dgate_up);
        ddown = as_parameter(ddown);
    }
    return {dx, dgate_up, ddown, layer.by_slot(dweights)};
}

}  // namespace octet::torch_binding
