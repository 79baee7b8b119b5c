#include "octet/error.hpp"
#include "operators.hpp"

namespace octet::torch_binding {
namespace {

Three three(const QuantizedTensors& q) { return {q.data, q.scale, q.inverse}; }
Six six(const QuantizedTensors& p, const QuantizedTensors& q) {
    return {p.data, p.scale, p.inverse, q.data, q.scale, q.inverse};
}

void need_matrix(const char* what, const Tensor& x) {
    require(x.dim() == 2, what, " has ", x.dim(), " axes, expected 2");
}

void need_experts(const Tensor& w) { require(w.dim() == 3, "w has ", w.dim(), " axes, expected 3: [E, N, K]"); }

std::size_t token_workspace(const Tensor& x, std::int64_t tokens, std::int64_t features, const Tensor& ends) {
    return token_workspace_bytes(device_of(x), tokens, features, ends.numel());
}

std::size_t weight_workspace(const Tensor& w) {
    return weight_workspace_bytes(device_of(w), w.size(0), w.size(1), w.size(2));
}

// A call whose memory is its workspace.
struct WorkspaceCall : Call {
    WorkspaceCall(const Tensor& tensor, std::size_t bytes) : Call(tensor, bytes) { take_workspace(bytes); }
};

QuantizedTensors columns_of(const Tensor& x, std::int64_t tokens, std::int64_t features, const Tensor& ends,
                            std::int64_t alignment, const QuantizeOptions& options) {
    return {x, columns_shape(options, tokens, features, ends.numel(), alignment, device_of(x)), Contents::zeroed};
}

WeightOrientation orientation_of(const Text& text) {
    require(text == "along_k" || text == "along_n", "orientation '", text, "' was given, expected along_k or along_n");
    return text == "along_k" ? WeightOrientation::along_k : WeightOrientation::along_n;
}

// What dequantizers read: data and its multiplier.
struct Codes {
    ConstQuantizedView view;
    QuantizeOptions options;
};
Codes codes_of(const Tensor& data, const Tensor& scale, const Text& scaling) {
    const TensorView elements = view_of("data", data);
    QuantizeOptions options;
    options.scaling = parse_scaling(scaling);
    options.format = elements.format;
    return {ConstQuantizedView(elements, view_of("scale", scale), {}), options};
}

}  // namespace

Three quantize_rows(Tensor x, Text scaling, Text format, Text scale_rounding, Text mx_mode) {
    const QuantizeOptions options = options_of(scaling, format, scale_rounding, mx_mode);
    need_matrix("x", x);
    const QuantizedTensors out(x, rows_shape(options, x.size(0), x.size(1), device_of(x)));
    const WorkspaceCall call(x, token_workspace_bytes(device_of(x), x.size(0), x.size(1), 1));
    octet::quantize_rows(view_of("x", with_dense_rows(x)), options, out.view(), call.on());
    return three(out);
}

Three quantize_columns(Tensor x, Tensor ends, std::int64_t alignment, Text scaling, Text format, Text scale_rounding,
                       Text mx_mode) {
    need_matrix("x", x);
    const QuantizeOptions options = options_of(scaling, format, scale_rounding, mx_mode);
    const QuantizedTensors out = columns_of(x, x.size(0), x.size(1), ends, alignment, options);
    const WorkspaceCall call(x, token_workspace(x, x.size(0), x.size(1), ends));
    octet::quantize_columns(view_of("x", with_dense_rows(x)), groups_of(ends), alignment, options, out.view(),
                            call.on());
    return three(out);
}

Six quantize_columns_dual(Tensor x0, Tensor x1, Tensor ends, std::int64_t alignment, Text scaling, Text format,
                          Text scale_rounding, Text mx_mode) {
    need_matrix("x0", x0);
    need_matrix("x1", x1);
    const QuantizeOptions options = options_of(scaling, format, scale_rounding, mx_mode);
    const QuantizedTensors out0 = columns_of(x0, x0.size(0), x0.size(1), ends, alignment, options);
    const QuantizedTensors out1 = columns_of(x1, x1.size(0), x1.size(1), ends, alignment, options);
    const WorkspaceCall call(x0, token_workspace(x0, x0.size(0), x0.size(1) + x1.size(1), ends));
    octet::quantize_columns_dual(view_of("x0", with_dense_rows(x0)), view_of("x1", with_dense_rows(x1)),
                                 groups_of(ends), alignment, options, out0.view(), out1.view(), call.on());
    return six(out0, out1);
}

Six quantize_pair(Tensor x, Tensor ends, std::int64_t alignment, Text scaling, Text format, Text scale_rounding,
                  Text mx_mode) {
    const QuantizeOptions options = options_of(scaling, format, scale_rounding, mx_mode);
    need_matrix("x", x);
    const QuantizedTensors rows(x, rows_shape(options, x.size(0), x.size(1), device_of(x)));
    const QuantizedTensors columns = columns_of(x, x.size(0), x.size(1), ends, alignment, options);
    const WorkspaceCall call(x, token_workspace(x, x.size(0), x.size(1), ends));
    octet::quantize_pair(view_of("x", with_dense_rows(x)), groups_of(ends), alignment, options, rows.view(),
                         columns.view(), call.on());
    return six(rows, columns);
}

Three quantize_transposed(Tensor x, Tensor ends, std::int64_t alignment, Text scaling, Text format, Text scale_rounding,
                          Text mx_mode) {
    need_matrix("x", x);
    const QuantizeOptions options = options_of(scaling, format, scale_rounding, mx_mode);
    const QuantizedTensors out = columns_of(x, x.size(1), x.size(0), ends, alignment, options);
    const WorkspaceCall call(x, token_workspace(x, x.size(1), x.size(0), ends));
    octet::quantize_transposed(view_of("x", with_dense_rows(x)), groups_of(ends), alignment, options, out.view(),
                               call.on());
    return three(out);
}

Six quantize_weights(Tensor w, Text scaling, Text format, Text scale_rounding, Text mx_mode) {
    need_experts(w);
    const QuantizeOptions options = options_of(scaling, format, scale_rounding, mx_mode);
    const QuantizedTensors along_k(w, weights_shape(options, w.size(0), w.size(1), w.size(2)));
    const QuantizedTensors along_n(w, weights_shape(options, w.size(0), w.size(2), w.size(1)));
    const WorkspaceCall call(w, weight_workspace(w));
    octet::quantize_weights(view_of("w", with_dense_rows(w)), options, along_k.view(), along_n.view(), call.on());
    return six(along_k, along_n);
}

Three quantize_weights_along(Tensor w, Text orientation, Text scaling, Text format, Text scale_rounding, Text mx_mode) {
    need_experts(w);
    const bool along_k = orientation_of(orientation) == WeightOrientation::along_k;
    const QuantizeOptions options = options_of(scaling, format, scale_rounding, mx_mode);
    const QuantizedTensors out(w, weights_shape(options, w.size(0), w.size(along_k ? 1 : 2), w.size(along_k ? 2 : 1)));
    const WorkspaceCall call(w, weight_workspace(w));
    octet::quantize_weights(view_of("w", with_dense_rows(w)), options, along_k ? out.view() : QuantizedView{},
                            along_k ? QuantizedView{} : out.view(), call.on());
    return three(out);
}

Tensor dequantize_rows(Tensor data, Tensor scale, Text scaling, Text out) {
    need_matrix("data", data);
    const Codes codes = codes_of(data, scale, scaling);
    Tensor x = allocate(data, parse_format(out), {data.size(0), data.size(1)});
    octet::dequantize_rows(codes.view, codes.options, view_of("out", x), Call(data).on());
    return x;
}

Tensor dequantize_columns(Tensor data, Tensor scale, Tensor ends, std::int64_t alignment, std::int64_t tokens,
                          Text scaling, Text out) {
    need_matrix("data", data);
    const Codes codes = codes_of(data, scale, scaling);
    Tensor x = allocate(data, parse_format(out), {tokens, data.size(0)}, Contents::zeroed);
    octet::dequantize_columns(codes.view, groups_of(ends), alignment, codes.options, view_of("out", x),
                              Call(data).on());
    return x;
}

Tensor dequantize_transposed(Tensor data, Tensor scale, Tensor ends, std::int64_t alignment, std::int64_t tokens,
                             Text scaling, Text out) {
    need_matrix("data", data);
    const Codes codes = codes_of(data, scale, scaling);
    Tensor x = allocate(data, parse_format(out), {data.size(0), tokens}, Contents::zeroed);
    octet::dequantize_transposed(codes.view, groups_of(ends), alignment, codes.options, view_of("out", x),
                                 Call(data).on());
    return x;
}

Tensor dequantize_weights(Tensor data, Tensor scale, Text orientation, Text scaling, Text out) {
    need_experts(data);
    const WeightOrientation along = orientation_of(orientation);
    const Codes codes = codes_of(data, scale, scaling);
    const bool swapped = along == WeightOrientation::along_n;
    Tensor w =
        allocate(data, parse_format(out), {data.size(0), data.size(swapped ? 2 : 1), data.size(swapped ? 1 : 2)});
    octet::dequantize_weights(codes.view, along, codes.options, view_of("out", w), Call(data).on());
    return w;
}

}  // namespace octet::torch_binding
