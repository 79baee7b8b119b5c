#include "ops/tuned.hpp"

#include <string>

#include "tune/table.hpp"

namespace octet {

Execution tuned(const Execution& on, Device device, std::string_view operation, Scaling scaling, std::int64_t tokens,
                std::int64_t features, std::int64_t groups) {
    Execution result = on;
    if (device.kind != DeviceKind::cuda || on.tuning != nullptr) return result;
    const tune::Table& table = tune::table_for("sm90");
    if (table.entries().empty()) return result;
    result.tuning = table.find(std::string(operation) + ":" + std::string(name(scaling)), tokens, features, groups);
    return result;
}

}  // namespace octet
