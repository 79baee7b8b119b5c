// octet info: what this build has and what this machine offers it.
#include <fmt/core.h>

#include "commands.hpp"
#include "cpu/simd.hpp"
#include "machine.hpp"
#include "octet/device.hpp"
#include "octet_build_info.hpp"

namespace octet::tool {
namespace {

int info(bool as_json) {
    const bool cuda = build_info::cuda[0] != '\0';
    if (as_json) {
        nlohmann::json out = stamp("octet info --json");
        out["simd"] = cpu::name(cpu::active_target());
        out["backends"] = cuda ? nlohmann::json{"reference", "cpu", "cuda"} : nlohmann::json{"reference", "cpu"};
        fmt::print("{}\n", out.dump(2));
        return 0;
    }
    fmt::print("octet      {} ({}), built by {}, {}\n", build_info::version, build_info::commit, build_info::compiler,
               build_info::build_type);
    fmt::print("cpu        {}, {} cores, {:.1f} GiB\n", cpu_name(), cpu_cores(), host_memory_gib());
    fmt::print("backends   reference  the scalar specification\n");
    fmt::print("           cpu        Highway {}, using {}\n", build_info::highway, cpu::name(cpu::active_target()));
    fmt::print("           cuda       {}\n", cuda ? fmt::format("compiled in, CUDA {}, for sm_90a", build_info::cuda)
                                                  : std::string("not in this build: nvcc was not found"));
    for (const DeviceInfo& gpu : gpus())
        fmt::print("           {:<10} {}, {} multiprocessors, {:.1f} GiB, driver {}\n", to_string(gpu.device), gpu.name,
                   gpu.multiprocessors, static_cast<double>(gpu.memory_bytes) / (1 << 30), gpu.driver);
    if (cuda && gpus().empty()) fmt::print("                      no CUDA device or driver on this machine\n");
    fmt::print("           hip        not in this build\n");
    return 0;
}

}  // namespace

void add_info(CLI::App& program, Chosen& chosen) {
    CLI::App* command = program.add_subcommand("info", "Devices, backends compiled in, and versions");
    auto json = std::make_shared<bool>(false);
    command->add_flag("--json", *json, "Print JSON");
    command->callback([=, &chosen] { chosen.run = [=] { return info(*json); }; });
}

}  // namespace octet::tool
