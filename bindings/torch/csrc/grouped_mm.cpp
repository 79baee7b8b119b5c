// The expert product of a training step, as GroupedLinear (octet/linear.hpp) makes it, with memory from torch: nothing
// lives longer than a call but what is returned.
#include "octet/error.hpp"
#include "operators.hpp"

namespace octet::torch_binding {
namespace {

// b [E, K, N] as it lies in memory: w [E, N, K] (the layout of torch._grouped_mm's examples: a transposed parameter) or
// w [E, K, N]. Either serves both products, since Octet casts weights both ways.
struct Weights {
    Tensor w;
    bool k_last;
    std::int64_t experts, k, n;
};

Weights weights_of(const Tensor& b) {
    require(b.dim() == 3, "the weights have ", b.dim(), " axes, expected 3: [experts, in-features, out-features]");
    const bool k_last = b.stride(1) == 1 && !(b.stride(2) == 1 && b.size(1) == 1);
    Tensor w = k_last ? ::torch::stable::transpose(b, 1, 2) : b;
    return {with_dense_rows(w), k_last, b.size(0), b.size(1), b.size(2)};
}

enum class Product { forward, dgrad };

// Whether the product reduces over the axis that is last in memory.
bool reduces_last(const Weights& weights, Product product) { return weights.k_last == (product == Product::forward); }

bool wgrad_in_8_bits(const Recipe& recipe) { return recipe.quantizes() && recipe.wgrad == WgradPrecision::fp8; }

QuantizeOptions options_for(const Recipe& recipe, Format format) {
    return {recipe.scaling(), format, recipe.scale_rounding, recipe.mx_mode};
}

// The weights in 8 bits for the products that are asked for, from one visit.
void cast(const Weights& weights, const Recipe& recipe, const QuantizedTensors* forward,
          const QuantizedTensors* dgrad) {
    const auto& [w, k_last, experts, k, n] = weights;
    const QuantizedView forward_view = forward ? forward->view() : QuantizedView{};
    const QuantizedView dgrad_view = dgrad ? dgrad->view() : QuantizedView{};
    const Call call(w, weight_workspace_bytes(device_of(w), experts, w.size(1), w.size(2)));
    quantize_weights(view_of("the weights", w), options_for(recipe, recipe.format), k_last ? forward_view : dgrad_view,
                     k_last ? dgrad_view : forward_view, call.on());
}

QuantizedTensors cast_like(const Weights& weights, const Recipe& recipe, Product product) {
    const bool forward = product == Product::forward;
    return weights_like(weights.w, forward ? weights.n : weights.k, forward ? weights.k : weights.n,
                        options_for(recipe, recipe.format), Scales::of_products);
}

// x [M, reduction] times the weights of each group. `rows` is x in 8 bits, or null for plain products.
void multiply(const Tensor& x, const QuantizedTensors* rows, const Weights& weights, const Recipe& recipe,
              Product product, const Groups& groups, const std::optional<Tensor>& given,
              const std::optional<Tensor>& given_scale, const Tensor& out) {
    const bool forward = product == Product::forward;
    const ProductOptions options{Update::overwrite, recipe.accumulation};
    const TensorView y = view_of("the output", out);
    if (rows == nullptr) {
        const Call call(x);
        const bool gpu = x.is_cuda();  // whose products read whole tensors, along the last axis
        const Tensor tokens = gpu ? ::torch::stable::contiguous(x) : with_dense_rows(x);
        if (reduces_last(weights, product) || gpu) {
            Tensor w = weights.w;
            if (!reduces_last(weights, product)) w = ::torch::stable::transpose(w, 1, 2);
            if (gpu) w = ::torch::stable::contiguous(w);
            octet::grouped_forward(view_of("a", tokens), view_of("w", w), groups, y, options, call.on());
        } else {
            octet::grouped_dgrad(view_of("dy", tokens), view_of("w", weights.w), groups, y, options, call.on());
        }
        return;
    }
    std::optional<QuantizedTensors> made;
    if (!given.has_value()) {
        made = cast_like(weights, recipe, product);
        cast(weights, recipe, forward ? &*made : nullptr, forward ? nullptr : &*made);
    }
    const Operand w = made ? made->operand() : operand_of("the cast weights", *given, given_scale, recipe.scaling());
    const Call call(x);
    if (forward) {
        octet::grouped_forward(rows->operand(), w, groups, y, options, call.on());
    } else {
        octet::grouped_dgrad(rows->operand(), w, groups, y, options, call.on());
    }
}

// x in 8 bits along its rows, along tokens, or both from one visit.
struct Orientations {
    std::optional<QuantizedTensors> rows, columns;
    const QuantizedTensors* rows_or_null() const { return rows ? &*rows : nullptr; }
};

Orientations quantize_tokens(const Tensor& x, const Groups& groups, const QuantizeOptions& options, bool wants_rows,
                             bool wants_columns) {
    Orientations out;
    if (!wants_rows && !wants_columns) return out;
    const std::int64_t tokens = x.size(0), features = x.size(1);
    const Device device = device_of(x);
    const std::int64_t alignment = token_alignment(options.scaling, device);
    if (wants_rows) out.rows = rows_like(x, options, Scales::of_products);
    if (wants_columns)
        out.columns = columns_like(x, tokens, features, groups.count, alignment, options, Scales::of_products);
    const Call call(x, token_workspace_bytes(device, tokens, features, groups.count));
    const TensorView view = view_of("the tokens", x);
    if (wants_rows && wants_columns) {
        octet::quantize_pair(view, groups, alignment, options, out.rows->view(), out.columns->view(), call.on());
    } else if (wants_rows) {
        octet::quantize_rows(view, options, out.rows->view(), call.on());
    } else {
        octet::quantize_columns(view, groups, alignment, options, out.columns->view(), call.on());
    }
    return out;
}

// What forward leaves for the weight gradient: the tokens in 8 bits, as bytes, or nothing where A itself serves.
Two kept_of(const Tensor& like, const Orientations& tokens) {
    if (!tokens.columns) return {allocate(like, Format::f32, {0}), allocate(like, Format::f32, {0})};
    const Tensor& scale = tokens.columns->product_scale();
    return {as_bytes(tokens.columns->data), tokens.columns->scaling == Scaling::mx ? as_bytes(scale) : scale};
}

Operand operand_of_kept(const Tensor& kept, const Tensor& scale, const Recipe& recipe) {
    const TensorView data = view_of_bytes(kept, recipe.format);
    if (recipe.scaling() == Scaling::mx)
        return {ConstQuantizedView(data, view_of_bytes(scale, Format::e8m0), {}), Scaling::mx};
    return {ConstQuantizedView(data, {}, view_of("the kept scale", scale)), recipe.scaling()};
}

void check_tokens(const char* what, const Tensor& x, const char* axis, std::int64_t features, const Tensor& b,
                  const Groups& groups) {
    require(x.dim() == 2, what, " has ", x.dim(), " axes, expected 2: [tokens, features]");
    require(x.size(1) == features, what, " has ", x.size(1), " features and the weights are [", b.size(0), ", ",
            b.size(1), ", ", b.size(2), "]; expected ", features, ", their ", axis);
    require(groups.count == b.size(0), groups.count, " groups were given and the weights are of ", b.size(0),
            " experts; every group needs its expert");
    const Format format = format_of(what, x);
    require(format == Format::bf16 || format == Format::f32, what, " is ", name(format), ", expected bf16 or f32");
}

// The weight gradient [E, K, N], laid out as the weights are.
Tensor weight_gradient(const Tensor& dy, const Operand& dy_columns, const Operand& a_columns, const Weights& weights,
                       const Recipe& recipe, const Groups& groups) {
    const auto& [w, k_last, experts, k, n] = weights;
    const Shape strides = k_last ? Shape{n * k, 1, k} : Shape{k * n, n, 1};
    Tensor db = allocate_strided(w, format_of("the weights", w), {experts, k, n}, strides, Contents::unset);
    if (dy.size(0) == 0) return ::torch::stable::zero_(db);
    TensorView out = view_of("db", db);
    out.extents = k_last ? Extents{experts, n, k} : Extents{experts, k, n};
    const std::int64_t alignment = wgrad_in_8_bits(recipe) ? token_alignment(recipe.scaling(), out.device) : 1;
    const Call call(dy);
    octet::grouped_wgrad(k_last ? dy_columns : a_columns, k_last ? a_columns : dy_columns, groups, alignment, out,
                         {Update::overwrite, recipe.accumulation}, call.on());
    return db;
}

}  // namespace

Three grouped_mm(Tensor a, Tensor b, Tensor ends, Text recipe_text, Text out, bool keep, std::optional<Tensor> given,
                 std::optional<Tensor> given_scale, std::optional<Tensor>, std::optional<Tensor>) {
    const Recipe recipe = parse_recipe(recipe_text);
    const Weights weights = weights_of(b);
    const Groups groups = groups_of(ends);
    check_tokens("A", a, "in-features", weights.k, b, groups);
    const Tensor x = with_dense_rows(a);
    Orientations cast_a;
    if (recipe.quantizes())
        cast_a = quantize_tokens(x, groups, options_for(recipe, recipe.format), true, keep && wgrad_in_8_bits(recipe));
    Tensor y = allocate(a, parse_format(out), {a.size(0), weights.n}, Contents::zeroed);
    multiply(x, cast_a.rows_or_null(), weights, recipe, Product::forward, groups, given, given_scale, y);
    return std::tuple_cat(std::tuple(y), kept_of(a, cast_a));
}

std::tuple<Tensor, Tensor, Tensor, Tensor> grouped_mm_dual(Tensor a, Tensor b0, Tensor b1, Tensor ends,
                                                           Text recipe_text, Text out, bool keep) {
    const Recipe recipe = parse_recipe(recipe_text);
    const Groups groups = groups_of(ends);
    const Weights weights[] = {weights_of(b0), weights_of(b1)};
    check_tokens("A", a, "in-features", weights[0].k, b0, groups);
    check_tokens("A", a, "in-features", weights[1].k, b1, groups);
    const Tensor x = with_dense_rows(a);
    Orientations cast_a;
    if (recipe.quantizes())
        cast_a = quantize_tokens(x, groups, options_for(recipe, recipe.format), true, keep && wgrad_in_8_bits(recipe));
    Tensor y[2];
    for (const int i : {0, 1}) {
        y[i] = allocate(a, parse_format(out), {a.size(0), weights[i].n}, Contents::zeroed);
        multiply(x, cast_a.rows_or_null(), weights[i], recipe, Product::forward, groups, std::nullopt, std::nullopt,
                 y[i]);
    }
    return std::tuple_cat(std::tuple(y[0], y[1]), kept_of(a, cast_a));
}

Two grouped_mm_backward(Tensor dy, Tensor b, Tensor ends, Text recipe_text, Tensor kept,
                        std::optional<Tensor> kept_scale, bool wants_a, bool wants_b, Text a_format,
                        std::optional<Tensor> given, std::optional<Tensor> given_scale) {
    const Recipe recipe = parse_recipe(recipe_text);
    const Weights weights = weights_of(b);
    const Groups groups = groups_of(ends);
    check_tokens("the gradient", dy, "out-features", weights.n, b, groups);
    const Tensor x = with_dense_rows(dy);
    const bool columns_in_8_bits = wants_b && wgrad_in_8_bits(recipe);
    Orientations cast_dy;
    if (recipe.quantizes())
        cast_dy = quantize_tokens(x, groups, options_for(recipe, recipe.gradient_format), wants_a, columns_in_8_bits);
    Tensor da =
        allocate(dy, parse_format(a_format), wants_a ? Shape{dy.size(0), weights.k} : Shape{0}, Contents::zeroed);
    if (wants_a) multiply(x, cast_dy.rows_or_null(), weights, recipe, Product::dgrad, groups, given, given_scale, da);
    cast_dy.rows.reset();
    if (!wants_b) return {da, allocate(dy, Format::f32, {0})};
    if (columns_in_8_bits) {
        require(kept_scale.has_value(), "the weight gradient was asked for and forward kept no scale");
        const Operand a = operand_of_kept(kept, *kept_scale, recipe);
        return {da, weight_gradient(dy, cast_dy.columns->operand(), a, weights, recipe, groups)};
    }
    const Tensor plain_a = dy.is_cuda() ? ::torch::stable::contiguous(kept) : with_dense_rows(kept);
    const Tensor plain_dy = dy.is_cuda() ? ::torch::stable::contiguous(x) : x;
    return {da, weight_gradient(dy, view_of("dy", plain_dy), view_of("a", plain_a), weights, recipe, groups)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> cast_weights(Tensor b, Text recipe_text) {
    const Recipe recipe = parse_recipe(recipe_text);
    require(recipe.quantizes(), "the recipe ", recipe_text, " has no weights in 8 bits to cast");
    const Weights weights = weights_of(b);
    const QuantizedTensors forward = cast_like(weights, recipe, Product::forward);
    const QuantizedTensors dgrad = cast_like(weights, recipe, Product::dgrad);
    cast(weights, recipe, &forward, &dgrad);
    return {forward.data, forward.product_scale(), dgrad.data, dgrad.product_scale()};
}

}  // namespace octet::torch_binding
