// Names of enumerators: one table per enum serves printing, parsing and error texts.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "octet/error.hpp"

namespace octet {

template <class Enum>
struct NamedValue {
    Enum value;
    std::string_view name;
};

template <class Enum>
std::string_view name_in(std::span<const NamedValue<Enum>> table, Enum value) {
    for (const auto& entry : table)
        if (entry.value == value) return entry.name;
    return "?";
}

template <class Enum>
Enum parse_in(std::span<const NamedValue<Enum>> table, std::string_view what, std::string_view text) {
    for (const auto& entry : table)
        if (entry.name == text) return entry.value;
    std::string known;
    for (const auto& entry : table) known += (known.empty() ? "" : ", ") + std::string(entry.name);
    fail(Status::invalid_argument, "unknown ", what, " '", text, "'; known: ", known);
}

}  // namespace octet
