#include "cpu/product_panel.hpp"

#include <algorithm>
#include <limits>

#include "cpu/product_rows.hpp"

namespace octet::cpu {
namespace {

constexpr std::int64_t most_blocks = most_reduction / 32;  // of a panel: 32 is the shortest block

void prefetch(const char* begin, std::int64_t bytes) {
    for (std::int64_t i = 0; i < bytes; i += cache_line) __builtin_prefetch(begin + i);
}

float scale_at(const PanelSource& source, std::int64_t row, std::int64_t block) {
    const std::int64_t place = row / source.rows_per_scale * source.scale_row_step + block * source.scale_block_step;
    if (source.scale_format == Format::e8m0)
        return E8M0::decode(static_cast<const std::uint8_t*>(source.scales)[place]);
    return static_cast<const float*>(source.scales)[place];
}

}  // namespace

BlasMatrix make_panel(const PanelSource& source, std::int64_t row, std::int64_t rows, std::int64_t from,
                      std::int64_t length, float* scratch) {
    const bool along = source.lies == Lies::along_reduction;
    const std::int64_t lines = along ? rows : length, count = along ? length : rows;
    const std::int64_t first = along ? row * source.step + from : from * source.step + row;
    const std::int64_t bytes = bytes_of(source.format);
    const char* line = static_cast<const char*>(source.data) + first * bytes;
    if (source.format == Format::f32 && source.step <= std::numeric_limits<std::int32_t>::max())
        return {reinterpret_cast<const float*>(line), std::max(source.step, count), source.lies};

    const ProductRows::Decode decode = product_rows().decode_of(source.format);
    const std::int64_t step = panel_step(count);
    for (std::int64_t i = 0; i < lines; ++i, line += source.step * bytes) {
        float* out = scratch + i * step;
        if (i + rows_ahead < lines) prefetch(line + rows_ahead * source.step * bytes, count * bytes);
        const std::int64_t block = source.scales == nullptr ? count : source.block;
        float multipliers[most_blocks] = {1.0f};
        if (source.scales != nullptr)  // quantized operands lie along the reduction
            for (std::int64_t b = 0; b * block < count; ++b)
                multipliers[b] = scale_at(source, row + i, from / block + b);
        decode(line, count, block, multipliers, out);
    }
    return {scratch, step, source.lies};
}

}  // namespace octet::cpu
