#include "train/schedule.hpp"

#include <cmath>
#include <numbers>

namespace octet::train {

double learning_rate(const TrainingConfig& training, std::int64_t step) {
    if (step < training.warmup_steps)
        return training.learning_rate * static_cast<double>(step + 1) / static_cast<double>(training.warmup_steps);
    if (step >= training.steps) return training.final_learning_rate;
    const double done =
        static_cast<double>(step - training.warmup_steps) / static_cast<double>(training.steps - training.warmup_steps);
    const double cosine = 0.5 * (1.0 + std::cos(std::numbers::pi * done));
    return training.final_learning_rate + (training.learning_rate - training.final_learning_rate) * cosine;
}

}  // namespace octet::train
