// The subcommands. Each adds itself to the parser and runs when it was chosen; the exit code is what `run` gives.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <string>

namespace octet::tool {

// What a chosen subcommand leaves behind for main: the work to do, after parsing has succeeded.
struct Chosen {
    std::function<int()> run;
    std::string command_line;  // as it was typed, for the stamp of results
};

void add_info(CLI::App& program, Chosen& chosen);
void add_verify(CLI::App& program, Chosen& chosen);
void add_bench(CLI::App& program, Chosen& chosen);
void add_tune(CLI::App& program, Chosen& chosen);
void add_train(CLI::App& program, Chosen& chosen);
void add_sample(CLI::App& program, Chosen& chosen);

}  // namespace octet::tool
