// Errors: one exception type that carries a status code and a sentence with the values in it.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

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

// fail(Status::invalid_argument, "K is ", k, ", expected a positive number")
template <class... Parts>
[[noreturn]] void fail(Status status, const Parts&... parts) {
    std::ostringstream text;
    (text << ... << parts);
    throw Error(status, text.str());
}

template <class... Parts>
void require(bool condition, const Parts&... parts) {
    if (!condition) fail(Status::invalid_argument, parts...);
}

}  // namespace octet
