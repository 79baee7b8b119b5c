// The last error belongs to the thread that made it.
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "octet/octet.h"

TEST(CApi, LastErrorIsPerThread) {
    octet_recipe* recipe = nullptr;
    ASSERT_EQ(octet_recipe_parse("nonsense_here", &recipe), OCTET_INVALID_ARGUMENT);
    std::string at_start = "not read", after_failing;
    std::thread other([&] {
        at_start = octet_last_error();
        octet_format format = 0;
        EXPECT_EQ(octet_format_parse("something_else", &format), OCTET_INVALID_ARGUMENT);
        after_failing = octet_last_error();
    });
    other.join();
    EXPECT_EQ(at_start, "");
    EXPECT_NE(after_failing.find("something_else"), std::string::npos);
    EXPECT_NE(std::string(octet_last_error()).find("nonsense_here"), std::string::npos);
}

TEST(CApi, SuccessLeavesTheLastErrorAlone) {
    octet_recipe* recipe = nullptr;
    ASSERT_EQ(octet_recipe_parse("nonsense", &recipe), OCTET_INVALID_ARGUMENT);
    const std::string before = octet_last_error();
    ASSERT_EQ(octet_recipe_parse("mxfp8", &recipe), OCTET_OK);
    EXPECT_EQ(before, octet_last_error());
    octet_recipe_destroy(recipe);
}

// A text longer than the buffer it is kept in is cut, not overrun.
TEST(CApi, LongMessagesAreCut) {
    const std::string endless(100000, 'z');
    octet_recipe* recipe = nullptr;
    ASSERT_EQ(octet_recipe_parse(endless.c_str(), &recipe), OCTET_INVALID_ARGUMENT);
    const std::string text = octet_last_error();
    EXPECT_GT(text.size(), 100u);
    EXPECT_LT(text.size(), 10000u);
}

TEST(CApi, DestroyingAHandleOfAnotherKindIsRefused) {
    octet_recipe* recipe = nullptr;
    ASSERT_EQ(octet_recipe_parse("mxfp8", &recipe), OCTET_OK);
    octet_tensor_destroy(reinterpret_cast<octet_tensor*>(recipe));
    EXPECT_NE(std::string(octet_last_error()).find("octet_tensor_destroy"), std::string::npos);
    octet_recipe_destroy(recipe);
}
