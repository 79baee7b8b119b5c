#include "cuda/device.hpp"

#include <array>
#include <atomic>
#include <utility>

#include "octet/error.hpp"

namespace octet::cuda {

void checked(cudaError_t result, const char* call, std::source_location where) {
    if (result == cudaSuccess) return;
    cudaGetLastError();  // so that the next call does not report this one again
    fail(result == cudaErrorMemoryAllocation ? Status::out_of_memory : Status::device_error, call,
         " failed: ", cudaGetErrorString(result), " (", cudaGetErrorName(result), ") at ", where.file_name(), ":",
         where.line());
}

int current_device() {
    int device = 0;
    checked(cudaGetDevice(&device), "cudaGetDevice");
    return device;
}

int multiprocessors(int device) {
    static std::array<std::atomic<int>, 64> known{};
    const auto slot = static_cast<std::size_t>(device);
    if (slot < known.size() && known[slot].load(std::memory_order_relaxed) > 0)
        return known[slot].load(std::memory_order_relaxed);
    int count = 0;
    checked(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
    if (slot < known.size()) known[slot].store(count, std::memory_order_relaxed);
    return count;
}

DeviceBuffer::DeviceBuffer(std::size_t bytes) : bytes_(bytes) {
    if (bytes != 0) checked(cudaMalloc(&data_, bytes), "cudaMalloc");
}

DeviceBuffer::~DeviceBuffer() {
    if (data_) cudaFree(data_);
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

void DeviceBuffer::upload(const void* from, std::size_t bytes) {
    require(bytes <= bytes_, "upload of ", bytes, " bytes into a device buffer of ", bytes_);
    if (bytes) checked(cudaMemcpy(data_, from, bytes, cudaMemcpyHostToDevice), "cudaMemcpy to the device");
}

void DeviceBuffer::download(void* to, std::size_t bytes) const {
    require(bytes <= bytes_, "download of ", bytes, " bytes from a device buffer of ", bytes_);
    if (bytes) checked(cudaMemcpy(to, data_, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy from the device");
}

void DeviceBuffer::fill(int byte) {
    if (bytes_) checked(cudaMemset(data_, byte, bytes_), "cudaMemset");
}

}  // namespace octet::cuda
