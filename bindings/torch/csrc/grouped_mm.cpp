// The expert product of a training step, as GroupedLinear (octet/linear.hpp) makes it: nothing lives longer than a call
// but what is returned, and what does not is taken in one piece.
#include <algorithm>

#include "octet/error.hpp"
#include "step.hpp"

namespace octet::torch_binding {
namespace {

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

// y = a . b for one or two weights, a cast once.
struct ForwardResult {
    std::vector<Tensor> y;
    CastTokens kept;
    std::optional<CastTokens> rows{};  // where they were cast and asked for
    std::optional<Tensor> visit{};     // where the weights are cast in two visits: what the second needs of the first
};

// Whether the rows of a that a call casts end with it.
enum class Rows { of_the_call, returned };

bool keeps_maxima(const Recipe& recipe, const Weights& weights) {
    return recipe.quantizes() && octet::keeps_maxima(weights.view, options_for(recipe, recipe.format));
}

// As GroupedLinear would choose, but for the weights' second copy, which is made in backward; beside wgrad, if along_k,
// which the first visit makes, is what forward reads.
CastsBeside halves_of(const Recipe& recipe, const Weights& weights, std::int64_t rows, const Tensor& x,
                      const Given& given) {
    const bool are_cast = given.data.has_value(), visits = !are_cast && weights.k_last && keeps_maxima(recipe, weights);
    return casts_beside(recipe, weights, rows, x, visits ? WeightCasts::in_both : WeightCasts::none, are_cast);
}

// A visit of the weights, in memory that both visits find.
Execution visiting(const Tensor& memory, WeightVisit visit, Execution on) {
    on.workspace = address_of(memory);
    on.workspace_bytes = static_cast<std::size_t>(memory.numel());
    on.visit = visit;
    return on;
}

ForwardResult forward(const Tensor& a, const std::vector<const Tensor*>& bs, const Tensor& ends, const Text& text,
                      const Text& out, bool keep, const Given& given, const Given& cast_rows,
                      Rows made = Rows::of_the_call, bool may_visit = false) {
    const Recipe recipe = parse_recipe(text);
    const Groups groups = groups_of(ends);
    std::vector<Weights> weights;
    for (const Tensor* b : bs) {
        weights.push_back(weights_of(*b));
        check_tokens("A", a, "in-features", weights.back().k, *b, groups);
    }
    const Tensor x = with_dense_rows(a);
    const Device device = device_of(a);
    const std::int64_t tokens = a.size(0);
    const QuantizeOptions options = options_for(recipe, recipe.format);
    ForwardResult result{{}, cast_columns(a, tokens, a.size(1), options, groups, keep && wgrad_in_8_bits(recipe))};
    std::vector<ProductMemory> memory;
    std::vector<bool> quantized;
    const std::size_t workspace =
        recipe.quantizes() ? token_workspace_bytes(device, tokens, a.size(1), groups.count) : 0;
    std::size_t weight_workspace = 0, bytes = 0;
    for (const Weights& w : weights) {
        result.y.push_back(allocate(a, parse_format(out), {tokens, w.n}, Contents::zeroed));
        quantized.push_back(in_8_bits(recipe, Product::forward, w, tokens, a, given.data.has_value()));
        if (!recipe.quantizes()) continue;
        memory.emplace_back(recipe, recipe.format, tokens, w, Product::forward, given);
        if (!quantized.back()) continue;
        weight_workspace = std::max(weight_workspace, workspace_bytes(w));
        bytes += memory.back().weight_bytes();
    }
    const bool reads_rows = std::find(quantized.begin(), quantized.end(), true) != quantized.end();
    const bool casts_rows = reads_rows && !cast_rows.data.has_value();
    if (casts_rows && made == Rows::returned) result.rows.emplace(a, memory[0].rows);
    const bool takes_rows = casts_rows && !result.rows.has_value();
    const CastsBeside beside = reads_rows ? halves_of(recipe, weights[0], tokens, a, given) : CastsBeside{};
    if (may_visit && quantized[0] && beside.weights == Beside::wgrad)
        result.visit = allocate_bytes(a, static_cast<std::int64_t>(workspace_bytes(weights[0])));
    CastPlaces casts(casts_rows && quantized[0] && beside.activations, workspace, weight_workspace);
    Call call(a, casts.bytes() + (takes_rows ? bytes_of(memory[0].rows) : 0) + bytes);
    casts.take(call);
    QuantizedView rows{};
    if (casts_rows) rows = takes_rows ? take(call, memory[0].rows, device) : result.rows->view;
    if (casts_rows || !result.kept.view.data.null())
        quantize_tokens(x, groups, options, rows, result.kept.view, casts.tokens());
    const Operand left = reads_rows && !casts_rows
                             ? operand_of_cast(*cast_rows.data, cast_rows.scale, recipe.scaling(), recipe.format)
                             : Operand(rows, options.scaling);
    for (std::size_t i = 0; i < weights.size(); ++i) {
        if (quantized[i]) {
            const Execution on =
                result.visit.has_value() ? visiting(*result.visit, WeightVisit::first, call.on()) : call.on();
            multiply(left, weights_in_8_bits(weights[i], recipe, Product::forward, memory[i], given, call, on), recipe,
                     Product::forward, groups, result.y[i], call);
        } else {
            multiply_plain(x, weights[i], recipe, Product::forward, groups, result.y[i], call);
        }
        if (i == 0) casts.run_later(call);
    }
    return result;
}

}  // namespace

Three grouped_mm(Tensor a, Tensor b, Tensor ends, Text recipe, Text out, bool keep, std::optional<Tensor> given,
                 std::optional<Tensor> given_scale, std::optional<Tensor>, std::optional<Tensor>,
                 std::optional<Tensor> rows, std::optional<Tensor> rows_scale, std::optional<Tensor>,
                 std::optional<Tensor>) {
    const ForwardResult result = forward(a, {&b}, ends, recipe, out, keep, {given, given_scale}, {rows, rows_scale});
    return {result.y[0], result.kept.data, result.kept.scale};
}

ThreeAndVisit grouped_mm_no_grad(Tensor a, Tensor b, Tensor ends, Text recipe, Text out, bool keep,
                                 std::optional<Tensor> given, std::optional<Tensor> given_scale,
                                 std::optional<Tensor> rows, std::optional<Tensor> rows_scale) {
    const ForwardResult result = forward(a, {&b}, ends, recipe, out, keep, {given, given_scale}, {rows, rows_scale},
                                         Rows::of_the_call, keep || rows.has_value());
    return {result.y[0], result.kept.data, result.kept.scale, result.visit};
}

FiveAndVisit grouped_mm_share(Tensor a, Tensor b, Tensor ends, Text recipe, Text out, std::optional<Tensor> given,
                              std::optional<Tensor> given_scale) {
    const std::optional<Tensor> none;
    const ForwardResult result =
        forward(a, {&b}, ends, recipe, out, true, {given, given_scale}, {none, none}, Rows::returned, true);
    const CastTokens rows = result.rows.has_value() ? *result.rows : CastTokens(a);
    return {result.y[0], rows.data, rows.scale, result.kept.data, result.kept.scale, result.visit};
}

Four grouped_mm_dual(Tensor a, Tensor b0, Tensor b1, Tensor ends, Text recipe, Text out, bool keep) {
    const std::optional<Tensor> none;
    const ForwardResult result = forward(a, {&b0, &b1}, ends, recipe, out, keep, {none, none}, {none, none});
    return {result.y[0], result.y[1], result.kept.data, result.kept.scale};
}

Four cast_tokens_both(Tensor a, Tensor ends, Text text) {
    const Recipe recipe = parse_recipe(text);
    require(recipe.quantizes(), "the recipe ", text, " has no tokens in 8 bits to cast");
    require(a.dim() == 2, "A has ", a.dim(), " axes, expected 2: [tokens, features]");
    const Groups groups = groups_of(ends);
    const Device device = device_of(a);
    const std::int64_t tokens = a.size(0), features = a.size(1);
    const QuantizeOptions options = options_for(recipe, recipe.format);
    const CastTokens kept = cast_columns(a, tokens, features, options, groups, wgrad_in_8_bits(recipe));
    QuantizedShape shape = rows_shape(options, tokens, features, device);
    shape.pitch = row_pitch(features, device);
    const CastTokens rows(a, shape);
    const std::size_t workspace = token_workspace_bytes(device, tokens, features, groups.count);
    Call call(a, workspace);
    call.take_workspace(workspace);
    quantize_tokens(with_dense_rows(a), groups, options, rows.view, kept.view, call.on());
    return {rows.data, rows.scale, kept.data, kept.scale};
}

namespace {

// With `onto`, the gradient of a is added to it where the product can, and `da` is then a tensor of no elements.
Two backward(const Tensor& dy, const Tensor& b, const Tensor& ends, const Text& recipe_text, const Tensor& kept,
             const std::optional<Tensor>& kept_scale, bool wants_a, bool wants_b, Format a_format, const Given& given,
             const std::optional<Tensor>& visit, const Tensor* onto) {
    const Recipe recipe = parse_recipe(recipe_text);
    const Weights weights = weights_of(b);
    const Groups groups = groups_of(ends);
    check_tokens("the gradient", dy, "out-features", weights.n, b, groups);
    const Tensor x = with_dense_rows(dy);
    const std::int64_t tokens = dy.size(0);
    const bool casts_rows = wants_a && in_8_bits(recipe, Product::dgrad, weights, tokens, dy, given.data.has_value());
    const bool adds = onto != nullptr && casts_rows && recipe.scaling() != Scaling::mx && a_format == Format::bf16;
    Tensor da = allocate(dy, a_format, wants_a && !adds ? Shape{tokens, weights.k} : Shape{0}, Contents::zeroed);
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
    const Device device = device_of(dy);
    const QuantizeOptions options = options_for(recipe, recipe.gradient_format);
    const ProductMemory memory(recipe, recipe.gradient_format, tokens, weights, Product::dgrad, given);
    const QuantizedShape columns =
        columns_shape(options, tokens, weights.n, groups.count, token_alignment(options.scaling, device), device);
    const bool visits =
        visit.has_value() && casts_rows && casts_columns && memory.casts_weights && keeps_maxima(recipe, weights);
    const bool beside = casts_rows && !visits && halves_of(recipe, weights, tokens, dy, given).gradients;
    CastPlaces casts(beside, token_workspace_bytes(device, tokens, weights.n, groups.count), workspace_bytes(weights));
    Call call(dy, casts.bytes() + (casts_rows ? memory.bytes() : 0) + (casts_columns ? bytes_of(columns) : 0));
    casts.take(call);
    const QuantizedView row_view = casts_rows ? take(call, memory.rows, device) : QuantizedView{};
    const QuantizedView column_view = casts_columns ? take(call, columns, device) : QuantizedView{};
    if (casts_rows || casts_columns) quantize_tokens(x, groups, options, row_view, column_view, casts.tokens());
    const auto multiply_rows = [&](const Operand& w) {
        multiply({row_view, recipe.scaling()}, w, recipe, Product::dgrad, groups, adds ? *onto : da, call,
                 adds ? Update::add : Update::overwrite);
    };
    const auto wgrad = [&] {
        const Operand a = operand_of_cast(kept, kept_scale, recipe.scaling(), recipe.format);
        return weight_gradient(tokens, {column_view, recipe.scaling()}, a, weights, recipe, groups, call);
    };
    if (visits) {  // the weights' second visit is beside the weight gradient, which does not need it
        LaterCasts later;
        Execution on = visiting(*visit, WeightVisit::second, call.on());
        on.later = &later;
        const Operand w = weights_in_8_bits(weights, recipe, Product::dgrad, memory, given, call, on);
        const Tensor db = wgrad();
        later.run(on.stream);
        multiply_rows(w);
        return {da, db};
    }
    if (casts_rows)
        multiply_rows(weights_in_8_bits(weights, recipe, Product::dgrad, memory, given, call, call.on()));
    else if (wants_a)
        multiply_plain(x, weights, recipe, Product::dgrad, groups, da, call);
    casts.run_later(call);
    if (!wants_b) return {da, nothing()};
    return {da, casts_columns ? wgrad() : plain_wgrad(call)};
}

}  // namespace

Two grouped_mm_backward(Tensor dy, Tensor b, Tensor ends, Text recipe, Tensor kept, std::optional<Tensor> kept_scale,
                        bool wants_a, bool wants_b, Text a_format, std::optional<Tensor> given,
                        std::optional<Tensor> given_scale, std::optional<Tensor> visit) {
    return backward(dy, b, ends, recipe, kept, kept_scale, wants_a, wants_b, parse_format(a_format),
                    {given, given_scale}, visit, nullptr);
}

Two grouped_mm_backward_onto(Tensor dy, Tensor b, Tensor ends, Text recipe, Tensor kept,
                             std::optional<Tensor> kept_scale, Tensor da, bool wants_b, std::optional<Tensor> given,
                             std::optional<Tensor> given_scale, std::optional<Tensor> visit) {
    return backward(dy, b, ends, recipe, kept, kept_scale, true, wants_b, format_of("the gradient so far", da),
                    {given, given_scale}, visit, &da);
}

Four cast_weights(Tensor b, Text recipe_text) {
    const Recipe recipe = parse_recipe(recipe_text);
    require(recipe.quantizes(), "the recipe ", recipe_text, " has no weights in 8 bits to cast");
    const Weights weights = weights_of(b);
    const Device device = device_of(b);
    struct Made {
        Tensor data, scale;
        QuantizedView view;
    };
    const auto make = [&](Product product) {
        QuantizedShape shape = cast_shape(weights, recipe, product);
        shape.pitch = row_pitch(shape.data[2], device);
        const Tensor data =
            allocate_strided(b, shape.options.format, shape.data, shape.data_strides(), Contents::unset);
        const Tensor scale = allocate(b, shape.scale_format(), shape.scale);
        return Made{data, scale, view_at(shape, data.data_ptr(), scale.data_ptr(), device)};
    };
    const Made forward = make(Product::forward), dgrad = make(Product::dgrad);
    const std::size_t workspace = workspace_bytes(weights);
    Call call(b, workspace);
    call.take_workspace(workspace);
    cast(weights, recipe, forward.view, dgrad.view, call.on());
    return {forward.data, forward.scale, dgrad.data, dgrad.scale};
}

}  // namespace octet::torch_binding
