// The parts of the program: see main.cu.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/launch/quantize.hpp"
#include "cuda/launch/quantize_runner.cuh"

namespace octet::quantizers {

using cuda::checked;
using cuda::DeviceBuffer;
using i64 = std::int64_t;

constexpr Device gpu0{DeviceKind::cuda, 0};

// What a mode of the program is, returning the number of failures.
int check(double seconds);
int small();
int large();
int once(const gpu::QuantizerTuning& tuning);
int bench(const char* file, const gpu::QuantizerTuning& tuning, bool every);

// ---- data on the device

DeviceBuffer normal_bf16(i64 count, std::uint32_t seed);
unsigned long long hash_of(const DeviceBuffer& x);
std::vector<std::int32_t> uneven_ends(i64 tokens, i64 count, i64 align, unsigned seed);

// Uneven groups on the device.
struct UnevenGroups {
    DeviceBuffer ends;
    Groups groups;
    UnevenGroups(i64 tokens, i64 count, i64 align, unsigned seed) : ends(static_cast<std::size_t>(count) * 4) {
        const auto host_ends = uneven_ends(tokens, count, align, seed);
        ends.upload(host_ends.data(), host_ends.size() * 4);
        groups = {ends.as<std::int32_t>(), count, gpu0};
    }
};

// A quantized operand on the device, with room for any layout.
struct Quantized {
    DeviceBuffer data, scale, inverse;
    QuantizedView view;
    Quantized() = default;
    Quantized(const QuantizeOptions& options, Extents data_shape, Extents scale_shape)
        : data(static_cast<std::size_t>(data_shape.elements())),
          scale(static_cast<std::size_t>(scale_shape.elements()) * 4),
          inverse(static_cast<std::size_t>(scale_shape.elements()) * 4) {
        const bool mx = options.scaling == Scaling::mx;
        view.data = {data.data(), options.format, data_shape, gpu0};
        view.scale = {scale.data(), mx ? Format::e8m0 : Format::f32, scale_shape, gpu0};
        if (!mx) view.inverse = {inverse.data(), Format::f32, scale_shape, gpu0};
        if (options.scaling == Scaling::blockwise) view.scale.data = nullptr;  // products read the inverse alone
    }
};

inline Quantized rows_of(const QuantizeOptions& o, i64 m, i64 k) {
    const i64 b = block_of(o.scaling);
    return {o, {m, k}, b ? Extents{m, ceil_div(k, b)} : Extents{m}};
}
// A feature's tokens start on a sector of memory, 32 bytes, as where groups are padded for products.
inline Quantized tokens_of(const QuantizeOptions& o, i64 features, i64 m, i64 groups, i64 alignment) {
    const i64 b = block_of(o.scaling), p = round_up(padded_bound(m, groups, alignment), 32);
    return {o, {features, p}, b ? Extents{features, p / b} : Extents{groups, features}};
}
inline Quantized weights_of(const QuantizeOptions& o, i64 e, i64 rows, i64 columns) {
    const i64 b = block_of(o.scaling);
    return {o,
            {e, rows, columns},
            b == 0 ? Extents{e, rows}
                   : Extents{e, o.scaling == Scaling::mx ? rows : ceil_div(rows, b), ceil_div(columns, b)}};
}

}  // namespace octet::quantizers
