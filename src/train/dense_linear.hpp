// A product with one weight matrix, that all tokens meet: a GroupedLinear of one expert with its own f32 weights.
//
//   y[T,N] = x[T,K] . W[N,K]^T
#pragma once

#include "octet/linear.hpp"
#include "octet/tensor.hpp"

namespace octet::train {

class DenseLinear {
public:
    // The weights, [N, K] f32, and their gradient are the layer's own; they start at zero.
    DenseLinear(std::int64_t out_features, std::int64_t in_features, Recipe recipe, Format activations);

    TensorView weights() { return flat(weights_); }
    TensorView gradient() { return flat(gradient_); }
    void weights_changed();

    // x [T, K] in the activation format; y [T, N] bf16 or f32. Where borrows_input(), x must stay until backward.
    void forward(ConstTensorView x, TensorView y, LinearKept* kept, LinearWorkspace& workspace, const Execution& on);
    // dy [T, N], dx [T, K], bf16 or f32. dx is overwritten, the weights' gradient is added to.
    void backward(ConstTensorView dy, const LinearKept& kept, TensorView dx, LinearWorkspace& workspace,
                  const Execution& on);
    bool borrows_input() const { return linear_.borrows_activation(); }

    const LinearReport& report() const { return linear_.report(); }
    void reset_report() { linear_.reset_report(); }

private:
    TensorView flat(Tensor& tensor) {
        return {tensor.as<float>(), Format::f32, {linear_.shape().out_features, linear_.shape().in_features}};
    }
    void prepare(const Execution& on);

    GroupedLinear linear_;
    Format activations_;
    Tensor weights_, gradient_;  // [1, N, K] f32
    ReusedTensor rounded_{};     // what a bf16 product multiplies with
    bool prepared_ = false;
};

}  // namespace octet::train
