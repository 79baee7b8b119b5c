// octet bench: one kind of measurement a file.
#pragma once

#include <nlohmann/json.hpp>

#include <string>

#include "commands.hpp"

namespace octet::tool {

void add_bench_kernels(CLI::App& bench, Chosen& chosen);

// Writes {"stamp", "rows"} to `path`; nothing when it is empty.
void write_results(const std::string& path, const nlohmann::json& results);

}  // namespace octet::tool
