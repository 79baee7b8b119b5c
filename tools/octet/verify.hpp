// What octet verify lends to those who check before they time.
#pragma once

#include "octet/device.hpp"

namespace octet::tool {

// Some random cases of every operation that is not a product; throws Error(internal) naming the first that is wrong.
void check_before_timing(Device device, int cases);

}  // namespace octet::tool
