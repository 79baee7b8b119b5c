// Quantizing down columns: the engine under columns per group, pairs and transposed weights.
//
// A slab is a matrix whose columns are quantized each on its own and written transposed: the rows of one token group,
// or one expert's weights. With a row output it is also quantized along its rows, from the same visit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cpu/scales.hpp"
#include "octet/quantize.hpp"

namespace octet::cpu {

struct Slab {
    const std::byte* x;  // [rows, columns] bf16 or f32
    std::int64_t pitch;  // elements from one row to the next
    std::int64_t rows, columns;

    std::uint8_t* out;  // [columns, out_rows]; zeros from `rows` on
    std::int64_t out_pitch;
    std::int64_t out_rows;
    ScalePlane scales;  // (column, block)

    std::uint8_t* row_out = nullptr;  // [rows, columns], null where it is not wanted
    std::int64_t row_out_pitch = 0;
    ScalePlane row_scales{};  // (row, block)
};

// Every column has one scale, or one a block of rows; likewise every row. All slabs have x in the format `input`.
void quantize_slabs(const std::vector<Slab>& slabs, Format input, const QuantizeOptions& options, int threads);

}  // namespace octet::cpu
