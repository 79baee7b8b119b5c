// Memory that layers reuse from call to call.
#include <algorithm>
#include <cstdint>
#include <utility>

#include "octet/linear.hpp"

namespace octet {

TensorView ReusedTensor::reshape(Format format, Extents extents, Device device) {
    format_ = format;
    extents_ = extents;
    // Never null, so that a tensor of no elements is still a tensor that was given.
    const std::size_t needed = std::max<std::size_t>(bytes(), 64);
    if (memory_.bytes() < needed || device_ != device) {
        memory_ = DeviceMemory();  // the old memory goes first
        memory_ = DeviceMemory(device, needed);
        device_ = device;
    }
    return view();
}

void* Tickets::on(Device device) {
    if (device.kind == DeviceKind::cpu) return nullptr;
    if (memory_.data() == nullptr || device_ != device) {
        constexpr std::uint32_t zero = 0;
        DeviceMemory word(device, sizeof(zero));
        word.upload(&zero, sizeof(zero));
        synchronize(device);  // before a stream that does not wait for uploads
        memory_ = std::move(word);
        device_ = device;
    }
    return memory_.data();
}

std::size_t ReusedTensor::bytes() const {
    if (extents_.rank == 0 || extents_.elements() == 0) return 0;
    std::int64_t last = 0;
    for (std::size_t axis = 0; axis < static_cast<std::size_t>(extents_.rank); ++axis)
        last += (extents_.shape[axis] - 1) * extents_.strides[axis];
    return static_cast<std::size_t>(last + 1) * static_cast<std::size_t>(bytes_of(format_));
}

QuantizedView QuantizedTensor::reshape(const QuantizeOptions& options, Extents data, Extents scales, Device device) {
    scaling_ = options.scaling;
    alignment_ = 0;
    data_.reshape(options.format, data, device);
    scales_.reshape(options.scaling == Scaling::mx ? Format::e8m0 : Format::f32, scales, device);
    return view();
}

QuantizedView QuantizedTensor::view() {
    if (scaling_ == Scaling::mx) return {data_.view(), scales_.view(), {}};
    return {data_.view(), {}, scales_.view()};
}

Operand QuantizedTensor::operand() const {
    Operand made(view(), scaling_);
    made.alignment = alignment_;
    return made;
}

ConstQuantizedView QuantizedTensor::view() const {
    if (scaling_ == Scaling::mx) return {data_.view(), scales_.view(), {}};
    return {data_.view(), {}, scales_.view()};
}

namespace {

// [rows, blocks] scales. The blockwise products of a GPU read those of one block of the reduction at a time: rows then
// lie beside each other.
Extents block_scales(Scaling scaling, std::int64_t rows, std::int64_t blocks, Device device) {
    if (scaling == Scaling::blockwise && device.kind != DeviceKind::cpu) return Extents({rows, blocks}, {1, rows});
    return {rows, blocks};
}

}  // namespace

QuantizedView QuantizedTensor::reshape_rows(const QuantizeOptions& options, std::int64_t tokens, std::int64_t features,
                                            Device device) {
    const std::int64_t block = block_of(options.scaling);
    const Extents data({tokens, features}, {row_pitch(features, device), 1});
    if (block == 0) return reshape(options, data, {tokens}, device);
    return reshape(options, data, block_scales(options.scaling, tokens, ceil_div(features, block), device), device);
}

QuantizedView QuantizedTensor::reshape_columns(const QuantizeOptions& options, std::int64_t tokens, std::int64_t groups,
                                               std::int64_t alignment, std::int64_t features, Device device) {
    const std::int64_t padded = padded_bound(tokens, groups, alignment);
    const std::int64_t block = block_of(options.scaling);
    const Extents scales =
        block == 0 ? Extents{groups, features} : block_scales(options.scaling, features, padded / block, device);
    const QuantizedView view = reshape(options, {features, padded}, scales, device);
    alignment_ = alignment;
    return view;
}

QuantizedView QuantizedTensor::reshape_weights(const QuantizeOptions& options, std::int64_t experts, std::int64_t rows,
                                               std::int64_t columns, Device device) {
    const std::int64_t block = block_of(options.scaling), pitch = row_pitch(columns, device);
    const Extents data({experts, rows, columns}, {rows * pitch, pitch, 1});
    if (block == 0) return reshape(options, data, {experts, rows}, device);
    if (options.scaling == Scaling::blockwise)
        return reshape(options, data, {experts, ceil_div(rows, block), ceil_div(columns, block)}, device);
    return reshape(options, data, {experts, rows, ceil_div(columns, block)}, device);
}

std::int64_t row_pitch(std::int64_t features, Device device) {
    const std::int64_t aligned = ceil_div(features, 128) * 128;
    const bool little = aligned - features <= features / 8;
    return device.kind != DeviceKind::cpu && little ? aligned : features;
}

std::int64_t token_alignment(Scaling scaling, Device device) {
    // A GPU's copy engine fetches lines of 128 bytes, and one that straddles two costs it twice; vector loads on the
    // host are content with 16.
    if (device.kind != DeviceKind::cpu) return 128;
    return std::max<std::int64_t>(block_of(scaling), 16);
}

std::int64_t kept_alignment(Scaling scaling, std::int64_t tokens, std::int64_t groups, Device device) {
    // One operand that straddles lines costs a product 0-5%, both cost it 40%: only what is kept is packed closer, and
    // only where it would be more than 0.545 of bf16's bytes.
    const std::int64_t aligned = token_alignment(scaling, device);
    const bool much_larger = 100 * padded_bound(tokens, groups, aligned) > 109 * tokens;
    return scaling == Scaling::rowwise && much_larger ? std::min<std::int64_t>(aligned, 16) : aligned;
}

}  // namespace octet
