// report.html: one file that shows how runs went, and how the recipes compare.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "train/metrics.hpp"

namespace octet::train {

// The page, pictures included. Without gnuplot it has the tables alone, and says so.
std::string report_html(const std::vector<RunRecord>& runs);

// Reads metrics.jsonl of each folder and writes the page, complete or not at all.
std::vector<RunRecord> write_report(const std::filesystem::path& file,
                                    const std::vector<std::filesystem::path>& run_folders);

}  // namespace octet::train
