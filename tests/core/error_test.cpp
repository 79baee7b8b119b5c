#include "octet/error.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace octet {
namespace {

template <class... Parts>
std::string text_of(const Parts&... parts) {
    try {
        fail(Status::unsupported, parts...);
    } catch (const Error& error) {
        EXPECT_EQ(error.status(), Status::unsupported);
        return error.what();
    }
}

TEST(Errors, CarryTheirValues) {
    EXPECT_EQ(text_of("K is ", std::int64_t{-7}, ", expected ", 'x', std::string("y"), std::string_view("z")),
              "K is -7, expected xyz");
    EXPECT_EQ(text_of(std::numeric_limits<std::int64_t>::min(), " ", std::numeric_limits<std::uint64_t>::max()),
              "-9223372036854775808 18446744073709551615");
    EXPECT_EQ(text_of(std::uint8_t{200}, " ", true, " ", 0.1f, " ", 1e-7, " ", 1234567.0),
              "200 1 0.1 1e-07 1.23457e+06");
    EXPECT_EQ(text_of(std::numeric_limits<double>::infinity(), " ", -std::numeric_limits<float>::quiet_NaN()),
              "inf -nan");
    EXPECT_EQ(text_of("at ", reinterpret_cast<const void*>(std::uintptr_t{0x7f10}), " ", static_cast<void*>(nullptr)),
              "at 0x7f10 0x0");
}

TEST(Errors, RequireSaysNothingOfWhatHolds) {
    EXPECT_NO_THROW(require(true, "not said"));
    EXPECT_THROW(require(false, "said"), Error);
}

}  // namespace
}  // namespace octet
