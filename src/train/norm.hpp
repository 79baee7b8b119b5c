// RMSNorm over the features of each token, in f32, with the residual sum that comes before it.
//
//   y[t,:] = weight * h[t,:] * r[t]        r[t] = 1 / sqrt( mean over D of h[t,:]^2 + eps )
#pragma once

#include "octet/linear.hpp"
#include "octet/tensor.hpp"

namespace octet::train {

// h [T, D] f32 -> y [T, D] bf16 or f32, inverse_rms [T] f32. `branch` [T, D], bf16 or f32, is first added to `before`
// [T, D] f32 and the sum is h, which is written; a null branch: h is `before` itself and is not written.
struct NormInput {
    ConstTensorView before{}, branch{};
    TensorView h{};
};
void rms_norm(const NormInput& input, const float* weight, double eps, TensorView y, float* inverse_rms,
              const Execution& on);

// h = before + branch alone.
void add_branch(const NormInput& input, const Execution& on);

// dh [T, D] f32 += the gradient through the norm of dy [T, D] (bf16 or f32); weight_gradient [D] f32 is added to.
// `partial` is scratch. Token sums go in blocks of fixed size, whatever the number of threads.
void rms_norm_backward(ConstTensorView h, const float* inverse_rms, const float* weight, ConstTensorView dy,
                       TensorView dh, float* weight_gradient, ReusedTensor& partial, const Execution& on);

// y = x rounded to y's format.
void convert(ConstTensorView x, TensorView y, const Execution& on);

}  // namespace octet::train
