// The reciprocal and the quotient of gpu/simt_cuda.hpp against correctly rounded ones: reciprocals of every mantissa at
// exponents from 2^0 to 2^125, and the largest numbers of e4m3, e4m3fnuz and e5m2 divided by every f32 from 1e-12 on.
#include <cstdio>

#include "gpu/simt_cuda.hpp"

__global__ void compare(unsigned long long* wrong) {
    const unsigned mantissa = blockIdx.x * blockDim.x + threadIdx.x;
    for (unsigned exponent = 0; exponent <= 125; exponent += 5) {
        const float x = __uint_as_float((127u + exponent) << 23 | mantissa);
        if (octet::simt::CudaThread::reciprocal(x) != __frcp_rn(x)) atomicAdd(wrong, 1ull);
    }
}

__global__ void compare_quotients(unsigned long long* wrong) {
    const unsigned mantissa = blockIdx.x * blockDim.x + threadIdx.x;
    for (unsigned exponent = 87; exponent < 255; ++exponent) {
        const float x = __uint_as_float(exponent << 23 | mantissa);
        if (x < 1e-12f) continue;
        for (const float largest : {448.0f, 240.0f, 57344.0f})
            if (octet::simt::quotient(largest, x) != __fdiv_rn(largest, x)) atomicAdd(wrong + 1, 1ull);
    }
}

int main() {
    unsigned long long *wrong = nullptr, count[2] = {1, 1};
    cudaMalloc(&wrong, sizeof count);
    cudaMemset(wrong, 0, sizeof count);
    compare<<<(1 << 23) / 256, 256>>>(wrong);
    compare_quotients<<<(1 << 23) / 256, 256>>>(wrong);
    if (cudaMemcpy(count, wrong, sizeof count, cudaMemcpyDeviceToHost) != cudaSuccess) {
        std::printf("FAILED: %s\n", cudaGetErrorString(cudaGetLastError()));
        return 2;
    }
    std::printf("reciprocal: 2^23 mantissas at 26 exponents, %llu differ from the correctly rounded ones\n", count[0]);
    std::printf("quotient: three dividends by every f32 from 1e-12 on, %llu differ\n", count[1]);
    return count[0] + count[1] != 0;
}
