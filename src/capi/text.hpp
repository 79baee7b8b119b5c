// Printing into a caller's buffer.
#pragma once

#include <cstddef>
#include <string_view>

namespace octet::capi {

// The text with its final zero goes to the buffer when it fits; `needed` receives its size. Nothing is written where it
// does not fit.
void print(std::string_view text, char* buffer, std::size_t capacity, std::size_t* needed);

}  // namespace octet::capi
