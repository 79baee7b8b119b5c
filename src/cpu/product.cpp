#include "cpu/product.hpp"

#include <algorithm>
#include <vector>

#include "core/element.hpp"
#include "core/parallel.hpp"
#include "cpu/product_panel.hpp"
#include "cpu/product_rows.hpp"
#include "octet/memory.hpp"

namespace octet::cpu {
namespace {

// A tile of the output is one task, whole reduction included, so that a sum's order depends on nothing but the shapes.
constexpr std::int64_t most_rows = 512, most_columns = 704;

// A scale for every row of one side of a group's product; null: none.
struct RowScales {
    const float* first = nullptr;
    std::int64_t step = 0;
    float operator[](std::int64_t row) const { return first == nullptr ? 1.0f : first[row * step]; }
};

// out[rows, columns] = left . right^T for one group.
struct GroupProduct {
    PanelSource left{}, right{};
    RowScales left_scales{}, right_scales{};
    std::int64_t rows = 0, columns = 0, reduction = 0;
    void* out = nullptr;
    std::int64_t out_step = 0;
};

struct Tile {
    std::int64_t group, row, rows, column, columns;
};

// Pieces of nearly equal length, none longer than `most`, each a multiple of `unit` but the last.
struct Split {
    std::int64_t total = 0, piece = 0;
    Split(std::int64_t length, std::int64_t most, std::int64_t unit) : total(length) {
        const std::int64_t pieces = std::max<std::int64_t>(ceil_div(length, most), 1);
        piece = std::min(most, round_up(ceil_div(length, pieces), unit));
    }
    template <class F>
    void each(F&& f) const {
        for (std::int64_t begin = 0; begin < total; begin += piece) f(begin, std::min(piece, total - begin));
    }
};

// Panels, sums and scales of the thread that asks, kept for its next tile.
struct Scratch {
    Buffer left{static_cast<std::size_t>(panel_elements(most_rows, most_reduction)) * sizeof(float)};
    Buffer right{static_cast<std::size_t>(panel_elements(most_columns, most_reduction)) * sizeof(float)};
    Buffer sums{static_cast<std::size_t>(most_rows * panel_step(most_columns)) * sizeof(float)};
    Buffer scales{static_cast<std::size_t>(most_columns) * sizeof(float)};
    static Scratch& of_this_thread() {
        static thread_local Scratch scratch;
        return scratch;
    }
};

void finish_row(const float* sums, std::int64_t count, float left, const float* right, Format format, Update update,
                void* out) {
    const ProductRows& kernels = product_rows();
    if (format == Format::bf16 && update == Update::add) {
        kernels.finish_add_bf16(sums, count, left, right, static_cast<std::uint16_t*>(out));
    } else if (format == Format::bf16) {
        kernels.finish_bf16(sums, count, left, right, static_cast<std::uint16_t*>(out));
    } else if (update == Update::add) {
        kernels.finish_add(sums, count, left, right, static_cast<float*>(out));
    } else {
        kernels.finish_f32(sums, count, left, right, static_cast<float*>(out));
    }
}

void run_tile(const GroupProduct& product, const Tile& tile, Format format, Update update) {
    Scratch& scratch = Scratch::of_this_thread();
    float* sums = scratch.sums.as<float>();
    const std::int64_t step = panel_step(tile.columns);
    Chunk chunk = Chunk::first;
    Split(product.reduction, most_reduction, 128).each([&](std::int64_t from, std::int64_t length) {
        const BlasMatrix left = make_panel(product.left, tile.row, tile.rows, from, length, scratch.left.as<float>());
        const BlasMatrix right =
            make_panel(product.right, tile.column, tile.columns, from, length, scratch.right.as<float>());
        blas_multiply(tile.rows, tile.columns, length, left, right, chunk, sums, step);
        chunk = Chunk::further;
    });
    const bool empty = product.reduction == 0;
    if (empty) std::fill_n(sums, tile.rows * step, 0.0f);

    const float* right_scales = nullptr;
    if (product.right_scales.first != nullptr && !empty) {
        float* gathered = scratch.scales.as<float>();
        for (std::int64_t j = 0; j < tile.columns; ++j) gathered[j] = product.right_scales[tile.column + j];
        right_scales = gathered;
    }
    const std::int64_t bytes = bytes_of(format);
    char* out = static_cast<char*>(product.out) + (tile.row * product.out_step + tile.column) * bytes;
    for (std::int64_t i = 0; i < tile.rows; ++i, out += product.out_step * bytes) {
        if (i + rows_ahead < tile.rows) {
            const char* ahead = out + rows_ahead * product.out_step * bytes;
            for (std::int64_t at = 0; at < tile.columns * bytes; at += cache_line) __builtin_prefetch(ahead + at, 1);
        }
        finish_row(sums + i * step, tile.columns, empty ? 1.0f : product.left_scales[tile.row + i], right_scales,
                   format, update, out);
    }
}

void run(const std::vector<GroupProduct>& products, Format format, Update update, int threads) {
    std::vector<Tile> tiles;
    for (std::size_t g = 0; g < products.size(); ++g) {
        const GroupProduct& product = products[g];
        if (product.reduction == 0 && update == Update::add) continue;
        Split(product.rows, most_rows, 16).each([&](std::int64_t row, std::int64_t rows) {
            Split(product.columns, most_columns, 16).each([&](std::int64_t column, std::int64_t columns) {
                tiles.push_back({static_cast<std::int64_t>(g), row, rows, column, columns});
            });
        });
    }
    const SingleThreadedBlas single;
    parallel_for(threads, static_cast<std::int64_t>(tiles.size()), 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t t = begin; t < end; ++t) {
            const Tile& tile = tiles[static_cast<std::size_t>(t)];
            run_tile(products[static_cast<std::size_t>(tile.group)], tile, format, update);
        }
    });
}

template <class View>
const void* address(const View& view, std::int64_t offset) {
    return static_cast<const char*>(view.data) + offset * bytes_of(view.format);
}

void fold_scales(PanelSource& source, const ConstTensorView& scales, std::int64_t first, std::int64_t row_step,
                 std::int64_t block_step, std::int64_t block) {
    source.scales = address(scales, first);
    source.scale_format = scales.format;
    source.scale_row_step = row_step;
    source.scale_block_step = block_step;
    source.block = block;
}

const ConstTensorView& scales_of(const Operand& x) {
    return x.scaling == Scaling::mx ? x.values.scale : x.values.inverse;
}

RowScales row_scales(const Operand& x, std::int64_t first, std::int64_t step) {
    return {static_cast<const float*>(address(x.values.inverse, first)), step};
}

// Rows of x[M,C] from `row` on.
void set_rows(const Operand& x, std::int64_t row, PanelSource& source, RowScales& scales) {
    source.data = address(x.data(), row * x.data().stride(0));
    source.format = x.data().format;
    source.step = x.data().stride(0);
    if (!x.quantized()) return;
    const ConstTensorView& s = scales_of(x);
    if (x.scaling == Scaling::rowwise) {
        scales = row_scales(x, row * s.stride(0), s.stride(0));
    } else {
        fold_scales(source, s, row * s.stride(0), s.stride(0), s.stride(1), block_of(x.scaling));
    }
}

// w[expert] of w[E,R,C].
void set_weights(const Operand& w, std::int64_t expert, PanelSource& source, RowScales& scales) {
    const ConstTensorView& data = w.data();
    const bool along = data.stride(2) == 1 || data.size(2) == 1;
    source.data = address(data, expert * data.stride(0));
    source.format = data.format;
    source.lies = along ? Lies::along_reduction : Lies::across_reduction;
    source.step = data.stride(along ? 1 : 2);
    if (!w.quantized()) return;
    const ConstTensorView& s = scales_of(w);
    if (w.scaling == Scaling::rowwise) {
        scales = row_scales(w, expert * s.stride(0), s.stride(1));
    } else {
        fold_scales(source, s, expert * s.stride(0), s.stride(1), s.stride(2), block_of(w.scaling));
        if (w.scaling == Scaling::blockwise) source.rows_per_scale = block_of(w.scaling);
    }
}

// A group's tokens as the reduction: x[features, P], or plain x[M, features].
void set_tokens(const Operand& x, const GroupRange& group, PanelSource& source, RowScales& scales) {
    source.format = x.data().format;
    source.step = x.data().stride(0);
    if (!x.quantized()) {
        source.data = address(x.data(), group.begin * x.data().stride(0));
        source.lies = Lies::across_reduction;
        return;
    }
    source.data = address(x.data(), group.padded_begin);
    const ConstTensorView& s = scales_of(x);
    if (x.scaling == Scaling::rowwise) {
        scales = row_scales(x, group.index * s.stride(0), s.stride(1));
    } else {
        const std::int64_t block = block_of(x.scaling);
        fold_scales(source, s, group.padded_begin / block * s.stride(1), s.stride(0), s.stride(1), block);
    }
}

}  // namespace

void grouped_rows(const Operand& x, const Operand& w, Groups groups, TensorView y, const ProductOptions& options,
                  const Execution& on) {
    std::vector<GroupProduct> products;
    for_each_group(groups, 1, [&](const GroupRange& group) {
        GroupProduct product;
        product.rows = group.rows();
        product.columns = w.data().size(1);
        product.reduction = w.data().size(2);
        set_rows(x, group.begin, product.left, product.left_scales);
        set_weights(w, group.index, product.right, product.right_scales);
        product.out = const_cast<void*>(address(y, group.begin * y.stride(0)));
        product.out_step = y.stride(0);
        products.push_back(product);
    });
    run(products, y.format, options.update, on.threads);
}

void grouped_wgrad(const Operand& dy, const Operand& a, Groups groups, std::int64_t alignment, TensorView dw,
                   const ProductOptions& options, const Execution& on) {
    std::vector<GroupProduct> products;
    std::int64_t a_end = 0;  // of the group in a, whose groups may start on other multiples than those of dy
    for_each_group(groups, dy.aligned_to(alignment), [&](const GroupRange& group) {
        GroupRange in_a = group;
        in_a.padded_begin = a_end;
        a_end += round_up(group.rows(), a.aligned_to(alignment));
        GroupProduct product;
        product.rows = dw.size(1);
        product.columns = dw.size(2);
        product.reduction = group.rows();
        set_tokens(dy, group, product.left, product.left_scales);
        set_tokens(a, in_a, product.right, product.right_scales);
        product.out = const_cast<void*>(address(dw, group.index * dw.stride(0)));
        product.out_step = dw.stride(1);
        products.push_back(product);
    });
    run(products, dw.format, options.update, on.threads);
}

}  // namespace octet::cpu
