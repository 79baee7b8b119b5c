// Quantizing one row, the step that every operation along the contiguous axis is made of.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/row_kernels.hpp"
#include "cpu/scales.hpp"
#include "octet/quantize.hpp"

namespace octet::cpu {

// log2 of the block of the scaling, or whole_row.
int block_shift_of(Scaling scaling);

// Outputs from this size on are written past the caches: they would not be there when somebody reads them.
inline constexpr std::int64_t stream_from_bytes = std::int64_t{4} << 20;

// Quantizes rows of one input format under one set of options.
class RowQuantizer {
public:
    RowQuantizer(Format input, const QuantizeOptions& options, bool stream);

    // x[count] to out[count]; the scales are (i, first_j), (i, first_j + 1) ... of `scales`.
    void operator()(const std::byte* x, std::int64_t count, std::uint8_t* out, const ScalePlane& scales, std::int64_t i,
                    std::int64_t first_j = 0) const;

private:
    const QuantizeOptions& options_;
    const RowKernels& kernels_;
    int block_shift_;
    std::int64_t element_bytes_;
    bool stream_;
};

// The rows of a matrix, for parallel_for: how many are worth a hand-over.
std::int64_t row_grain(std::int64_t row_bytes);

}  // namespace octet::cpu
