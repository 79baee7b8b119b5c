// Random tensors, group offsets and quantized operands for tests of products and of what is built on them.
#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "core/element.hpp"
#include "octet/memory.hpp"
#include "octet/product.hpp"
#include "octet/quantize.hpp"

namespace octet::testing {

using Random = std::mt19937_64;

inline std::int64_t uniform(Random& random, std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

inline Tensor make_normal(Format format, Extents extents, Random& random, float sigma = 1.0f) {
    Tensor tensor(format, extents);
    std::normal_distribution<float> normal(0.0f, sigma);
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
        if (format == Format::f32) tensor.as<float>()[i] = normal(random);
        if (format == Format::bf16) tensor.as<std::uint16_t>()[i] = BF16::encode(normal(random));
    }
    return tensor;
}

// Every byte 0xA5: what an operation did not write is seen.
inline Tensor make_poisoned(Format format, Extents extents) {
    Tensor tensor(format, extents);
    if (tensor.bytes() > 0) std::memset(tensor.as<std::uint8_t>(), 0xA5, tensor.bytes());
    return tensor;
}

inline std::vector<double> to_doubles(const Tensor& tensor) {
    const ConstTensorView flat(tensor.view().data, tensor.format(), {tensor.elements()});
    std::vector<double> values;
    for (std::int64_t i = 0; i < tensor.elements(); ++i) values.push_back(static_cast<double>(load(flat, i)));
    return values;
}

// Offsets of `count` groups over `tokens` rows: empty ones, single rows, one with everything, rows left to nobody.
inline std::vector<std::int32_t> make_ends(Random& random, std::int64_t tokens, std::int64_t count) {
    std::vector<std::int32_t> ends(static_cast<std::size_t>(count), 0);
    const std::int64_t kind = uniform(random, 0, 3);
    const std::int64_t used = uniform(random, 0, 3) == 0 ? uniform(random, 0, tokens) : tokens;
    if (kind == 0) {  // everything in one group
        const std::int64_t owner = uniform(random, 0, count - 1);
        for (std::int64_t g = owner; g < count; ++g)
            ends[static_cast<std::size_t>(g)] = static_cast<std::int32_t>(used);
        return ends;
    }
    for (auto& end : ends) end = static_cast<std::int32_t>(uniform(random, 0, used));
    std::sort(ends.begin(), ends.end());
    if (kind == 1) ends.back() = static_cast<std::int32_t>(used);
    if (kind == 2 && count > 1 && used > 0) {  // a group of one row
        ends[0] = 1;
        for (auto& end : ends) end = std::max(end, ends[0]);
    }
    return ends;
}

inline Groups groups_of(const std::vector<std::int32_t>& ends) {
    return {ends.data(), static_cast<std::int64_t>(ends.size()), {}};
}

// A quantized operand that owns its memory.
struct OwnedOperand {
    QuantizeOptions options{};
    Tensor data{}, scale{};
    bool mx() const { return options.scaling == Scaling::mx; }
    QuantizedView view() { return mx() ? QuantizedView{data, scale, {}} : QuantizedView{data, {}, scale}; }
    Operand operand() { return {view(), options.scaling}; }
};

inline OwnedOperand make_operand(const QuantizeOptions& options, Extents data, Extents scale) {
    const Format scale_format = options.scaling == Scaling::mx ? Format::e8m0 : Format::f32;
    return {options, make_poisoned(options.format, data), make_poisoned(scale_format, scale)};
}

inline OwnedOperand quantized_rows(const Tensor& x, const QuantizeOptions& options) {
    const std::int64_t m = x.extents().shape[0], k = x.extents().shape[1];
    const Extents scale =
        options.scaling == Scaling::rowwise ? Extents{m} : Extents{m, ceil_div(k, block_of(options.scaling))};
    OwnedOperand q = make_operand(options, {m, k}, scale);
    quantize_rows(x, options, q.view(), {Backend::reference});
    return q;
}

inline OwnedOperand quantized_columns(const Tensor& x, Groups groups, std::int64_t alignment,
                                      const QuantizeOptions& options) {
    const std::int64_t m = x.extents().shape[0], k = x.extents().shape[1];
    const std::int64_t p = padded_bound(m, groups.count, alignment);
    const Extents scale =
        options.scaling == Scaling::rowwise ? Extents{groups.count, k} : Extents{k, p / block_of(options.scaling)};
    OwnedOperand q = make_operand(options, {k, p}, scale);
    quantize_columns(x, groups, alignment, options, q.view(), {Backend::reference});
    return q;
}

inline OwnedOperand quantized_weights(const Tensor& w, WeightOrientation orientation, const QuantizeOptions& options) {
    const std::int64_t e = w.extents().shape[0], n = w.extents().shape[1], k = w.extents().shape[2];
    const bool along_k = orientation == WeightOrientation::along_k;
    const std::int64_t rows = along_k ? n : k, columns = along_k ? k : n, block = block_of(options.scaling);
    const Extents scale = options.scaling == Scaling::rowwise ? Extents{e, rows}
                          : options.scaling == Scaling::blockwise
                              ? Extents{e, ceil_div(rows, block), ceil_div(columns, block)}
                              : Extents{e, rows, ceil_div(columns, block)};
    OwnedOperand q = make_operand(options, {e, rows, columns}, scale);
    quantize_weights(w, options, along_k ? q.view() : QuantizedView{}, along_k ? QuantizedView{} : q.view(),
                     {Backend::reference});
    return q;
}

// The alignment the columns of a scaling need at least.
inline std::int64_t least_alignment(Scaling scaling) { return std::max<std::int64_t>(block_of(scaling), 1); }

inline double relative_error(const std::vector<double>& got, const std::vector<double>& want) {
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
        difference += (got[i] - want[i]) * (got[i] - want[i]);
        size += want[i] * want[i];
    }
    return size > 0 ? std::sqrt(difference / size) : std::sqrt(difference);
}

inline double sqnr_db(const std::vector<double>& got, const std::vector<double>& want) {
    return -20.0 * std::log10(relative_error(got, want));
}

}  // namespace octet::testing
