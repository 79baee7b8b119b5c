#include <utility>

#include "core/parallel.hpp"
#include "core/zeros.hpp"
#include "linear/stopwatch.hpp"
#include "octet/moe.hpp"

namespace octet {
namespace {

void round_to_bf16(const Tensor& from, ReusedTensor& to, const Execution& on) {
    auto* out = static_cast<std::uint16_t*>(to.reshape(Format::bf16, from.extents()).data);
    const auto* in = from.as<float>();
    parallel_for(on.threads, from.elements(), 1 << 16, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) out[i] = BF16::encode(in[i]);
    });
}

}  // namespace

Experts::Experts(std::string prefix, ExpertShape shape, Format activations, Recipe recipe)
    : prefix_(std::move(prefix)),
      shape_(shape),
      activations_(activations),
      gate_up_({shape.experts, 2 * shape.expert_hidden, shape.hidden}, recipe),
      down_({shape.experts, shape.hidden, shape.expert_hidden}, recipe),
      gate_up_weights_(zeros({shape.experts, 2 * shape.expert_hidden, shape.hidden})),
      gate_up_gradient_(zeros(gate_up_weights_.extents())),
      down_weights_(zeros({shape.experts, shape.hidden, shape.expert_hidden})),
      down_gradient_(zeros(down_weights_.extents())) {}

std::vector<Parameter> Experts::parameters() {
    return {{prefix_ + ".gate_up", gate_up_weights_, gate_up_gradient_},
            {prefix_ + ".down", down_weights_, down_gradient_}};
}

void Experts::weights_changed() {
    prepared_ = false;
    gate_up_.weights_changed();
    down_.weights_changed();
}

// Quantizers read the f32 weights themselves; a plain bf16 product multiplies with their bf16 roundings.
void Experts::prepare_weights(const Execution& on) {
    if (prepared_) return;
    if (!gate_up_.recipe().quantizes() && activations_ == Format::bf16) {
        round_to_bf16(gate_up_weights_, gate_up_bf16_, on);
        round_to_bf16(down_weights_, down_bf16_, on);
        gate_up_.bind_weights(gate_up_bf16_.view());
        down_.bind_weights(down_bf16_.view());
    } else {
        gate_up_.bind_weights(gate_up_weights_);
        down_.bind_weights(down_weights_);
    }
    prepared_ = true;
}

void Experts::forward(ConstTensorView rows, Groups groups, const float* row_weights, TensorView out, ExpertKept* kept,
                      ExpertWorkspace& workspace, const Execution& on) {
    prepare_weights(on);
    const std::int64_t m = rows.size(0);
    const bool keep_activated = kept != nullptr && down_.borrows_activation();
    const TensorView gate_up =
        (kept != nullptr ? kept->gate_up : workspace.gate_up).reshape(activations_, {m, 2 * shape_.expert_hidden});
    const TensorView activated =
        (keep_activated ? kept->activated : workspace.activated).reshape(activations_, {m, shape_.expert_hidden});
    gate_up_.forward(rows, groups, gate_up, kept != nullptr ? &kept->gate_up_kept : nullptr, workspace.linear, on);
    timed(activation_seconds_, [&] { swiglu(gate_up, row_weights, activated, on); });
    down_.forward(activated, groups, out, kept != nullptr ? &kept->down_kept : nullptr, workspace.linear, on);
}

void Experts::backward(ConstTensorView dout, Groups groups, const float* row_weights, ExpertKept& kept,
                       TensorView drows, float* row_weight_gradients, ExpertWorkspace& workspace, const Execution& on) {
    const std::int64_t m = dout.size(0);
    const TensorView dactivated = workspace.dactivated.reshape(activations_, {m, shape_.expert_hidden});
    const TensorView dgate_up = workspace.dgate_up.reshape(activations_, {m, 2 * shape_.expert_hidden});
    down_.backward(dout, groups, kept.down_kept, dactivated, down_gradient_, Update::add, workspace.linear, on);
    timed(activation_seconds_,
          [&] { swiglu_backward(kept.gate_up.view(), row_weights, dactivated, dgate_up, row_weight_gradients, on); });
    gate_up_.backward(dgate_up, groups, kept.gate_up_kept, drows, gate_up_gradient_, Update::add, workspace.linear, on);
}

LinearReport Experts::report() const {
    LinearReport report = gate_up_.report();
    return report += down_.report();
}

void Experts::reset_report() {
    gate_up_.reset_report();
    down_.reset_report();
    activation_seconds_ = 0;
}

}  // namespace octet
