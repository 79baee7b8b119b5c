// Back from 8 bits: rows, and transposed data through small squares that fit the first-level cache.
#include <algorithm>
#include <vector>

#include "core/element.hpp"
#include "core/parallel.hpp"
#include "cpu/quantize.hpp"
#include "cpu/rows.hpp"
#include "cpu/workspace.hpp"

namespace octet::cpu {
namespace {

// What elements are multiplied with: the scale of mx, the reciprocal of a multiplier otherwise.
template <class... Index>
float inverse_at(const ConstQuantizedView& q, Index... index) {
    if (!q.scale.null() && q.scale.format == Format::e8m0) return load(q.scale, index...);
    if (!q.inverse.null()) return load(q.inverse, index...);
    return 1.0f / load(q.scale, index...);
}

// A matrix of 8-bit data whose rows are decoded, and where the values go.
//   data[rows, columns]: element (r, c) has the inverse scale inverse(r, c >> block_shift)
//   x: element (r, c) goes to x + r * x_row + c * x_column, one of which is 1
struct Block {
    const std::uint8_t* data;
    std::int64_t pitch, rows, columns;
    std::byte* x;
    std::int64_t x_row, x_column;  // in elements
};

class Dequantizer {
public:
    Dequantizer(Format output, const QuantizeOptions& options)
        : kernels_(row_kernels(output, options.format)),
          block_shift_(block_shift_of(options.scaling)),
          element_(bytes_of(output)) {}

    // inverse(r, b) for row r and block b of the columns.
    template <class Inverse>
    void operator()(const Block& block, Inverse inverse) const {
        if (block.x_column == 1) return in_place(block, inverse);
        element_ == 2 ? transposed<std::uint16_t>(block, inverse) : transposed<std::uint32_t>(block, inverse);
    }

private:
    std::int64_t blocks_of(std::int64_t columns) const {
        return block_shift_ == whole_row ? 1 : ceil_div(columns, std::int64_t{1} << block_shift_);
    }

    template <class Inverse>
    void in_place(const Block& block, Inverse inverse) const {
        Workspace work;
        const std::int64_t blocks = blocks_of(block.columns);
        auto* factors = work.take<float>(blocks);
        for (std::int64_t r = 0; r < block.rows; ++r) {
            for (std::int64_t b = 0; b < blocks; ++b) factors[b] = inverse(r, b);
            kernels_.decode(block.data + r * block.pitch, block.columns, block_shift_, factors,
                            block.x + r * block.x_row * element_);
        }
    }

    // Squares of side x side: decoded row by row, then written column by column.
    template <class Element, class Inverse>
    void transposed(const Block& block, Inverse inverse) const {
        constexpr std::int64_t side = 64;  // a multiple of 32 and a divisor of 128
        Element square[side][side];
        float factors[2];
        for (std::int64_t c0 = 0; c0 < block.columns; c0 += side) {
            const std::int64_t columns = std::min(side, block.columns - c0);
            const std::int64_t first = block_shift_ == whole_row ? 0 : c0 >> block_shift_;
            for (std::int64_t r0 = 0; r0 < block.rows; r0 += side) {
                const std::int64_t rows = std::min(side, block.rows - r0);
                for (std::int64_t r = 0; r < rows; ++r) {
                    for (std::int64_t b = 0; b < blocks_of(columns); ++b) factors[b] = inverse(r0 + r, first + b);
                    kernels_.decode(block.data + (r0 + r) * block.pitch + c0, columns, block_shift_, factors,
                                    square[r]);
                }
                for (std::int64_t c = 0; c < columns; ++c) {
                    auto* to = reinterpret_cast<Element*>(block.x) + (c0 + c) * block.x_column + r0;
                    for (std::int64_t r = 0; r < rows; ++r) to[r] = square[r][c];
                }
            }
        }
    }

    const RowKernels& kernels_;
    int block_shift_;
    std::int64_t element_;
};

// Tokens along the data's last axis; x has them along `token_axis`.
void dequantize_tokens(const ConstQuantizedView& q, const Groups& groups, std::int64_t alignment,
                       const QuantizeOptions& options, const TensorView& x, int token_axis, int threads) {
    const std::int64_t features = x.size(1 - token_axis), element = bytes_of(x.format);
    const std::int64_t block = block_of(options.scaling);
    const Dequantizer dequantize(x.format, options);
    // The contiguous axis steps by 1 whatever the stride of a single element says.
    const std::int64_t feature_step = token_axis == 0 ? 1 : x.stride(0);
    const std::int64_t token_step = token_axis == 0 ? x.stride(0) : 1;
    constexpr std::int64_t strip = 64;  // features of a task
    std::vector<GroupRange> ranges;
    for_each_group(groups, alignment, [&](const GroupRange& group) { ranges.push_back(group); });
    const std::int64_t strips = ceil_div(features, strip);
    parallel_for(threads, groups.count * strips, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
            const GroupRange& group = ranges[static_cast<std::size_t>(i / strips)];
            const std::int64_t f0 = i % strips * strip;
            const Block data = {
                static_cast<const std::uint8_t*>(q.data.data) + f0 * q.data.stride(0) + group.padded_begin,
                q.data.stride(0),
                std::min(strip, features - f0),
                group.rows(),
                static_cast<std::byte*>(x.data) + (f0 * feature_step + group.begin * token_step) * element,
                feature_step,
                token_step};
            if (group.rows() == 0) continue;
            dequantize(data, [&](std::int64_t r, std::int64_t b) {
                return block == 0 ? inverse_at(q, group.index, f0 + r)
                                  : inverse_at(q, f0 + r, group.padded_begin / block + b);
            });
        }
    });
}

}  // namespace

void dequantize_rows(ConstQuantizedView q, const QuantizeOptions& options, TensorView x, const Execution& on) {
    const std::int64_t k = x.size(1), element = bytes_of(x.format);
    const Dequantizer dequantize(x.format, options);
    parallel_for(on.threads, x.size(0), row_grain(k * element), [&](std::int64_t begin, std::int64_t end) {
        const Block data = {static_cast<const std::uint8_t*>(q.data.data) + begin * q.data.stride(0),
                            q.data.stride(0),
                            end - begin,
                            k,
                            static_cast<std::byte*>(x.data) + begin * x.stride(0) * element,
                            x.stride(0),
                            1};
        dequantize(data, [&](std::int64_t r, std::int64_t b) {
            return options.scaling == Scaling::rowwise ? inverse_at(q, begin + r) : inverse_at(q, begin + r, b);
        });
    });
}

void dequantize_columns(ConstQuantizedView q, Groups groups, std::int64_t alignment, const QuantizeOptions& options,
                        TensorView x, const Execution& on) {
    dequantize_tokens(q, groups, alignment, options, x, 0, on.threads);
}

void dequantize_transposed(ConstQuantizedView q, Groups groups, std::int64_t alignment, const QuantizeOptions& options,
                           TensorView x, const Execution& on) {
    dequantize_tokens(q, groups, alignment, options, x, 1, on.threads);
}

void dequantize_weights(ConstQuantizedView q, WeightOrientation orientation, const QuantizeOptions& options,
                        TensorView w, const Execution& on) {
    const bool along_n = orientation == WeightOrientation::along_n;
    const std::int64_t rows = w.size(along_n ? 2 : 1), columns = w.size(along_n ? 1 : 2), element = bytes_of(w.format);
    const std::int64_t row_step = along_n ? 1 : w.stride(1), column_step = along_n ? w.stride(1) : 1;
    const Dequantizer dequantize(w.format, options);
    constexpr std::int64_t strip = 64;  // rows of a task
    const std::int64_t strips = ceil_div(rows, strip);
    parallel_for(on.threads, w.size(0) * strips, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
            const std::int64_t expert = i / strips, r0 = i % strips * strip;
            const Block data = {
                static_cast<const std::uint8_t*>(q.data.data) + expert * q.data.stride(0) + r0 * q.data.stride(1),
                q.data.stride(1),
                std::min(strip, rows - r0),
                columns,
                static_cast<std::byte*>(w.data) + (expert * w.stride(0) + r0 * row_step) * element,
                row_step,
                column_step};
            dequantize(data, [&](std::int64_t r, std::int64_t b) {
                switch (options.scaling) {
                    case Scaling::rowwise: return inverse_at(q, expert, r0 + r);
                    case Scaling::blockwise: return inverse_at(q, expert, (r0 + r) / block_of(Scaling::blockwise), b);
                    case Scaling::mx: break;
                }
                return inverse_at(q, expert, r0 + r, b);
            });
        }
    });
}

}  // namespace octet::cpu
