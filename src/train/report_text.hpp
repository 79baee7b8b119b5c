// Text of reports: printf into a string, HTML escapes.
#pragma once

#include <string>
#include <string_view>

namespace octet::train {

[[gnu::format(printf, 1, 2)]] std::string formatted(const char* format, ...);
std::string escaped(std::string_view text);  // for HTML
std::string base64(std::string_view bytes);

}  // namespace octet::train
