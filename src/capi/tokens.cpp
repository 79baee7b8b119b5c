// The permutation and SwiGLU at the C ABI.
#include <array>

#include "capi/guard.hpp"
#include "capi/handles.hpp"
#include "octet/activation.hpp"
#include "octet/permute.hpp"

using namespace octet;
using namespace octet::capi;

namespace {

TensorView view_of(const octet_tensor* tensor, const char* what) { return checked(tensor, what).view; }
const TokenOrder& order_of(const octet_token_order* order) { return checked(order, "order").order; }

// What the calls that quantize share.
struct Destination {
    Groups groups{};
    QuantizeOptions options;
    QuantizedView rows, columns{};
    Destination(const octet_groups* given_groups, const octet_quantize_options* given_options,
                octet_quantized* given_rows, octet_quantized* given_columns)
        : options(checked(given_options, "options").options), rows(checked(given_rows, "rows").view) {
        if (given_columns == nullptr) return;
        groups = checked(given_groups, "groups").groups;
        columns = checked(given_columns, "columns").view;
        require(!columns.data.null(), "columns have a null data pointer; pass NULL where none are wanted");
    }
};

}  // namespace

extern "C" {

octet_status octet_token_order_create(int64_t tokens, int64_t top_k, int64_t rows, const int32_t* row_of_slot,
                                      const int32_t* slot_of_row, octet_device_kind device_kind, int32_t device_index,
                                      octet_token_order** order) {
    return guarded(__func__, [&] {
        auto& out = checked_pointer(order, "order");
        out = new octet_token_order{
            {}, {tokens, top_k, rows, row_of_slot, slot_of_row, checked_device(device_kind, device_index)}};
    });
}

void octet_token_order_destroy(octet_token_order* order) { destroy(__func__, order); }

octet_status octet_permute_tokens(const octet_token_order* order, const octet_tensor* tokens, octet_tensor* rows,
                                  const octet_execution* on) {
    return guarded(__func__, [&] {
        permute_tokens(order_of(order), view_of(tokens, "tokens"), view_of(rows, "rows"), execution_of(on));
    });
}

octet_status octet_combine_tokens(const octet_token_order* order, const octet_tensor* rows, const float* weights,
                                  const octet_tensor* const* addends, int32_t addend_count, octet_tensor* y,
                                  const octet_execution* on) {
    return guarded(__func__, [&] {
        std::array<ConstTensorView, 3> views;
        require(addend_count >= 0 && addend_count <= 3, "addend_count is ", addend_count, ", expected 0 to 3");
        require(addend_count == 0 || addends != nullptr, "addends is NULL, expected ", addend_count, " tensors");
        const auto count = static_cast<std::size_t>(addend_count);
        for (std::size_t i = 0; i < count; ++i) views[i] = view_of(addends[i], "an addend");
        combine_tokens(order_of(order), view_of(rows, "rows"), weights, std::span(views).first(count), view_of(y, "y"),
                       execution_of(on));
    });
}

octet_status octet_combine_tokens_backward(const octet_token_order* order, const octet_tensor* dy,
                                           const octet_tensor* rows, const float* weights, octet_tensor* drows,
                                           float* weight_gradients, const octet_execution* on) {
    return guarded(__func__, [&] {
        const bool needs_rows = rows != nullptr || weight_gradients != nullptr;
        combine_tokens_backward(order_of(order), view_of(dy, "dy"),
                                needs_rows ? ConstTensorView(view_of(rows, "rows")) : ConstTensorView{}, weights,
                                view_of(drows, "drows"), weight_gradients, execution_of(on));
    });
}

octet_status octet_swiglu(const octet_tensor* gate_up, const float* weights, octet_tensor* s,
                          const octet_execution* on) {
    return guarded(__func__, [&] { swiglu(view_of(gate_up, "gate_up"), weights, view_of(s, "s"), execution_of(on)); });
}

octet_status octet_swiglu_backward(const octet_tensor* gate_up, const float* weights, const octet_tensor* ds,
                                   octet_tensor* dgate_up, float* weight_gradients, const octet_execution* on) {
    return guarded(__func__, [&] {
        swiglu_backward(view_of(gate_up, "gate_up"), weights, view_of(ds, "ds"), view_of(dgate_up, "dgate_up"),
                        weight_gradients, execution_of(on));
    });
}

octet_status octet_swiglu_quantize(const octet_tensor* gate_up, const float* weights, const octet_groups* groups,
                                   int64_t alignment, const octet_quantize_options* options, octet_quantized* rows,
                                   octet_quantized* columns, const octet_execution* on) {
    return guarded(__func__, [&] {
        const Destination to(groups, options, rows, columns);
        swiglu_quantize(view_of(gate_up, "gate_up"), weights, to.groups, alignment, to.options, to.rows, to.columns,
                        execution_of(on));
    });
}

octet_status octet_swiglu_backward_quantize(const octet_tensor* gate_up, const float* weights, const octet_tensor* ds,
                                            const octet_groups* groups, int64_t alignment,
                                            const octet_quantize_options* options, octet_quantized* rows,
                                            octet_quantized* columns, float* weight_gradients,
                                            const octet_execution* on) {
    return guarded(__func__, [&] {
        const Destination to(groups, options, rows, columns);
        swiglu_backward_quantize(view_of(gate_up, "gate_up"), weights, view_of(ds, "ds"), to.groups, alignment,
                                 to.options, to.rows, to.columns, weight_gradients, execution_of(on));
    });
}

}  // extern "C"
