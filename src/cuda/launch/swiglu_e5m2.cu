// SwiGLU that writes e5m2.
#include "cuda/launch/swiglu_rows.cuh"

template <>
void octet::cuda::SwigluRows<octet::E5M2>::run(Runner& runner, const gpu::SwigluCall& call,
                                               const QuantizeOptions& options, const QuantizedView& rows) {
    gpu::swiglu_rows<octet::E5M2>(runner, call, options, rows);
}
