// The MoE layer in f64, written as its definition reads: for comparison and for central differences.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "octet/moe.hpp"
#include "products/operands.hpp"

namespace octet::testing {

struct LayerF64 {
    MoeOptions options;
    std::vector<double> router, gate_up, down, shared_gate_up, shared_down, bias;

    struct Result {
        std::vector<double> y;
        double auxiliary = 0;
    };

    static double silu(double x) { return x / (1 + std::exp(-x)); }

    // out += weight * down . (silu(gate) * up)
    void mlp(const double* x, const double* gu, const double* dn, std::int64_t h, double weight, double* out) const {
        const std::int64_t d = options.hidden;
        std::vector<double> s(static_cast<std::size_t>(h));
        for (std::int64_t i = 0; i < h; ++i) {
            const double g = std::inner_product(x, x + d, gu + i * d, 0.0);
            const double u = std::inner_product(x, x + d, gu + (h + i) * d, 0.0);
            s[static_cast<std::size_t>(i)] = silu(g) * u;
        }
        for (std::int64_t i = 0; i < d; ++i) out[i] += weight * std::inner_product(s.begin(), s.end(), dn + i * h, 0.0);
    }

    std::vector<double> scores_of(const double* x) const {
        const std::int64_t experts = options.router.experts, d = options.hidden;
        std::vector<double> s(static_cast<std::size_t>(experts));
        double sum = 0;
        for (std::int64_t e = 0; e < experts; ++e) {
            const double logit = std::inner_product(x, x + d, router.data() + e * d, 0.0);
            s[static_cast<std::size_t>(e)] =
                options.router.score == RouterScore::softmax ? std::exp(logit) : 1 / (1 + std::exp(-logit));
            sum += s[static_cast<std::size_t>(e)];
        }
        if (options.router.score == RouterScore::softmax)
            for (double& value : s) value /= sum;
        return s;
    }

    Result forward(const std::vector<double>& x) const {
        const std::int64_t d = options.hidden, h = options.expert_hidden, experts = options.router.experts;
        const std::int64_t tokens = static_cast<std::int64_t>(x.size()) / d, top_k = options.router.top_k;
        Result result{std::vector<double>(x.size(), 0.0)};
        std::vector<double> mean(static_cast<std::size_t>(experts)), share(mean.size());
        for (std::int64_t t = 0; t < tokens; ++t) {
            const double* row = x.data() + t * d;
            double* out = result.y.data() + t * d;
            const std::vector<double> s = scores_of(row);
            std::vector<std::int64_t> order(s.size());
            std::iota(order.begin(), order.end(), 0);
            const auto rank = [&](std::int64_t e) {
                return s[static_cast<std::size_t>(e)] + (bias.empty() ? 0.0 : bias[static_cast<std::size_t>(e)]);
            };
            std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return rank(a) > rank(b); });
            double chosen = 0;
            for (std::int64_t j = 0; j < top_k; ++j)
                chosen += s[static_cast<std::size_t>(order[static_cast<std::size_t>(j)])];
            const double divisor = options.router.weights == RouterWeights::normalized ? chosen : 1.0;
            for (std::int64_t j = 0; j < top_k; ++j) {
                const std::int64_t e = order[static_cast<std::size_t>(j)];
                const double weight = s[static_cast<std::size_t>(e)] / divisor * double(options.router.scaling);
                mlp(row, gate_up.data() + e * 2 * h * d, down.data() + e * d * h, h, weight, out);
                share[static_cast<std::size_t>(e)] += 1.0 / double(tokens * top_k);
            }
            if (options.shared_hidden > 0)
                mlp(row, shared_gate_up.data(), shared_down.data(), options.shared_hidden, 1.0, out);
            const double total = std::accumulate(s.begin(), s.end(), 0.0);
            for (std::size_t e = 0; e < s.size(); ++e) mean[e] += s[e] / total / double(tokens);
        }
        for (std::size_t e = 0; e < mean.size(); ++e)
            result.auxiliary += double(options.router.auxiliary_loss) * double(experts) * share[e] * mean[e];
        return result;
    }
};

inline void fill_normal(TensorView view, Random& random, float sigma) {
    std::normal_distribution<float> normal(0.0f, sigma);
    auto* values = static_cast<float*>(view.data);
    for (std::int64_t i = 0; i < view.extents.elements(); ++i) values[i] = normal(random);
}

inline std::vector<double> doubles_of(const ConstTensorView& view) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < view.extents.elements(); ++i)
        values.push_back(double(load(ConstTensorView(view.data, view.format, {view.extents.elements()}), i)));
    return values;
}

inline LayerF64 to_f64(MoeLayer& layer) {
    LayerF64 twin{layer.options(), {}, {}, {}, {}, {}, {}};
    for (const Parameter& parameter : layer.parameters()) {
        auto& to = parameter.name == "router"            ? twin.router
                   : parameter.name == "experts.gate_up" ? twin.gate_up
                   : parameter.name == "experts.down"    ? twin.down
                   : parameter.name == "shared.gate_up"  ? twin.shared_gate_up
                                                         : twin.shared_down;
        to = doubles_of(parameter.value);
    }
    if (layer.options().router.balance == RouterBalance::bias)
        twin.bias.assign(layer.balance_bias().begin(), layer.balance_bias().end());
    return twin;
}

}  // namespace octet::testing
