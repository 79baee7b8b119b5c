// The schemas of torch.ops.octet, and their registration for the CPU and CUDA. Fake kernels and gradients are
// registered in Python (octet/_registration.py).
#include "operators.hpp"

namespace {

using namespace octet::torch_binding;

#define OCTET_OPTIONS                                                                     \
    "str scaling=\"rowwise\", str format=\"e4m3\", str scale_rounding=\"power_of_two\", " \
    "str mx_mode=\"rceil\""
#define OCTET_PRODUCT "str scaling=\"rowwise\", str accumulation=\"promoted\", str out=\"bf16\""
#define OCTET_THREE "(Tensor data, Tensor scale, Tensor inverse)"
#define OCTET_SIX "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"

void define(torch::stable::detail::StableLibrary& m) {
    m.def("quantize_rows(Tensor x, " OCTET_OPTIONS ") -> " OCTET_THREE);
    m.def("quantize_columns(Tensor x, Tensor ends, int alignment, " OCTET_OPTIONS ") -> " OCTET_THREE);
    m.def("quantize_columns_dual(Tensor x0, Tensor x1, Tensor ends, int alignment, " OCTET_OPTIONS ") -> " OCTET_SIX);
    m.def("quantize_pair(Tensor x, Tensor ends, int alignment, " OCTET_OPTIONS ") -> " OCTET_SIX);
    m.def("quantize_transposed(Tensor x, Tensor ends, int alignment, " OCTET_OPTIONS ") -> " OCTET_THREE);
    m.def("quantize_weights(Tensor w, " OCTET_OPTIONS ") -> " OCTET_SIX);
    m.def("quantize_weights_along(Tensor w, str orientation, " OCTET_OPTIONS ") -> " OCTET_THREE);

    m.def("dequantize_rows(Tensor data, Tensor scale, str scaling=\"rowwise\", str out=\"bf16\") -> Tensor");
    m.def(
        "dequantize_columns(Tensor data, Tensor scale, Tensor ends, int alignment, int tokens, "
        "str scaling=\"rowwise\", str out=\"bf16\") -> Tensor");
    m.def(
        "dequantize_transposed(Tensor data, Tensor scale, Tensor ends, int alignment, int tokens, "
        "str scaling=\"rowwise\", str out=\"bf16\") -> Tensor");
    m.def(
        "dequantize_weights(Tensor data, Tensor scale, str orientation, str scaling=\"rowwise\", "
        "str out=\"bf16\") -> Tensor");

    m.def("pad_groups(Tensor x, Tensor ends, int alignment) -> (Tensor padded, Tensor padded_ends)");
    m.def("unpad_groups(Tensor padded, Tensor ends, int alignment, int tokens) -> Tensor");
    m.def("swizzle_scales(Tensor scale) -> Tensor");
    m.def("unswizzle_scales(Tensor blocked, int rows, int columns) -> Tensor");
    m.def("swizzle_group_scales(Tensor scale, Tensor ends) -> Tensor");
    m.def("unswizzle_group_scales(Tensor blocked, Tensor ends, int rows, int columns) -> Tensor");

    m.def("swiglu(Tensor gate_up, Tensor? weights=None) -> Tensor");
    m.def("swiglu_backward(Tensor gate_up, Tensor? weights, Tensor ds) -> (Tensor dgate_up, Tensor dweights)");
    m.def("swiglu_quantize(Tensor gate_up, Tensor? weights, Tensor ends, int alignment, " OCTET_OPTIONS
          ") -> " OCTET_SIX);
    m.def(
        "swiglu_backward_quantize(Tensor gate_up, Tensor? weights, Tensor ds, Tensor ends, int "
        "alignment, " OCTET_OPTIONS ") -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)");
    m.def("permute_tokens(Tensor tokens, Tensor slot_of_row, Tensor row_of_slot, int top_k) -> Tensor");
    m.def(
        "combine_tokens(Tensor rows, Tensor? weights, Tensor slot_of_row, Tensor row_of_slot, int top_k, "
        "Tensor? addend=None) -> Tensor");
    m.def(
        "combine_tokens_backward(Tensor dy, Tensor rows, Tensor? weights, Tensor slot_of_row, Tensor row_of_slot, "
        "int top_k) -> (Tensor drows, Tensor dweights)");

    m.def("grouped_forward(Tensor a, Tensor? a_scale, Tensor w, Tensor? w_scale, Tensor ends, " OCTET_PRODUCT
          ") -> Tensor");
    m.def("grouped_dgrad(Tensor dy, Tensor? dy_scale, Tensor w, Tensor? w_scale, Tensor ends, " OCTET_PRODUCT
          ") -> Tensor");
    m.def(
        "grouped_wgrad(Tensor dy, Tensor? dy_scale, Tensor a, Tensor? a_scale, Tensor ends, int "
        "alignment, " OCTET_PRODUCT ") -> Tensor");

    m.def(
        "grouped_mm(Tensor a, Tensor b, Tensor ends, str recipe, str out, bool keep, Tensor? cast=None, "
        "Tensor? cast_scale=None, Tensor? dgrad_cast=None, Tensor? dgrad_cast_scale=None, Tensor? rows=None, "
        "Tensor? rows_scale=None, Tensor? columns=None, Tensor? columns_scale=None) -> "
        "(Tensor y, Tensor kept, Tensor kept_scale)");
    m.def(
        "grouped_mm_no_grad(Tensor a, Tensor b, Tensor ends, str recipe, str out, bool keep, Tensor? cast=None, "
        "Tensor? cast_scale=None, Tensor? rows=None, Tensor? rows_scale=None) -> "
        "(Tensor y, Tensor kept, Tensor kept_scale, Tensor? visit)");
    m.def(
        "grouped_mm_dual(Tensor a, Tensor b0, Tensor b1, Tensor ends, str recipe, str out, bool keep) -> "
        "(Tensor y0, Tensor y1, Tensor kept, Tensor kept_scale)");
    m.def(
        "grouped_mm_backward(Tensor dy, Tensor b, Tensor ends, str recipe, Tensor kept, Tensor? kept_scale, "
        "bool wants_a, bool wants_b, str a_format, Tensor? cast=None, Tensor? cast_scale=None, Tensor? visit=None) -> "
        "(Tensor da, Tensor db)");
    m.def(
        "grouped_mm_backward_onto(Tensor dy, Tensor b, Tensor ends, str recipe, Tensor kept, Tensor? kept_scale, "
        "Tensor(a!) da, bool wants_b, Tensor? cast=None, Tensor? cast_scale=None, Tensor? visit=None) -> "
        "(Tensor rest, Tensor db)");
    m.def(
        "cast_weights(Tensor b, str recipe) -> "
        "(Tensor forward, Tensor forward_scale, Tensor dgrad, Tensor dgrad_scale)");
    m.def(
        "grouped_mm_share(Tensor a, Tensor b, Tensor ends, str recipe, str out, Tensor? cast=None, "
        "Tensor? cast_scale=None) -> "
        "(Tensor y, Tensor rows, Tensor rows_scale, Tensor kept, Tensor kept_scale, Tensor? visit)");
    m.def(
        "cast_tokens_both(Tensor a, Tensor ends, str recipe) -> "
        "(Tensor rows, Tensor rows_scale, Tensor kept, Tensor kept_scale)");
    m.def(
        "experts(Tensor x, Tensor gate_up, Tensor down, Tensor ends, Tensor? weights, str recipe, bool keep, "
        "Tensor? slot_of_row=None, Tensor? row_of_slot=None, int top_k=1, Tensor? addend=None) -> "
        "(Tensor y, Tensor hidden, Tensor kept_x, Tensor kept_x_scale, Tensor kept_s, Tensor kept_s_scale)");
    m.def(
        "experts_backward(Tensor dy, Tensor gate_up, Tensor down, Tensor ends, Tensor? weights, str recipe, "
        "Tensor hidden, Tensor kept_x, Tensor? kept_x_scale, Tensor kept_s, Tensor kept_s_scale, bool wants_x, "
        "bool wants_weights, Tensor? slot_of_row=None, Tensor? row_of_slot=None, int top_k=1) -> "
        "(Tensor dx, Tensor dgate_up, Tensor ddown, Tensor dweights)");
}

void implement(torch::stable::detail::StableLibrary& m) {
    m.impl("quantize_rows", TORCH_BOX(&quantize_rows));
    m.impl("quantize_columns", TORCH_BOX(&quantize_columns));
    m.impl("quantize_columns_dual", TORCH_BOX(&quantize_columns_dual));
    m.impl("quantize_pair", TORCH_BOX(&quantize_pair));
    m.impl("quantize_transposed", TORCH_BOX(&quantize_transposed));
    m.impl("quantize_weights", TORCH_BOX(&quantize_weights));
    m.impl("quantize_weights_along", TORCH_BOX(&quantize_weights_along));
    m.impl("dequantize_rows", TORCH_BOX(&dequantize_rows));
    m.impl("dequantize_columns", TORCH_BOX(&dequantize_columns));
    m.impl("dequantize_transposed", TORCH_BOX(&dequantize_transposed));
    m.impl("dequantize_weights", TORCH_BOX(&dequantize_weights));
    m.impl("pad_groups", TORCH_BOX(&pad_groups));
    m.impl("unpad_groups", TORCH_BOX(&unpad_groups));
    m.impl("swizzle_scales", TORCH_BOX(&swizzle_scales));
    m.impl("unswizzle_scales", TORCH_BOX(&unswizzle_scales));
    m.impl("swizzle_group_scales", TORCH_BOX(&swizzle_group_scales));
    m.impl("unswizzle_group_scales", TORCH_BOX(&unswizzle_group_scales));
    m.impl("swiglu", TORCH_BOX(&swiglu));
    m.impl("swiglu_backward", TORCH_BOX(&swiglu_backward));
    m.impl("swiglu_quantize", TORCH_BOX(&swiglu_quantize));
    m.impl("swiglu_backward_quantize", TORCH_BOX(&swiglu_backward_quantize));
    m.impl("permute_tokens", TORCH_BOX(&permute_tokens));
    m.impl("combine_tokens", TORCH_BOX(&combine_tokens));
    m.impl("combine_tokens_backward", TORCH_BOX(&combine_tokens_backward));
    m.impl("grouped_forward", TORCH_BOX(&grouped_forward));
    m.impl("grouped_dgrad", TORCH_BOX(&grouped_dgrad));
    m.impl("grouped_wgrad", TORCH_BOX(&grouped_wgrad));
    m.impl("grouped_mm", TORCH_BOX(&grouped_mm));
    m.impl("grouped_mm_no_grad", TORCH_BOX(&grouped_mm_no_grad));
    m.impl("grouped_mm_dual", TORCH_BOX(&grouped_mm_dual));
    m.impl("grouped_mm_backward", TORCH_BOX(&grouped_mm_backward));
    m.impl("grouped_mm_backward_onto", TORCH_BOX(&grouped_mm_backward_onto));
    m.impl("cast_weights", TORCH_BOX(&cast_weights));
    m.impl("grouped_mm_share", TORCH_BOX(&grouped_mm_share));
    m.impl("cast_tokens_both", TORCH_BOX(&cast_tokens_both));
    m.impl("experts", TORCH_BOX(&experts));
    m.impl("experts_backward", TORCH_BOX(&experts_backward));
}

}  // namespace

STABLE_TORCH_LIBRARY(octet, m) { define(m); }
STABLE_TORCH_LIBRARY_IMPL(octet, CPU, m) { implement(m); }
STABLE_TORCH_LIBRARY_IMPL(octet, CUDA, m) { implement(m); }
