#include "cuda/device_info.hpp"

#include <cuda_runtime_api.h>

#include "cuda/device.hpp"

namespace octet::cuda {

std::vector<DeviceInfo> devices() {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) {
        cudaGetLastError();  // no driver or no device: not an error of ours
        return {};
    }
    int version = 0;
    checked(cudaDriverGetVersion(&version), "cudaDriverGetVersion");
    const std::string driver = std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
    std::vector<DeviceInfo> list;
    for (int index = 0; index < count; ++index) {
        cudaDeviceProp properties{};
        checked(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
        list.push_back({{DeviceKind::cuda, index},
                        properties.name,
                        static_cast<std::int64_t>(properties.totalGlobalMem),
                        properties.multiProcessorCount,
                        driver});
    }
    return list;
}

void use(int device) { checked(cudaSetDevice(device), "cudaSetDevice"); }

void synchronize() { checked(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }

}  // namespace octet::cuda
