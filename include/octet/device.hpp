// Devices: which there are, memory on them, and waiting for them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "octet/tensor.hpp"

namespace octet {

struct DeviceInfo {
    Device device;
    std::string name;
    std::int64_t memory_bytes = 0;
    int multiprocessors = 0;  // of a GPU
    std::string driver;       // of a GPU, "13.0"
};

// The GPUs that this build can use and this machine has. A missing driver is an empty list, not an error.
std::vector<DeviceInfo> gpus();

// "cpu", "cuda" (the first) or "cuda:1"; throws where the device is not one that this build and machine have.
Device parse_device(const std::string& text);

// Memory of one device, for callers without an allocator of their own. Copies wait for the device.
class DeviceMemory {
public:
    DeviceMemory();                                  // none
    DeviceMemory(Device device, std::size_t bytes);  // contents are not set
    ~DeviceMemory();
    DeviceMemory(DeviceMemory&&) noexcept;
    DeviceMemory& operator=(DeviceMemory&&) noexcept;

    void* data() const;
    std::size_t bytes() const;
    void upload(const void* from, std::size_t bytes);
    void download(void* to, std::size_t bytes) const;

private:
    struct Place;
    std::unique_ptr<Place> place_;
};

// Waits until what was asked of the device is done; a failed kernel becomes an Error here.
void synchronize(Device device);

}  // namespace octet
