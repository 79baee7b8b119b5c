// The quantizers that write e4m3.
#include "cuda/launch/quantize_codec.cuh"

template struct octet::cuda::Quantizers<octet::E4M3>;
