// The public permutation and SwiGLU: every argument is checked here, once, before the backend is called.
#include "octet/activation.hpp"
#include "octet/error.hpp"
#include "octet/permute.hpp"
#include "ops/check.hpp"
#include "ops/op_table.hpp"
#include "ops/quantize_check.hpp"
#include "ops/tuned.hpp"
#if OCTET_HAVE_CUDA
#include "cuda/launch/tokens.hpp"
#endif

namespace octet {
namespace {

using check::any_size;
using check::Named;

// f32 or int32 beside the tensors, `count` of them: four bytes each.
ConstTensorView list(const void* data, std::int64_t count, Device device) {
    return {data, Format::f32, {count}, device};
}
void check_list(const char* what, const void* data, std::int64_t count, Device device) {
    check::dense(what, list(data, count, device), {Format::f32}, {count});
}

void check_order(const TokenOrder& order, Device device) {
    constexpr std::int64_t most = std::int64_t{1} << 31;
    require(order.tokens >= 0 && order.tokens < most && order.top_k >= 1 && order.top_k < most && order.rows >= 0 &&
                order.rows < most,
            "the order has ", order.tokens, " tokens, top_k ", order.top_k, " and ", order.rows,
            " rows; expected 0 or more, 1 or more and 0 or more, each below 2^31");
    require(order.tokens * order.top_k < most, "the order has ", order.tokens, " tokens of top_k ", order.top_k,
            ": more slots than 32 bits can number");
    check_list("row_of_slot", order.row_of_slot, order.slots(), device);
    check_list("slot_of_row", order.slot_of_row, order.rows, device);
    check::same_device("the tensors", device, "the order's lists", order.device);
}

std::vector<Named> lists_of(const TokenOrder& order) {
    return {{"row_of_slot", list(order.row_of_slot, order.slots(), order.device)},
            {"slot_of_row", list(order.slot_of_row, order.rows, order.device)}};
}

// weights may be null.
void check_weights(const char* what, const float* weights, std::int64_t count, Device device) {
    if (weights != nullptr) check_list(what, weights, count, device);
}

void check_gate_up(const char* what, const ConstTensorView& gate_up) {
    check::dense(what, gate_up, {Format::bf16, Format::f32}, {any_size, any_size});
    if (gate_up.size(1) < 2 || gate_up.size(1) % 2 != 0)
        fail(Status::invalid_argument, what, " has shape ", to_string(gate_up.extents),
             ", expected [rows, 2 H]: gate and up side by side");
}

void check_like(const char* what, const ConstTensorView& x, const ConstTensorView& gate_up, std::int64_t columns) {
    check::dense(what, x, {gate_up.format}, {gate_up.size(0), columns});
    check::same_device("gate_up", gate_up.device, what, x.device);
}

void check_quantized_rows_and_columns(const ConstTensorView& like, const Groups& groups, std::int64_t alignment,
                                      const QuantizeOptions& options, const QuantizedView& rows,
                                      const QuantizedView& columns) {
    check::quantized_rows("rows", like, options, rows);
    if (columns.data.null()) return;
    check::groups(groups, like.size(0), like.device);
    check::quantized_tokens("columns", like.device, like.size(1), like.size(0), groups, alignment, options, columns);
}

std::vector<Named> outputs_of(const QuantizedView& rows, const QuantizedView& columns, const Named& extra) {
    std::vector<Named> list = {{"the rows' data", rows.data},
                               {"the rows' scale", rows.scale},
                               {"the rows' inverse scale", rows.inverse},
                               extra};
    if (!columns.data.null()) {
        list.push_back({"the columns' data", columns.data});
        list.push_back({"the columns' scale", columns.scale});
        list.push_back({"the columns' inverse scale", columns.inverse});
    }
    return list;
}

}  // namespace

void permute_tokens(const TokenOrder& order, ConstTensorView tokens, TensorView rows, const Execution& on) {
    check_order(order, tokens.device);
    check::dense("tokens", tokens, {tokens.format}, {order.tokens, any_size});
    check::dense("rows", rows, {tokens.format}, {order.rows, tokens.size(1)});
    check::same_device("the tokens", tokens.device, "the rows", rows.device);
    std::vector<Named> inputs = lists_of(order);
    inputs.push_back({"tokens", tokens});
    check::disjoint(inputs, {{"rows", rows}});
    op_table(on, tokens.device).permute_tokens(order, tokens, rows, on);
}

void combine_tokens(const TokenOrder& order, ConstTensorView rows, const float* weights,
                    std::span<const ConstTensorView> addends, TensorView y, const Execution& on) {
    const auto formats = {Format::bf16, Format::f32};
    check_order(order, y.device);
    check::dense("y", y, formats, {order.tokens, any_size});
    check::dense("rows", rows, formats, {order.rows, y.size(1)});
    check::same_device("y", y.device, "the rows", rows.device);
    check_weights("weights", weights, order.slots(), y.device);
    require(addends.size() <= 3, addends.size(), " addends were given, expected at most 3");
    std::vector<Named> inputs = lists_of(order);
    inputs.push_back({"rows", rows});
    inputs.push_back({"weights", list(weights, order.slots(), y.device)});
    for (const ConstTensorView& addend : addends) {
        check::dense("an addend", addend, formats, {order.tokens, y.size(1)});
        check::same_device("y", y.device, "an addend", addend.device);
        inputs.push_back({"an addend", addend});
    }
    check::disjoint(inputs, {{"y", y}});
    op_table(on, y.device).combine_tokens(order, rows, weights, addends, y, on);
}

void combine_tokens_backward(const TokenOrder& order, ConstTensorView dy, ConstTensorView rows, const float* weights,
                             TensorView drows, float* weight_gradients, const Execution& on) {
    check_order(order, dy.device);
    check::dense("dy", dy, {Format::bf16, Format::f32}, {order.tokens, any_size});
    check::dense("drows", drows, {dy.format}, {order.rows, dy.size(1)});
    check::same_device("dy", dy.device, "drows", drows.device);
    check_weights("weights", weights, order.slots(), dy.device);
    check_weights("weight_gradients", weight_gradients, order.slots(), dy.device);
    std::vector<Named> inputs = lists_of(order);
    inputs.push_back({"dy", dy});
    inputs.push_back({"weights", list(weights, order.slots(), dy.device)});
    if (weight_gradients != nullptr) {
        check::dense("rows", rows, {dy.format}, {order.rows, dy.size(1)});
        check::same_device("dy", dy.device, "the rows", rows.device);
        inputs.push_back({"rows", rows});
    }
    check::disjoint(inputs, {{"drows", drows}, {"weight_gradients", list(weight_gradients, order.slots(), dy.device)}});
    op_table(on, dy.device).combine_tokens_backward(order, dy, rows, weights, drows, weight_gradients, on);
}

void swiglu(ConstTensorView gate_up, const float* weights, TensorView s, const Execution& on) {
    check_gate_up("gate_up", gate_up);
    check_like("s", s, gate_up, gate_up.size(1) / 2);
    check_weights("weights", weights, gate_up.size(0), gate_up.device);
    check::disjoint({{"gate_up", gate_up}, {"weights", list(weights, gate_up.size(0), gate_up.device)}}, {{"s", s}});
    op_table(on, gate_up.device).swiglu(gate_up, weights, s, on);
}

void swiglu_backward(ConstTensorView gate_up, const float* weights, ConstTensorView ds, TensorView dgate_up,
                     float* weight_gradients, const Execution& on) {
    const std::int64_t m = gate_up.rank() == 2 ? gate_up.size(0) : 0;
    check_gate_up("gate_up", gate_up);
    check_like("ds", ds, gate_up, gate_up.size(1) / 2);
    check_like("dgate_up", dgate_up, gate_up, gate_up.size(1));
    check_weights("weights", weights, m, gate_up.device);
    check_weights("weight_gradients", weight_gradients, m, gate_up.device);
    check::disjoint({{"gate_up", gate_up}, {"ds", ds}, {"weights", list(weights, m, gate_up.device)}},
                    {{"dgate_up", dgate_up}, {"weight_gradients", list(weight_gradients, m, gate_up.device)}});
    op_table(on, gate_up.device).swiglu_backward(gate_up, weights, ds, dgate_up, weight_gradients, on);
}

void swiglu_quantize(ConstTensorView gate_up, const float* weights, Groups groups, std::int64_t alignment,
                     const QuantizeOptions& options, QuantizedView rows, QuantizedView columns, const Execution& on) {
    check::options(options);
    check_gate_up("gate_up", gate_up);
    check_weights("weights", weights, gate_up.size(0), gate_up.device);
    const ConstTensorView s(nullptr, gate_up.format, {gate_up.size(0), gate_up.size(1) / 2}, gate_up.device);
    check_quantized_rows_and_columns(s, groups, alignment, options, rows, columns);
    std::vector<Named> inputs = {{"gate_up", gate_up}, {"weights", list(weights, gate_up.size(0), gate_up.device)}};
    if (!columns.data.null()) inputs.push_back(check::offsets(groups));
    check::disjoint(inputs, outputs_of(rows, columns, {"", {}}));
    op_table(on, gate_up.device)
        .swiglu_quantize(
            gate_up, weights, groups, alignment, options, rows, columns,
            tuned(on, gate_up.device, "swiglu_quantize", options.scaling, gate_up.size(0), gate_up.size(1) / 2, 1));
}

void swiglu_backward_quantize(ConstTensorView gate_up, const float* weights, ConstTensorView ds, Groups groups,
                              std::int64_t alignment, const QuantizeOptions& options, QuantizedView rows,
                              QuantizedView columns, float* weight_gradients, const Execution& on) {
    check::options(options);
    check_gate_up("gate_up", gate_up);
    const std::int64_t m = gate_up.size(0);
    check_like("ds", ds, gate_up, gate_up.size(1) / 2);
    check_weights("weights", weights, m, gate_up.device);
    check_weights("weight_gradients", weight_gradients, m, gate_up.device);
    check_quantized_rows_and_columns(gate_up, groups, alignment, options, rows, columns);
    std::vector<Named> inputs = {{"gate_up", gate_up}, {"ds", ds}, {"weights", list(weights, m, gate_up.device)}};
    if (!columns.data.null()) inputs.push_back(check::offsets(groups));
    check::disjoint(inputs, outputs_of(rows, columns, {"weight_gradients", list(weight_gradients, m, gate_up.device)}));
    op_table(on, gate_up.device)
        .swiglu_backward_quantize(
            gate_up, weights, ds, groups, alignment, options, rows, columns, weight_gradients,
            tuned(on, gate_up.device, "swiglu_backward_quantize", options.scaling, m, gate_up.size(1), 1));
}

std::size_t swiglu_workspace_bytes([[maybe_unused]] Device device, [[maybe_unused]] Format format,
                                   [[maybe_unused]] std::int64_t tokens, [[maybe_unused]] std::int64_t features,
                                   [[maybe_unused]] std::int64_t groups) {
#if OCTET_HAVE_CUDA
    if (device.kind == DeviceKind::cuda) return cuda::swiglu_workspace_bytes(format, tokens, features, groups);
#endif
    return 0;
}

}  // namespace octet
