#include "product_case.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/element.hpp"
#include "octet/error.hpp"
#include "octet/linear.hpp"
#include "octet/product.hpp"

namespace octet::tool {
namespace {

std::int64_t between(Random& random, std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

Tensor random_normal(Random& random, Format format, Extents extents) {
    Tensor tensor(format, extents);
    std::normal_distribution<float> normal;
    const TensorView flat(tensor.view().data, format, {tensor.elements()});
    for (std::int64_t i = 0; i < tensor.elements(); ++i) store(flat, normal(random), i);
    if (tensor.elements() > 0 && between(random, 0, 15) == 0)
        store(flat, std::numeric_limits<float>::quiet_NaN(), between(random, 0, tensor.elements() - 1));
    return tensor;
}

std::vector<std::int32_t> random_ends(Random& random, std::int64_t tokens) {
    std::vector<std::int32_t> ends(static_cast<std::size_t>(between(random, 1, 9)));
    const std::int64_t owned = between(random, 0, 3) == 0 ? between(random, 0, tokens) : tokens;
    for (auto& end : ends) end = static_cast<std::int32_t>(between(random, 0, owned));
    std::sort(ends.begin(), ends.end());
    ends.back() = static_cast<std::int32_t>(owned);
    return ends;
}

// Where a call finds one side of the product among its inputs: a plain tensor, or data and scales.
struct Side {
    std::size_t first = 0;
    bool quantized = false;
    Scaling scaling = Scaling::rowwise;
    bool rows_beside = false;  // scales [rows, blocks] whose rows lie beside each other
    std::int64_t alignment = 0;
    Operand of(std::span<const ConstTensorView> inputs) const {
        Operand operand = placed(inputs);
        operand.alignment = alignment;
        return operand;
    }
    Operand placed(std::span<const ConstTensorView> inputs) const {
        if (!quantized) return Operand(inputs[first]);
        ConstTensorView scales = inputs[first + 1];
        if (rows_beside) scales.extents = Extents({scales.size(1), scales.size(0)}, {1, scales.size(1)});
        return scaling == Scaling::mx ? Operand({inputs[first], scales, {}}, scaling)
                                      : Operand({inputs[first], {}, scales}, scaling);
    }
};

// Copies a quantized operand into the case's inputs.
Side add_quantized(OpCase& op_case, const QuantizedTensor& q, Scaling scaling) {
    const ConstQuantizedView view = q.view();
    const Side side{op_case.inputs.size(), true, scaling};
    for (const ConstTensorView& part : {view.data, scaling == Scaling::mx ? view.scale : view.inverse}) {
        Tensor copy(part.format, part.extents);
        const auto* from = static_cast<const std::uint8_t*>(part.data);
        std::copy_n(from, copy.bytes(), copy.as<std::uint8_t>());
        op_case.inputs.push_back(std::move(copy));
    }
    return side;
}

// The same with the scales transposed, as the blockwise products of a GPU like them.
void lay_rows_beside(OpCase& op_case, Side& side) {
    Tensor& scales = op_case.inputs[side.first + 1];
    const std::int64_t rows = scales.extents().shape[0], blocks = scales.extents().shape[1];
    Tensor turned(scales.format(), {blocks, rows});
    for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < blocks; ++j) store(turned.view(), load(scales.view(), i, j), j, i);
    scales = std::move(turned);
    side.rows_beside = true;
}

Side add_plain(OpCase& op_case, Tensor tensor) {
    op_case.inputs.push_back(std::move(tensor));
    return {op_case.inputs.size() - 1};
}

const Execution by_oracle{.backend = Backend::reference};

}  // namespace

std::vector<std::string> product_op_names() { return {"grouped_forward", "grouped_dgrad", "grouped_wgrad"}; }

ProductCase random_product_case(const std::string& op, Random& random) {
    const bool forward = op == "grouped_forward", wgrad = op == "grouped_wgrad";
    require(forward || wgrad || op == "grouped_dgrad", "there is no product '", op, "'");
    std::int64_t m = between(random, 0, 200), n = between(random, 1, 200), k = between(random, 1, 300);
    // Half of the cases are of the sizes that tensor cores take.
    const bool friendly = between(random, 0, 1) == 1;
    if (friendly) {
        m = between(random, 0, 700);
        n = 16 * between(random, 1, 24);
        k = 16 * between(random, 1, 24);
    }
    ProductCase product;
    OpCase& c = product.op_case;
    c.op = op;
    c.ends = random_ends(random, m);
    const auto experts = static_cast<std::int64_t>(c.ends.size());
    const Groups groups{c.ends.data(), experts, {}};
    constexpr Format formats[] = {Format::e4m3, Format::e4m3fnuz, Format::e5m2};
    const auto pick = [&] {
        return friendly && between(random, 0, 3) != 0 ? Format::e4m3 : formats[between(random, 0, 2)];
    };
    const bool quantized = between(random, 0, 3) != 0;
    const auto scaling = static_cast<Scaling>(between(random, 0, 2));
    const ScaleRounding rounding = between(random, 0, 1) ? ScaleRounding::exact : ScaleRounding::power_of_two;
    const QuantizeOptions left{scaling, pick(), rounding, MxMode::rceil},
        right{scaling, pick(), rounding, MxMode::rceil};
    const std::int64_t alignment = std::max<std::int64_t>(block_of(scaling), friendly ? 16 : 1) * between(random, 1, 2);
    const bool adds = between(random, 0, friendly && !wgrad ? 7 : 1) == 1;
    const ProductOptions options{adds ? Update::add : Update::overwrite,
                                 between(random, 0, 1) ? Accumulation::fast : Accumulation::promoted};
    product.adds = adds;
    product.eight_bits = quantized && scaling != Scaling::mx;
    product.fast = scaling == Scaling::rowwise && options.accumulation == Accumulation::fast;
    const Format out = options.update == Update::add || between(random, 0, 1) ? Format::f32 : Format::bf16;
    c.text = fmt::format("M={} N={} K={} E={} alignment {} {} {} -> {}{}", m, n, k, experts, alignment,
                         name(options.accumulation),
                         quantized ? fmt::format("{} {} x {}", name(scaling), name(left.format), name(right.format))
                                   : std::string("plain"),
                         name(out), options.update == Update::add ? ", added" : "");

    const std::int64_t width = forward ? k : n;  // of the first operand's tokens
    Tensor x = random_normal(random, Format::bf16, {m, width});
    Side first, second;
    QuantizedTensor q;
    if (wgrad) {
        Tensor a = random_normal(random, Format::bf16, {m, k});
        product.reduction = std::max<std::int64_t>(m, 1);
        c.outputs.emplace_back(out, Extents{experts, n, k});
        if (quantized) {
            quantize_columns(x, groups, alignment, left, q.reshape_columns(left, m, experts, alignment, n), by_oracle);
            first = add_quantized(c, q, scaling);
            // The two may start their groups on different multiples.
            const std::int64_t own = alignment * (scaling == Scaling::rowwise ? between(random, 1, 2) : 1);
            quantize_columns(a, groups, own, right, q.reshape_columns(right, m, experts, own, k), by_oracle);
            second = add_quantized(c, q, scaling);
            second.alignment = own;
        } else {
            first = add_plain(c, std::move(x));
            second = add_plain(c, std::move(a));
        }
    } else {
        Tensor w = random_normal(random, Format::bf16, {experts, n, k});
        product.reduction = width;
        c.outputs.emplace_back(out, Extents{m, forward ? n : k});
        if (quantized) {
            quantize_rows(x, left, q.reshape_rows(left, m, width), by_oracle);
            first = add_quantized(c, q, scaling);
            const QuantizedView along =
                forward ? q.reshape_weights(right, experts, n, k) : q.reshape_weights(right, experts, k, n);
            quantize_weights(w, right, forward ? along : QuantizedView{}, forward ? QuantizedView{} : along, by_oracle);
            second = add_quantized(c, q, scaling);
        } else {
            first = add_plain(c, std::move(x));
            second = add_plain(c, std::move(w));
        }
    }
    if (quantized && scaling == Scaling::blockwise && between(random, 0, 3) != 0) {
        lay_rows_beside(c, first);
        if (wgrad) lay_rows_beside(c, second);
    }
    c.call = [=](std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs, Groups g,
                 const Execution& on) {
        const Operand l = first.of(inputs), r = second.of(inputs);
        if (wgrad) {
            grouped_wgrad(l, r, g, alignment, outputs[0], options, on);
        } else {
            (forward ? grouped_forward : grouped_dgrad)(l, r, g, outputs[0], options, on);
        }
    };
    return product;
}

// docs/numerics.md: f32 accumulation, and what Hopper's tensor cores do with 8-bit operands.
double ProductCase::bound(Device device, Format out) const {
    const double steps = static_cast<double>(reduction);
    double bound = 1e-6 * std::sqrt(steps);
    if (device.kind != DeviceKind::cpu && eight_bits)
        bound = std::max(bound, fast ? 3e-5 * std::sqrt(std::max(steps, 128.0)) : 2e-4);
    return bound + (out == Format::bf16 ? 0x1p-8 : 0.0);
}

std::string compare_products(const ProductCase& product, Device device, const Tensor& given, const Tensor& expected,
                             unsigned char poison) {
    const ConstTensorView x(given.view().data, given.format(), {given.elements()});
    const ConstTensorView y(expected.view().data, expected.format(), {expected.elements()});
    const std::int64_t size = bytes_of(expected.format());
    double difference = 0, magnitude = 0;
    for (std::int64_t i = 0; i < expected.elements(); ++i) {
        const std::uint8_t* theirs = expected.as<std::uint8_t>() + i * size;
        const std::uint8_t* ours = given.as<std::uint8_t>() + i * size;
        // A sum of zero added to the poison leaves it too, so only what is overwritten tells.
        if (!product.adds && std::all_of(theirs, theirs + size, [&](std::uint8_t byte) { return byte == poison; })) {
            if (!std::equal(theirs, theirs + size, ours)) return fmt::format("element {} was to be left alone", i);
            continue;
        }
        const double got = static_cast<double>(load(x, i)), want = static_cast<double>(load(y, i));
        if (std::isnan(got) != std::isnan(want)) return fmt::format("element {} is {}, expected {}", i, got, want);
        if (std::isnan(want)) continue;
        difference += (got - want) * (got - want);
        magnitude += want * want;
    }
    const double error = magnitude > 0 ? std::sqrt(difference / magnitude) : std::sqrt(difference);
    const double bound = product.bound(device, expected.format());
    if (!(error <= bound)) return fmt::format("the relative error is {:.2e}, above the bound {:.2e}", error, bound);
    return "";
}

namespace {

struct LinearStep {
    Tensor y, da, dw;
};

// One step on a device, from host tensors and into poisoned ones.
LinearStep run_linear(const Recipe& recipe, const Tensor& a, const Tensor& w, const Tensor& dy,
                      const std::vector<std::int32_t>& ends, Device device, const Execution& on) {
    const std::int64_t experts = w.extents().shape[0], n = w.extents().shape[1], k = w.extents().shape[2];
    std::vector<DeviceMemory> memory;
    const auto place = [&](const void* from, std::size_t bytes) {
        memory.emplace_back(device, std::max<std::size_t>(bytes, 64));
        if (bytes > 0) memory.back().upload(from, bytes);
        return memory.back().data();
    };
    const auto input = [&](const Tensor& t) {
        return ConstTensorView(place(t.as<char>(), t.bytes()), t.format(), t.extents(), device);
    };
    LinearStep step{Tensor(Format::f32, dy.extents()), Tensor(Format::f32, a.extents()),
                    Tensor(Format::f32, w.extents())};
    std::vector<TensorView> outputs;
    const std::size_t first_output = 4;
    const ConstTensorView a_view = input(a), w_view = input(w), dy_view = input(dy);
    const Groups groups{static_cast<const std::int32_t*>(place(ends.data(), ends.size() * sizeof(std::int32_t))),
                        experts, device};
    for (Tensor* out : {&step.y, &step.da, &step.dw}) {
        std::fill_n(out->as<std::uint8_t>(), out->bytes(), std::uint8_t{0xA5});
        outputs.emplace_back(place(out->as<char>(), out->bytes()), out->format(), out->extents(), device);
    }
    GroupedLinear layer({experts, n, k}, recipe);
    LinearKept kept;
    LinearWorkspace workspace;
    layer.bind_weights(w_view);
    layer.forward(a_view, groups, outputs[0], &kept, workspace, on);
    layer.backward(dy_view, groups, kept, outputs[1], outputs[2], Update::overwrite, workspace, on);
    synchronize(device);
    std::size_t at = first_output;
    for (Tensor* out : {&step.y, &step.da, &step.dw}) {
        if (out->bytes() > 0) memory[at].download(out->as<char>(), out->bytes());
        ++at;
    }
    return step;
}

}  // namespace

std::string check_linear(Random& random, Device device, const Execution& on, std::string& text) {
    const std::int64_t m = between(random, 0, 500), n = 16 * between(random, 1, 20), k = 16 * between(random, 1, 20);
    const std::vector<std::int32_t> ends = random_ends(random, m);
    const auto experts = static_cast<std::int64_t>(ends.size());
    constexpr RecipeKind kinds[] = {RecipeKind::bf16, RecipeKind::fp8_rowwise, RecipeKind::fp8_blockwise,
                                    RecipeKind::mxfp8};
    Recipe recipe = Recipe::of(kinds[between(random, 0, 3)]);
    if (recipe.quantizes()) {
        const auto pick = [&] { return between(random, 0, 1) ? ProductPrecision::bf16 : ProductPrecision::fp8; };
        recipe.forward = pick();
        recipe.dgrad = pick();
        if (between(random, 0, 3) == 0) recipe.wgrad = WgradPrecision::bf16;
        if (between(random, 0, 3) == 0) recipe.gradient_format = Format::e5m2;
        if (between(random, 0, 1)) recipe.accumulation = Accumulation::fast;
    }
    text = fmt::format("M={} N={} K={} E={} {}", m, n, k, experts, to_string(recipe));
    const Tensor a = random_normal(random, Format::bf16, {m, k}),
                 w = random_normal(random, Format::bf16, {experts, n, k}),
                 dy = random_normal(random, Format::bf16, {m, n});
    const LinearStep expected = run_linear(recipe, a, w, dy, ends, {}, by_oracle);
    const LinearStep given = run_linear(recipe, a, w, dy, ends, device, on);
    const LinearStep again = run_linear(recipe, a, w, dy, ends, device, on);
    const auto compare = [&](const char* what, const Tensor& got, const Tensor& repeated, const Tensor& want,
                             bool eight_bits, std::int64_t reduction) -> std::string {
        if (!std::equal(got.as<std::uint8_t>(), got.as<std::uint8_t>() + got.bytes(), repeated.as<std::uint8_t>()))
            return fmt::format("{}: a second run gave other bits", what);
        ProductCase product;
        product.reduction = std::max<std::int64_t>(reduction, 1);
        product.eight_bits = recipe.quantizes() && eight_bits && recipe.kind != RecipeKind::mxfp8;
        product.fast = recipe.kind == RecipeKind::fp8_rowwise && recipe.accumulation == Accumulation::fast;
        const std::string difference = compare_products(product, device, got, want, 0xA5);
        return difference.empty() ? "" : fmt::format("{}: {}", what, difference);
    };
    for (const std::string& difference :
         {compare("y", given.y, again.y, expected.y, recipe.forward == ProductPrecision::fp8, k),
          compare("da", given.da, again.da, expected.da, recipe.dgrad == ProductPrecision::fp8, n),
          compare("dw", given.dw, again.dw, expected.dw, recipe.wgrad == WgradPrecision::fp8, m)})
        if (!difference.empty()) return difference;
    return "";
}

}  // namespace octet::tool
