// Errors: one exception type that carries a status code and a sentence with the values in it.
#pragma once

#include <charconv>
#include <concepts>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace octet {

enum class Status {
    ok = 0,
    invalid_argument,  // the caller can mend it
    unsupported,       // valid, but this build or device cannot do it
    out_of_memory,
    io_error,
    device_error,  // the driver or a kernel failed
    internal,      // a bug in Octet
};

const char* name(Status status);

class Error : public std::runtime_error {
public:
    Error(Status status, const std::string& message) : std::runtime_error(message), status_(status) {}
    Status status() const { return status_; }

private:
    Status status_;
};

namespace detail {

// Without streams, whose locale is another program's where Octet is loaded into a process with a C++ library of its
// own.
inline void append(std::string& text, std::string_view part) { text += part; }
inline void append(std::string& text, char part) { text += part; }
template <class T>
requires std::integral<T> || std::floating_point<T>
void append(std::string& text, T part) {
    char digits[64];
    std::to_chars_result end{};
    if constexpr (std::floating_point<T>) {
        end = std::to_chars(digits, digits + sizeof digits, part, std::chars_format::general, 6);
    } else if constexpr (std::same_as<T, bool>) {
        end = std::to_chars(digits, digits + sizeof digits, part ? 1 : 0);
    } else {
        end = std::to_chars(digits, digits + sizeof digits, part);
    }
    text.append(digits, end.ptr);
}

template <class T>
requires std::same_as<T, const void*> || std::same_as<T, void*>
void append(std::string& text, T part) {
    char digits[32];
    const auto end = std::to_chars(digits, digits + sizeof digits, reinterpret_cast<std::uintptr_t>(part), 16);
    text += "0x";
    text.append(digits, end.ptr);
}

}  // namespace detail

// fail(Status::invalid_argument, "K is ", k, ", expected a positive number")
template <class... Parts>
[[noreturn]] void fail(Status status, const Parts&... parts) {
    std::string text;
    (detail::append(text, parts), ...);
    throw Error(status, text);
}

template <class... Parts>
void require(bool condition, const Parts&... parts) {
    if (!condition) fail(Status::invalid_argument, parts...);
}

}  // namespace octet
