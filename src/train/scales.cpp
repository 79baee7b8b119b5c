#include "train/scales.hpp"

#include <algorithm>
#include <limits>

namespace octet::train {
namespace {

bool is_zero(const ConstTensorView& x, std::int64_t i) {
    if (x.format == Format::bf16) return (static_cast<const std::uint16_t*>(x.data)[i] & 0x7FFFu) == 0;
    return static_cast<const float*>(x.data)[i] == 0.0f;
}

void count_codes(const ConstTensorView& x, const ConstTensorView& codes, ScaleStatistics& s) {
    const auto* q = static_cast<const std::uint8_t*>(codes.data);
    s.elements = x.extents.elements();
    with_fp8(codes.format, [&](auto codec) {
        const std::uint8_t most = codec.encode(codec.max);
        for (std::int64_t i = 0; i < s.elements; ++i) {
            const auto magnitude = static_cast<std::uint8_t>(q[i] & 0x7Fu);
            s.underflowed += magnitude == 0 && !codec.is_nan(q[i]) && !is_zero(x, i);
            s.saturated += magnitude == most;
        }
    });
}

void range_of(const ConstQuantizedView& q, ScaleStatistics& s) {
    const bool mx = !q.scale.null() && q.scale.format == Format::e8m0;
    const ConstTensorView& scales = mx ? q.scale : q.inverse;
    s.smallest_scale = std::numeric_limits<double>::infinity();
    for (std::int64_t i = 0; i < scales.extents.elements(); ++i) {
        const double inverse = mx ? static_cast<double>(E8M0::decode(static_cast<const std::uint8_t*>(scales.data)[i]))
                                  : static_cast<double>(static_cast<const float*>(scales.data)[i]);
        s.smallest_scale = std::min(s.smallest_scale, 1.0 / inverse);
        s.largest_scale = std::max(s.largest_scale, 1.0 / inverse);
    }
}

}  // namespace

void ScaleObserver::rows(std::int64_t layer, const char* tensor, ConstTensorView x, Format format,
                         const Execution& on) {
    if (x.extents.elements() == 0) return;
    const QuantizeOptions options{recipe_.scaling(), format, recipe_.scale_rounding, recipe_.mx_mode};
    const QuantizedView q = quantized_.reshape_rows(options, x.size(0), x.size(1));
    quantize_rows(x, options, q, on);
    ScaleStatistics s{tensor, layer};
    count_codes(x, q.data, s);
    range_of(q, s);
    out_.push_back(s);
}

void ScaleObserver::weights(std::int64_t layer, const char* tensor, ConstTensorView w, const Execution& on) {
    const QuantizeOptions options{recipe_.scaling(), recipe_.format, recipe_.scale_rounding, recipe_.mx_mode};
    const QuantizedView q = quantized_.reshape_weights(options, w.size(0), w.size(1), w.size(2));
    quantize_weights(w, options, q, {}, on);
    ScaleStatistics s{tensor, layer};
    count_codes(w, q.data, s);
    range_of(q, s);
    out_.push_back(s);
}

void ScaleObserver::observe(std::int64_t layer, MoeLayer& moe, const MoeKept& kept, ConstTensorView dy,
                            const Execution& on) {
    const Routing& routing = kept.router.routing();
    const Format format = moe.options().activations;
    const std::int64_t m = routing.rows(), h = moe.options().expert_hidden, d = moe.options().hidden;
    const ConstTensorView gate_up_weights = moe.parameter("experts.gate_up").value;
    const ConstTensorView down_weights = moe.parameter("experts.down").value;
    const ConstTensorView gate_up = kept.experts.gate_up.view();

    // A token's row counts once, though it is sent to several experts.
    rows(layer, "gate_up.input", kept.x, recipe_.format, on);
    weights(layer, "gate_up.weight", gate_up_weights, on);
    const TensorView activated = activated_.reshape(format, {m, h});
    swiglu(gate_up, routing.row_weights, activated, on);
    rows(layer, "down.input", activated, recipe_.format, on);
    weights(layer, "down.weight", down_weights, on);
    rows(layer, "down.gradient", dy, recipe_.gradient_format, on);

    // The backward pass overwrote this gradient: made again, from weights that are not quantized.
    const TensorView doutputs = doutputs_.reshape(format, {m, d});
    gather_rows(routing, dy, doutputs, on);
    const TensorView dactivated = dactivated_.reshape(format, {m, h});
    grouped_dgrad(doutputs, down_weights, routing.groups, dactivated, {}, on);
    const TensorView dgate_up = dgate_up_.reshape(format, {m, 2 * h});
    swiglu_backward(gate_up, routing.row_weights, dactivated, dgate_up, nullptr, on);
    rows(layer, "gate_up.gradient", dgate_up, recipe_.gradient_format, on);
}

}  // namespace octet::train
