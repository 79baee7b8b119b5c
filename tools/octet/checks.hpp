// What options must be, beyond what the parser sees to.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "tune/table.hpp"

namespace octet::tool {

// Every value of every option of a program and its commands. A number is whole where it must be, in range of what holds
// it, and neither NaN nor infinite; the parser itself would round, wrap or take them. A text is not empty: that is a
// script's variable that was not set, and would be taken for an option that was not given.
void check_values(CLI::App& app);

// In place of the parser's own, which name a largest number of 309 digits.
CLI::Validator positive();
CLI::Validator not_negative();

// A file that can be written, known before the hour of work whose results it is for.
CLI::Validator writable_file();

// Throws Error(invalid_argument) that lists the known ones, where one of `asked` is not among them.
void require_known(const char* what, const std::vector<std::string>& asked, const std::vector<std::string>& known);

// Throws Error(invalid_argument) where a table has an operation that is not tuned, or a setting that no kernel has or
// whose value is out of range: such an entry would be without effect, or fail in the middle of a call.
void require_valid(const tune::Table& table);

}  // namespace octet::tool
