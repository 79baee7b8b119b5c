#include "three_pass.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/element.hpp"
#include "core/parallel.hpp"
#include "octet/scale.hpp"

namespace octet::tool {
namespace {

const std::uint16_t* row_of(const ConstTensorView& x, std::int64_t row) {
    return static_cast<const std::uint16_t*>(x.data) + row * x.stride(0);
}

}  // namespace

void three_pass_rows(ConstTensorView x, QuantizedView out, float* scratch, int threads) {
    const std::int64_t m = x.size(0), k = x.size(1);
    auto* scale = static_cast<float*>(out.scale.data);
    auto* inverse = static_cast<float*>(out.inverse.data);
    auto* data = static_cast<std::uint8_t*>(out.data.data);
    parallel_for(threads, m, 16, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
            std::uint16_t amax = 0;  // magnitudes compare as integers
            for (std::int64_t i = 0; i < k; ++i) amax = std::max<std::uint16_t>(amax, row_of(x, row)[i] & 0x7FFF);
            scale[row] = scale_of(BF16::decode(amax), E4M3::max, ScaleRounding::power_of_two);
            inverse[row] = 1.0f / scale[row];
        }
    });
    parallel_for(threads, m, 16, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row)
            for (std::int64_t i = 0; i < k; ++i) scratch[row * k + i] = BF16::decode(row_of(x, row)[i]) * scale[row];
    });
    parallel_for(threads, m, 16, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin * k; i < end * k; ++i) data[i] = E4M3::encode(scratch[i]);
    });
}

void three_pass_columns(ConstTensorView x, Groups groups, std::int64_t alignment, QuantizedView out, float* scratch,
                        int threads) {
    const std::int64_t k = x.size(1), padded = out.data.stride(0);
    auto* scale = static_cast<float*>(out.scale.data);
    auto* inverse = static_cast<float*>(out.inverse.data);
    auto* data = static_cast<std::uint8_t*>(out.data.data);
    std::vector<GroupRange> ranges;
    for_each_group(groups, alignment, [&](const GroupRange& range) { ranges.push_back(range); });
    const auto count = static_cast<std::int64_t>(ranges.size());
    parallel_for(threads, count, 1, [&](std::int64_t begin, std::int64_t end) {
        std::vector<std::uint16_t> amax(static_cast<std::size_t>(k));
        for (std::int64_t g = begin; g < end; ++g) {
            const GroupRange& range = ranges[static_cast<std::size_t>(g)];
            std::fill(amax.begin(), amax.end(), std::uint16_t{0});
            for (std::int64_t row = range.begin; row < range.end; ++row)
                for (std::int64_t i = 0; i < k; ++i)
                    amax[static_cast<std::size_t>(i)] =
                        std::max<std::uint16_t>(amax[static_cast<std::size_t>(i)], row_of(x, row)[i] & 0x7FFF);
            for (std::int64_t i = 0; i < k; ++i) {
                scale[g * k + i] =
                    scale_of(BF16::decode(amax[static_cast<std::size_t>(i)]), E4M3::max, ScaleRounding::power_of_two);
                inverse[g * k + i] = 1.0f / scale[g * k + i];
            }
        }
    });
    parallel_for(threads, count, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t g = begin; g < end; ++g)
            for (std::int64_t row = ranges[static_cast<std::size_t>(g)].begin;
                 row < ranges[static_cast<std::size_t>(g)].end; ++row)
                for (std::int64_t i = 0; i < k; ++i)
                    scratch[row * k + i] = BF16::decode(row_of(x, row)[i]) * scale[g * k + i];
    });
    parallel_for(threads, k, 16, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i)
            for (const GroupRange& range : ranges) {
                std::uint8_t* to = data + i * padded + range.padded_begin;
                for (std::int64_t t = 0; t < range.rows(); ++t)
                    to[t] = E4M3::encode(scratch[(range.begin + t) * k + i]);
                std::memset(to + range.rows(), 0,
                            static_cast<std::size_t>(range.padded_end - range.padded_begin - range.rows()));
            }
    });
}

}  // namespace octet::tool
