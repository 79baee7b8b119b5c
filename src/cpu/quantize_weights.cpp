// Expert weights [E, N, K] along K, along N (transposed), or both from one visit.
#include <algorithm>

#include "core/parallel.hpp"
#include "cpu/column_kernels.hpp"
#include "cpu/quantize.hpp"
#include "cpu/rows.hpp"
#include "cpu/slabs.hpp"
#include "cpu/workspace.hpp"

namespace octet::cpu {
namespace {

std::uint8_t* expert_of(const QuantizedView& out, std::int64_t expert) {
    return static_cast<std::uint8_t*>(out.data.data) + expert * out.data.stride(0);
}

const std::byte* expert_of(const ConstTensorView& w, std::int64_t expert) {
    return static_cast<const std::byte*>(w.data) + expert * w.stride(0) * bytes_of(w.format);
}

// rowwise and mx, along K alone: rows of all experts.
void quantize_along_k(const ConstTensorView& w, const QuantizeOptions& options, const QuantizedView& out, int threads) {
    const std::int64_t n = w.size(1), k = w.size(2), element = bytes_of(w.format);
    const std::int64_t rows = w.size(0) * n;
    const RowQuantizer quantize(w.format, options, rows * k >= stream_from_bytes);
    const int block_axis = options.scaling == Scaling::rowwise ? -1 : 2;
    parallel_for(threads, rows, row_grain(k * element), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
            const std::int64_t expert = i / n, row = i % n;
            const ScalePlane scales(out, 1, block_axis, 0, expert);
            quantize(expert_of(w, expert) + row * w.stride(1) * element, k,
                     expert_of(out, expert) + row * out.data.stride(1), scales, row);
        }
    });
}

// rowwise and mx, along N and perhaps along K: a slab an expert.
void quantize_along_n(const ConstTensorView& w, const QuantizeOptions& options, const QuantizedView& along_k,
                      const QuantizedView& along_n, int threads) {
    const int block_axis = options.scaling == Scaling::rowwise ? -1 : 2;
    std::vector<Slab> slabs;
    for (std::int64_t expert = 0; expert < w.size(0); ++expert) {
        Slab slab;
        slab.x = expert_of(w, expert);
        slab.pitch = w.stride(1);
        slab.rows = w.size(1);
        slab.columns = w.size(2);
        slab.out = expert_of(along_n, expert);
        slab.out_pitch = along_n.data.stride(1);
        slab.out_rows = w.size(1);
        slab.scales = ScalePlane(along_n, 1, block_axis, 0, expert);
        if (!along_k.data.null()) {
            slab.row_out = expert_of(along_k, expert);
            slab.row_out_pitch = along_k.data.stride(1);
            slab.row_scales = ScalePlane(along_k, 1, block_axis, 0, expert);
        }
        slabs.push_back(slab);
    }
    quantize_slabs(slabs, w.format, options, threads);
}

// blockwise: squares of 128 x 128, whose scale both orientations share.
class SquareQuantizer {
public:
    SquareQuantizer(const ConstTensorView& w, const QuantizeOptions& options, const QuantizedView& along_k,
                    const QuantizedView& along_n)
        : w_(w),
          options_(options),
          along_k_(along_k),
          along_n_(along_n),
          rows_(row_kernels(w.format, options.format)),
          columns_(column_kernels(w.format, options.format)),
          element_(bytes_of(w.format)),
          stream_(w.extents.elements() >= stream_from_bytes) {}

    // Squares n0 / 128, k0 / 128 and the next ones along K, as many as a strip has.
    static constexpr std::int64_t side = 128;
    static constexpr std::int64_t strip = 2 * side;

    void operator()(std::int64_t expert, std::int64_t n0, std::int64_t k0) const {
        const std::int64_t rows = std::min(side, w_.size(1) - n0), columns = std::min(strip, w_.size(2) - k0);
        Workspace work;
        auto* copy = work.take<std::byte>(rows * columns * element_);
        auto* amax = work.take_zeroed<std::byte>(columns * element_);
        const std::byte* x = expert_of(w_, expert) + (n0 * w_.stride(1) + k0) * element_;
        columns_.column_amax(x, w_.stride(1), rows, columns, amax, copy);

        std::uint32_t square_amax[strip / side];
        float multiplier[strip / side];
        rows_.block_amax(amax, columns, side_shift, square_amax);
        const std::int64_t squares = ceil_div(columns, side);
        const bool in_range = make_scales(options_, square_amax, squares, multiplier, nullptr);

        if (!along_k_.data.null()) {
            const ScalePlane scales(along_k_, 1, 2, 0, expert);
            scales.write_along_j(n0 / side, k0 / side, squares, options_.scaling, multiplier, nullptr);
            for (std::int64_t r = 0; r < rows; ++r)
                rows_.cast(copy + r * columns * element_, columns, side_shift, multiplier, in_range, stream_,
                           expert_of(along_k_, expert) + (n0 + r) * along_k_.data.stride(1) + k0);
        }
        if (!along_n_.data.null()) {
            const ScalePlane scales(along_n_, 1, 2, 0, expert);
            scales.write_along_i(k0 / side, n0 / side, squares, options_.scaling, multiplier, nullptr);
            auto* spread = work.take<float>(strip);
            for (std::int64_t c = 0; c < strip; ++c) spread[c] = multiplier[std::min(c / side, squares - 1)];
            TransposedCast cast;
            cast.x = copy;
            cast.pitch = columns;
            cast.rows = cast.out_rows = rows;
            cast.columns = columns;
            cast.multiplier = spread;
            cast.block_shift = whole_row;
            cast.out = expert_of(along_n_, expert) + k0 * along_n_.data.stride(1) + n0;
            cast.out_pitch = along_n_.data.stride(1);
            cast.in_range = in_range;
            cast.stream = stream_;
            columns_.cast_transposed(cast);
        }
    }

private:
    static constexpr int side_shift = 7;
    const ConstTensorView& w_;
    const QuantizeOptions& options_;
    const QuantizedView &along_k_, &along_n_;
    const RowKernels& rows_;
    const ColumnKernels& columns_;
    const std::int64_t element_;
    const bool stream_;
};

}  // namespace

void quantize_weights(ConstTensorView w, const QuantizeOptions& options, QuantizedView along_k, QuantizedView along_n,
                      const Execution& on) {
    if (options.scaling == Scaling::blockwise) {
        const SquareQuantizer quantize(w, options, along_k, along_n);
        const std::int64_t panels = ceil_div(w.size(1), SquareQuantizer::side);
        const std::int64_t strips = ceil_div(w.size(2), SquareQuantizer::strip);
        // Panels of one strip follow each other, so that the transposed output grows along its rows.
        parallel_for(on.threads, w.size(0) * strips, 1, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = begin; i < end; ++i)
                for (std::int64_t panel = 0; panel < panels; ++panel)
                    quantize(i / strips, panel * SquareQuantizer::side, i % strips * SquareQuantizer::strip);
        });
    } else if (along_n.data.null()) {
        quantize_along_k(w, options, along_k, on.threads);
    } else {
        quantize_along_n(w, options, along_k, along_n, on.threads);
    }
}

}  // namespace octet::cpu
