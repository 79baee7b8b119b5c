// Tables: classes, parsing, what is refused, and how long loading takes.
#include "tune/table.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "octet/error.hpp"

namespace octet::tune {
namespace {

Table example() {
    return Table("test9", {{key_of("pair", 16640, 5120, 16), {{"fused_tiles", 2}, {"tile_blocks", 3}}},
                           {key_of("rows", 16640, 5120, 1), {{"rows_vectors", 4}}}});
}

TEST(TuningTable, ClassesAreTheNextPowerOfTwoAndFiveGroupCounts) {
    EXPECT_EQ(size_class(1), 256);
    EXPECT_EQ(size_class(256), 256);
    EXPECT_EQ(size_class(257), 512);
    EXPECT_EQ(size_class(16640), 32768);
    EXPECT_EQ(group_class(1), 1);
    EXPECT_EQ(group_class(2), 8);
    EXPECT_EQ(group_class(32), 32);
    EXPECT_EQ(group_class(33), 128);
    EXPECT_EQ(group_class(129), 0);
}

TEST(TuningTable, FindsItsEntriesAndNothingElse) {
    const Table table = example();
    const KernelTuning* found = table.find("pair", 20000, 8000, 30);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(to_string(found->configuration), "fused_tiles=2, tile_blocks=3");
    EXPECT_EQ(table.find("pair", 20000, 8000, 33), nullptr);  // never tuned on one group count what another uses
    EXPECT_EQ(table.find("pair", 33000, 8000, 30), nullptr);
    EXPECT_EQ(table.find("columns", 20000, 8000, 30), nullptr);
    EXPECT_EQ(Table().find("pair", 1, 1, 1), nullptr);
}

TEST(TuningTable, SurvivesBeingWrittenAndRead) {
    const Table table = example(), again = Table::parse(table.to_json(), "a test");
    EXPECT_EQ(again.to_json(), table.to_json());
    ASSERT_EQ(again.entries().size(), 2u);
    EXPECT_EQ(again.architecture(), "test9");
}

TEST(TuningTable, SaysWhatIsWrong) {
    const auto message = [](const std::string& json) {
        try {
            Table::parse(json, "t.json");
        } catch (const Error& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    EXPECT_NE(message("{").find("t.json is no JSON"), std::string::npos);
    EXPECT_NE(message("{}").find("lacks 'architecture'"), std::string::npos);
    const std::string head = R"({"architecture": "a", "entries": [{"operation": "rows", "tokens": )";
    EXPECT_NE(message(head + R"(300, "features": 256, "groups": 1, "configuration": {}}]})").find("powers of two"),
              std::string::npos);
    EXPECT_NE(message(head + R"(256, "features": 256, "groups": 7, "configuration": {}}]})").find("groups is"),
              std::string::npos);
    EXPECT_NE(message(head + R"("x", "features": 256, "groups": 1, "configuration": {}}]})").find("'tokens'"),
              std::string::npos);
    EXPECT_NE(message(head + R"(256, "features": 256, "groups": 1, "configuration": {"a": 1.5}}]})")
                  .find("'a' is no integer"),
              std::string::npos);
    EXPECT_THROW(Table("a", {{key_of("rows", 1, 1, 1), {}}, {key_of("rows", 2, 2, 1), {}}}), Error);
    EXPECT_THROW(Table::read("/nowhere/table.json"), Error);
}

TEST(TuningTable, TheTableOfTheLibraryLoadsAndCanBeReplaced) {
    EXPECT_EQ(table_for("sm90").architecture(), "sm90");
    EXPECT_TRUE(table_for("sm1").entries().empty());
    use_table(example());
    EXPECT_EQ(table_for("test9").entries().size(), 2u);
}

// Ten times what a table has. What reading one takes, `octet info --table` says.
TEST(TuningTable, HoldsManyEntries) {
    std::vector<Entry> entries;
    for (const char* operation : {"rows", "columns", "pair", "weights"})
        for (std::int64_t tokens = 256; tokens <= 131072; tokens *= 2)
            for (const std::int64_t groups : {1, 8, 32, 128, 1000})
                entries.push_back({key_of(operation, tokens, 4096, groups), {{"tile_blocks", tokens % 31 + 1}}});
    const Table table = Table::parse(Table("big", std::move(entries)).to_json(), "big");
    ASSERT_EQ(table.entries().size(), 200u);
    const KernelTuning* found = table.find("pair", 131072, 4096, 32);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(to_string(found->configuration), "tile_blocks=" + std::to_string(131072 % 31 + 1));
    EXPECT_EQ(table.find("pair", 131072, 8192, 32), nullptr);
}

}  // namespace
}  // namespace octet::tune
