// The public quantizers: every argument is checked here, once, before the backend is called; a backend may trust them.
#include "octet/quantize.hpp"

#include "ops/check.hpp"
#include "ops/op_table.hpp"
#include "ops/quantize_check.hpp"
#include "ops/tuned.hpp"
#if OCTET_HAVE_CUDA
#include "cuda/launch/quantize.hpp"
#endif

namespace octet {
namespace {

using check::any_size;
using check::Named;

void check_input(std::string_view what, const ConstTensorView& x) {
    check::dense(what, x, {Format::f32, Format::bf16}, {any_size, any_size});
}

void check_weights(const char* what, Device device, std::int64_t experts, std::int64_t rows, std::int64_t columns,
                   const QuantizeOptions& options, const ConstQuantizedView& q) {
    const std::int64_t block = block_of(options.scaling);
    switch (options.scaling) {
        case Scaling::rowwise:
            check::quantized(what, q, options, device, {experts, rows, columns}, {experts, rows});
            break;
        case Scaling::blockwise:
            check::quantized(what, q, options, device, {experts, rows, columns},
                             {experts, ceil_div(rows, block), ceil_div(columns, block)});
            break;
        case Scaling::mx:
            check::quantized(what, q, options, device, {experts, rows, columns},
                             {experts, rows, ceil_div(columns, block)});
            break;
    }
}

std::vector<Named> parts(const ConstQuantizedView& q) {
    return {{"the data", q.data}, {"the scale", q.scale}, {"the inverse scale", q.inverse}};
}

std::vector<Named> parts(const ConstQuantizedView& q, const Groups& groups) {
    std::vector<Named> named = parts(q);
    named.push_back(check::offsets(groups));
    return named;
}

std::vector<Named> parts(const ConstQuantizedView& first, const ConstQuantizedView& second) {
    return {{"the first data", first.data},
            {"the first scale", first.scale},
            {"the first inverse scale", first.inverse},
            {"the second data", second.data},
            {"the second scale", second.scale},
            {"the second inverse scale", second.inverse}};
}

}  // namespace

std::size_t token_workspace_bytes([[maybe_unused]] Device device, [[maybe_unused]] std::int64_t tokens,
                                  [[maybe_unused]] std::int64_t features, [[maybe_unused]] std::int64_t groups) {
#if OCTET_HAVE_CUDA
    if (device.kind == DeviceKind::cuda) return cuda::token_workspace_bytes(tokens, features, groups);
#endif
    return 0;
}

std::size_t weight_workspace_bytes([[maybe_unused]] Device device, [[maybe_unused]] std::int64_t experts,
                                   [[maybe_unused]] std::int64_t n, [[maybe_unused]] std::int64_t k) {
#if OCTET_HAVE_CUDA
    if (device.kind == DeviceKind::cuda) return cuda::weight_workspace_bytes(experts, n, k);
#endif
    return 0;
}

bool keeps_maxima([[maybe_unused]] ConstTensorView w, [[maybe_unused]] const QuantizeOptions& options) {
#if OCTET_HAVE_CUDA
    if (w.device.kind == DeviceKind::cuda) return w.rank() == 3 && cuda::keeps_maxima(w, options);
#endif
    return false;
}

void quantize_rows(ConstTensorView x, const QuantizeOptions& options, QuantizedView out, const Execution& on) {
    check::options(options);
    check_input("x", x);
    check::not_empty("x", x, {1});
    check::quantized_rows("out", x, options, out);
    check::disjoint({{"x", x}}, parts(out));
    op_table(on, x.device)
        .quantize_rows(x, options, out, tuned(on, x.device, "rows", options.scaling, x.size(0), x.size(1), 1));
}

void quantize_columns(ConstTensorView x, Groups groups, std::int64_t alignment, const QuantizeOptions& options,
                      QuantizedView out, const Execution& on) {
    check::options(options);
    check_input("x", x);
    check::not_empty("x", x, {1});
    check::groups(groups, x.size(0), x.device);
    check::quantized_tokens("out", x.device, x.size(1), x.size(0), groups, alignment, options, out);
    check::disjoint({{"x", x}, check::offsets(groups)}, parts(out));
    op_table(on, x.device)
        .quantize_columns(x, groups, alignment, options, out,
                          tuned(on, x.device, "columns", options.scaling, x.size(0), x.size(1), groups.count));
}

void quantize_columns_dual(ConstTensorView x0, ConstTensorView x1, Groups groups, std::int64_t alignment,
                           const QuantizeOptions& options, QuantizedView out0, QuantizedView out1,
                           const Execution& on) {
    check::options(options);
    check_input("x0", x0);
    check_input("x1", x1);
    check::not_empty("x0", x0, {1});
    check::not_empty("x1", x1, {1});
    require(x0.size(0) == x1.size(0), "x0 has ", x0.size(0), " rows and x1 ", x1.size(0),
            "; the dual form is for tensors that share rows and groups");
    require(x0.format == x1.format, "x0 has format ", name(x0.format), " and x1 ", name(x1.format),
            "; the dual form is for tensors of one format");
    check::same_device("x0", x0.device, "x1", x1.device);
    check::groups(groups, x0.size(0), x0.device);
    check::quantized_tokens("out0", x0.device, x0.size(1), x0.size(0), groups, alignment, options, out0);
    check::quantized_tokens("out1", x1.device, x1.size(1), x1.size(0), groups, alignment, options, out1);
    check::disjoint({{"x0", x0}, {"x1", x1}, check::offsets(groups)}, parts(out0, out1));
    op_table(on, x0.device)
        .quantize_columns_dual(
            x0, x1, groups, alignment, options, out0, out1,
            tuned(on, x0.device, "columns_dual", options.scaling, x0.size(0), x0.size(1) + x1.size(1), groups.count));
}

void quantize_pair(ConstTensorView x, Groups groups, std::int64_t alignment, const QuantizeOptions& options,
                   QuantizedView rows, QuantizedView columns, const Execution& on) {
    check::options(options);
    check_input("x", x);
    check::not_empty("x", x, {1});
    check::groups(groups, x.size(0), x.device);
    check::quantized_rows("rows", x, options, rows);
    check::quantized_tokens("columns", x.device, x.size(1), x.size(0), groups, alignment, options, columns);
    check::disjoint({{"x", x}, check::offsets(groups)}, parts(rows, columns));
    op_table(on, x.device)
        .quantize_pair(x, groups, alignment, options, rows, columns,
                       tuned(on, x.device, "pair", options.scaling, x.size(0), x.size(1), groups.count));
}

void quantize_transposed(ConstTensorView x, Groups groups, std::int64_t alignment, const QuantizeOptions& options,
                         QuantizedView out, const Execution& on) {
    check::options(options);
    check_input("x", x);
    check::not_empty("x", x, {0});
    check::groups(groups, x.size(1), x.device);
    check::quantized_tokens("out", x.device, x.size(0), x.size(1), groups, alignment, options, out);
    check::disjoint({{"x", x}, check::offsets(groups)}, parts(out));
    op_table(on, x.device).quantize_transposed(x, groups, alignment, options, out, on);
}

void quantize_weights(ConstTensorView w, const QuantizeOptions& options, QuantizedView along_k, QuantizedView along_n,
                      const Execution& on) {
    check::options(options);
    check::dense("w", w, {Format::f32, Format::bf16}, {any_size, any_size, any_size});
    check::not_empty("w", w, {0, 1, 2});
    require(!along_k.data.null() || !along_n.data.null(),
            "neither orientation has a data pointer; ask for along_k, along_n or both");
    require(on.visit == WeightVisit::only || (on.visit == WeightVisit::first ? along_n : along_k).data.null(),
            on.visit == WeightVisit::first ? "the first of two visits was asked for along_n"
                                           : "the second of two visits was asked for along_k",
            "; the first makes along_k alone, the second along_n");
    const std::int64_t experts = w.size(0), n = w.size(1), k = w.size(2);
    if (!along_k.data.null()) check_weights("along_k", w.device, experts, n, k, options, along_k);
    if (!along_n.data.null()) check_weights("along_n", w.device, experts, k, n, options, along_n);
    check::disjoint({{"w", w}}, parts(along_k.data.null() ? QuantizedView{} : along_k,
                                      along_n.data.null() ? QuantizedView{} : along_n));
    op_table(on, w.device)
        .quantize_weights(w, options, along_k, along_n,
                          tuned(on, w.device,
                                along_n.data.null()   ? "weights_along_k"
                                : along_k.data.null() ? "weights_along_n"
                                                      : "weights_both",
                                options.scaling, n, k, experts));
}

void dequantize_rows(ConstQuantizedView q, const QuantizeOptions& options, TensorView x, const Execution& on) {
    check::options(options);
    check_input("x", x);
    check::not_empty("x", x, {1});
    check::quantized_rows("q", x, options, q);
    check::disjoint(parts(q), {{"x", x}});
    op_table(on, x.device).dequantize_rows(q, options, x, on);
}

void dequantize_columns(ConstQuantizedView q, Groups groups, std::int64_t alignment, const QuantizeOptions& options,
                        TensorView x, const Execution& on) {
    check::options(options);
    check_input("x", x);
    check::not_empty("x", x, {1});
    check::groups(groups, x.size(0), x.device);
    check::quantized_tokens("q", x.device, x.size(1), x.size(0), groups, alignment, options, q);
    check::disjoint(parts(q, groups), {{"x", x}});
    op_table(on, x.device).dequantize_columns(q, groups, alignment, options, x, on);
}

void dequantize_transposed(ConstQuantizedView q, Groups groups, std::int64_t alignment, const QuantizeOptions& options,
                           TensorView x, const Execution& on) {
    check::options(options);
    check_input("x", x);
    check::not_empty("x", x, {0});
    check::groups(groups, x.size(1), x.device);
    check::quantized_tokens("q", x.device, x.size(0), x.size(1), groups, alignment, options, q);
    check::disjoint(parts(q, groups), {{"x", x}});
    op_table(on, x.device).dequantize_transposed(q, groups, alignment, options, x, on);
}

void dequantize_weights(ConstQuantizedView q, WeightOrientation orientation, const QuantizeOptions& options,
                        TensorView w, const Execution& on) {
    check::options(options);
    check::dense("w", w, {Format::f32, Format::bf16}, {any_size, any_size, any_size});
    check::not_empty("w", w, {0, 1, 2});
    const bool along_n = orientation == WeightOrientation::along_n;
    require(along_n || orientation == WeightOrientation::along_k, "the orientation is ", static_cast<int>(orientation),
            ", expected along_k or along_n");
    check_weights("q", w.device, w.size(0), w.size(along_n ? 2 : 1), w.size(along_n ? 1 : 2), options, q);
    check::disjoint(parts(q), {{"w", w}});
    op_table(on, w.device).dequantize_weights(q, orientation, options, w, on);
}

}  // namespace octet
