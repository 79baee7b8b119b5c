// Device memory and errors: what every CUDA call of the library goes through.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <source_location>

namespace octet::cuda {

// Throws Error(device_error), or out_of_memory, with the call, what CUDA says of it and where.
void checked(cudaError_t result, const char* call, std::source_location where = std::source_location::current());

// The device's multiprocessors; asked once a device.
int multiprocessors(int device);
int current_device();

// Memory of the current device, for tests, benchmarks and callers without an allocator of their own.
class DeviceBuffer {
public:
    DeviceBuffer() = default;
    explicit DeviceBuffer(std::size_t bytes);  // contents are not set
    ~DeviceBuffer();
    DeviceBuffer(DeviceBuffer&& other) noexcept;
    DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
    DeviceBuffer(const DeviceBuffer&) = delete;
    DeviceBuffer& operator=(const DeviceBuffer&) = delete;

    void* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }
    template <class T>
    T* as() const {
        return static_cast<T*>(data_);
    }
    void upload(const void* from, std::size_t bytes);
    void download(void* to, std::size_t bytes) const;
    void fill(int byte);

private:
    void* data_ = nullptr;
    std::size_t bytes_ = 0;
};

}  // namespace octet::cuda
