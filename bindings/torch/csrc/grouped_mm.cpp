// The expert product of a training step, as GroupedLinear (octet/linear.hpp) makes it, with memory from torch: nothing
// lives longer than a call but what is returned, and what does not is taken in one piece.
#include <algorithm>

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

// What the step's products run in, as GroupedLinear would choose. Weights that come cast cost nothing to cast.
StepChoice choice_of(Recipe recipe, const Weights& weights, const Tensor& x, bool weights_are_cast) {
    const Format a = format_of("the tokens", x), w = format_of("the weights", weights.w);
    if (weights_are_cast) recipe.weight_uses = std::max<std::int64_t>(recipe.weight_uses, 1000);
    return choose_step(recipe, {weights.experts, weights.n, weights.k}, x.size(0),
                       a == Format::bf16 && w == Format::bf16 ? Format::bf16 : Format::f32, device_of(x));
}

QuantizeOptions options_for(const Recipe& recipe, Format format) {
    return {recipe.scaling(), format, recipe.scale_rounding, recipe.mx_mode};
}

std::size_t workspace_bytes(const Weights& weights) {
    return weight_workspace_bytes(device_of(weights.w), weights.experts, weights.w.size(1), weights.w.size(2));
}

QuantizedShape cast_shape(const Weights& weights, const Recipe& recipe, Product product) {
    const bool forward = product == Product::forward;
    return weights_shape(options_for(recipe, recipe.format), weights.experts, forward ? weights.n : weights.k,
                         forward ? weights.k : weights.n);
}

// The weights in 8 bits for the products that are asked for (not null), from one visit.
void cast(const Weights& weights, const Recipe& recipe, const QuantizedView& forward, const QuantizedView& dgrad,
          const Execution& on) {
    quantize_weights(view_of("the weights", weights.w), options_for(recipe, recipe.format),
                     weights.k_last ? forward : dgrad, weights.k_last ? dgrad : forward, on);
}

// Weights that were cast before, or none.
struct Given {
    const std::optional<Tensor>&data, &scale;
};

// What a product in 8 bits needs besides its output: x along its rows, and the weights where they were not given.
struct ProductMemory {
    QuantizedShape rows, weights;
    bool casts_weights;

    ProductMemory(const Recipe& recipe, Format format, std::int64_t tokens, const Weights& w, Product product,
                  const Given& given)
        : rows(rows_shape(options_for(recipe, format), tokens, product == Product::forward ? w.k : w.n)),
          weights(cast_shape(w, recipe, product)),
          casts_weights(!given.data.has_value()) {}
    std::size_t bytes() const { return bytes_of(rows) + weight_bytes(); }
    std::size_t weight_bytes() const { return casts_weights ? bytes_of(weights) : 0; }
};

// rows [M, reduction], in 8 bits, times the weights of each group.
void multiply(const QuantizedView& rows, const Weights& weights, const Recipe& recipe, Product product,
              const Groups& groups, const ProductMemory& memory, const Given& given, const Tensor& out, Call& call) {
    const bool forward = product == Product::forward;
    const Operand x(rows, recipe.scaling());
    Operand w = x;
    if (memory.casts_weights) {
        const QuantizedView made = take(call, memory.weights, device_of(weights.w));
        cast(weights, recipe, forward ? made : QuantizedView{}, forward ? QuantizedView{} : made, call.on());
        w = Operand(made, recipe.scaling());
    } else {
        w = operand_of("the cast weights", *given.data, given.scale, recipe.scaling());
    }
    const auto product_of = forward ? octet::grouped_forward : octet::grouped_dgrad;
    product_of(x, w, groups, view_of("the output", out), {Update::overwrite, recipe.accumulation}, call.on());
}

// x [M, reduction] times the weights of each group, neither of them cast.
void multiply_plain(const Tensor& x, const Weights& weights, const Recipe& recipe, Product product,
                    const Groups& groups, const Tensor& out, const Call& call) {
    const ProductOptions options{Update::overwrite, recipe.accumulation};
    const TensorView y = view_of("the output", out);
    const bool gpu = x.is_cuda();  // whose fast products read whole tensors
    const Tensor tokens = gpu ? ::torch::stable::contiguous(x) : x;
    const Tensor w = gpu ? ::torch::stable::contiguous(weights.w) : weights.w;
    const auto product_of = reduces_last(weights, product) ? octet::grouped_forward : octet::grouped_dgrad;
    product_of(view_of("the tokens", tokens), view_of("w", w), groups, y, options, call.on());
}

// x in 8 bits along its rows, along tokens, or both from one visit: whichever is not null.
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

QuantizedShape token_columns_shape(const Tensor& x, const QuantizeOptions& options, const Groups& groups) {
    return columns_shape(options, x.size(0), x.size(1), groups.count, token_alignment(options.scaling, device_of(x)));
}

// What forward leaves for the weight gradient: the tokens in 8 bits, as bytes, or nothing where A itself serves.
struct Kept {
    Tensor data, scale;
    QuantizedView view{};

    Kept(const Tensor& a, const Recipe& recipe, const Groups& groups, bool wanted)
        : data(nothing(a, wanted)), scale(nothing(a, wanted)) {
        if (!wanted) return;
        const QuantizedShape shape = token_columns_shape(a, options_for(recipe, recipe.format), groups);
        const bool mx = recipe.scaling() == Scaling::mx;
        data = allocate_bytes(a, shape.data, Contents::zeroed);
        scale = mx ? allocate_bytes(a, shape.scale, Contents::zeroed)
                   : allocate(a, Format::f32, shape.scale, Contents::zeroed);
        view =
            view_at(shape, view_of_bytes(data, recipe.format).data,
                    mx ? view_of_bytes(scale, Format::e8m0).data : view_of("the kept scale", scale).data, device_of(a));
    }

private:
    static Tensor nothing(const Tensor& a, bool wanted) { return wanted ? a : allocate(a, Format::f32, {0}); }
};

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
Tensor weight_gradient(std::int64_t tokens, const Operand& dy, const Operand& a, const Weights& weights,
                       const Recipe& recipe, const Groups& groups, const Call& call) {
    const auto& [w, k_last, experts, k, n] = weights;
    const Shape strides = k_last ? Shape{n * k, 1, k} : Shape{k * n, n, 1};
    Tensor db = allocate_strided(w, format_of("the weights", w), {experts, k, n}, strides, Contents::unset);
    if (tokens == 0) return ::torch::stable::zero_(db);
    TensorView out = view_of("db", db);
    out.extents = k_last ? Extents{experts, n, k} : Extents{experts, k, n};
    const std::int64_t alignment = wgrad_in_8_bits(recipe) ? token_alignment(recipe.scaling(), out.device) : 1;
    octet::grouped_wgrad(k_last ? dy : a, k_last ? a : dy, groups, alignment, out,
                         {Update::overwrite, recipe.accumulation}, call.on());
    return db;
}

// y = a . b for one or two weights, a cast once.
struct ForwardResult {
    std::vector<Tensor> y;
    Kept kept;
};

ForwardResult forward(const Tensor& a, const std::vector<const Tensor*>& bs, const Tensor& ends, const Text& text,
                      const Text& out, bool keep, const Given& given) {
    const Recipe recipe = parse_recipe(text);
    const Groups groups = groups_of(ends);
    std::vector<Weights> weights;
    for (const Tensor* b : bs) {
        weights.push_back(weights_of(*b));
        check_tokens("A", a, "in-features", weights.back().k, *b, groups);
    }
    const Tensor x = with_dense_rows(a);
    const Device device = device_of(a);
    ForwardResult result{{}, Kept(a, recipe, groups, keep && wgrad_in_8_bits(recipe))};
    for (const Weights& w : weights)
        result.y.push_back(allocate(a, parse_format(out), {a.size(0), w.n}, Contents::zeroed));
    if (!recipe.quantizes()) {
        const Call call(a);
        for (std::size_t i = 0; i < weights.size(); ++i)
            multiply_plain(x, weights[i], recipe, Product::forward, groups, result.y[i], call);
        return result;
    }
    std::vector<ProductMemory> memory;
    std::vector<bool> in_8_bits;
    std::size_t workspace = token_workspace_bytes(device, a.size(0), a.size(1), groups.count), bytes = 0;
    for (const Weights& w : weights) {
        in_8_bits.push_back(choice_of(recipe, w, a, given.data.has_value()).forward == ProductPrecision::fp8);
        memory.emplace_back(recipe, recipe.format, a.size(0), w, Product::forward, given);
        if (!in_8_bits.back()) continue;
        workspace = std::max(workspace, workspace_bytes(w));
        bytes += memory.back().weight_bytes();
    }
    const bool casts_rows = std::find(in_8_bits.begin(), in_8_bits.end(), true) != in_8_bits.end();
    Call call(a, aligned(workspace) + (casts_rows ? bytes_of(memory[0].rows) : 0) + bytes);
    call.take_workspace(workspace);
    const QuantizedView rows = casts_rows ? take(call, memory[0].rows, device) : QuantizedView{};
    if (casts_rows || !result.kept.view.data.null())
        quantize_tokens(x, groups, options_for(recipe, recipe.format), rows, result.kept.view, call.on());
    for (std::size_t i = 0; i < weights.size(); ++i) {
        if (in_8_bits[i]) {
            multiply(rows, weights[i], recipe, Product::forward, groups, memory[i], given, result.y[i], call);
        } else {
            multiply_plain(x, weights[i], recipe, Product::forward, groups, result.y[i], call);
        }
    }
    return result;
}

}  // namespace

Three grouped_mm(Tensor a, Tensor b, Tensor ends, Text recipe, Text out, bool keep, std::optional<Tensor> given,
                 std::optional<Tensor> given_scale, std::optional<Tensor>, std::optional<Tensor>) {
    const ForwardResult result = forward(a, {&b}, ends, recipe, out, keep, {given, given_scale});
    return {result.y[0], result.kept.data, result.kept.scale};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> grouped_mm_dual(Tensor a, Tensor b0, Tensor b1, Tensor ends, Text recipe,
                                                           Text out, bool keep) {
    const std::optional<Tensor> none;
    const ForwardResult result = forward(a, {&b0, &b1}, ends, recipe, out, keep, {none, none});
    return {result.y[0], result.y[1], result.kept.data, result.kept.scale};
}

Two grouped_mm_backward(Tensor dy, Tensor b, Tensor ends, Text recipe_text, Tensor kept,
                        std::optional<Tensor> kept_scale, bool wants_a, bool wants_b, Text a_format,
                        std::optional<Tensor> given_data, std::optional<Tensor> given_scale) {
    const Recipe recipe = parse_recipe(recipe_text);
    const Weights weights = weights_of(b);
    const Groups groups = groups_of(ends);
    check_tokens("the gradient", dy, "out-features", weights.n, b, groups);
    const Tensor x = with_dense_rows(dy);
    const std::int64_t tokens = dy.size(0);
    const Shape da_shape = wants_a ? Shape{tokens, weights.k} : Shape{0};
    Tensor da = allocate(dy, parse_format(a_format), da_shape, Contents::zeroed);
    const auto plain_wgrad = [&](const Call& call) {
        const bool gpu = dy.is_cuda();
        const Tensor a = gpu ? ::torch::stable::contiguous(kept) : with_dense_rows(kept);
        const Tensor gradient = gpu ? ::torch::stable::contiguous(x) : x;
        return weight_gradient(tokens, view_of("dy", gradient), view_of("a", a), weights, recipe, groups, call);
    };
    const auto nothing = [&] { return allocate(dy, Format::f32, {0}); };
    if (!recipe.quantizes()) {
        const Call call(dy);
        if (wants_a) multiply_plain(x, weights, recipe, Product::dgrad, groups, da, call);
        return {da, wants_b ? plain_wgrad(call) : nothing()};
    }

    const bool casts_columns = wants_b && wgrad_in_8_bits(recipe);
    const bool casts_rows =
        wants_a && choice_of(recipe, weights, dy, given_data.has_value()).dgrad == ProductPrecision::fp8;
    require(!casts_columns || kept_scale.has_value(), "the weight gradient was asked for and forward kept no scale");
    const Device device = device_of(dy);
    const Given given{given_data, given_scale};
    const QuantizeOptions options = options_for(recipe, recipe.gradient_format);
    const ProductMemory memory(recipe, recipe.gradient_format, tokens, weights, Product::dgrad, given);
    const QuantizedShape columns = token_columns_shape(x, options, groups);
    const std::size_t workspace =
        std::max(token_workspace_bytes(device, tokens, weights.n, groups.count), workspace_bytes(weights));
    Call call(dy, aligned(workspace) + (casts_rows ? memory.bytes() : 0) + (casts_columns ? bytes_of(columns) : 0));
    call.take_workspace(workspace);
    const QuantizedView row_view = casts_rows ? take(call, memory.rows, device) : QuantizedView{};
    const QuantizedView column_view = casts_columns ? take(call, columns, device) : QuantizedView{};
    if (casts_rows || casts_columns) quantize_tokens(x, groups, options, row_view, column_view, call.on());
    if (casts_rows) multiply(row_view, weights, recipe, Product::dgrad, groups, memory, given, da, call);
    if (wants_a && !casts_rows) multiply_plain(x, weights, recipe, Product::dgrad, groups, da, call);
    if (!wants_b) return {da, nothing()};
    if (!casts_columns) return {da, plain_wgrad(call)};
    const Operand a = operand_of_kept(kept, *kept_scale, recipe);
    return {da, weight_gradient(tokens, {column_view, recipe.scaling()}, a, weights, recipe, groups, call)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> cast_weights(Tensor b, Text recipe_text) {
    const Recipe recipe = parse_recipe(recipe_text);
    require(recipe.quantizes(), "the recipe ", recipe_text, " has no weights in 8 bits to cast");
    const Weights weights = weights_of(b);
    const auto make = [&](Product product) {
        const QuantizedShape shape = cast_shape(weights, recipe, product);
        return std::pair(allocate(b, shape.options.format, shape.data), allocate(b, shape.scale_format(), shape.scale));
    };
    const auto view = [&](Product product, const std::pair<Tensor, Tensor>& made) {
        return view_at(cast_shape(weights, recipe, product), made.first.data_ptr(), made.second.data_ptr(),
                       device_of(b));
    };
    const auto forward = make(Product::forward), dgrad = make(Product::dgrad);
    const std::size_t workspace = workspace_bytes(weights);
    Call call(b, workspace);
    call.take_workspace(workspace);
    cast(weights, recipe, view(Product::forward, forward), view(Product::dgrad, dgrad), call.on());
    return {forward.first, forward.second, dgrad.first, dgrad.second};
}

}  // namespace octet::torch_binding
