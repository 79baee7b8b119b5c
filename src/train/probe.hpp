// Looks for the first NaN or infinity among tensors in the order they are computed.
#pragma once

#include <cstdint>
#include <optional>

#include "octet/tensor.hpp"
#include "train/model.hpp"

namespace octet::train {

class Probe {
public:
    // x is bf16 or f32 and contiguous. Only the first find is kept.
    void look(std::int64_t layer, const std::string& what, const ConstTensorView& x);
    const std::optional<NonFinite>& found() const { return found_; }

private:
    std::optional<NonFinite> found_{};
};

}  // namespace octet::train
