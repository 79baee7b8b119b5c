// Tuning tables: which configuration an operation runs with, as a pure function of (architecture, operation, shape
// class, group-count class). docs/tuning.md describes the file. There is no search at run time: what a table does not
// have gets the kernels' own defaults, which are the cost model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tune/setting.hpp"

namespace octet::tune {

std::string to_string(const Configuration& configuration);  // "rows_vectors=8, tile_blocks=4", or "defaults"

// The class of a call. Sizes count up to the next power of two, groups up to 1, 8, 32, 128 or more: calls that differ
// by less run alike.
struct Key {
    std::string operation;
    std::int64_t tokens = 0, features = 0, groups = 0;  // the largest of the class; groups 0: more than 128
    friend bool operator==(const Key&, const Key&) = default;
    friend auto operator<=>(const Key&, const Key&) = default;  // NOLINT(modernize-use-nullptr): none is here
};
std::int64_t size_class(std::int64_t size);
std::int64_t group_class(std::int64_t groups);
Key key_of(std::string_view operation, std::int64_t tokens, std::int64_t features, std::int64_t groups);
std::string to_string(const Key& key);  // "pair, up to 32768 x 8192, up to 32 groups"

struct Entry {
    Key key;
    Configuration configuration;
};

class Table {
public:
    Table() = default;
    Table(std::string architecture, std::vector<Entry> entries);  // throws where two entries have one key

    // Throws Error(invalid_argument) naming what is wrong and where.
    static Table parse(std::string_view json, std::string_view where);
    static Table read(const std::string& path);

    // Null where the table has none.
    const KernelTuning* find(std::string_view operation, std::int64_t tokens, std::int64_t features,
                             std::int64_t groups) const;
    const std::string& architecture() const { return architecture_; }
    const std::vector<Entry>& entries() const { return entries_; }
    std::string to_json() const;  // what parse reads; entries in the order of their keys

private:
    std::string architecture_;
    std::vector<Entry> entries_;         // sorted by key
    std::vector<KernelTuning> tunings_;  // of the entries
};

// The tables in force: those of tuned/, which are part of the library, unless use_table() has put another in place of
// the one for its architecture. Set before the first call on a device; tables never change afterwards.
const Table& table_for(std::string_view architecture);  // an empty one where there is none
void use_table(Table table);

}  // namespace octet::tune
