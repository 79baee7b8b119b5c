// The CUDA devices of this machine.
#pragma once

#include <vector>

#include "octet/device.hpp"

namespace octet::cuda {

std::vector<DeviceInfo> devices();  // empty without a driver or a device
void use(int device);               // makes it the calling thread's current device
void synchronize();

}  // namespace octet::cuda
