#include "cpu/rows.hpp"

#include <algorithm>

namespace octet::cpu {

int block_shift_of(Scaling scaling) {
    switch (scaling) {
        case Scaling::blockwise: return 7;
        case Scaling::mx: return 5;
        case Scaling::rowwise: break;
    }
    return whole_row;
}

RowQuantizer::RowQuantizer(Format input, const QuantizeOptions& options, bool stream)
    : options_(options),
      kernels_(row_kernels(input, options.format)),
      block_shift_(block_shift_of(options.scaling)),
      element_bytes_(bytes_of(input)),
      stream_(stream) {}

void RowQuantizer::operator()(const std::byte* x, std::int64_t count, std::uint8_t* out, const ScalePlane& scales,
                              std::int64_t i, std::int64_t first_j) const {
    // Maxima, scales and cast follow each other while the elements are in the first-level cache: a whole row with one
    // scale, or as many blocks as the arrays hold.
    constexpr std::int64_t most_blocks = 128;
    std::uint32_t amax[most_blocks];
    float multiplier[most_blocks];
    std::uint8_t codes[most_blocks];
    const std::int64_t chunk = block_shift_ == whole_row ? count : std::min(count, most_blocks << block_shift_);
    for (std::int64_t begin = 0; begin < count; begin += chunk) {
        const std::int64_t some = std::min(chunk, count - begin);
        const std::int64_t blocks = block_shift_ == whole_row ? 1 : ceil_div(some, std::int64_t{1} << block_shift_);
        const std::byte* from = x + begin * element_bytes_;
        kernels_.block_amax(from, some, block_shift_, amax);
        const bool in_range = make_scales(options_, amax, blocks, multiplier, codes);
        scales.write_along_j(i, first_j, blocks, options_.scaling, multiplier, codes);
        kernels_.cast(from, some, block_shift_, multiplier, in_range, stream_, out + begin);
        first_j += blocks;
    }
}

std::int64_t row_grain(std::int64_t row_bytes) {
    constexpr std::int64_t worth = 128 << 10;
    return std::max<std::int64_t>(1, worth / std::max<std::int64_t>(row_bytes, 1));
}

}  // namespace octet::cpu
