// Measuring on a device: what `octet bench` and `octet tune` time with.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "octet/device.hpp"

namespace octet {

class DeviceStopwatch {
public:
    explicit DeviceStopwatch(Device device);  // throws where this build cannot measure there
    ~DeviceStopwatch();
    DeviceStopwatch(const DeviceStopwatch&) = delete;
    DeviceStopwatch& operator=(const DeviceStopwatch&) = delete;

    void* stream() const;
    void fill_normal(void* bf16, std::int64_t count, std::uint32_t seed);
    double us(const std::function<void()>& work);  // one repetition on stream(), caches cold
    double copy_us(std::size_t bytes);             // of a copy within the device, once

private:
    struct Implementation;
    std::unique_ptr<Implementation> implementation_;
};

}  // namespace octet
