// SwiGLU that writes e4m3fnuz.
#include "cuda/launch/swiglu_rows.cuh"

template <>
void octet::cuda::SwigluRows<octet::E4M3Fnuz>::run(Runner& runner, const gpu::SwigluCall& call,
                                                   const QuantizeOptions& options, const QuantizedView& rows) {
    gpu::swiglu_rows<octet::E4M3Fnuz>(runner, call, options, rows);
}
