// A configuration: settings by name. What it does not name stays at its default.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace octet::tune {

struct Setting {
    std::string name;
    std::int64_t value = 0;
    friend bool operator==(const Setting&, const Setting&) = default;
};
using Configuration = std::vector<Setting>;

}  // namespace octet::tune

namespace octet {

// What Execution::tuning points to.
struct KernelTuning {
    tune::Configuration configuration;
};

}  // namespace octet
