// The quantizers that write e5m2.
#include "cuda/launch/quantize_codec.cuh"

template struct octet::cuda::Quantizers<octet::E5M2>;
