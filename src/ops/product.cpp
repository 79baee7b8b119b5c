// The public products: every argument is checked here, once, and forward and dgrad become one form, before the backend
// is called; a backend may trust its arguments.
#include "octet/product.hpp"

#include <string>

#include "cpu/product.hpp"
#include "ops/check.hpp"
#include "ops/op_table.hpp"
#include "reference/product.hpp"
#if OCTET_HAVE_CUDA
#include "cuda/products.hpp"
#endif

namespace octet {
namespace {

using check::any_size;

struct ProductTable {
    decltype(&reference::grouped_rows) grouped_rows;
    decltype(&reference::grouped_wgrad) grouped_wgrad;
};

ProductTable product_table(const Execution& on, Device device) {
    const bool automatic = on.backend == Backend::automatic;
    if (on.backend == Backend::reference) {
        op_table(on, device);  // says where the backend cannot reach the device
        return {reference::grouped_rows, reference::grouped_wgrad};
    }
    if (on.backend == Backend::cpu || (automatic && device.kind == DeviceKind::cpu)) {
        op_table(on, device);
        return {cpu::grouped_rows, cpu::grouped_wgrad};
    }
#if OCTET_HAVE_CUDA
    if (on.backend == Backend::cuda || (automatic && device.kind == DeviceKind::cuda)) {
        op_table(on, device);
        return {cuda::grouped_rows, cuda::grouped_wgrad};
    }
#endif
    fail(Status::unsupported, "this build of Octet has no grouped products for ", to_string(device));
}

// `scales` is the shape of the scale that products read: inverse, or scale for mx.
void check_scales(const std::string& what, const Operand& operand, Device device,
                  std::initializer_list<std::int64_t> shape) {
    const bool mx = operand.scaling == Scaling::mx;
    const ConstTensorView& scales = mx ? operand.values.scale : operand.values.inverse;
    const std::string name = what + (mx ? " scale" : " inverse scale");
    require(!scales.null() || operand.data().extents.elements() == 0, name, " is null; ", octet::name(operand.scaling),
            " products read it, so ask the quantizer for it");
    if (scales.null()) return;
    check::strided(name, scales, {mx ? Format::e8m0 : Format::f32}, shape);
    check::same_device("the operands", device, name, scales.device);
}

void check_data(const char* what, const Operand& operand, Device device, std::initializer_list<std::int64_t> shape) {
    check::dense(what, operand.data(), {Format::f32, Format::bf16, Format::e4m3, Format::e4m3fnuz, Format::e5m2},
                 shape);
    check::same_device("the operands", device, what, operand.data().device);
    require(operand.quantized() || (operand.values.scale.null() && operand.values.inverse.null()), what, " is ",
            name(operand.data().format), ", which has no scales, and scales were given with it");
    const bool known =
        operand.scaling == Scaling::rowwise || operand.scaling == Scaling::blockwise || operand.scaling == Scaling::mx;
    require(known, what, " has scaling ", static_cast<int>(operand.scaling), ", expected rowwise, blockwise or mx");
}

void check_scaling(const char* left, const Operand& x, const char* right, const Operand& y) {
    require(!x.quantized() || !y.quantized() || x.scaling == y.scaling, left, " is quantized ", name(x.scaling),
            " and ", right, " ", name(y.scaling), "; quantize both with one scaling");
}

void check_output(const char* what, const TensorView& out, const ProductOptions& options, Device device,
                  std::initializer_list<std::int64_t> shape) {
    check::dense(what, out, {Format::bf16, Format::f32}, shape);
    check::same_device("the operands", device, what, out.device);
    require(options.update == Update::overwrite || options.update == Update::add, "update is ",
            static_cast<int>(options.update), ", expected overwrite or add");
}

void check_disjoint(const char* left, const Operand& x, const char* right, const Operand& y, const Groups& groups,
                    const char* output, const TensorView& out) {
    check::disjoint({{left, x.data()},
                     {right, y.data()},
                     {"its scales", x.values.inverse},
                     {"its scales", x.values.scale},
                     {"its scales", y.values.inverse},
                     {"its scales", y.values.scale},
                     check::offsets(groups)},
                    {{output, out}});
}

// y[M,R] = x[M,C] . w[E,R,C]^T with the names of the caller's operands. `w` has been checked but for its scales.
void run_rows(const char* left, const Operand& x, const Operand& w, const Groups& groups, const char* output,
              const TensorView& y, const ProductOptions& options, const Execution& on) {
    const Device device = x.data().device;
    const std::int64_t experts = w.data().size(0), rows = w.data().size(1), reduction = w.data().size(2);
    if (x.data().rank() != 2 || x.data().size(1) != reduction)
        fail(Status::invalid_argument, left, " has shape ", to_string(x.data().extents), " and w reduces over ",
             reduction, " features; expected [tokens, ", reduction, "]");
    check_data(left, x, device, {any_size, reduction});
    check_scaling(left, x, "w", w);
    const std::int64_t tokens = x.data().size(0);
    if (x.quantized()) {
        const std::int64_t block = block_of(x.scaling);
        if (block == 0) check_scales(left, x, device, {tokens});
        if (block != 0) check_scales(left, x, device, {tokens, ceil_div(reduction, block)});
    }
    if (w.quantized()) {
        const std::int64_t block = block_of(w.scaling);
        if (block == 0) {
            check_scales("w", w, device, {experts, rows});
        } else if (w.scaling == Scaling::blockwise) {
            check_scales("w", w, device, {experts, ceil_div(rows, block), ceil_div(reduction, block)});
        } else {
            check_scales("w", w, device, {experts, rows, ceil_div(reduction, block)});
        }
    }
    require(groups.count == experts, groups.count, " groups were given and w has ", experts,
            " experts; every group needs its expert");
    check::groups(groups, tokens, device);
    check_output(output, y, options, device, {tokens, rows});
    check_disjoint(left, x, "w", w, groups, output, y);
    product_table(on, device).grouped_rows(x, w, groups, y, options, on);
}

void check_weights(const char* left, const Operand& x, const Operand& w) {
    check_data("w", w, x.data().device, {any_size, any_size, any_size});
    check::not_empty("w", w.data(), {0, 1, 2});
    if (x.data().rank() != 2)
        fail(Status::invalid_argument, left, " has shape ", to_string(x.data().extents),
             ", expected [tokens, features]");
}

// [E, N, K] as [E, K, N], where the elements are.
ConstTensorView swap_features(ConstTensorView w) {
    std::swap(w.extents.shape[1], w.extents.shape[2]);
    std::swap(w.extents.strides[1], w.extents.strides[2]);
    return w;
}

// The scales of a wgrad operand of `features` rows and P padded columns. `used` is how far the groups reach, known
// where the offsets are.
void check_columns(const char* what, const Operand& x, const Groups& groups, std::int64_t used) {
    const std::int64_t features = x.data().size(0), columns = x.data().size(1), block = block_of(x.scaling);
    require(columns >= used, what, " has ", columns,
            " token columns and the groups, each padded to the alignment, take ", used);
    require(block == 0 || columns % block == 0, what, " has ", columns, " token columns, expected a multiple of ",
            block, ", the block of the scaling");
    if (block == 0) {
        check_scales(what, x, x.data().device, {groups.count, features});
    } else {
        check_scales(what, x, x.data().device, {features, columns / block});
    }
}

}  // namespace

std::size_t product_workspace_bytes([[maybe_unused]] const Operand& tokens, [[maybe_unused]] const Operand& weights) {
#if OCTET_HAVE_CUDA
    if (tokens.data().device.kind == DeviceKind::cuda) return cuda::product_workspace_bytes(tokens, weights);
#endif
    return 0;
}

std::size_t wgrad_workspace_bytes([[maybe_unused]] const Operand& dy, [[maybe_unused]] const Operand& a) {
#if OCTET_HAVE_CUDA
    if (dy.data().device.kind == DeviceKind::cuda) return cuda::wgrad_workspace_bytes(dy, a);
#endif
    return 0;
}

void grouped_forward(const Operand& a, const Operand& w, Groups groups, TensorView y, const ProductOptions& options,
                     const Execution& on) {
    check_weights("a", a, w);
    run_rows("a", a, w, groups, "y", y, options, on);
}

void grouped_dgrad(const Operand& dy, const Operand& w, Groups groups, TensorView da, const ProductOptions& options,
                   const Execution& on) {
    check_weights("dy", dy, w);
    run_rows("dy", dy, w.quantized() ? w : Operand(swap_features(w.data())), groups, "da", da, options, on);
}

void grouped_wgrad(const Operand& dy, const Operand& a, Groups groups, std::int64_t alignment, TensorView dw,
                   const ProductOptions& options, const Execution& on) {
    const Device device = dy.data().device;
    check_data("dy", dy, device, {any_size, any_size});
    check_data("a", a, device, {any_size, any_size});
    require(dy.quantized() == a.quantized(), "dy is ", name(dy.data().format), " and a is ", name(a.data().format),
            "; a weight gradient takes both quantized along tokens, or both plain");
    check_scaling("dy", dy, "a", a);
    const int feature_axis = dy.quantized() ? 0 : 1;
    check::not_empty("dy", dy.data(), {feature_axis});
    check::not_empty("a", a.data(), {feature_axis});
    check_output("dw", dw, options, device, {groups.count, dy.data().size(feature_axis), a.data().size(feature_axis)});
    require(options.update == Update::overwrite || dw.format == Format::f32, "dw is ", name(dw.format),
            ", and gradients that are summed over many steps would be rounded at each; expected f32");
    if (dy.quantized()) {
        check::groups(groups, dy.data().size(1), device);
        for (const auto& [what, x] : {std::pair<const char*, const Operand*>{"dy", &dy}, {"a", &a}}) {
            require(x->alignment >= 0, what, " has an alignment of ", x->alignment, ", expected 0 or more");
            const std::int64_t aligned_to = x->aligned_to(alignment);
            check::padded_tokens(0, groups.count, aligned_to, block_of(x->scaling));
            std::int64_t used = 0, begin = 0;
            for (std::int64_t g = 0; g < groups.count && device.kind == DeviceKind::cpu; ++g) {
                used += round_up(groups.ends[g] - begin, aligned_to);
                begin = groups.ends[g];
            }
            check_columns(what, *x, groups, used);
        }
    } else {
        const std::int64_t tokens = dy.data().size(0);
        require(a.data().size(0) == tokens, "dy has ", tokens, " tokens and a has ", a.data().size(0),
                "; they are the two sides of the same tokens");
        check::groups(groups, tokens, device);
    }
    check_disjoint("dy", dy, "a", a, groups, "dw", dw);
    product_table(on, device).grouped_wgrad(dy, a, groups, alignment, dw, options, on);
}

}  // namespace octet
