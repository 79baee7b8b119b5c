#include "machine.hpp"

#include <unistd.h>

#include <chrono>
#include <ctime>
#include <fstream>

#include "core/parallel.hpp"
#include "octet_build_info.hpp"

namespace octet::tool {

std::string cpu_name() {
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);) {
        if (line.rfind("model name", 0) != 0) continue;
        const std::size_t colon = line.find(':');
        if (colon != std::string::npos && colon + 2 <= line.size()) return line.substr(colon + 2);
    }
    return "unknown CPU";
}

double host_memory_gib() {
    const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return static_cast<double>(pages) * static_cast<double>(size) / (1024.0 * 1024.0 * 1024.0);
}

std::string utc_date() {
    const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
    std::tm utc{};
    gmtime_r(&now, &utc);
    char text[32];
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
    return text;
}

nlohmann::json stamp(const std::string& command) {
    return {{"cpu", cpu_name()},
            {"cores", usable_cores()},
            {"version", build_info::version},
            {"commit", build_info::commit},
            {"compiler", build_info::compiler},
            {"build", build_info::build_type},
            {"date", utc_date()},
            {"command", command}};
}

}  // namespace octet::tool
