// Devices at the C ABI.
#include "octet/device.hpp"

#include "capi/guard.hpp"
#include "capi/handles.hpp"
#include "capi/text.hpp"

using namespace octet;
using namespace octet::capi;

namespace {

void require_present(Device device) {
    if (device.kind == DeviceKind::cpu) return;
    for (const DeviceInfo& info : gpus())
        if (info.device == device) return;
    fail(Status::invalid_argument, "there is no ", to_string(device),
         " that this build can use; octet_device_count says how many there are");
}

}  // namespace

extern "C" {

octet_status octet_device_count(octet_device_kind kind, int32_t* count) {
    return guarded(__func__, [&] {
        auto& out = checked_pointer(count, "count");
        const Device wanted = checked_device(kind, 0);
        std::int32_t present = wanted.kind == DeviceKind::cpu ? 1 : 0;
        for (const DeviceInfo& info : gpus()) present += info.device.kind == wanted.kind ? 1 : 0;
        out = present;
    });
}

octet_status octet_device_name(octet_device_kind kind, int32_t index, char* buffer, size_t capacity, size_t* needed) {
    return guarded(__func__, [&] {
        const Device wanted = checked_device(kind, index);
        if (wanted.kind == DeviceKind::cpu) return print("cpu", buffer, capacity, needed);
        require_present(wanted);
        for (const DeviceInfo& info : gpus())
            if (info.device == wanted) print(info.name, buffer, capacity, needed);
    });
}

octet_status octet_device_synchronize(octet_device_kind kind, int32_t index) {
    return guarded(__func__, [&] {
        const Device device = checked_device(kind, index);
        require_present(device);
        synchronize(device);
    });
}

}  // extern "C"
