#include "cuda/measure.hpp"

#include "octet/format.hpp"

namespace octet::cuda {
namespace {

constexpr std::size_t flush_bytes = std::size_t{256} << 20;  // several times the L2 cache

// A hash of the index, then Box and Muller.
__global__ void fill_kernel(std::uint16_t* x, std::int64_t count, std::uint32_t seed) {
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; i < count; i += step) {
        std::uint64_t h = (static_cast<std::uint64_t>(i) * 8 + seed + 1) * 0x9E3779B97F4A7C15ull;
        h = (h ^ h >> 31) * 0xBF58476D1CE4E5B9ull;
        h ^= h >> 29;
        const float u = (static_cast<float>(h >> 40) + 0.5f) * 0x1p-24f;
        const float v = static_cast<float>(h & 0xFFFFFFu) * 0x1p-24f;
        x[i] = BF16::encode(sqrtf(-2.0f * logf(u)) * cospif(2.0f * v));
    }
}

// Reads only: nothing is left behind that would have to be written back.
__global__ void flush_kernel(const uint4* x, std::int64_t count, unsigned* sink) {
    unsigned sum = 0;
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; i < count; i += step)
        sum ^= x[i].x ^ x[i].y ^ x[i].z ^ x[i].w;
    if (sum == 0x12345678u) *sink = sum;
}

}  // namespace

Stopwatch::Stopwatch() : flush_(flush_bytes), sink_(4) {
    flush_.fill(1);
    checked(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    checked(cudaEventCreate(&begin_), "cudaEventCreate");
    checked(cudaEventCreate(&end_), "cudaEventCreate");
}

Stopwatch::~Stopwatch() {
    if (begin_) cudaEventDestroy(begin_);
    if (end_) cudaEventDestroy(end_);
    if (stream_) cudaStreamDestroy(stream_);
}

void Stopwatch::fill_normal(void* bf16, std::int64_t count, std::uint32_t seed) {
    fill_kernel<<<2112, 256, 0, stream_>>>(static_cast<std::uint16_t*>(bf16), count, seed);
    checked(cudaGetLastError(), "launch of fill_kernel");
    checked(cudaStreamSynchronize(stream_), "filling with random numbers");
}

double Stopwatch::us(const std::function<void()>& work) {
    flush_kernel<<<1056, 256, 0, stream_>>>(flush_.as<uint4>(), static_cast<std::int64_t>(flush_bytes / sizeof(uint4)),
                                            sink_.as<unsigned>());
    checked(cudaGetLastError(), "launch of flush_kernel");
    checked(cudaEventRecord(begin_, stream_), "cudaEventRecord");
    work();
    checked(cudaEventRecord(end_, stream_), "cudaEventRecord");
    checked(cudaEventSynchronize(end_), "what is being measured");
    float ms = 0;
    checked(cudaEventElapsedTime(&ms, begin_, end_), "cudaEventElapsedTime");
    return static_cast<double>(ms) * 1000.0;
}

double Stopwatch::copy_us(std::size_t bytes) {
    if (from_.bytes() < bytes) {
        from_ = DeviceBuffer(bytes);
        to_ = DeviceBuffer(bytes);
        from_.fill(1);
    }
    return us([&] {
        checked(cudaMemcpyAsync(to_.data(), from_.data(), bytes, cudaMemcpyDeviceToDevice, stream_), "cudaMemcpyAsync");
    });
}

}  // namespace octet::cuda
