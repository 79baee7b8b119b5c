// What parameters, their gradients and an optimizer's moments begin as.
#pragma once

#include <cstring>

#include "octet/memory.hpp"

namespace octet {

inline Tensor zeros(const Extents& extents) {
    Tensor tensor(Format::f32, extents);
    if (tensor.bytes() > 0) std::memset(tensor.as<char>(), 0, tensor.bytes());
    return tensor;
}

}  // namespace octet
