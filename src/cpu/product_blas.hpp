// OpenBLAS's f32 product, one thread a call: our own pool spreads the tiles.
#pragma once

#include <cstdint>

namespace octet::cpu {

// While one of these lives, OpenBLAS uses the calling thread alone. The number of threads it had before comes back
// when the last one goes. The first one also makes sure that OpenBLAS uses kernels for this machine's vector units.
class SingleThreadedBlas {
public:
    SingleThreadedBlas();
    ~SingleThreadedBlas();
    SingleThreadedBlas(const SingleThreadedBlas&) = delete;
    SingleThreadedBlas& operator=(const SingleThreadedBlas&) = delete;
};

// How a matrix of the product lies: its reduction axis steps by 1, or its rows do.
enum class Lies : std::uint8_t { along_reduction, across_reduction };

struct BlasMatrix {
    const float* data;
    std::int64_t step;  // from one row (along_reduction) or one reduction index (across_reduction) to the next
    Lies lies;
};

// c[m,n] = a[m,r] . b[n,r]^T, added to c where the chunk is a further one.
enum class Chunk : std::uint8_t { first, further };
void blas_multiply(std::int64_t m, std::int64_t n, std::int64_t reduction, const BlasMatrix& a, const BlasMatrix& b,
                   Chunk chunk, float* c, std::int64_t c_step);

// OpenBLAS's own dense product with its own threads: the ceiling that benchmarks compare with. c[m,n] = a[m,k] .
// b[n,k]^T
void blas_dense(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, const float* b, float* c, int threads);

// The family of kernels that OpenBLAS uses, such as "SkylakeX".
const char* blas_kernels();

}  // namespace octet::cpu
