// Which products of a step run in 8 bits: a cost model, so that the same shape gets the same answer on every machine of
// an architecture, on every run, and on every rank of a job. Nothing is timed.
//
// A product takes the longer of flops / rate and bytes / copy bandwidth, plus a share of the shorter: they overlap, but
// not wholly. A cast takes bytes / (copy bandwidth x what the quantizer reaches of it); a cast of the weights is
// divided by Recipe::weight_uses. A cast both ways may also be made in halves: rows first, and the rest beside a
// product, for part of the time it would take alone, as far as the product is long enough.
//
// Every mix of forward and dgrad that the recipe allows is summed up, and the least total wins; 8 bits where they tie.
// wgrad is what the recipe says: in 8 bits it decides what is kept between forward and backward, which is no question
// of time.
#pragma once

#include <string>

#include "octet/linear.hpp"

namespace octet {

// What one architecture reaches, measured (docs/kernels-products.md and docs/kernels-quantizers.md).
struct StepRates {
    const char* architecture;
    double copy_gbps;
    double overlap;  // share of the shorter of arithmetic and traffic that is not hidden behind the longer
    double bf16, fast, promoted, blockwise, mx;  // TFLOP/s of a large product
    double rows, columns;                        // of copy bandwidth, activations and gradients
    double pair, pair_held;                   // both ways: of groups that are read twice, and of those held on the chip
    double weights_along_k, weights_along_n;  // of copy bandwidth
    double weights_both, weights_both_held;
    double held_bytes;                        // the largest group or expert that is held
    double rows_and_peaks, columns_by_peaks;  // the two halves of a cast both ways, alone
    double beside_gbps, beside_cost;  // the second half beside a product: its rate, and what of its time is paid
    double launch_us;                 // of one cast or product
};

// Of the device's architecture; null where the recipe is taken at its word (the CPU).
const StepRates* step_rates(Device device);
extern const StepRates sm90_rates;

// Microseconds of one step, by the model.
struct StepCost {
    double activation_casts = 0, gradient_casts = 0, weight_casts = 0;
    double forward = 0, dgrad = 0, wgrad = 0;
    double total() const { return activation_casts + gradient_casts + weight_casts + forward + dgrad + wgrad; }
};

CastsBeside casts_beside(const StepRates* rates, const Recipe& recipe, const StepChoice& choice,
                         const LinearShape& shape, std::int64_t tokens, WeightCasts casts);

StepCost step_cost(const StepRates& rates, const Recipe& recipe, const StepChoice& choice, const LinearShape& shape,
                   std::int64_t tokens);

// `plain` is the format of activations, gradients and weights: bf16 products need bf16. rates may be null.
StepChoice choose_step(const StepRates* rates, const Recipe& recipe, const LinearShape& shape, std::int64_t tokens,
                       Format plain);

// The model's table for one shape, a line a mix, the chosen one marked: what `octet info --step` prints.
std::string explain_step(const StepRates& rates, const Recipe& recipe, const LinearShape& shape, std::int64_t tokens);

}  // namespace octet
