// A table for people: columns as wide as they need to be, numbers to the right.
#pragma once

#include <string>
#include <vector>

namespace octet::tool {

class Table {
public:
    explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
    void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
    void print() const;

private:
    std::vector<std::vector<std::string>> rows_;  // the first is the header
};

}  // namespace octet::tool
