// Measuring on a CUDA device: data, a clock, cold caches.
#pragma once

#include <cstdint>
#include <functional>

#include "cuda/device.hpp"

namespace octet::cuda {

class Stopwatch {
public:
    Stopwatch();
    ~Stopwatch();
    Stopwatch(const Stopwatch&) = delete;
    Stopwatch& operator=(const Stopwatch&) = delete;

    void* stream() const { return stream_; }
    void fill_normal(void* bf16, std::int64_t count, std::uint32_t seed);  // unit normal
    // One repetition on stream(), in microseconds, after what the caches hold was pushed out of them.
    double us(const std::function<void()>& work);
    double copy_us(std::size_t bytes);  // of a copy from device memory to device memory, once

private:
    cudaStream_t stream_ = nullptr;
    cudaEvent_t begin_ = nullptr, end_ = nullptr;
    DeviceBuffer flush_, sink_, from_, to_;
};

}  // namespace octet::cuda
