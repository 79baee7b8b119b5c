#include "train/init.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "train/random.hpp"

namespace octet::train {
namespace {

// splitmix64: a well mixed number for every counter.
std::uint64_t mixed(std::uint64_t x) { return mix(x + 0x9E3779B97F4A7C15u); }

std::uint64_t hash_of(const std::string& text) {  // FNV-1a
    std::uint64_t hash = 0xCBF29CE484222325u;
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
    return hash;
}

// In (0, 1).
double uniform(std::uint64_t bits) { return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53; }

void fill_normal(std::span<float> out, double deviation, std::uint64_t key) {
    for (std::size_t i = 0; i < out.size(); i += 2) {  // Box and Muller: two at a time
        const double radius = deviation * std::sqrt(-2.0 * std::log(uniform(mixed(key + i))));
        const double angle = 2.0 * std::numbers::pi * uniform(mixed(key + i + 1));
        out[i] = static_cast<float>(radius * std::cos(angle));
        if (i + 1 < out.size()) out[i + 1] = static_cast<float>(radius * std::sin(angle));
    }
}

bool has(const std::string& name, const char* part) { return name.find(part) != std::string::npos; }

}  // namespace

void initialize(const Parameter& parameter, const ModelConfig& config, std::uint64_t seed) {
    const std::span<float> out = values(parameter.value);
    if (has(parameter.name, "norm.weight")) {
        std::fill(out.begin(), out.end(), 1.0f);
        return;
    }
    const std::int64_t fan_in = parameter.value.size(parameter.value.rank() - 1);
    double deviation = 0.5 / std::sqrt(static_cast<double>(fan_in));
    if (has(parameter.name, "embed_tokens")) deviation = 0.02;
    if (has(parameter.name, "o_proj") || has(parameter.name, "down_proj"))
        deviation /= std::sqrt(2.0 * static_cast<double>(config.layers));
    fill_normal(out, deviation, mixed(mixed(seed) ^ hash_of(parameter.name)));
}

}  // namespace octet::train
