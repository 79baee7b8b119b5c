// The output head and the cross-entropy, some rows at a time: logits [T, V] are never there as a whole.
//
//   logits[t,:] = x[t,:] . W[V,D]^T                   loss = mean over counted t of ( log sum exp logits[t,:] -
//   logits[t, target] )
#pragma once

#include <cstdint>
#include <span>

#include "octet/linear.hpp"
#include "octet/tensor.hpp"

namespace octet::train {

// Of one chunk of logits [R, V] f32: the loss of each row (0 where its target is negative), and, where `scale` is not
// 0, the logits become scale * (softmax - one at the target): the gradient, 0 in rows that do not count.
void cross_entropy(std::span<const std::int32_t> targets, TensorView logits, float scale, float* losses,
                   const Execution& on);

// x [T, D] in the activation format, weights [V, D] f32 masters.
class Head {
public:
    Head(std::int64_t vocabulary, std::int64_t hidden, Format activations);

    void weights_changed() { prepared_ = false; }

    // All rows of x times the head, into out [T, V] f32.
    void logits(ConstTensorView x, ConstTensorView weights, TensorView out, const Execution& on);

    // Sum of the losses of counted targets.
    double loss(ConstTensorView x, ConstTensorView weights, std::span<const std::int32_t> targets, const Execution& on);

    // The same, and with it the gradients: dx [T, D] f32 overwritten, weight_gradient [V, D] f32 added to, both of
    // scale times the *sum* of the losses.
    double loss_and_gradient(ConstTensorView x, ConstTensorView weights, std::span<const std::int32_t> targets,
                             double scale, TensorView dx, TensorView weight_gradient, const Execution& on);

    double product_seconds() const { return product_seconds_; }
    void reset_report() { product_seconds_ = 0; }

private:
    ConstTensorView prepare(ConstTensorView weights, const Execution& on);
    std::int64_t rows_at_a_time() const;
    template <class F>
    double each_chunk(ConstTensorView x, ConstTensorView weights, std::span<const std::int32_t> targets, float scale,
                      const Execution& on, F&& then);

    std::int64_t vocabulary_, hidden_;
    Format activations_;
    bool prepared_ = false;
    ReusedTensor rounded_{}, logits_{}, losses_{};
    double product_seconds_ = 0;
};

}  // namespace octet::train
