#include "reference/product.hpp"

#include <cmath>
#include <cstddef>
#include <vector>

#include "core/element.hpp"

namespace octet::reference {
namespace {

// f64 to f32 so that a later rounding to bf16 is as if made from the f64: to odd (the last bit says "there was more").
float round_to_odd(double value) {
    const float nearest = static_cast<float>(value);
    if (!std::isfinite(nearest) || static_cast<double>(nearest) == value) return nearest;
    const bool away = std::fabs(static_cast<double>(nearest)) > std::fabs(value);
    const float toward_zero = away ? std::nextafter(nearest, 0.0f) : nearest;
    return detail::f32_from_bits(detail::f32_bits(toward_zero) | 1u);
}

void write(const TensorView& out, double value, Update update, std::int64_t i, std::int64_t j) {
    if (out.format == Format::bf16) {
        std::uint16_t& place = at<std::uint16_t>(out, i, j);
        const std::uint16_t rounded = BF16::encode(round_to_odd(value));
        place = update == Update::add ? BF16::encode(BF16::decode(place) + BF16::decode(rounded)) : rounded;
    } else {
        const double before = update == Update::add ? static_cast<double>(at<float>(out, i, j)) : 0.0;
        at<float>(out, i, j) = static_cast<float>(before + value);
    }
}

// What an element's 8-bit code is multiplied with to give its value.
double rows_scale(const Operand& x, std::int64_t row, std::int64_t c) {
    if (!x.quantized()) return 1.0;
    switch (x.scaling) {
        case Scaling::rowwise: return static_cast<double>(load(x.values.inverse, row));
        case Scaling::blockwise: return static_cast<double>(load(x.values.inverse, row, c / 128));
        case Scaling::mx: return static_cast<double>(load(x.values.scale, row, c / 32));
    }
    return 1.0;
}

double weights_scale(const Operand& w, std::int64_t expert, std::int64_t row, std::int64_t c) {
    if (!w.quantized()) return 1.0;
    switch (w.scaling) {
        case Scaling::rowwise: return static_cast<double>(load(w.values.inverse, expert, row));
        case Scaling::blockwise: return static_cast<double>(load(w.values.inverse, expert, row / 128, c / 128));
        case Scaling::mx: return static_cast<double>(load(w.values.scale, expert, row, c / 32));
    }
    return 1.0;
}

// Token t of a group's column: plain operands have tokens as rows, quantized ones along the padded axis.
double column_value(const Operand& x, const GroupRange& group, std::int64_t feature, std::int64_t t) {
    if (!x.quantized()) return static_cast<double>(load(x.data(), group.begin + t, feature));
    const std::int64_t p = group.padded_begin + t;
    const double code = static_cast<double>(load(x.data(), feature, p));
    switch (x.scaling) {
        case Scaling::rowwise: return code * static_cast<double>(load(x.values.inverse, group.index, feature));
        case Scaling::blockwise: return code * static_cast<double>(load(x.values.inverse, feature, p / 128));
        case Scaling::mx: return code * static_cast<double>(load(x.values.scale, feature, p / 32));
    }
    return code;
}

// out[i,j] = sum over r of x[i,r] y[j,r]
void multiply(const std::vector<double>& x, const std::vector<double>& y, std::int64_t rows, std::int64_t columns,
              std::int64_t reduction, const TensorView& out, Update update) {
    for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t j = 0; j < columns; ++j) {
            const double* xi = x.data() + i * reduction;
            const double* yj = y.data() + j * reduction;
            double sum = 0.0;
            for (std::int64_t r = 0; r < reduction; ++r) sum += xi[r] * yj[r];
            write(out, sum, update, i, j);
        }
    }
}

// One matrix of a stack, or some rows of a matrix.
TensorView matrix(const TensorView& view, std::int64_t index) {
    char* data = static_cast<char*>(view.data) + index * view.stride(0) * bytes_of(view.format);
    return {data, view.format, Extents({view.size(1), view.size(2)}, {view.stride(1), view.stride(2)}), view.device};
}
TensorView rows_from(const TensorView& view, std::int64_t row) {
    TensorView rows = view;
    rows.data = static_cast<char*>(view.data) + row * view.stride(0) * bytes_of(view.format);
    return rows;
}

std::vector<double> make_matrix(std::int64_t rows, std::int64_t columns) {
    return std::vector<double>(static_cast<std::size_t>(rows * columns));
}

}  // namespace

void grouped_rows(const Operand& x, const Operand& w, Groups groups, TensorView y, const ProductOptions& options,
                  const Execution&) {
    const std::int64_t rows = w.data().size(1), reduction = w.data().size(2);
    for_each_group(groups, 1, [&](const GroupRange& group) {
        if (group.rows() == 0) return;
        std::vector<double> tokens = make_matrix(group.rows(), reduction), weights = make_matrix(rows, reduction);
        for (std::int64_t i = 0; i < group.rows(); ++i)
            for (std::int64_t c = 0; c < reduction; ++c)
                tokens[static_cast<std::size_t>(i * reduction + c)] =
                    static_cast<double>(load(x.data(), group.begin + i, c)) * rows_scale(x, group.begin + i, c);
        for (std::int64_t r = 0; r < rows; ++r)
            for (std::int64_t c = 0; c < reduction; ++c)
                weights[static_cast<std::size_t>(r * reduction + c)] =
                    static_cast<double>(load(w.data(), group.index, r, c)) * weights_scale(w, group.index, r, c);
        multiply(tokens, weights, group.rows(), rows, reduction, rows_from(y, group.begin), options.update);
    });
}

void grouped_wgrad(const Operand& dy, const Operand& a, Groups groups, std::int64_t alignment, TensorView dw,
                   const ProductOptions& options, const Execution&) {
    const std::int64_t n = dw.size(1), k = dw.size(2);
    std::int64_t a_end = 0;  // of the group in a, whose groups may start on other multiples than those of dy
    for_each_group(groups, dy.aligned_to(alignment), [&](const GroupRange& group) {
        GroupRange in_a = group;
        in_a.padded_begin = a_end;
        a_end += round_up(group.rows(), a.aligned_to(alignment));
        std::vector<double> left = make_matrix(n, group.rows()), right = make_matrix(k, group.rows());
        for (std::int64_t i = 0; i < n; ++i)
            for (std::int64_t t = 0; t < group.rows(); ++t)
                left[static_cast<std::size_t>(i * group.rows() + t)] = column_value(dy, group, i, t);
        for (std::int64_t j = 0; j < k; ++j)
            for (std::int64_t t = 0; t < group.rows(); ++t)
                right[static_cast<std::size_t>(j * group.rows() + t)] = column_value(a, in_a, j, t);
        if (group.rows() == 0 && options.update == Update::add) return;
        multiply(left, right, n, k, group.rows(), matrix(dw, group.index), options.update);
    });
}

}  // namespace octet::reference
