#include "train/dense_linear.hpp"

#include "core/zeros.hpp"
#include "train/norm.hpp"

namespace octet::train {

DenseLinear::DenseLinear(std::int64_t out_features, std::int64_t in_features, Recipe recipe, Format activations)
    : linear_({1, out_features, in_features}, recipe),
      activations_(activations),
      weights_(zeros({1, out_features, in_features})),
      gradient_(zeros({1, out_features, in_features})) {}

void DenseLinear::weights_changed() {
    prepared_ = false;
    linear_.weights_changed();
}

// Quantizers read the f32 weights themselves; a bf16 product multiplies with their bf16 roundings.
void DenseLinear::prepare(const Execution& on) {
    if (prepared_) return;
    if (!linear_.recipe().quantizes() && activations_ == Format::bf16) {
        const TensorView rounded = rounded_.reshape(Format::bf16, weights_.extents());
        convert(weights_, rounded, on);
        linear_.bind_weights(rounded);
    } else {
        linear_.bind_weights(weights_);
    }
    prepared_ = true;
}

void DenseLinear::forward(ConstTensorView x, TensorView y, LinearKept* kept, LinearWorkspace& workspace,
                          const Execution& on) {
    prepare(on);
    const auto end = static_cast<std::int32_t>(x.size(0));
    linear_.forward(x, {&end, 1, {}}, y, kept, workspace, on);
}

void DenseLinear::backward(ConstTensorView dy, const LinearKept& kept, TensorView dx, LinearWorkspace& workspace,
                           const Execution& on) {
    const auto end = static_cast<std::int32_t>(dy.size(0));
    linear_.backward(dy, {&end, 1, {}}, kept, dx, gradient_, Update::add, workspace, on);
}

}  // namespace octet::train
