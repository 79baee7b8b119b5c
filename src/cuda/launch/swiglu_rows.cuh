// SwiGLU with the quantization along rows; one instantiation for each element format, each in a file of its own.
#pragma once

#include "cuda/launch/quantize_runner.cuh"
#include "gpu/token_ops.hpp"

namespace octet::cuda {

template <class Codec>
struct SwigluRows {
    static void run(Runner& runner, const gpu::SwigluCall& call, const QuantizeOptions& options,
                    const QuantizedView& rows);
};

}  // namespace octet::cuda
