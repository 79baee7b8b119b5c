// The quantizers of one element format; included by one file a format, which instantiates them.
#pragma once

#include "cuda/launch/quantize_runner.cuh"

namespace octet::cuda {

template <class Codec>
void Quantizers<Codec>::rows(Runner& runner, const ConstTensorView& x, const QuantizeOptions& options,
                             const QuantizedView& out) {
    gpu::quantize_rows<Codec>(runner, x, options, out);
}

template <class Codec>
void Quantizers<Codec>::columns(Runner& runner, const ConstTensorView& x0, const ConstTensorView& x1,
                                const Groups& groups, std::int64_t alignment, const QuantizeOptions& options,
                                const QuantizedView& out0, const QuantizedView& out1) {
    gpu::quantize_columns<Codec>(runner, x0, x1, groups, alignment, options, out0, out1);
}

template <class Codec>
void Quantizers<Codec>::pair(Runner& runner, const ConstTensorView& x, const Groups& groups, std::int64_t alignment,
                             const QuantizeOptions& options, const QuantizedView& rows, const QuantizedView& columns) {
    gpu::quantize_pair<Codec>(runner, x, groups, alignment, options, rows, columns);
}

template <class Codec>
void Quantizers<Codec>::transposed(Runner& runner, const ConstTensorView& x, const Groups& groups,
                                   std::int64_t alignment, const QuantizeOptions& options, const QuantizedView& out) {
    gpu::quantize_transposed<Codec>(runner, x, groups, alignment, options, out);
}

template <class Codec>
void Quantizers<Codec>::weights(Runner& runner, const ConstTensorView& w, const QuantizeOptions& options,
                                const QuantizedView& along_k, const QuantizedView& along_n) {
    gpu::quantize_weights<Codec>(runner, w, options, along_k, along_n);
}

}  // namespace octet::cuda
