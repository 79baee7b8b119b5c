// The reciprocal of gpu/simt_cuda.hpp against the correctly rounded one: every mantissa, at exponents from 2^0 to
// 2^125.
#include <cstdio>

#include "gpu/simt_cuda.hpp"

__global__ void compare(unsigned long long* wrong) {
    const unsigned mantissa = blockIdx.x * blockDim.x + threadIdx.x;
    for (unsigned exponent = 0; exponent <= 125; exponent += 5) {
        const float x = __uint_as_float((127u + exponent) << 23 | mantissa);
        if (octet::simt::CudaThread::reciprocal(x) != __frcp_rn(x)) atomicAdd(wrong, 1ull);
    }
}

int main() {
    unsigned long long *wrong = nullptr, count = 1;
    cudaMalloc(&wrong, sizeof count);
    cudaMemset(wrong, 0, sizeof count);
    compare<<<(1 << 23) / 256, 256>>>(wrong);
    if (cudaMemcpy(&count, wrong, sizeof count, cudaMemcpyDeviceToHost) != cudaSuccess) {
        std::printf("FAILED: %s\n", cudaGetErrorString(cudaGetLastError()));
        return 2;
    }
    std::printf("reciprocal: 2^23 mantissas at 26 exponents, %llu differ from the correctly rounded ones\n", count);
    return count != 0;
}
