// The learning rate of a step: linear warm-up, then half a cosine down to the final rate.
#pragma once

#include "train/config.hpp"

namespace octet::train {

// step counts from 0; the first step already learns. From `steps` on the rate stays at the final one.
double learning_rate(const TrainingConfig& training, std::int64_t step);

}  // namespace octet::train
