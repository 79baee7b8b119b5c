#include "reference/quantize.hpp"

#include <algorithm>

#include "core/element.hpp"

// How 8-bit quantization works, in one paragraph. An 8-bit float has few values and a small range, so the elements of a
// tensor are multiplied by a scale that brings the largest of them to the largest value the format has, rounded to the
// nearest 8-bit value, and stored beside the scale. Which elements share a scale is called the scaling: a whole row, a
// block of 128, or a block of 32. A scale may only be shared by elements that one sum of a matrix product runs over:
// then it can be taken out of the sum and applied once at its end. That is why the same tensor is quantized once along
// its features (for the forward product) and once along its tokens (for the weight gradient).

namespace octet::reference {
namespace {

// Quantizes `count` elements that share one scale. read(i) gives element i as f32, write(i, code) takes its 8 bits, and
// write_scale(scale) the scale: a multiplier (f32) for rowwise and blockwise, a byte for mx.
template <class Read, class Write, class WriteScale>
void quantize_sharing_a_scale(std::int64_t count, const QuantizeOptions& options, Read read, Write write,
                              WriteScale write_scale) {
    float amax = 0.0f;
    for (std::int64_t i = 0; i < count; ++i) amax = fold_amax(amax, read(i));

    with_fp8(options.format, [&](auto codec) {
        using Codec = decltype(codec);
        float multiplier;
        if (options.scaling == Scaling::mx) {
            const std::uint8_t code = mx_scale_of<Codec>(amax, options.mx_mode);
            write_scale(code);
            multiplier = mx_multiplier(code);
        } else {
            multiplier = scale_of(amax, Codec::max, options.scale_rounding);
            write_scale(multiplier);
        }
        // encode() clamps to the format's largest value, rounds to nearest even, and keeps NaN.
        for (std::int64_t i = 0; i < count; ++i) write(i, Codec::encode(read(i) * multiplier));
    });
}

// Writes a scale to its place in the scale tensor and, for multipliers, its reciprocal beside it.
template <class... Index>
auto scale_writer(const QuantizedView& out, Index... index) {
    return [=](auto scale) {
        if constexpr (std::is_same_v<decltype(scale), std::uint8_t>) {
            at<std::uint8_t>(out.scale, index...) = scale;
        } else {
            if (!out.scale.null()) at<float>(out.scale, index...) = scale;
            if (!out.inverse.null()) at<float>(out.inverse, index...) = 1.0f / scale;
        }
    };
}

// How many elements share a scale along the reduction: a block, or all of it.
std::int64_t run_of(Scaling scaling, std::int64_t reduction) {
    return block_of(scaling) == 0 ? reduction : block_of(scaling);
}

// Tokens of one group are quantized along the token axis, whichever way the tensor lies: element(t, f) reads token t of
// feature f. The padding up to the group's aligned end counts as zeros, in the data and for the scales.
template <class Element>
void quantize_tokens(std::int64_t features, Element element, const Groups& groups, std::int64_t alignment,
                     const QuantizeOptions& options, const QuantizedView& out) {
    for_each_group(groups, alignment, [&](const GroupRange& group) {
        const std::int64_t padded_rows = group.padded_end - group.padded_begin;
        const auto token_or_zero = [&](std::int64_t t, std::int64_t f) {
            return t < group.rows() ? element(group.begin + t, f) : 0.0f;
        };
        for (std::int64_t f = 0; f < features; ++f) {
            const auto write_from = [&](std::int64_t start) {
                return [&, start](std::int64_t i, std::uint8_t code) {
                    // The padding is zero bytes even where the scale is NaN and zero times it is not.
                    const bool padding = start + i >= group.rows();
                    at<std::uint8_t>(out.data, f, group.padded_begin + start + i) = padding ? 0 : code;
                };
            };
            if (options.scaling == Scaling::rowwise) {
                quantize_sharing_a_scale(
                    padded_rows, options, [&](std::int64_t i) { return token_or_zero(i, f); }, write_from(0),
                    scale_writer(out, group.index, f));
                continue;
            }
            const std::int64_t block = block_of(options.scaling);
            for (std::int64_t start = 0; start < padded_rows; start += block)
                quantize_sharing_a_scale(
                    block, options, [&](std::int64_t i) { return token_or_zero(start + i, f); }, write_from(start),
                    scale_writer(out, f, (group.padded_begin + start) / block));
        }
    });
}

// One expert's weights in one orientation. element(r, c) reads row r, column c of the oriented matrix [rows, columns],
// whose columns the product reduces over.
template <class Element>
void quantize_expert(std::int64_t expert, std::int64_t rows, std::int64_t columns, Element element,
                     const QuantizeOptions& options, const QuantizedView& out) {
    const std::int64_t run = run_of(options.scaling, columns);
    const std::int64_t height = options.scaling == Scaling::blockwise ? block_of(options.scaling) : 1;
    for (std::int64_t r0 = 0; r0 < rows; r0 += height) {
        for (std::int64_t c0 = 0; c0 < columns; c0 += run) {
            const std::int64_t width = std::min(run, columns - c0);
            const std::int64_t count = std::min(height, rows - r0) * width;
            const auto read = [&](std::int64_t i) { return element(r0 + i / width, c0 + i % width); };
            const auto write = [&](std::int64_t i, std::uint8_t code) {
                at<std::uint8_t>(out.data, expert, r0 + i / width, c0 + i % width) = code;
            };
            if (options.scaling == Scaling::rowwise) {
                quantize_sharing_a_scale(count, options, read, write, scale_writer(out, expert, r0));
            } else {
                quantize_sharing_a_scale(count, options, read, write, scale_writer(out, expert, r0 / height, c0 / run));
            }
        }
    }
}

// What an 8-bit element stands for: its value divided by the multiplier, which is what products multiply by.
template <class... Index>
float inverse_scale(const ConstQuantizedView& q, Index... index) {
    if (q.scale.format == Format::e8m0 && !q.scale.null()) return load(q.scale, index...);
    if (!q.inverse.null()) return load(q.inverse, index...);
    return 1.0f / load(q.scale, index...);
}

}  // namespace

void quantize_rows(ConstTensorView x, const QuantizeOptions& options, QuantizedView out, const Execution&) {
    const std::int64_t m = x.size(0), k = x.size(1);
    const std::int64_t run = run_of(options.scaling, k);
    for (std::int64_t row = 0; row < m; ++row) {
        if (options.scaling == Scaling::rowwise) {
            quantize_sharing_a_scale(
                k, options, [&](std::int64_t i) { return load(x, row, i); },
                [&](std::int64_t i, std::uint8_t code) { at<std::uint8_t>(out.data, row, i) = code; },
                scale_writer(out, row));
            continue;
        }
        for (std::int64_t start = 0; start < k; start += run)
            quantize_sharing_a_scale(
                std::min(run, k - start), options, [&](std::int64_t i) { return load(x, row, start + i); },
                [&](std::int64_t i, std::uint8_t code) { at<std::uint8_t>(out.data, row, start + i) = code; },
                scale_writer(out, row, start / run));
    }
}

void quantize_columns(ConstTensorView x, Groups groups, std::int64_t alignment, const QuantizeOptions& options,
                      QuantizedView out, const Execution&) {
    quantize_tokens(
        x.size(1), [&](std::int64_t token, std::int64_t feature) { return load(x, token, feature); }, groups, alignment,
        options, out);
}

void quantize_columns_dual(ConstTensorView x0, ConstTensorView x1, Groups groups, std::int64_t alignment,
                           const QuantizeOptions& options, QuantizedView out0, QuantizedView out1,
                           const Execution& on) {
    reference::quantize_columns(x0, groups, alignment, options, out0, on);
    reference::quantize_columns(x1, groups, alignment, options, out1, on);
}

void quantize_pair(ConstTensorView x, Groups groups, std::int64_t alignment, const QuantizeOptions& options,
                   QuantizedView rows, QuantizedView columns, const Execution& on) {
    reference::quantize_rows(x, options, rows, on);
    reference::quantize_columns(x, groups, alignment, options, columns, on);
}

void quantize_transposed(ConstTensorView x, Groups groups, std::int64_t alignment, const QuantizeOptions& options,
                         QuantizedView out, const Execution&) {
    quantize_tokens(
        x.size(0), [&](std::int64_t token, std::int64_t feature) { return load(x, feature, token); }, groups, alignment,
        options, out);
}

void quantize_weights(ConstTensorView w, const QuantizeOptions& options, QuantizedView along_k, QuantizedView along_n,
                      const Execution&) {
    const std::int64_t n = w.size(1), k = w.size(2);
    for (std::int64_t expert = 0; expert < w.size(0); ++expert) {
        if (!along_k.data.null())
            quantize_expert(
                expert, n, k, [&](std::int64_t row, std::int64_t column) { return load(w, expert, row, column); },
                options, along_k);
        if (!along_n.data.null())
            quantize_expert(
                expert, k, n, [&](std::int64_t row, std::int64_t column) { return load(w, expert, column, row); },
                options, along_n);
    }
}

void dequantize_rows(ConstQuantizedView q, const QuantizeOptions& options, TensorView x, const Execution&) {
    for (std::int64_t row = 0; row < x.size(0); ++row) {
        for (std::int64_t i = 0; i < x.size(1); ++i) {
            const float inverse = options.scaling == Scaling::rowwise
                                      ? inverse_scale(q, row)
                                      : inverse_scale(q, row, i / block_of(options.scaling));
            store(x, load(q.data, row, i) * inverse, row, i);
        }
    }
}

namespace {

// store_token(t, f, value) puts token t of feature f where the tensor has it.
template <class StoreToken>
void dequantize_tokens(const ConstQuantizedView& q, std::int64_t features, const Groups& groups, std::int64_t alignment,
                       const QuantizeOptions& options, StoreToken store_token) {
    for_each_group(groups, alignment, [&](const GroupRange& group) {
        for (std::int64_t f = 0; f < features; ++f) {
            for (std::int64_t t = 0; t < group.rows(); ++t) {
                const std::int64_t column = group.padded_begin + t;
                const float inverse = options.scaling == Scaling::rowwise
                                          ? inverse_scale(q, group.index, f)
                                          : inverse_scale(q, f, column / block_of(options.scaling));
                store_token(group.begin + t, f, load(q.data, f, column) * inverse);
            }
        }
    });
}

}  // namespace

void dequantize_columns(ConstQuantizedView q, Groups groups, std::int64_t alignment, const QuantizeOptions& options,
                        TensorView x, const Execution&) {
    dequantize_tokens(q, x.size(1), groups, alignment, options,
                      [&](std::int64_t token, std::int64_t feature, float value) { store(x, value, token, feature); });
}

void dequantize_transposed(ConstQuantizedView q, Groups groups, std::int64_t alignment, const QuantizeOptions& options,
                           TensorView x, const Execution&) {
    dequantize_tokens(q, x.size(0), groups, alignment, options,
                      [&](std::int64_t token, std::int64_t feature, float value) { store(x, value, feature, token); });
}

void dequantize_weights(ConstQuantizedView q, WeightOrientation orientation, const QuantizeOptions& options,
                        TensorView w, const Execution&) {
    const std::int64_t block = block_of(options.scaling);
    for (std::int64_t expert = 0; expert < w.size(0); ++expert) {
        for (std::int64_t n = 0; n < w.size(1); ++n) {
            for (std::int64_t k = 0; k < w.size(2); ++k) {
                const bool transposed = orientation == WeightOrientation::along_n;
                const std::int64_t row = transposed ? k : n, column = transposed ? n : k;
                const float inverse = options.scaling == Scaling::rowwise ? inverse_scale(q, expert, row)
                                      : options.scaling == Scaling::blockwise
                                          ? inverse_scale(q, expert, row / block, column / block)
                                          : inverse_scale(q, expert, row, column / block);
                store(w, load(q.data, expert, row, column) * inverse, expert, n, k);
            }
        }
    }
}

}  // namespace octet::reference
