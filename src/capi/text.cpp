#include "capi/text.hpp"

#include <cstring>

#include "octet/error.hpp"

namespace octet::capi {

void print(std::string_view text, char* buffer, std::size_t capacity, std::size_t* needed) {
    const std::size_t bytes = text.size() + 1;
    require(buffer != nullptr || capacity == 0, "buffer is NULL with a capacity of ", capacity,
            " bytes; pass capacity 0 to ask for the size alone");
    require(buffer != nullptr || needed != nullptr, "buffer and needed are both NULL, expected one of them at least");
    require(buffer == nullptr || capacity >= bytes, "buffer holds ", capacity, " bytes, the text takes ", bytes,
            "; ask for the size first with buffer NULL and capacity 0");
    if (buffer != nullptr) {
        std::memcpy(buffer, text.data(), text.size());
        buffer[text.size()] = '\0';
    }
    if (needed != nullptr) *needed = bytes;
}

}  // namespace octet::capi
