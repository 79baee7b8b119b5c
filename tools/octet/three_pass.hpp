// The plain way to quantize, as operation-at-a-time frameworks do it: find the maxima, multiply into an f32 tensor,
// cast that; transpose in a pass of its own where the result is transposed. What `octet bench kernels` compares with.
#pragma once

#include "octet/quantize.hpp"

namespace octet::tool {

// rowwise scaling of bf16 to e4m3 with power-of-two scales; `scratch` holds M * K floats.
void three_pass_rows(ConstTensorView x, QuantizedView out, float* scratch, int threads);
void three_pass_columns(ConstTensorView x, Groups groups, std::int64_t alignment, QuantizedView out, float* scratch,
                        int threads);

}  // namespace octet::tool
