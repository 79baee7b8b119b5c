// Checks of quantized operands: data and scales of one orientation, readable or writable.
#pragma once

#include <initializer_list>

#include "octet/quantize.hpp"

namespace octet::check {

// data_shape is what `data` must be; scale_shape what its scales must be.
void quantized(const char* what, const ConstQuantizedView& q, const QuantizeOptions& options, Device device,
               std::initializer_list<std::int64_t> data_shape, std::initializer_list<std::int64_t> scale_shape);

// Along K, of x [M, K].
void quantized_rows(const char* what, const ConstTensorView& x, const QuantizeOptions& options,
                    const ConstQuantizedView& q);

// Tokens along the last axis of the data, whichever way x lies.
void quantized_tokens(const char* what, Device device, std::int64_t features, std::int64_t tokens, const Groups& groups,
                      std::int64_t alignment, const QuantizeOptions& options, const ConstQuantizedView& q);

}  // namespace octet::check
