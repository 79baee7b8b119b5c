#include "octet/device.hpp"

#include <cstring>

#include "octet/error.hpp"
#include "octet/memory.hpp"
#if OCTET_HAVE_CUDA
#include "cuda/device.hpp"
#include "cuda/device_info.hpp"
#endif

namespace octet {

std::vector<DeviceInfo> gpus() {
#if OCTET_HAVE_CUDA
    return cuda::devices();
#else
    return {};
#endif
}

Device parse_device(const std::string& text) {
    if (text == "cpu") return {};
    const std::vector<DeviceInfo> present = gpus();
    std::string known = "cpu";
    for (const DeviceInfo& info : present) {
        const std::string name = to_string(info.device);
        if (text == name || (text == "cuda" && info.device.index == 0)) return info.device;
        known += ", " + name;
    }
    fail(Status::invalid_argument, "device '", text, "' was asked for; this build and this machine have: ", known);
}

// One of the two holds the memory.
struct DeviceMemory::Place {
    Buffer host;
#if OCTET_HAVE_CUDA
    int index = -1;  // of the CUDA device
    cuda::DeviceBuffer device;
#endif
};

DeviceMemory::DeviceMemory(Device device, std::size_t bytes) : place_(std::make_unique<Place>()) {
    if (device.kind == DeviceKind::cpu) {
        place_->host = Buffer(bytes);
        return;
    }
#if OCTET_HAVE_CUDA
    if (device.kind == DeviceKind::cuda) {
        cuda::use(device.index);
        place_->index = device.index;
        place_->device = cuda::DeviceBuffer(bytes);
        return;
    }
#endif
    fail(Status::unsupported, "this build of Octet has no memory on ", to_string(device));
}

DeviceMemory::DeviceMemory() = default;
DeviceMemory::~DeviceMemory() = default;
DeviceMemory::DeviceMemory(DeviceMemory&&) noexcept = default;
DeviceMemory& DeviceMemory::operator=(DeviceMemory&&) noexcept = default;

void* DeviceMemory::data() const {
    if (!place_) return nullptr;
#if OCTET_HAVE_CUDA
    if (place_->index >= 0) return place_->device.data();
#endif
    return place_->host.data();
}

std::size_t DeviceMemory::bytes() const {
    if (!place_) return 0;
#if OCTET_HAVE_CUDA
    if (place_->index >= 0) return place_->device.bytes();
#endif
    return place_->host.bytes();
}

void DeviceMemory::upload(const void* from, std::size_t count) {
    require(count <= bytes(), "upload of ", count, " bytes into device memory of ", bytes());
    if (count == 0) return;
#if OCTET_HAVE_CUDA
    if (place_->index >= 0) return place_->device.upload(from, count);
#endif
    std::memcpy(place_->host.data(), from, count);
}

void DeviceMemory::download(void* to, std::size_t count) const {
    require(count <= bytes(), "download of ", count, " bytes from device memory of ", bytes());
    if (count == 0) return;
#if OCTET_HAVE_CUDA
    if (place_->index >= 0) return place_->device.download(to, count);
#endif
    std::memcpy(to, place_->host.data(), count);
}

void synchronize(Device device) {
#if OCTET_HAVE_CUDA
    if (device.kind == DeviceKind::cuda) {
        cuda::use(device.index);
        cuda::synchronize();
    }
#else
    (void)device;
#endif
}

}  // namespace octet
