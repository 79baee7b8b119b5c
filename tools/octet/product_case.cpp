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
    Operand of(std::span<const ConstTensorView> inputs) const {
        if (!quantized) return Operand(inputs[first]);
        const ConstTensorView scales = inputs[first + 1];
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
    const std::int64_t m = between(random, 0, 200), n = between(random, 1, 200), k = between(random, 1, 300);
    ProductCase product;
    OpCase& c = product.op_case;
    c.op = op;
    c.ends = random_ends(random, m);
    const auto experts = static_cast<std::int64_t>(c.ends.size());
    const Groups groups{c.ends.data(), experts, {}};
    constexpr Format formats[] = {Format::e4m3, Format::e4m3fnuz, Format::e5m2};
    const auto pick = [&] { return formats[between(random, 0, 2)]; };
    const bool quantized = between(random, 0, 3) != 0;
    const auto scaling = static_cast<Scaling>(between(random, 0, 2));
    const ScaleRounding rounding = between(random, 0, 1) ? ScaleRounding::exact : ScaleRounding::power_of_two;
    const QuantizeOptions left{scaling, pick(), rounding, MxMode::rceil},
        right{scaling, pick(), rounding, MxMode::rceil};
    const std::int64_t alignment = std::max<std::int64_t>(block_of(scaling), 1) * between(random, 1, 2);
    const ProductOptions options{between(random, 0, 1) ? Update::add : Update::overwrite};
    product.adds = options.update == Update::add;
    const Format out = options.update == Update::add || between(random, 0, 1) ? Format::f32 : Format::bf16;
    c.text = fmt::format("M={} N={} K={} E={} {} -> {}{}", m, n, k, experts,
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
            quantize_columns(a, groups, alignment, right, q.reshape_columns(right, m, experts, alignment, k),
                             by_oracle);
            second = add_quantized(c, q, scaling);
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

std::string compare_products(const ProductCase& product, const Tensor& given, const Tensor& expected,
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
    const double bound =
        1e-6 * std::sqrt(static_cast<double>(product.reduction)) + (expected.format() == Format::bf16 ? 0x1p-8 : 0.0);
    if (!(error <= bound)) return fmt::format("the relative error is {:.2e}, above the bound {:.2e}", error, bound);
    return "";
}

}  // namespace octet::tool
