// octet bench: one kind of measurement a file.
#pragma once

#include <nlohmann/json.hpp>

#include <chrono>
#include <string>

#include "commands.hpp"

namespace octet::tool {

void add_bench_kernels(CLI::App& bench, Chosen& chosen);
void add_bench_products(CLI::App& bench, Chosen& chosen);
void add_bench_layer(CLI::App& bench, Chosen& chosen);

// On a terminal, a line that says how much has been measured and about how long the rest will take.
class BenchProgress {
public:
    BenchProgress(const char* what, std::size_t total);
    ~BenchProgress();
    BenchProgress(const BenchProgress&) = delete;
    BenchProgress& operator=(const BenchProgress&) = delete;
    void done_one();

private:
    void show() const;

    const char* what_;
    std::size_t total_, done_ = 0;
    std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
    bool live_;
};

// Writes {"stamp", "rows"} to `path`; nothing when it is empty.
void write_results(const std::string& path, const nlohmann::json& results);

}  // namespace octet::tool
