// Tokens to rows sorted by expert, and back.
#include <algorithm>
#include <cstring>

#include "cpu/parallel.hpp"
#include "octet/error.hpp"
#include "octet/moe.hpp"

namespace octet {
namespace {

constexpr std::int64_t rows_per_task = 16;
constexpr std::int64_t piece = 512;  // features summed at a time: the sums stay in the first-level cache

void check_pair(const char* what, const ConstTensorView& x, std::int64_t rows, const char* other,
                const ConstTensorView& y) {
    require(x.rank() == 2 && y.rank() == 2 && x.size(0) == rows && x.size(1) == y.size(1), what, " has shape ",
            to_string(x.extents), " and ", other, " has shape ", to_string(y.extents), "; expected ", rows,
            " rows of the same number of features in ", what);
    require(x.format == y.format || x.format == Format::f32, what, " has format ", name(x.format), " and ", other, " ",
            name(y.format));
}

template <class View>
auto* row_of(const View& view, std::int64_t row) {
    using Byte = std::conditional_t<std::is_same_v<View, TensorView>, char, const char>;
    return static_cast<Byte*>(view.data) + row * view.stride(0) * bytes_of(view.format);
}

void add_to(float* sums, const ConstTensorView& x, std::int64_t row, std::int64_t from, std::int64_t count) {
    if (x.format == Format::f32) {
        const auto* in = reinterpret_cast<const float*>(row_of(x, row)) + from;
        for (std::int64_t i = 0; i < count; ++i) sums[i] += in[i];
    } else {
        const auto* in = reinterpret_cast<const std::uint16_t*>(row_of(x, row)) + from;
        for (std::int64_t i = 0; i < count; ++i) sums[i] += BF16::decode(in[i]);
    }
}

void store_to(const TensorView& y, std::int64_t row, std::int64_t from, std::int64_t count, const float* sums) {
    if (y.format == Format::f32) {
        std::copy_n(sums, count, reinterpret_cast<float*>(row_of(y, row)) + from);
    } else {
        auto* out = reinterpret_cast<std::uint16_t*>(row_of(y, row)) + from;
        for (std::int64_t i = 0; i < count; ++i) out[i] = BF16::encode(sums[i]);
    }
}

}  // namespace

void gather_rows(const Routing& routing, ConstTensorView tokens, TensorView rows, const Execution& on) {
    check_pair("tokens", tokens, routing.tokens, "rows", rows);
    require(rows.size(0) == routing.rows(), "rows has shape ", to_string(rows.extents), ", expected ", routing.rows(),
            " rows: ", routing.tokens, " tokens times top_k ", routing.top_k);
    require(tokens.format == rows.format, "tokens have format ", name(tokens.format), " and rows ", name(rows.format));
    const auto bytes = static_cast<std::size_t>(tokens.size(1) * bytes_of(tokens.format));
    cpu::parallel_for(on.threads, routing.rows(), rows_per_task, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t m = begin; m < end; ++m)
            std::memcpy(row_of(rows, m), row_of(tokens, routing.slot_of_row[m] / routing.top_k), bytes);
    });
}

void sum_rows(const Routing& routing, ConstTensorView rows, std::span<const ConstTensorView> addends, TensorView y,
              const Execution& on) {
    check_pair("rows", rows, routing.rows(), "y", y);
    for (const ConstTensorView& addend : addends) check_pair("an addend", addend, routing.tokens, "y", y);
    require(y.size(0) == routing.tokens, "y has shape ", to_string(y.extents), ", expected ", routing.tokens,
            " tokens");
    const std::int64_t features = y.size(1);
    cpu::parallel_for(on.threads, routing.tokens, rows_per_task, [&](std::int64_t begin, std::int64_t end) {
        float sums[piece];
        for (std::int64_t t = begin; t < end; ++t) {
            for (std::int64_t from = 0; from < features; from += piece) {
                const std::int64_t count = std::min(piece, features - from);
                std::fill_n(sums, count, 0.0f);
                for (std::int64_t j = 0; j < routing.top_k; ++j)
                    add_to(sums, rows, routing.row_of_slot[t * routing.top_k + j], from, count);
                for (const ConstTensorView& addend : addends) add_to(sums, addend, t, from, count);
                store_to(y, t, from, count, sums);
            }
        }
    });
}

}  // namespace octet
