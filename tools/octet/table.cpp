#include "table.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace octet::tool {
namespace {

bool is_number(const std::string& cell) {  // 12, 0.5, 12%, 1.3x
    const std::size_t end = cell.find_first_not_of("0123456789.-");
    return !cell.empty() && end != 0 &&
           (end == std::string::npos || (end + 1 == cell.size() && (cell[end] == '%' || cell[end] == 'x')));
}

}  // namespace

void Table::print() const {
    const std::size_t columns = rows_.front().size();
    std::vector<std::size_t> width(columns, 0);
    std::vector<bool> numeric(columns, rows_.size() > 1);
    for (std::size_t r = 0; r < rows_.size(); ++r) {
        for (std::size_t c = 0; c < columns; ++c) {
            width[c] = std::max(width[c], rows_[r][c].size());
            if (r > 0 && !rows_[r][c].empty() && !is_number(rows_[r][c])) numeric[c] = false;
        }
    }
    for (std::size_t r = 0; r < rows_.size(); ++r) {
        std::string line;
        for (std::size_t c = 0; c < columns; ++c) {
            const std::string& cell = rows_[r][c];
            const std::string pad(width[c] - cell.size(), ' ');
            line += (c ? "  " : "") + (numeric[c] ? pad + cell : cell + pad);
        }
        line.erase(line.find_last_not_of(' ') + 1);
        fmt::print("{}\n", line);
        if (r == 0) {
            std::size_t total = 2 * (columns - 1);
            for (const std::size_t w : width) total += w;
            fmt::print("{}\n", std::string(total, '-'));
        }
    }
}

}  // namespace octet::tool
