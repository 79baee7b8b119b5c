#include "ops/quantize_check.hpp"

#include <string>

#include "ops/check.hpp"

namespace octet::check {

void quantized(const char* what, const ConstQuantizedView& q, const QuantizeOptions& options, Device device,
               std::initializer_list<std::int64_t> data_shape, std::initializer_list<std::int64_t> scale_shape) {
    const std::string prefix = what;
    dense(prefix + " data", q.data, {options.format}, data_shape);
    same_device("the tensors", device, prefix + " data", q.data.device);
    if (options.scaling == Scaling::mx) {
        strided(prefix + " scale", q.scale, {Format::e8m0}, scale_shape);
        same_device("the tensors", device, prefix + " scale", q.scale.device);
        require(q.inverse.null(), prefix, " has an inverse scale, which mx scaling does not use; leave it null");
        return;
    }
    require(!q.scale.null() || !q.inverse.null() || q.data.extents.elements() == 0, prefix,
            " has neither a scale nor an inverse scale to write; give at least one");
    if (!q.scale.null()) {
        strided(prefix + " scale", q.scale, {Format::f32}, scale_shape);
        same_device("the tensors", device, prefix + " scale", q.scale.device);
    }
    if (!q.inverse.null()) {
        strided(prefix + " inverse scale", q.inverse, {Format::f32}, scale_shape);
        same_device("the tensors", device, prefix + " inverse scale", q.inverse.device);
    }
}

void quantized_rows(const char* what, const ConstTensorView& x, const QuantizeOptions& options,
                    const ConstQuantizedView& q) {
    const std::int64_t m = x.size(0), k = x.size(1);
    if (options.scaling == Scaling::rowwise) {
        quantized(what, q, options, x.device, {m, k}, {m});
    } else {
        quantized(what, q, options, x.device, {m, k}, {m, ceil_div(k, block_of(options.scaling))});
    }
}

// Tokens along the last axis of the data, whichever way x lies.
void quantized_tokens(const char* what, Device device, std::int64_t features, std::int64_t tokens, const Groups& groups,
                      std::int64_t alignment, const QuantizeOptions& options, const ConstQuantizedView& q) {
    const std::int64_t block = block_of(options.scaling);
    const std::int64_t bound = padded_tokens(tokens, groups.count, alignment, block);
    const std::int64_t columns = q.data.rank() == 2 ? q.data.size(1) : any_size;
    require(q.data.rank() != 2 || columns >= bound, what, " data has ", columns, " token columns, expected at least ",
            bound, ": ", tokens, " tokens in ", groups.count, " groups, each starting on a multiple of ", alignment);
    require(block == 0 || columns % block == 0, what, " data has ", columns, " token columns, expected a multiple of ",
            block, ", the block of the scaling");
    if (options.scaling == Scaling::rowwise) {
        quantized(what, q, options, device, {features, any_size}, {groups.count, features});
    } else {
        quantized(what, q, options, device, {features, any_size}, {features, columns / block});
    }
}

}  // namespace octet::check
