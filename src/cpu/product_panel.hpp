// Panels: a rectangle of an operand as f32 for the BLAS.
#pragma once

#include <cstdint>

#include "cpu/product_blas.hpp"
#include "octet/format.hpp"

namespace octet::cpu {

// The longest reduction of a panel: two panels and a tile of sums stay in a core's second-level cache while OpenBLAS
// works on them.
inline constexpr std::int64_t most_reduction = 512;

// Where one group finds one side of its product: `rows` times a reduction axis, in any format.
//
// Scales that change along the reduction (blockwise, mx) are folded into the decoded values: exact for powers of two,
// one f32 rounding (2^-24) an element otherwise, which adds to the error of the product less than f32 accumulation
// does. Scales of whole rows are applied to the sums instead.
struct PanelSource {
    const void* data = nullptr;  // element (row 0, reduction 0)
    Format format = Format::f32;
    std::int64_t step = 0;  // as BlasMatrix::step, in elements
    Lies lies = Lies::along_reduction;

    const void* scales = nullptr;  // of (row 0, reduction 0); null where nothing is folded
    Format scale_format = Format::f32;
    std::int64_t scale_row_step = 0, scale_block_step = 0;
    std::int64_t rows_per_scale = 1;  // 128 for blockwise weights
    std::int64_t block = 0;           // elements of the reduction that share a scale
};

// Rows [row, row + rows) and reduction [from, from + length) as the BLAS can read them: decoded into `scratch`, or in
// place where they are f32 already. `from` is a multiple of the block, length at
// most most_reduction; scratch holds panel_elements(rows, length).
BlasMatrix make_panel(const PanelSource& source, std::int64_t row, std::int64_t rows, std::int64_t from,
                      std::int64_t length, float* scratch);

// Rows of operands and outputs are often further apart than a page: the hardware does not foresee the next one, so it
// is asked for, some rows ahead.
inline constexpr std::int64_t rows_ahead = 4, cache_line = 64;

// Rows of a panel are kept from being a power of two apart, which would put them all in the same few cache sets.
constexpr std::int64_t panel_step(std::int64_t length) { return (length + 15) / 16 * 16 + 16; }
constexpr std::int64_t panel_elements(std::int64_t rows, std::int64_t length) {
    const std::int64_t along = rows * panel_step(length), across = length * panel_step(rows);
    return along > across ? along : across;
}

}  // namespace octet::cpu
