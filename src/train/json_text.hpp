// JSON as text, whatever bytes its strings have: a path may be any, and JSON is UTF-8. What is not UTF-8 is replaced by
// U+FFFD, because a file's name must not end a run.
#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace octet::train {

inline constexpr int one_line = -1;

inline std::string json_text(const nlohmann::json& json, int indent) {
    return json.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace octet::train
