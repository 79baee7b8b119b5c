// GroupedLinear at the C ABI.
#include "capi/handles.hpp"
#include "capi/layer_handles.hpp"
#include "capi/text.hpp"

using namespace octet;
using namespace octet::capi;

namespace {

// An output that may be left out, by a NULL handle alone: a view of nothing would look like one.
TensorView optional_output(const octet_tensor* tensor, const char* what) {
    if (tensor == nullptr) return {};
    const TensorView& view = checked(tensor, what).view;
    require(!view.null() || view.extents.elements() == 0, what, " of shape ", to_string(view.extents),
            " has a null data pointer; pass a NULL handle to leave it out");
    return view;
}

}  // namespace

extern "C" {

octet_status octet_grouped_linear_create(int64_t experts, int64_t out_features, int64_t in_features,
                                         const octet_recipe* recipe, octet_grouped_linear** linear) {
    return guarded(__func__, [&] {
        auto& out = checked_pointer(linear, "linear");
        out = new octet_grouped_linear{
            {}, GroupedLinear({experts, out_features, in_features}, checked(recipe, "recipe").recipe), {}, {}};
    });
}

void octet_grouped_linear_destroy(octet_grouped_linear* linear) { destroy(__func__, linear); }

octet_status octet_grouped_linear_bind_weights(octet_grouped_linear* linear, const octet_tensor* w) {
    return guarded(__func__, [&] { checked(linear, "linear").linear.bind_weights(checked(w, "w").view); });
}

octet_status octet_grouped_linear_weights_changed(octet_grouped_linear* linear) {
    return guarded(__func__, [&] { checked(linear, "linear").linear.weights_changed(); });
}

octet_status octet_grouped_linear_arrange_casts(octet_grouped_linear* linear, const char* beside) {
    return guarded(__func__, [&] {
        checked(linear, "linear").linear.arrange_casts(parse_casts_beside(checked_text(beside, "beside")));
    });
}

octet_status octet_grouped_linear_forward(octet_grouped_linear* linear, const octet_tensor* a,
                                          const octet_groups* groups, octet_tensor* y, const octet_execution* on) {
    return guarded(__func__, [&] {
        auto& self = checked(linear, "linear");
        self.linear.forward(checked(a, "a").view, checked(groups, "groups").groups, checked(y, "y").view, &self.kept,
                            self.workspace, execution_of(on));
    });
}

octet_status octet_grouped_linear_backward(octet_grouped_linear* linear, const octet_tensor* dy,
                                           const octet_groups* groups, octet_tensor* da, octet_tensor* dw,
                                           int32_t accumulate, const octet_execution* on) {
    return guarded(__func__, [&] {
        auto& self = checked(linear, "linear");
        const TensorView da_view = optional_output(da, "da"), dw_view = optional_output(dw, "dw");
        self.linear.backward(checked(dy, "dy").view, checked(groups, "groups").groups, self.kept, da_view, dw_view,
                             accumulate != 0 ? Update::add : Update::overwrite, self.workspace, execution_of(on));
    });
}

octet_status octet_grouped_linear_report(const octet_grouped_linear* linear, int64_t* kept_bytes,
                                         int64_t* activation_casts, int64_t* gradient_casts, int64_t* weight_casts) {
    return guarded(__func__, [&] {
        const LinearReport& report = checked(linear, "linear").linear.report();
        if (kept_bytes != nullptr) *kept_bytes = static_cast<int64_t>(report.kept_bytes);
        if (activation_casts != nullptr) *activation_casts = report.activation_casts;
        if (gradient_casts != nullptr) *gradient_casts = report.gradient_casts;
        if (weight_casts != nullptr) *weight_casts = report.weight_casts;
    });
}

octet_status octet_grouped_linear_choice(const octet_grouped_linear* linear, int64_t tokens, char* buffer,
                                         size_t capacity, size_t* needed) {
    return guarded(__func__, [&] {
        require(tokens >= 0, "tokens is ", tokens, ", expected 0 or more");
        print(to_string(checked(linear, "linear").linear.choice(tokens)), buffer, capacity, needed);
    });
}

}  // extern "C"
