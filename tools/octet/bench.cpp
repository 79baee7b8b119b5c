// octet bench: the parts that its kinds share; each kind is a file of its own.
#include "bench.hpp"

#include <fmt/core.h>

#include <fstream>

#include "bench_shapes.hpp"
#include "commands.hpp"
#include "octet/error.hpp"

namespace octet::tool {

void write_results(const std::string& path, const nlohmann::json& results) {
    if (path.empty()) return;
    std::ofstream file(path);
    file << results.dump(1) << '\n';
    file.flush();
    if (!file) fail(Status::io_error, "could not write the results to '", path, "'; is the folder there and writable?");
    fmt::print("\nresults: {}\n", path);
}

void add_bench(CLI::App& program, Chosen& chosen) {
    CLI::App* command =
        program.add_subcommand("bench", "Measure kernels, products or the layer; each is checked before it is timed");
    command->require_subcommand(1);
    add_bench_kernels(*command, chosen);
    add_bench_products(*command, chosen);
    add_bench_layer(*command, chosen);
}

}  // namespace octet::tool
