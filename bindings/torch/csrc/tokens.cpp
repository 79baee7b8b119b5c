// What an expert layer does between its products: rows to the experts' order and back, and SwiGLU, alone or with the
// quantization that follows.
#include <array>

#include "octet/activation.hpp"
#include "octet/error.hpp"
#include "octet/permute.hpp"
#include "operators.hpp"
#include "token_lists.hpp"

namespace octet::torch_binding {
namespace {

std::int64_t features_of(const Tensor& gate_up) {
    require(gate_up.dim() == 2 && gate_up.size(1) % 2 == 0, "gate_up has ", gate_up.dim(),
            " axes, the last of them of ", gate_up.size(gate_up.dim() - 1), "; expected [tokens, 2 x features]");
    return gate_up.size(1) / 2;
}

// The gradient of weights that are there; a tensor of no elements where they are not.
Tensor gradient_of(const std::optional<Tensor>& weights, const Tensor& like) {
    return allocate(like, Format::f32, {weights.has_value() ? weights->numel() : 0});
}

float* address_or_null(const std::optional<Tensor>& weights, const Tensor& gradient) {
    return weights.has_value() ? static_cast<float*>(view_of("the weights' gradients", gradient).data) : nullptr;
}

struct Pair {
    QuantizedTensors rows, columns;
    Pair(const Tensor& like, std::int64_t features, const Tensor& ends, std::int64_t alignment,
         const QuantizeOptions& options)
        : rows(like, rows_shape(options, like.size(0), features, device_of(like))),
          columns(like, columns_shape(options, like.size(0), features, ends.numel(), alignment, device_of(like)),
                  Contents::zeroed) {}
    Six six() const { return {rows.data, rows.scale, rows.inverse, columns.data, columns.scale, columns.inverse}; }
};

struct SwigluCall : Call {
    SwigluCall(const Tensor& gate_up, std::int64_t features, std::int64_t groups)
        : SwigluCall(gate_up, swiglu_workspace_bytes(device_of(gate_up), format_of("gate_up", gate_up), gate_up.size(0),
                                                     features, groups)) {}

private:
    SwigluCall(const Tensor& gate_up, std::size_t bytes) : Call(gate_up, bytes) { take_workspace(bytes); }
};

}  // namespace

float* floats_of(const char* what, const std::optional<Tensor>& values, std::int64_t count, const Tensor& beside) {
    if (!values.has_value()) return nullptr;
    const TensorView view = view_of(what, *values);
    require(view.format == Format::f32 && values->numel() == count && values->is_contiguous(), what, " are ",
            values->numel(), " of ", name(view.format), ", expected ", count, " of f32, contiguous");
    require(view.device == device_of(beside), what, " are on ", to_string(view.device), " and the tokens on ",
            to_string(device_of(beside)));
    return static_cast<float*>(view.data);
}

TokenOrder order_of(const Tensor& slot_of_row, const Tensor& row_of_slot, std::int64_t top_k) {
    require(top_k >= 1 && row_of_slot.numel() % top_k == 0, "there are ", row_of_slot.numel(), " slots and top_k is ",
            top_k, "; expected top_k slots a token");
    // Lists of indices are checked as lists of offsets are: int32, one axis, contiguous.
    const Groups rows = groups_of(slot_of_row), slots = groups_of(row_of_slot);
    return {slots.count / top_k, top_k, rows.count, slots.ends, rows.ends, slots.device};
}

Tensor swiglu(Tensor gate_up, std::optional<Tensor> weights) {
    const std::int64_t features = features_of(gate_up);
    Tensor s = allocate(gate_up, format_of("gate_up", gate_up), {gate_up.size(0), features});
    const SwigluCall call(gate_up, features, 1);
    octet::swiglu(view_of("gate_up", with_dense_rows(gate_up)),
                  floats_of("the weights", weights, gate_up.size(0), gate_up), view_of("s", s), call.on());
    return s;
}

Two swiglu_backward(Tensor gate_up, std::optional<Tensor> weights, Tensor ds) {
    const std::int64_t features = features_of(gate_up);
    Tensor dgate_up = allocate(gate_up, format_of("gate_up", gate_up), {gate_up.size(0), 2 * features});
    Tensor gradient = gradient_of(weights, gate_up);
    const SwigluCall call(gate_up, 2 * features, 1);
    octet::swiglu_backward(view_of("gate_up", with_dense_rows(gate_up)),
                           floats_of("the weights", weights, gate_up.size(0), gate_up),
                           view_of("ds", with_dense_rows(ds)), view_of("dgate_up", dgate_up),
                           address_or_null(weights, gradient), call.on());
    return {dgate_up, gradient};
}

Six swiglu_quantize(Tensor gate_up, std::optional<Tensor> weights, Tensor ends, std::int64_t alignment, Text scaling,
                    Text format, Text scale_rounding, Text mx_mode) {
    const std::int64_t features = features_of(gate_up);
    const QuantizeOptions options = options_of(scaling, format, scale_rounding, mx_mode);
    const Pair out(gate_up, features, ends, alignment, options);
    const SwigluCall call(gate_up, features, ends.numel());
    octet::swiglu_quantize(view_of("gate_up", with_dense_rows(gate_up)),
                           floats_of("the weights", weights, gate_up.size(0), gate_up), groups_of(ends), alignment,
                           options, out.rows.view(), out.columns.view(), call.on());
    return out.six();
}

Seven swiglu_backward_quantize(Tensor gate_up, std::optional<Tensor> weights, Tensor ds, Tensor ends,
                               std::int64_t alignment, Text scaling, Text format, Text scale_rounding, Text mx_mode) {
    const std::int64_t features = features_of(gate_up);
    const QuantizeOptions options = options_of(scaling, format, scale_rounding, mx_mode);
    const Pair out(gate_up, 2 * features, ends, alignment, options);
    Tensor gradient = gradient_of(weights, gate_up);
    const SwigluCall call(gate_up, 2 * features, ends.numel());
    octet::swiglu_backward_quantize(view_of("gate_up", with_dense_rows(gate_up)),
                                    floats_of("the weights", weights, gate_up.size(0), gate_up),
                                    view_of("ds", with_dense_rows(ds)), groups_of(ends), alignment, options,
                                    out.rows.view(), out.columns.view(), address_or_null(weights, gradient), call.on());
    return std::tuple_cat(out.six(), std::tuple(gradient));
}

Tensor permute_tokens(Tensor tokens, Tensor slot_of_row, Tensor row_of_slot, std::int64_t top_k) {
    require(tokens.dim() == 2, "tokens have ", tokens.dim(), " axes, expected 2: [tokens, features]");
    const TokenOrder order = order_of(slot_of_row, row_of_slot, top_k);
    Tensor rows = allocate(tokens, format_of("tokens", tokens), {order.rows, tokens.size(1)});
    octet::permute_tokens(order, view_of("tokens", with_dense_rows(tokens)), view_of("rows", rows), Call(tokens).on());
    return rows;
}

Tensor combine_tokens(Tensor rows, std::optional<Tensor> weights, Tensor slot_of_row, Tensor row_of_slot,
                      std::int64_t top_k, std::optional<Tensor> addend) {
    require(rows.dim() == 2, "rows have ", rows.dim(), " axes, expected 2: [rows, features]");
    const TokenOrder order = order_of(slot_of_row, row_of_slot, top_k);
    Tensor y = allocate(rows, format_of("rows", rows), {order.tokens, rows.size(1)});
    std::vector<ConstTensorView> addends;
    const std::optional<Tensor> dense = addend.has_value() ? std::optional(with_dense_rows(*addend)) : std::nullopt;
    if (dense.has_value()) addends.emplace_back(view_of("the addend", *dense));
    octet::combine_tokens(order, view_of("rows", with_dense_rows(rows)),
                          floats_of("the weights", weights, order.slots(), rows), addends, view_of("y", y),
                          Call(rows).on());
    return y;
}

Two combine_tokens_backward(Tensor dy, Tensor rows, std::optional<Tensor> weights, Tensor slot_of_row,
                            Tensor row_of_slot, std::int64_t top_k) {
    require(dy.dim() == 2, "dy has ", dy.dim(), " axes, expected 2: [tokens, features]");
    const TokenOrder order = order_of(slot_of_row, row_of_slot, top_k);
    Tensor drows = allocate(dy, format_of("dy", dy), {order.rows, dy.size(1)});
    Tensor gradient = gradient_of(weights, dy);
    octet::combine_tokens_backward(order, view_of("dy", with_dense_rows(dy)), view_of("rows", with_dense_rows(rows)),
                                   floats_of("the weights", weights, order.slots(), dy), view_of("drows", drows),
                                   address_or_null(weights, gradient), Call(dy).on());
    return {drows, gradient};
}

}  // namespace octet::torch_binding
