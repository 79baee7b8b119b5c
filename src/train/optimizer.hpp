// AdamW with f32 masters and moments, and clipping by the global norm of the gradients.
//
//   g  = gradient * min(1, clip / norm)
//   m += (1 - beta1) (g - m)              v += (1 - beta2) (g^2 - v)
//   w -= lr * ( m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon) + weight_decay * w )     decay where it decays
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "octet/memory.hpp"
#include "train/config.hpp"
#include "train/parameters.hpp"

namespace octet::train {

struct AdamWOptions {
    double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
    double weight_decay = 0.1;
    double clip_norm = 1.0;  // 0: no clipping
    int threads = 0;
};
AdamWOptions adamw_options(const TrainingConfig& training, int threads);

class AdamW {
public:
    // Borrows the parameters' memory.
    AdamW(std::span<const Parameter> parameters, const AdamWOptions& options);

    // The norm of all gradients before clipping. Where it is not finite nothing is changed, moments included, and
    // steps() stays. Otherwise values move and gradients are set to zero for the next accumulation.
    double step(double learning_rate);

    double gradient_norm() const;  // summed in f64 in a fixed order: the same bits for any number of threads
    std::int64_t steps() const { return steps_; }
    void set_steps(std::int64_t steps) { steps_ = steps; }  // when a checkpoint is loaded

    // Of parameter i: for checkpoints.
    std::size_t size() const { return parameters_.size(); }
    const Parameter& parameter(std::size_t i) const { return parameters_[i]; }
    TensorView first_moment(std::size_t i) { return first_[i]; }
    TensorView second_moment(std::size_t i) { return second_[i]; }

private:
    std::vector<Parameter> parameters_;
    AdamWOptions options_;
    std::vector<Tensor> first_{}, second_{};
    std::int64_t steps_ = 0;
};

}  // namespace octet::train
