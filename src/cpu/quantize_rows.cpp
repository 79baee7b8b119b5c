// Rows of a matrix, and rows of a matrix whose columns are grouped tokens.
#include <cstring>

#include "core/element.hpp"
#include "core/parallel.hpp"
#include "cpu/quantize.hpp"
#include "cpu/rows.hpp"

namespace octet::cpu {

void quantize_rows(ConstTensorView x, const QuantizeOptions& options, QuantizedView out, const Execution& on) {
    const std::int64_t m = x.size(0), k = x.size(1), element = bytes_of(x.format);
    const RowQuantizer quantize(x.format, options, m * k >= stream_from_bytes);
    const ScalePlane scales(out, 0, options.scaling == Scaling::rowwise ? -1 : 1);
    parallel_for(on.threads, m, row_grain(k * element), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row)
            quantize(static_cast<const std::byte*>(x.data) + row * x.stride(0) * element, k,
                     static_cast<std::uint8_t*>(out.data.data) + row * out.data.stride(0), scales, row);
    });
}

void quantize_transposed(ConstTensorView x, Groups groups, std::int64_t alignment, const QuantizeOptions& options,
                         QuantizedView out, const Execution& on) {
    const std::int64_t n = x.size(0), m = x.size(1), element = bytes_of(x.format);
    const std::int64_t block = block_of(options.scaling);
    const RowQuantizer quantize(x.format, options, n * m >= stream_from_bytes);
    // Scale (g, n) for a whole group, (n, b) for blocks.
    const ScalePlane scales(out, block == 0 ? 1 : 0, block == 0 ? 0 : 1);
    const std::uint32_t zero = 0;
    float empty_multiplier = 0;
    std::uint8_t empty_code = 0;
    make_scales(options, &zero, 1, &empty_multiplier, &empty_code);

    parallel_for(on.threads, n, row_grain(m * element), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t feature = begin; feature < end; ++feature) {
            const auto* from = static_cast<const std::byte*>(x.data) + feature * x.stride(0) * element;
            auto* to = static_cast<std::uint8_t*>(out.data.data) + feature * out.data.stride(0);
            for_each_group(groups, alignment, [&](const GroupRange& group) {
                const std::int64_t first_j = block == 0 ? group.index : group.padded_begin / block;
                const std::int64_t last_j = block == 0 ? group.index + 1 : group.padded_end / block;
                const std::int64_t used = block == 0 ? group.rows() > 0 : ceil_div(group.rows(), block);
                if (group.rows() > 0)
                    quantize(from + group.begin * element, group.rows(), to + group.padded_begin, scales, feature,
                             first_j);
                // What is only padding has the scale of zeros.
                for (std::int64_t j = first_j + used; j < last_j; ++j)
                    scales.write_along_j(feature, j, 1, options.scaling, &empty_multiplier, &empty_code);
                const std::int64_t padding = group.padded_end - group.padded_begin - group.rows();
                if (padding > 0)
                    std::memset(to + group.padded_begin + group.rows(), 0, static_cast<std::size_t>(padding));
            });
        }
    });
}

}  // namespace octet::cpu
