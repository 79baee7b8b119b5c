// octet bench kernels on a GPU.
#pragma once

#include <string>
#include <vector>

namespace octet::tool {

struct DeviceBenchArguments {
    std::string device, json, peers, command;
    std::vector<std::string> ops;
    bool quick = false, sweeps = false;
};

int bench_device_kernels(const DeviceBenchArguments& arguments);

}  // namespace octet::tool
