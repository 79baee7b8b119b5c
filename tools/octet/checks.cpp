#include "checks.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <type_traits>

#include "cuda/tuned.hpp"
#include "octet/error.hpp"
#include "tune/spaces.hpp"

namespace octet::tool {
namespace {

template <class Integer>
std::string whole_number(const std::string& text) {
    Integer value{};
    const char* const end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data(), end, value);
    if (stopped != end || error == std::errc::invalid_argument)
        return fmt::format("{} was given, expected a whole number{}", text,
                           std::is_unsigned_v<Integer> ? " of at least 0" : "");
    return error == std::errc{} ? "" : text + " was given, which is too large";
}

std::string finite_number(const std::string& text) {
    double value{};
    const char* const end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc{} && stopped == end && std::isfinite(value)) return "";
    return fmt::format("{} was given, expected a number", text);
}

std::string some_text(const std::string& text) {
    return text.empty() ? "nothing was given (''), expected a value; leave the option out for its default" : "";
}

}  // namespace

void check_values(CLI::App& app) {
    for (CLI::Option* option : app.get_options()) {
        const std::string type = option->get_type_name();
        const auto is = [&](const char* name) { return type.rfind(name, 0) == 0; };
        // As transformations, which come before the options' own checks; they change nothing.
        if (is("UINT"))
            option->transform(CLI::Validator(whole_number<std::uint64_t>, ""));
        else if (is("INT"))
            option->transform(CLI::Validator(whole_number<std::int64_t>, ""));
        else if (is("FLOAT"))
            option->transform(CLI::Validator(finite_number, ""));
        else if (is("TEXT"))
            option->transform(CLI::Validator(some_text, ""));
    }
    for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) check_values(*command);
}

CLI::Validator positive() {
    return {[](const std::string& text) {
                return std::strtod(text.c_str(), nullptr) > 0 ? "" : text + " was given, expected a number above 0";
            },
            "POSITIVE"};
}

CLI::Validator not_negative() {
    return {[](const std::string& text) {
                return std::strtod(text.c_str(), nullptr) >= 0 ? "" : text + " was given, expected a number from 0";
            },
            "NOT NEGATIVE"};
}

CLI::Validator writable_file() {
    return {[](const std::string& path) -> std::string {
                namespace fs = std::filesystem;
                std::error_code ignored;
                if (fs::is_directory(path, ignored)) return fmt::format("'{}' is a folder, expected a file", path);
                const fs::path parent = fs::path(path).parent_path(), folder = parent.empty() ? "." : parent;
                if (!fs::is_directory(folder, ignored))
                    return fmt::format("'{}' cannot be written: there is no folder '{}'", path, folder.string());
                if (fs::exists(path, ignored) && access(path.c_str(), W_OK) != 0)
                    return fmt::format("'{}' cannot be written: it is not writable", path);
                const bool device = fs::exists(path, ignored) && !fs::is_regular_file(path, ignored);
                if (!device && access(folder.c_str(), W_OK) != 0)  // a file is replaced as a whole
                    return fmt::format("'{}' cannot be written: '{}' is not writable", path, folder.string());
                return "";
            },
            ""};
}

void require_known(const char* what, const std::vector<std::string>& asked, const std::vector<std::string>& known) {
    for (const std::string& name : asked)
        if (std::find(known.begin(), known.end(), name) == known.end())
            fail(Status::invalid_argument, "unknown ", what, " '", name,
                 "'; known: ", fmt::format("{}", fmt::join(known, ", ")));
}

void require_valid(const tune::Table& table) {
    std::vector<std::string> operations;
    for (const tune::Space& space : tune::spaces()) operations.push_back(space.operation);
    for (const tune::Entry& entry : table.entries()) {
        require_known("operation of a tuning table", {entry.key.operation}, operations);
        gpu::QuantizerTuning tuning;
        for (const tune::Setting& setting : entry.configuration) try {
                cuda::apply(setting, tuning);
            } catch (const Error& error) {
                fail(error.status(), "the entry for ", to_string(entry.key), ": ", error.what());
            }
    }
}

}  // namespace octet::tool
