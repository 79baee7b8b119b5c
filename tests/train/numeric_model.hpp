// Helpers of the model's tests: random rows, and gradients of a scalar function by central differences in f64.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "octet/format.hpp"
#include "octet/tensor.hpp"

namespace octet::train::testing {

inline std::vector<float> random_values(std::size_t count, std::uint64_t seed, float deviation = 1.0f) {
    std::mt19937_64 engine(seed);
    std::normal_distribution<float> normal(0.0f, deviation);
    std::vector<float> out(count);
    for (float& x : out) x = normal(engine);
    return out;
}

inline std::vector<double> widen(const std::vector<float>& x) { return {x.begin(), x.end()}; }

using Function = std::function<double(const std::vector<double>&)>;

inline double central_difference(const Function& f, std::vector<double> x, std::size_t i, double step = 1e-5) {
    const double middle = x[i];
    x[i] = middle + step;
    const double above = f(x);
    x[i] = middle - step;
    return (above - f(x)) / (2 * step);
}

inline TensorView view_of(std::vector<float>& x, Extents extents) { return {x.data(), Format::f32, extents}; }
inline ConstTensorView view_of(const std::vector<float>& x, Extents extents) {
    return {x.data(), Format::f32, extents};
}

inline double relative_error(const std::vector<float>& ours, const std::vector<double>& exact) {
    double wrong = 0, all = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) {
        wrong += std::pow(static_cast<double>(ours[i]) - exact[i], 2);
        all += exact[i] * exact[i];
    }
    return std::sqrt(wrong / all);
}

}  // namespace octet::train::testing
