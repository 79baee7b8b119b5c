#include "linear/choice.hpp"

#include <algorithm>
#include <cstdio>
#include <vector>

namespace octet {

const StepRates sm90_rates = {
    .architecture = "sm_90 (H200)",
    .copy_gbps = 4250,
    .overlap = 0.3,
    .bf16 = 720,
    .fast = 1400,
    .promoted = 1280,
    .blockwise = 1150,
    .mx = 640,
    .rows = 0.93,
    .columns = 0.71,
    .pair = 0.62,
    .weights_along_k = 0.93,
    .weights_along_n = 0.78,
    .weights_both = 0.65,
    .launch_us = 3,
};

const StepRates* step_rates(Device device) { return device.kind == DeviceKind::cuda ? &sm90_rates : nullptr; }

namespace {

constexpr ProductPrecision fp8 = ProductPrecision::fp8, bf16 = ProductPrecision::bf16;

double eight_bit_rate(const StepRates& rates, const Recipe& recipe) {
    switch (recipe.kind) {
        case RecipeKind::fp8_rowwise: return recipe.accumulation == Accumulation::fast ? rates.fast : rates.promoted;
        case RecipeKind::fp8_blockwise: return rates.blockwise;
        case RecipeKind::mxfp8: return rates.mx;
        case RecipeKind::bf16: break;
    }
    return rates.bf16;
}

double us_of_bytes(double bytes, double gbps) { return bytes / gbps / 1e3; }

double product_us(const StepRates& rates, double flops, double tflops, double bytes) {
    const double arithmetic = flops / tflops / 1e6, traffic = us_of_bytes(bytes, rates.copy_gbps);
    return rates.launch_us + std::max(arithmetic, traffic) + rates.overlap * std::min(arithmetic, traffic);
}

// A tensor of bf16 read once, and written once for each orientation that is asked for.
double cast_us(const StepRates& rates, double elements, bool along_k, bool across, double k, double n, double both) {
    if (!along_k && !across) return 0;
    const double reached = along_k && across ? both : along_k ? k : n;
    return rates.launch_us + us_of_bytes(elements * (2.0 + along_k + across), rates.copy_gbps * reached);
}

// Those that a recipe leaves open, 8 bits first.
std::vector<ProductPrecision> allowed(ProductPrecision asked, bool may_choose) {
    if (asked != ProductPrecision::automatic) return {asked};
    return may_choose ? std::vector{fp8, bf16} : std::vector{fp8};
}

}  // namespace

StepCost step_cost(const StepRates& rates, const Recipe& recipe, const StepChoice& choice, const LinearShape& shape,
                   std::int64_t tokens) {
    const double m = static_cast<double>(tokens), n = static_cast<double>(shape.out_features),
                 k = static_cast<double>(shape.in_features), e = static_cast<double>(shape.experts);
    const bool forward8 = choice.forward == fp8, dgrad8 = choice.dgrad == fp8,
               wgrad8 = choice.wgrad == WgradPrecision::fp8;
    const double eight = eight_bit_rate(rates, recipe), flops = 2 * m * n * k;
    const auto product = [&](bool in8, double elements_in, double elements_out) {
        return product_us(rates, flops, in8 ? eight : rates.bf16, elements_in * (in8 ? 1 : 2) + 2 * elements_out);
    };
    StepCost cost;
    cost.activation_casts = cast_us(rates, m * k, forward8, wgrad8, rates.rows, rates.columns, rates.pair);
    cost.gradient_casts = cast_us(rates, m * n, dgrad8, wgrad8, rates.rows, rates.columns, rates.pair);
    cost.weight_casts =
        cast_us(rates, e * n * k, forward8, dgrad8, rates.weights_along_k, rates.weights_along_n, rates.weights_both) /
        static_cast<double>(recipe.weight_uses);
    cost.forward = product(forward8, m * k + e * n * k, m * n);
    cost.dgrad = product(dgrad8, m * n + e * n * k, m * k);
    cost.wgrad = product(wgrad8, m * n + m * k, e * n * k);
    return cost;
}

StepChoice choose_step(const StepRates* rates, const Recipe& recipe, const LinearShape& shape, std::int64_t tokens,
                       Format plain) {
    if (!recipe.quantizes()) return {bf16, bf16, WgradPrecision::bf16};
    const bool may_choose = rates != nullptr && plain == Format::bf16;
    StepChoice best{};
    double least = 0;
    for (const ProductPrecision forward : allowed(recipe.forward, may_choose))
        for (const ProductPrecision dgrad : allowed(recipe.dgrad, may_choose)) {
            const StepChoice choice{forward, dgrad, recipe.wgrad};
            const double us = rates == nullptr ? 0 : step_cost(*rates, recipe, choice, shape, tokens).total();
            if (best.forward == ProductPrecision::automatic || us < least) {
                best = choice;
                least = us;
            }
        }
    return best;
}

StepChoice choose_step(const Recipe& recipe, const LinearShape& shape, std::int64_t tokens, Format plain,
                       Device device) {
    return choose_step(step_rates(device), recipe, shape, tokens, plain);
}

std::string to_string(const StepChoice& choice) {
    const auto text = [](std::string_view product, std::string_view precision) {
        return std::string(product) + " " + std::string(precision);
    };
    return text("forward", name(choice.forward)) + ", " + text("dgrad", name(choice.dgrad)) + ", " +
           text("wgrad", name(choice.wgrad));
}

std::string explain_step(const StepRates& rates, const Recipe& recipe, const LinearShape& shape, std::int64_t tokens) {
    const StepChoice chosen = choose_step(&rates, recipe, shape, tokens, Format::bf16);
    char line[256];
    std::snprintf(line, sizeof line, "%-42s %9s %9s %9s %9s %9s %9s %9s\n", rates.architecture, "cast A", "cast dY",
                  "cast W", "forward", "dgrad", "wgrad", "total us");
    std::string text = line;
    for (const ProductPrecision forward : {fp8, bf16})
        for (const ProductPrecision dgrad : {fp8, bf16}) {
            const StepChoice choice{forward, dgrad, chosen.wgrad};
            const StepCost cost = step_cost(rates, recipe, choice, shape, tokens);
            std::snprintf(line, sizeof line, "%-42s %9.0f %9.0f %9.0f %9.0f %9.0f %9.0f %9.0f%s\n",
                          to_string(choice).c_str(), cost.activation_casts, cost.gradient_casts, cost.weight_casts,
                          cost.forward, cost.dgrad, cost.wgrad, cost.total(), choice == chosen ? "  <- chosen" : "");
            text += line;
        }
    return text;
}

}  // namespace octet
