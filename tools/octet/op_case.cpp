#include "op_case.hpp"

#include <fmt/core.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "octet/error.hpp"

namespace octet::tool {
namespace {

std::int64_t random_size(Random& random) {
    return one_of<std::int64_t>(random, {1,   2,   3,   5,   8,   16,  17,  31,  32,  33,  48,  63,  64,  65, 96,
                                         100, 127, 128, 129, 160, 192, 200, 255, 256, 257, 300, 384, 511, 640});
}

// A value generator a tensor is filled by. Each kind is a way in which quantizers go wrong.
float random_value(Random& random, int kind) {
    std::normal_distribution<float> normal;
    const float ordinary = normal(random);
    switch (kind) {
        case 0: return ordinary;
        case 1: return 0.0f * ordinary;                                    // zeros of both signs
        case 2: return below(random, 97) == 0 ? std::nanf("") : ordinary;  // rare NaN
        case 3: return below(random, 97) == 0 ? std::copysign(INFINITY, ordinary) : ordinary;
        case 4: return ordinary * std::numeric_limits<float>::min() * 0.01f;              // subnormal
        case 5: return std::ldexp(ordinary, static_cast<int>(below(random, 250)) - 125);  // the whole range
        case 6:
            return std::ldexp(static_cast<float>(below(random, 33) - 16),
                              static_cast<int>(below(random, 9)) - 4);                 // ties
        case 7: return std::copysign(1e-13f, ordinary);                                // below the smallest amax
        default: return below(random, 5) == 0 ? ordinary * 1e30f : ordinary * 1e-30f;  // under- and overflow
    }
}

Tensor random_tensor(Random& random, Format format, Extents extents) {
    Tensor tensor(format, extents);
    // One kind a tensor, or mostly one, with a few elements of any other: in a long row those decide the scale.
    const int kind = static_cast<int>(below(random, 9));
    const bool mixed = below(random, 2) == 0;
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
        const bool other = mixed && below(random, 50) == 0;
        const float value = random_value(random, other ? static_cast<int>(below(random, 9)) : kind);
        if (format == Format::f32) {
            tensor.as<float>()[i] = value;
        } else {
            tensor.as<std::uint16_t>()[i] = BF16::encode(value);
        }
    }
    return tensor;
}

Tensor random_bytes(Random& random, Format format, Extents extents) {
    Tensor tensor(format, extents);
    for (std::size_t i = 0; i < tensor.bytes(); ++i) tensor.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(random());
    return tensor;
}

// Ends of up to a few hundred groups over `tokens` rows: even, skewed, with empty groups, with rows nobody owns.
std::vector<std::int32_t> random_ends(Random& random, std::int64_t tokens) {
    const auto count = static_cast<std::size_t>(one_of<std::int64_t>(random, {1, 1, 2, 3, 7, 8, 16, 64, 257}));
    const std::int64_t owned = below(random, 4) == 0 ? below(random, tokens + 1) : tokens;
    std::vector<std::int32_t> ends(count);
    for (auto& end : ends) end = static_cast<std::int32_t>(below(random, owned + 1));
    if (below(random, 3) == 0)
        for (auto& end : ends) end = end * 2 < owned ? 0 : end;  // a heavy one and many empty ones
    std::sort(ends.begin(), ends.end());
    ends.back() = static_cast<std::int32_t>(owned);
    return ends;
}

QuantizeOptions random_options(Random& random) {
    QuantizeOptions options;
    options.scaling = one_of(random, {Scaling::rowwise, Scaling::blockwise, Scaling::mx});
    options.format = one_of(random, {Format::e4m3, Format::e4m3, Format::e4m3fnuz, Format::e5m2});
    options.scale_rounding = one_of(random, {ScaleRounding::power_of_two, ScaleRounding::exact});
    options.mx_mode = one_of(random, {MxMode::rceil, MxMode::floor, MxMode::ceil, MxMode::even});
    return options;
}

std::int64_t random_alignment(Random& random, Scaling scaling) {
    const std::int64_t block = block_of(scaling);
    return block == 0 ? one_of<std::int64_t>(random, {1, 2, 16, 32, 100, 128})
                      : block * one_of<std::int64_t>(random, {1, 2, 4});
}

std::string text_of(const QuantizeOptions& options) {
    return fmt::format("{} {} {}", name(options.scaling), name(options.format),
                       options.scaling == Scaling::mx ? name(options.mx_mode) : name(options.scale_rounding));
}

// Collects a case's tensors and lends views of them by position, whatever device the call runs on.
struct Builder {
    OpCase result;
    Random& random;
    QuantizeOptions options;
    Format input_format;

    Builder(const std::string& op, Random& source)
        : random(source), options(random_options(source)), input_format(one_of(source, {Format::bf16, Format::f32})) {
        result.op = op;
        result.text = text_of(options) + " from " + std::string(name(input_format));
    }

    std::size_t input(Extents extents) {
        result.inputs.push_back(random_tensor(random, input_format, extents));
        result.text += fmt::format(", in {}", to_string(extents));
        return result.inputs.size() - 1;
    }

    std::size_t output(Format format, Extents extents) {
        result.outputs.emplace_back(format, extents);
        return result.outputs.size() - 1;
    }

    // Positions of a quantized operand's data, scale and inverse among the outputs.
    struct Slots {
        std::size_t data, scale, inverse;
        bool mx;
        QuantizedView of(std::span<const TensorView> outputs) const {
            return {outputs[data], outputs[scale], mx ? TensorView{} : outputs[inverse]};
        }
        ConstQuantizedView of(std::span<const ConstTensorView> inputs) const {
            return {inputs[data], inputs[scale], mx ? ConstTensorView{} : inputs[inverse]};
        }
    };

    Slots quantized(Extents data, Extents scale) {
        const bool mx = options.scaling == Scaling::mx;
        const std::size_t first = output(options.format, data);
        output(mx ? Format::e8m0 : Format::f32, scale);
        if (!mx) output(Format::f32, scale);
        return {first, first + 1, first + 2, mx};
    }

    // A quantized operand as input, made by the oracle from random values.
    Slots quantized_input(const Slots& made) {
        const std::size_t first = result.inputs.size();
        for (std::size_t i = 0; i < (made.mx ? 2u : 3u); ++i)
            result.inputs.push_back(std::move(result.outputs[made.data + i]));
        result.outputs.clear();
        return {first, first + 1, first + 2, made.mx};
    }

    Slots rows(std::int64_t m, std::int64_t k) {
        const std::int64_t block = block_of(options.scaling);
        return quantized({m, k}, block == 0 ? Extents{m} : Extents{m, ceil_div(k, block)});
    }

    Slots tokens(std::int64_t features, std::int64_t m, std::int64_t alignment) {
        const auto count = static_cast<std::int64_t>(result.ends.size());
        const std::int64_t block = block_of(options.scaling), padded = padded_bound(m, count, alignment);
        return quantized({features, padded}, block == 0 ? Extents{count, features} : Extents{features, padded / block});
    }

    Slots weights(std::int64_t experts, std::int64_t rows_of, std::int64_t columns_of) {
        const std::int64_t block = block_of(options.scaling);
        const Extents scale = options.scaling == Scaling::rowwise ? Extents{experts, rows_of}
                              : options.scaling == Scaling::blockwise
                                  ? Extents{experts, ceil_div(rows_of, block), ceil_div(columns_of, block)}
                                  : Extents{experts, rows_of, ceil_div(columns_of, block)};
        return quantized({experts, rows_of, columns_of}, scale);
    }

    std::int64_t grouped(std::int64_t m) {
        result.ends = random_ends(random, m);
        const std::int64_t alignment = random_alignment(random, options.scaling);
        result.text += fmt::format(", {} groups, alignment {}", result.ends.size(), alignment);
        return alignment;
    }

    Groups groups() const { return {result.ends.data(), static_cast<std::int64_t>(result.ends.size()), {}}; }

    std::vector<TensorView> output_views() {
        std::vector<TensorView> views;
        for (Tensor& tensor : result.outputs) views.push_back(tensor.view());
        return views;
    }
};

const Execution by_oracle{.backend = Backend::reference};

OpCase rows_case(const std::string& op, Random& random) {
    Builder b(op, random);
    const std::int64_t m = random_size(random) - 1, k = random_size(random);
    b.input({m, k});
    const auto out = b.rows(m, k);
    b.result.call = [=, options = b.options](auto in, auto outputs, Groups, const Execution& on) {
        quantize_rows(in[0], options, out.of(outputs), on);
    };
    return std::move(b.result);
}

OpCase columns_case(const std::string& op, Random& random) {
    Builder b(op, random);
    const std::int64_t m = random_size(random) - 1, k = random_size(random), alignment = b.grouped(m);
    b.input({m, k});
    const auto out = b.tokens(k, m, alignment);
    b.result.call = [=, options = b.options](auto in, auto outputs, Groups groups, const Execution& on) {
        quantize_columns(in[0], groups, alignment, options, out.of(outputs), on);
    };
    return std::move(b.result);
}

OpCase dual_case(const std::string& op, Random& random) {
    Builder b(op, random);
    const std::int64_t m = random_size(random), k0 = random_size(random), k1 = random_size(random),
                       alignment = b.grouped(m);
    b.input({m, k0});
    b.input({m, k1});
    const auto out0 = b.tokens(k0, m, alignment), out1 = b.tokens(k1, m, alignment);
    b.result.call = [=, options = b.options](auto in, auto outputs, Groups groups, const Execution& on) {
        quantize_columns_dual(in[0], in[1], groups, alignment, options, out0.of(outputs), out1.of(outputs), on);
    };
    return std::move(b.result);
}

// Half of the casts both ways are made in halves, with sizes that can be.
bool in_halves(Builder& b) {
    if (below(b.random, 2) == 0) return false;
    b.options.scaling = Scaling::rowwise;
    b.input_format = Format::bf16;
    b.result.halves_workspace = std::size_t{8} << 20;
    b.result.text = text_of(b.options) + " in halves";
    return true;
}

OpCase pair_case(const std::string& op, Random& random) {
    Builder b(op, random);
    const bool halves = in_halves(b);
    const std::int64_t m = random_size(random), k = halves ? round_up(random_size(random), 32) : random_size(random);
    std::int64_t alignment = b.grouped(m);
    if (halves) alignment = round_up(alignment, 16);
    b.input({m, k});
    const auto rows = b.rows(m, k), columns = b.tokens(k, m, alignment);
    b.result.call = [=, options = b.options](auto in, auto outputs, Groups groups, const Execution& on) {
        quantize_pair(in[0], groups, alignment, options, rows.of(outputs), columns.of(outputs), on);
    };
    return std::move(b.result);
}

OpCase transposed_case(const std::string& op, Random& random) {
    Builder b(op, random);
    const std::int64_t m = random_size(random), n = random_size(random), alignment = b.grouped(m);
    b.input({n, m});
    const auto out = b.tokens(n, m, alignment);
    b.result.call = [=, options = b.options](auto in, auto outputs, Groups groups, const Execution& on) {
        quantize_transposed(in[0], groups, alignment, options, out.of(outputs), on);
    };
    return std::move(b.result);
}

OpCase weights_case(const std::string& op, Random& random) {
    Builder b(op, random);
    const bool halves = in_halves(b);
    const std::int64_t experts = 1 + below(random, 4), n = round_up(random_size(random), halves ? 16 : 1),
                       k = round_up(random_size(random), halves ? 32 : 1);
    b.input({experts, n, k});
    const int which = halves ? 2 : static_cast<int>(below(random, 3));  // along_k, along_n, both
    const bool two_visits = halves && below(random, 2) == 0;
    const auto along_k = b.weights(experts, n, k);
    const auto along_n = b.weights(experts, k, n);
    b.result.text += which == 0   ? ", along_k"
                     : which == 1 ? ", along_n"
                     : two_visits ? ", both in two visits"
                                  : ", both";
    b.result.call = [=, options = b.options](auto in, auto outputs, Groups, const Execution& on) {
        if (two_visits) {
            Execution now = on;
            now.visit = WeightVisit::first;
            quantize_weights(in[0], options, along_k.of(outputs), {}, now);
            now.visit = WeightVisit::second;
            return quantize_weights(in[0], options, {}, along_n.of(outputs), now);
        }
        quantize_weights(in[0], options, which == 1 ? QuantizedView{} : along_k.of(outputs),
                         which == 0 ? QuantizedView{} : along_n.of(outputs), on);
    };
    return std::move(b.result);
}

OpCase dequantize_rows_case(const std::string& op, Random& random) {
    Builder b(op, random);
    const std::int64_t m = random_size(random), k = random_size(random);
    b.input({m, k});
    const auto made = b.rows(m, k);
    quantize_rows(b.result.inputs[0], b.options, made.of(std::span<const TensorView>(b.output_views())), by_oracle);
    const auto q = b.quantized_input(made);
    b.output(b.input_format, {m, k});
    b.result.call = [=, options = b.options](auto in, auto outputs, Groups, const Execution& on) {
        dequantize_rows(q.of(in), options, outputs[0], on);
    };
    return std::move(b.result);
}

OpCase dequantize_tokens_case(const std::string& op, Random& random) {
    const bool transposed = op == "dequantize_transposed";
    Builder b(op, random);
    const std::int64_t m = random_size(random), k = random_size(random), alignment = b.grouped(m);
    const Extents shape = transposed ? Extents{k, m} : Extents{m, k};
    b.input(shape);
    const auto made = b.tokens(k, m, alignment);
    const auto quantize = transposed ? quantize_transposed : quantize_columns;
    quantize(b.result.inputs[0], b.groups(), alignment, b.options,
             made.of(std::span<const TensorView>(b.output_views())), by_oracle);
    const auto q = b.quantized_input(made);
    b.output(b.input_format, shape);
    const auto dequantize = transposed ? dequantize_transposed : dequantize_columns;
    b.result.call = [=, options = b.options](auto in, auto outputs, Groups groups, const Execution& on) {
        dequantize(q.of(in), groups, alignment, options, outputs[0], on);
    };
    return std::move(b.result);
}

OpCase dequantize_weights_case(const std::string& op, Random& random) {
    Builder b(op, random);
    const std::int64_t experts = 1 + below(random, 3), n = random_size(random), k = random_size(random);
    const auto orientation = one_of(random, {WeightOrientation::along_k, WeightOrientation::along_n});
    const bool along_n = orientation == WeightOrientation::along_n;
    b.input({experts, n, k});
    const auto made = along_n ? b.weights(experts, k, n) : b.weights(experts, n, k);
    const QuantizedView out = made.of(std::span<const TensorView>(b.output_views()));
    quantize_weights(b.result.inputs[0], b.options, along_n ? QuantizedView{} : out, along_n ? out : QuantizedView{},
                     by_oracle);
    const auto q = b.quantized_input(made);
    b.output(b.input_format, {experts, n, k});
    b.result.text += along_n ? ", along_n" : ", along_k";
    b.result.call = [=, options = b.options](auto in, auto outputs, Groups, const Execution& on) {
        dequantize_weights(q.of(in), orientation, options, outputs[0], on);
    };
    return std::move(b.result);
}

OpCase padding_case(const std::string& op, Random& random) {
    Builder b(op, random);
    b.options.scaling = Scaling::rowwise;
    const std::int64_t m = random_size(random), k = random_size(random), alignment = b.grouped(m);
    const std::int64_t padded = padded_bound(m, static_cast<std::int64_t>(b.result.ends.size()), alignment);
    const Format format = one_of(random, {Format::f32, Format::bf16, Format::e4m3});
    const bool pad = op == "pad_groups";
    b.result.text = fmt::format("{}, [{}, {}] padded to [{}, {}], {} groups, alignment {}", name(format), m, k, padded,
                                k, b.result.ends.size(), alignment);
    b.result.inputs.push_back(random_bytes(random, format, pad ? Extents{m, k} : Extents{padded, k}));
    b.output(format, pad ? Extents{padded, k} : Extents{m, k});
    if (pad) b.output(Format::f32, {static_cast<std::int64_t>(b.result.ends.size())});  // four bytes an offset
    b.result.call = [=](auto in, auto outputs, Groups groups, const Execution& on) {
        if (pad) {
            pad_groups(in[0], groups, alignment, outputs[0], static_cast<std::int32_t*>(outputs[1].data), on);
        } else {
            unpad_groups(in[0], groups, alignment, outputs[0], on);
        }
    };
    return std::move(b.result);
}

OpCase swizzle_case(const std::string& op, Random& random) {
    Builder b(op, random);
    const bool back = op.rfind("un", 0) == 0, grouped = op.find("group") != std::string::npos;
    const std::int64_t r = random_size(random), c = random_size(random) % 40 + 1;
    const std::int64_t experts = !grouped && below(random, 2) ? 1 + below(random, 4) : 0;
    if (grouped) b.result.ends = random_ends(random, r);
    const auto count = static_cast<std::int64_t>(b.result.ends.size());
    const std::int64_t bytes = (grouped ? swizzled_group_rows(r, count) : swizzled_rows(r)) * swizzled_columns(c);
    const Extents scale = experts ? Extents{experts, r, c} : Extents{r, c};
    const Extents blocked = experts ? Extents{experts, bytes} : Extents{bytes};
    b.result.text = fmt::format("scale {}, {} groups", to_string(scale), count);
    b.result.inputs.push_back(random_bytes(random, Format::e8m0, back ? blocked : scale));
    b.output(Format::e8m0, back ? scale : blocked);
    b.result.call = [=](auto in, auto outputs, Groups groups, const Execution& on) {
        if (grouped) {
            (back ? unswizzle_group_scales : swizzle_group_scales)(in[0], groups, outputs[0], on);
        } else {
            (back ? unswizzle_scales : swizzle_scales)(in[0], outputs[0], on);
        }
    };
    return std::move(b.result);
}

struct Maker {
    const char* op;
    OpCase (*make)(const std::string&, Random&);
};

constexpr Maker makers[] = {{"quantize_rows", rows_case},
                            {"quantize_columns", columns_case},
                            {"quantize_columns_dual", dual_case},
                            {"quantize_pair", pair_case},
                            {"quantize_transposed", transposed_case},
                            {"quantize_weights", weights_case},
                            {"dequantize_rows", dequantize_rows_case},
                            {"dequantize_columns", dequantize_tokens_case},
                            {"dequantize_transposed", dequantize_tokens_case},
                            {"dequantize_weights", dequantize_weights_case},
                            {"pad_groups", padding_case},
                            {"unpad_groups", padding_case},
                            {"swizzle_scales", swizzle_case},
                            {"unswizzle_scales", swizzle_case},
                            {"swizzle_group_scales", swizzle_case},
                            {"unswizzle_group_scales", swizzle_case}};

bool same_element(Format format, const std::uint8_t* a, const std::uint8_t* b) {
    if (std::memcmp(a, b, static_cast<std::size_t>(bytes_of(format))) == 0) return true;
    // NaNs are equal, whatever their sign or payload.
    if (format == Format::f32) {
        float x, y;
        std::memcpy(&x, a, 4);
        std::memcpy(&y, b, 4);
        return detail::is_nan(x) && detail::is_nan(y);
    }
    if (format == Format::bf16) {
        std::uint16_t x, y;
        std::memcpy(&x, a, 2);
        std::memcpy(&y, b, 2);
        return detail::is_nan(BF16::decode(x)) && detail::is_nan(BF16::decode(y));
    }
    if (!is_fp8(format)) return false;
    return with_fp8(format, [&](auto codec) { return codec.is_nan(*a) && codec.is_nan(*b); });
}

}  // namespace

std::vector<std::string> op_names() {
    std::vector<std::string> names;
    for (const Maker& maker : makers) names.emplace_back(maker.op);
    return names;
}

OpCase random_case(const std::string& op, Random& random) {
    for (const Maker& maker : makers)
        if (op == maker.op) return maker.make(op, random);
    fail(Status::invalid_argument, "unknown operation '", op, "'");
}

std::int64_t first_difference(const Tensor& a, const Tensor& b) {
    if (a.elements() == 0 || std::memcmp(a.as<std::uint8_t>(), b.as<std::uint8_t>(), a.bytes()) == 0) return -1;
    const std::int64_t size = bytes_of(a.format());
    for (std::int64_t i = 0; i < a.elements(); ++i)
        if (!same_element(a.format(), a.as<std::uint8_t>() + i * size, b.as<std::uint8_t>() + i * size)) return i;
    return -1;
}

}  // namespace octet::tool
