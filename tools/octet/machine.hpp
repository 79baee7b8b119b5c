// What the program knows about the machine it runs on.
#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace octet::tool {

std::string cpu_name();
double host_memory_gib();
std::string utc_date();  // 2026-11-15T02:30:00Z

// The stamp of a result made on the CPU: machine, build, command.
nlohmann::json stamp(const std::string& command);

}  // namespace octet::tool
