// What a call that must be refused says.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "octet/error.hpp"

namespace octet::testing {

inline std::string message_of(const std::function<void()>& call) {
    try {
        call();
    } catch (const Error& error) {
        EXPECT_EQ(error.status(), Status::invalid_argument);
        return error.what();
    }
    return "nothing was thrown";
}

}  // namespace octet::testing
