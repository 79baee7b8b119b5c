// Random weights that depend on the seed and the parameter's name alone: cutting or adding layers changes no other's.
#pragma once

#include <cstdint>

#include "train/config.hpp"
#include "train/parameters.hpp"

namespace octet::train {

// Norms are 1. The embedding is normal with deviation 0.02, a matrix [.., N, K] normal with deviation 0.5 / sqrt(K),
// and those that write into the residual stream (o_proj, down_proj) smaller by sqrt(2 * layers).
void initialize(const Parameter& parameter, const ModelConfig& config, std::uint64_t seed);

}  // namespace octet::train
