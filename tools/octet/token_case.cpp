#include "token_case.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "octet/activation.hpp"
#include "octet/error.hpp"
#include "octet/permute.hpp"

namespace octet::tool {
namespace {

std::int64_t random_features(Random& random) {
    return one_of<std::int64_t>(random, {1, 7, 8, 33, 64, 128, 200, 256, 384, 1000, 1408, 2048, 4224, 8320});
}

// `wild`: with what takes over a whole row's scale.
float random_value(Random& random, bool wild) {
    std::normal_distribution<float> normal(0.0f, 3.0f);
    const float ordinary = normal(random);
    switch (below(random, 60)) {
        case 0: return 0.0f * ordinary;
        case 1: return wild && below(random, 20) == 0 ? std::nanf("") : ordinary;
        case 2: return wild && below(random, 20) == 0 ? std::copysign(INFINITY, ordinary) : ordinary;
        case 3: return ordinary * 1e-39f;
        case 4: return ordinary * 50.0f;
        case 5: return wild && below(random, 20) == 0 ? ordinary * 1e30f : ordinary;
        default: return ordinary;
    }
}

Tensor random_tensor(Random& random, Format format, Extents extents) {
    Tensor tensor(format, extents);
    const bool wild = below(random, 3) == 0;
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
        if (format == Format::f32)
            tensor.as<float>()[i] = random_value(random, wild);
        else
            tensor.as<std::uint16_t>()[i] = BF16::encode(random_value(random, wild));
    }
    return tensor;
}

// Offsets are kept in tensors of f32: four bytes each.
Tensor as_tensor(const std::vector<std::int32_t>& list) {
    Tensor tensor(Format::f32, {static_cast<std::int64_t>(list.size())});
    if (!list.empty()) std::memcpy(tensor.as<char>(), list.data(), list.size() * sizeof(std::int32_t));
    return tensor;
}

const float* floats(const ConstTensorView& view) { return static_cast<const float*>(view.data); }
float* floats(const TensorView& view) { return static_cast<float*>(view.data); }

// Inputs 0 and 1 of a case: row_of_slot and slot_of_row, some slots dropped.
struct Order {
    std::int64_t tokens, top_k, rows;
    TokenOrder of(std::span<const ConstTensorView> in) const {
        return {tokens,
                top_k,
                rows,
                static_cast<const std::int32_t*>(in[0].data),
                static_cast<const std::int32_t*>(in[1].data),
                in[0].device};
    }
};

Order random_order(Random& random, OpCase& result) {
    const std::int64_t tokens = below(random, 5) == 0 ? below(random, 3) : below(random, 300);
    const std::int64_t top_k = one_of<std::int64_t>(random, {1, 2, 3, 6, 8, 9});
    const Order order{tokens, top_k, tokens * top_k + below(random, 4)};
    std::vector<std::int32_t> places(static_cast<std::size_t>(order.rows)), row_of_slot, slot_of_row(places.size(), -1);
    std::iota(places.begin(), places.end(), 0);
    std::shuffle(places.begin(), places.end(), random);
    const bool drops = below(random, 2) == 0;
    for (std::int64_t slot = 0; slot < tokens * top_k; ++slot) {
        const std::int32_t row = places[static_cast<std::size_t>(slot)];
        const bool dropped = drops && below(random, 10) == 0;
        row_of_slot.push_back(dropped ? -1 : row);
        if (!dropped) slot_of_row[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(slot);
    }
    result.inputs.push_back(as_tensor(row_of_slot));
    result.inputs.push_back(as_tensor(slot_of_row));
    result.text += fmt::format("{} tokens, top_k {}, {} rows{}", tokens, top_k, order.rows, drops ? ", drops" : "");
    return order;
}

OpCase permute_case(const std::string& op, Random& random) {
    OpCase c;
    c.op = op;
    const Order order = random_order(random, c);
    const std::int64_t d = random_features(random);
    const Format format = one_of(random, {Format::bf16, Format::f32});
    c.text += fmt::format(", {} {}", d, name(format));
    c.inputs.push_back(random_tensor(random, format, {order.tokens, d}));
    c.outputs.emplace_back(format, Extents{order.rows, d});
    c.call = [=](auto in, auto out, Groups, const Execution& on) { permute_tokens(order.of(in), in[2], out[0], on); };
    return c;
}

OpCase combine_case(const std::string& op, Random& random) {
    OpCase c;
    c.op = op;
    const Order order = random_order(random, c);
    const std::int64_t d = random_features(random), addends = below(random, 4);
    const Format from = one_of(random, {Format::bf16, Format::f32}), to = one_of(random, {Format::bf16, Format::f32});
    const bool weighted = below(random, 2) == 0;
    c.text += fmt::format(", {} {} to {}, {} addends", d, name(from), name(to), addends);
    c.inputs.push_back(random_tensor(random, from, {order.rows, d}));
    c.inputs.push_back(random_tensor(random, Format::f32, {order.tokens * order.top_k}));
    for (std::int64_t i = 0; i < addends; ++i)
        c.inputs.push_back(random_tensor(random, one_of(random, {Format::bf16, Format::f32}), {order.tokens, d}));
    c.outputs.emplace_back(to, Extents{order.tokens, d});
    c.call = [=](auto in, auto out, Groups, const Execution& on) {
        combine_tokens(order.of(in), in[2], weighted ? floats(in[3]) : nullptr, in.subspan(4), out[0], on);
    };
    return c;
}

OpCase combine_backward_case(const std::string& op, Random& random) {
    OpCase c;
    c.op = op;
    const Order order = random_order(random, c);
    const std::int64_t d = random_features(random);
    const Format format = one_of(random, {Format::bf16, Format::f32});
    const bool weighted = below(random, 2) == 0;
    c.text += fmt::format(", {} {}", d, name(format));
    c.inputs.push_back(random_tensor(random, format, {order.tokens, d}));
    c.inputs.push_back(random_tensor(random, format, {order.rows, d}));
    c.inputs.push_back(random_tensor(random, Format::f32, {order.tokens * order.top_k}));
    c.outputs.emplace_back(format, Extents{order.rows, d});
    c.outputs.emplace_back(Format::f32, Extents{order.tokens * order.top_k});
    c.call = [=](auto in, auto out, Groups, const Execution& on) {
        combine_tokens_backward(order.of(in), in[2], in[3], weighted ? floats(in[4]) : nullptr, out[0], floats(out[1]),
                                on);
    };
    return c;
}

// Both directions, alone or quantized. Inputs: gate_up, weights, ds.
OpCase swiglu_case(const std::string& op, Random& random) {
    const bool backward = op.find("backward") != std::string::npos,
               quantizes = op.find("quantize") != std::string::npos;
    OpCase c;
    c.op = op;
    const std::int64_t m = below(random, 6) == 0 ? below(random, 2) : 1 + below(random, 200),
                       h = random_features(random);
    const std::int64_t features = backward ? 2 * h : h;
    const Format format = one_of(random, {Format::bf16, Format::bf16, Format::f32});
    const bool weighted = below(random, 2) == 0;
    c.text = fmt::format("{} [{}, {}]", name(format), m, 2 * h);
    c.inputs.push_back(random_tensor(random, format, {m, 2 * h}));
    c.inputs.push_back(random_tensor(random, Format::f32, {m}));
    c.inputs.push_back(random_tensor(random, format, {m, h}));
    if (!quantizes) {
        c.outputs.emplace_back(format, Extents{m, features});
        if (backward) c.outputs.emplace_back(Format::f32, Extents{m});
        c.call = [=](auto in, auto out, Groups, const Execution& on) {
            const float* weights = weighted ? floats(in[1]) : nullptr;
            if (backward)
                swiglu_backward(in[0], weights, in[2], out[0], floats(out[1]), on);
            else
                swiglu(in[0], weights, out[0], on);
        };
        return c;
    }
    QuantizeOptions options;
    options.scaling = one_of(random, {Scaling::rowwise, Scaling::rowwise, Scaling::blockwise, Scaling::mx});
    options.format = one_of(random, {Format::e4m3, Format::e4m3, Format::e4m3fnuz, Format::e5m2});
    options.scale_rounding = one_of(random, {ScaleRounding::power_of_two, ScaleRounding::exact});
    options.mx_mode = one_of(random, {MxMode::rceil, MxMode::floor, MxMode::ceil, MxMode::even});
    const std::int64_t groups = one_of<std::int64_t>(random, {1, 3, 16});
    for (std::int64_t g = 0; g < groups; ++g) c.ends.push_back(static_cast<std::int32_t>(below(random, m + 1)));
    std::sort(c.ends.begin(), c.ends.end());
    const std::int64_t block = block_of(options.scaling), alignment = block == 0 ? 16 : block;
    const std::int64_t padded = padded_bound(m, groups, alignment);
    const bool mx = options.scaling == Scaling::mx, columns = below(random, 2) == 0;
    const auto quantized = [&](Extents data, Extents scale) {
        c.outputs.emplace_back(options.format, data);
        c.outputs.emplace_back(mx ? Format::e8m0 : Format::f32, scale);
        if (!mx) c.outputs.emplace_back(Format::f32, scale);
    };
    quantized({m, features}, block == 0 ? Extents{m} : Extents{m, ceil_div(features, block)});
    quantized({features, padded}, block == 0 ? Extents{groups, features} : Extents{features, padded / block});
    c.outputs.emplace_back(Format::f32, Extents{m});
    c.text += fmt::format(", {} {}, {} groups{}", name(options.scaling), name(options.format), groups,
                          columns ? ", pair" : "");
    c.call = [=](auto in, auto out, Groups token_groups, const Execution& on) {
        const std::size_t each = mx ? 2 : 3;
        const auto view = [&](std::size_t first) {
            return QuantizedView{out[first], out[first + 1], mx ? TensorView{} : out[first + 2]};
        };
        const float* weights = weighted ? floats(in[1]) : nullptr;
        const QuantizedView rows = view(0), tokens = columns ? view(each) : QuantizedView{};
        if (backward)
            swiglu_backward_quantize(in[0], weights, in[2], token_groups, alignment, options, rows, tokens,
                                     floats(out[2 * each]), on);
        else
            swiglu_quantize(in[0], weights, token_groups, alignment, options, rows, tokens, on);
    };
    return c;
}

struct Maker {
    const char* op;
    OpCase (*make)(const std::string&, Random&);
};

constexpr Maker makers[] = {{"permute_tokens", permute_case},
                            {"combine_tokens", combine_case},
                            {"combine_tokens_backward", combine_backward_case},
                            {"swiglu", swiglu_case},
                            {"swiglu_backward", swiglu_case},
                            {"swiglu_quantize", swiglu_case},
                            {"swiglu_backward_quantize", swiglu_case}};

}  // namespace

std::vector<std::string> token_op_names() {
    std::vector<std::string> names;
    for (const Maker& maker : makers) names.emplace_back(maker.op);
    return names;
}

OpCase random_token_case(const std::string& op, Random& random) {
    for (const Maker& maker : makers)
        if (op == maker.op) return maker.make(op, random);
    fail(Status::invalid_argument, "unknown operation '", op, "'");
}

}  // namespace octet::tool
