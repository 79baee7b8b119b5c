// What quantizing does to the tensors of a layer's experts: ranges of scales, values that became 0, values at the end
// of the format. Quantizes them once more, on steps that ask for it.
#pragma once

#include <vector>

#include "octet/moe.hpp"
#include "train/model.hpp"

namespace octet::train {

class ScaleObserver {
public:
    ScaleObserver(std::vector<ScaleStatistics>& out, const Recipe& recipe) : out_(out), recipe_(recipe) {}

    // After the layer's backward pass: dy is what went into it.
    void observe(std::int64_t layer, MoeLayer& moe, const MoeKept& kept, ConstTensorView dy, const Execution& on);

private:
    void rows(std::int64_t layer, const char* tensor, ConstTensorView x, Format format, const Execution& on);
    void weights(std::int64_t layer, const char* tensor, ConstTensorView w, const Execution& on);

    std::vector<ScaleStatistics>& out_;
    Recipe recipe_;
    QuantizedTensor quantized_{};
    ReusedTensor activated_{}, doutputs_{}, dactivated_{}, dgate_up_{};
};

}  // namespace octet::train
