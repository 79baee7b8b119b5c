// The quantizers that write e4m3fnuz.
#include "cuda/launch/quantize_codec.cuh"

template struct octet::cuda::Quantizers<octet::E4M3Fnuz>;
