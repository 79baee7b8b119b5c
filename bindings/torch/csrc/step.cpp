#include "step.hpp"

#include <algorithm>
#include <optional>

#include "octet/error.hpp"

namespace octet::torch_binding {

namespace {

// A view of the tensor with its last two axes exchanged: cheaper than a tensor of that shape.
TensorView exchanged(TensorView view) {
    std::swap(view.extents.shape[1], view.extents.shape[2]);
    std::swap(view.extents.strides[1], view.extents.strides[2]);
    return view;
}

bool dense_rows(const Extents& e) {
    return e.strides[2] == 1 && e.strides[1] >= e.shape[2] && e.strides[0] >= e.strides[1] * e.shape[1];
}

}  // namespace

Weights weights_of(const Tensor& b) {
    require(b.dim() == 3, "the weights have ", b.dim(), " axes, expected 3: [experts, in-features, out-features]");
    const TensorView as_given = view_of("the weights", b);
    const bool k_last = b.stride(1) == 1 && !(b.stride(2) == 1 && b.size(1) == 1);
    const TensorView view = k_last ? exchanged(as_given) : as_given;
    if (dense_rows(view.extents)) return {b, view, k_last, b.size(0), b.size(1), b.size(2)};
    const Tensor w = with_dense_rows(k_last ? ::torch::stable::transpose(b, 1, 2) : b);
    return {w, view_of("the weights", w), k_last, b.size(0), b.size(1), b.size(2)};
}

Weights weights_of_parameter(const char* what, const Tensor& w) {
    require(w.dim() == 3, what, " has ", w.dim(), " axes, expected 3: [experts, out-features, in-features]");
    const Tensor dense = with_dense_rows(w);
    return {dense, view_of(what, dense), true, w.size(0), w.size(2), w.size(1)};
}

bool wgrad_in_8_bits(const Recipe& recipe) { return recipe.quantizes() && recipe.wgrad == WgradPrecision::fp8; }

QuantizeOptions options_for(const Recipe& recipe, Format format) {
    return {recipe.quantizes() ? recipe.scaling() : Scaling::rowwise, format, recipe.scale_rounding, recipe.mx_mode};
}

namespace {

StepChoice choice_of(const Recipe& recipe, const Weights& weights, std::int64_t rows, const Tensor& x,
                     bool weights_are_cast) {
    const Format a = format_of("the tokens", x), w = weights.view.format;
    Recipe with_uses = recipe;
    if (weights_are_cast) with_uses.weight_uses = std::max<std::int64_t>(recipe.weight_uses, 1000);
    return choose_step(with_uses, {weights.experts, weights.n, weights.k}, rows,
                       a == Format::bf16 && w == Format::bf16 ? Format::bf16 : Format::f32, device_of(x));
}

}  // namespace

bool in_8_bits(const Recipe& recipe, Product product, const Weights& weights, std::int64_t rows, const Tensor& x,
               bool weights_are_cast) {
    if (!recipe.quantizes()) return false;
    const StepChoice choice = choice_of(recipe, weights, rows, x, weights_are_cast);
    return (product == Product::forward ? choice.forward : choice.dgrad) == ProductPrecision::fp8;
}

CastsBeside casts_beside(const Recipe& recipe, const Weights& weights, std::int64_t rows, const Tensor& x,
                         WeightCasts in_visits, bool weights_are_cast) {
    if (!recipe.quantizes() || !x.is_cuda()) return {};
    const StepChoice choice = choice_of(recipe, weights, rows, x, weights_are_cast);
    return octet::casts_beside(recipe, choice, {weights.experts, weights.n, weights.k}, rows, in_visits, device_of(x));
}

QuantizedShape cast_shape(const Weights& weights, const Recipe& recipe, Product product) {
    const bool forward = product == Product::forward;
    return weights_shape(options_for(recipe, recipe.format), weights.experts, forward ? weights.n : weights.k,
                         forward ? weights.k : weights.n);
}

void cast(const Weights& weights, const Recipe& recipe, const QuantizedView& forward, const QuantizedView& dgrad,
          const Execution& on) {
    quantize_weights(weights.view, options_for(recipe, recipe.format), weights.k_last ? forward : dgrad,
                     weights.k_last ? dgrad : forward, on);
}

CastPlaces::CastPlaces(bool beside, std::size_t workspace, std::size_t weight_workspace)
    : beside_(beside),
      workspace_(beside_ ? workspace : std::max(workspace, weight_workspace)),
      weight_workspace_(beside_ ? weight_workspace : 0) {}

std::size_t CastPlaces::bytes() const { return aligned(workspace_) + aligned(weight_workspace_); }

void CastPlaces::take(Call& call) {
    call.take_workspace(workspace_);
    tokens_ = call.on();
    if (!beside_) return;
    tokens_.later = &later_;
    call.take_workspace(weight_workspace_);
}

std::size_t workspace_bytes(const Weights& weights) {
    return weight_workspace_bytes(weights.view.device, weights.experts, weights.view.size(1), weights.view.size(2));
}

ProductMemory::ProductMemory(const Recipe& recipe, Format format, std::int64_t tokens, const Weights& w,
                             Product product, const Given& given)
    : rows(rows_shape(options_for(recipe, format), tokens, product == Product::forward ? w.k : w.n, w.view.device)),
      weights(cast_shape(w, recipe, product)),
      casts_weights(!given.data.has_value()) {
    rows.pitch = weights.pitch = row_pitch(rows.data[1], w.view.device);
}

Operand weights_in_8_bits(const Weights& weights, const Recipe& recipe, Product product, const ProductMemory& memory,
                          const Given& given, Call& call, const Execution& on) {
    if (!memory.casts_weights) return operand_of("the cast weights", *given.data, given.scale, recipe.scaling());
    const QuantizedView made = take(call, memory.weights, weights.view.device);
    const bool forward = product == Product::forward;
    cast(weights, recipe, forward ? made : QuantizedView{}, forward ? QuantizedView{} : made, on);
    return {made, recipe.scaling()};
}

void multiply(const Operand& rows, const Operand& weights, const Recipe& recipe, Product product, const Groups& groups,
              const Tensor& out, const Call& call, Update update) {
    const auto product_of = product == Product::forward ? octet::grouped_forward : octet::grouped_dgrad;
    product_of(rows, weights, groups, view_of("the output", out), {update, recipe.accumulation}, call.on());
}

namespace {

Weights contiguous(const Weights& weights) {
    const Tensor& memory = weights.memory;
    const TensorView& view = weights.view;
    const bool as_given = memory.size(1) == view.size(1) && memory.size(2) == view.size(2) &&
                          memory.stride(1) == view.stride(1) && memory.stride(2) == view.stride(2);
    const Tensor w = ::torch::stable::contiguous(as_given ? memory : ::torch::stable::transpose(memory, 1, 2));
    return {w, view_of("the weights", w), weights.k_last, weights.experts, weights.k, weights.n};
}

}  // namespace

void multiply_plain(const Tensor& x, const Weights& weights, const Recipe& recipe, Product product,
                    const Groups& groups, const Tensor& out, const Call& call) {
    const ProductOptions options{Update::overwrite, recipe.accumulation};
    const TensorView y = view_of("the output", out);
    const bool gpu = x.is_cuda();  // whose fast products read whole tensors
    const Tensor tokens = gpu ? ::torch::stable::contiguous(x) : x;
    const Weights w = gpu && !weights.view.extents.contiguous() ? contiguous(weights) : weights;
    // Whether the product reduces over the axis that is last in memory.
    const bool reduces_last = weights.k_last == (product == Product::forward);
    const auto product_of = reduces_last ? octet::grouped_forward : octet::grouped_dgrad;
    product_of(view_of("the tokens", tokens), w.view, groups, y, options, call.on());
}

void quantize_tokens(const Tensor& x, const Groups& groups, const QuantizeOptions& options, const QuantizedView& rows,
                     const QuantizedView& columns, const Execution& on) {
    const TensorView view = view_of("the tokens", x);
    const std::int64_t alignment = token_alignment(options.scaling, view.device);
    if (columns.data.null()) {
        octet::quantize_rows(view, options, rows, on);
    } else if (rows.data.null()) {
        octet::quantize_columns(view, groups, alignment, options, columns, on);
    } else {
        octet::quantize_pair(view, groups, alignment, options, rows, columns, on);
    }
}

CastTokens::CastTokens(const Tensor& like)
    : data(allocate(like, Format::f32, {0})), scale(allocate(like, Format::f32, {0})) {}

CastTokens::CastTokens(const Tensor& like, const QuantizedShape& shape)
    : data(allocate_bytes(like, shape.data, shape.data_strides(), Contents::zeroed)),
      scale(shape.options.scaling == Scaling::mx
                ? allocate_bytes(like, shape.scale, shape.scale_strides, Contents::zeroed)
                : allocate_strided(like, Format::f32, shape.scale, shape.scale_strides, Contents::zeroed)),
      view(view_at(shape, address_of(data), address_of(scale), device_of(like))) {}

CastTokens cast_columns(const Tensor& like, std::int64_t rows, std::int64_t features, const QuantizeOptions& options,
                        const Groups& groups, bool wanted) {
    if (!wanted) return CastTokens(like);
    const Device device = device_of(like);
    const std::int64_t alignment = token_alignment(options.scaling, device);
    return {like, columns_shape(options, rows, features, groups.count, alignment, device)};
}

Operand operand_of_cast(const Tensor& data, const std::optional<Tensor>& scale, Scaling scaling, Format format) {
    require(scale.has_value(), "tokens that were cast before were given without their scale");
    const TensorView elements = view_of_bytes(data, format);
    if (scaling == Scaling::mx)
        return {ConstQuantizedView(elements, view_of_bytes(*scale, Format::e8m0), {}), Scaling::mx};
    return {ConstQuantizedView(elements, {}, view_of("the scale of cast tokens", *scale)), scaling};
}

Tensor weight_gradient(std::int64_t tokens, const Operand& dy, const Operand& a, const Weights& weights,
                       const Recipe& recipe, const Groups& groups, const Call& call) {
    const auto& [w, view, k_last, experts, k, n] = weights;
    const Shape strides = k_last ? Shape{n * k, 1, k} : Shape{k * n, n, 1};
    Tensor db = allocate_strided(w, view.format, {experts, k, n}, strides, Contents::unset);
    if (tokens == 0) return ::torch::stable::zero_(db);
    TensorView out = view_of("db", db);
    out.extents = k_last ? Extents{experts, n, k} : Extents{experts, k, n};
    const std::int64_t alignment = wgrad_in_8_bits(recipe) ? token_alignment(recipe.scaling(), out.device) : 1;
    Execution on = call.on();
    std::optional<Tensor> tickets;
    if (out.device.kind != DeviceKind::cpu && groups.count > 1) {
        tickets = allocate_bytes(w, sizeof(std::uint32_t));
        on.tickets = ::torch::stable::zero_(*tickets).data_ptr();
    }
    octet::grouped_wgrad(k_last ? dy : a, k_last ? a : dy, groups, alignment, out,
                         {Update::overwrite, recipe.accumulation}, on);
    return db;
}

}  // namespace octet::torch_binding
