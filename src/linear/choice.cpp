#include "linear/choice.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>
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
    .pair_held = 0.71,
    .weights_along_k = 0.93,
    .weights_along_n = 0.78,
    .weights_both = 0.63,
    .weights_both_held = 0.74,
    .held_bytes = 17.3e6,
    .rows_and_peaks = 0.92,
    .columns_by_peaks = 0.85,
    .beside_gbps = 1150,
    .beside_cost = 0.45,
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

// A tensor of bf16 read once, and written once for each orientation that is asked for; `reached` of copy bandwidth.
double cast_us(const StepRates& rates, double elements, int orientations, double reached) {
    return rates.launch_us + us_of_bytes(elements * (2 + orientations), rates.copy_gbps * reached);
}

struct Rates {
    double rows, columns, both;
};
Rates token_rates(const StepRates& rates, double group_elements) {
    return {rates.rows, rates.columns, 2 * group_elements <= rates.held_bytes ? rates.pair_held : rates.pair};
}
Rates weight_rates(const StepRates& rates, double expert_elements) {
    return {rates.weights_along_k, rates.weights_along_n,
            2 * expert_elements <= rates.held_bytes ? rates.weights_both_held : rates.weights_both};
}

double cast_us(const StepRates& rates, double elements, bool rows, bool columns, const Rates& reached) {
    if (!rows && !columns) return 0;
    return cast_us(rates, elements, rows + columns,
                   rows && columns ? reached.both
                   : rows          ? reached.rows
                                   : reached.columns);
}

// The first half of a cast both ways: a plan, and rows with the columns' maxima.
double rows_and_peaks_us(const StepRates& rates, double elements) {
    return rates.launch_us + cast_us(rates, elements, 1, rates.rows_and_peaks);
}

// What the second halves of so many elements add to a product they run beside.
double beside_us(const StepRates& rates, double elements, double product_us) {
    const double bytes = 3 * elements, hidden = std::min(bytes, rates.beside_gbps * 1e3 * product_us);
    return us_of_bytes(rates.beside_cost * hidden + bytes - hidden, rates.copy_gbps * rates.columns_by_peaks);
}

// Those that a recipe leaves open, 8 bits first.
std::vector<ProductPrecision> allowed(ProductPrecision asked, bool may_choose) {
    if (asked != ProductPrecision::automatic) return {asked};
    return may_choose ? std::vector{fp8, bf16} : std::vector{fp8};
}

}  // namespace

namespace {

// A step of one shape in numbers.
struct Step {
    const StepRates& rates;
    double m, n, k, e, eight;

    Step(const StepRates& of, const Recipe& recipe, const LinearShape& shape, std::int64_t tokens)
        : rates(of),
          m(static_cast<double>(tokens)),
          n(static_cast<double>(shape.out_features)),
          k(static_cast<double>(shape.in_features)),
          e(static_cast<double>(shape.experts)),
          eight(eight_bit_rate(of, recipe)) {}

    double product(bool in8, double elements_in, double elements_out) const {
        return product_us(rates, 2 * m * n * k, in8 ? eight : rates.bf16,
                          elements_in * (in8 ? 1 : 2) + 2 * elements_out);
    }
    double forward(bool in8) const { return product(in8, m * k + e * n * k, m * n); }
    double dgrad(bool in8) const { return product(in8, m * n + e * n * k, m * k); }
    double wgrad(bool in8) const { return product(in8, m * n + m * k, e * n * k); }
    double both_ways(double elements, const Rates& reached) const { return cast_us(rates, elements, 2, reached.both); }
};

}  // namespace

CastsBeside casts_beside(const StepRates* rates, const Recipe& recipe, const StepChoice& choice,
                         const LinearShape& shape, std::int64_t tokens, WeightCasts weights) {
    // With fewer tokens an expert the product's pipeline has a slot more, with `promoted` it has more registers: there
    // is no room beside it.
    if (rates == nullptr || recipe.kind != RecipeKind::fp8_rowwise || recipe.accumulation != Accumulation::fast ||
        tokens < 512 * shape.experts)
        return {};
    const Step step(*rates, recipe, shape, tokens);
    const bool forward8 = choice.forward == fp8, dgrad8 = choice.dgrad == fp8,
               wgrad8 = choice.wgrad == WgradPrecision::fp8;
    const double activations = step.m * step.k, gradients = step.m * step.n, all_weights = step.e * step.n * step.k;
    const Rates of_activations = token_rates(*rates, activations / step.e),
                of_gradients = token_rates(*rates, gradients / step.e),
                of_weights = weight_rates(*rates, step.n * step.k);
    CastsBeside best{};
    double least = 0;
    for (const bool a : {false, true})
        for (const bool w : {false, true}) {
            if ((a && !(forward8 && wgrad8)) || (w && !(weights == WeightCasts::in_forward && forward8 && dgrad8)))
                continue;
            const double saved =
                (a ? step.both_ways(activations, of_activations) - rows_and_peaks_us(*rates, activations) : 0) +
                (w ? step.both_ways(all_weights, of_weights) - rows_and_peaks_us(*rates, all_weights) : 0);
            const double us =
                beside_us(*rates, (a ? activations : 0) + (w ? all_weights : 0), step.forward(true)) - saved;
            if (us >= least) continue;
            least = us;
            best.activations = a;
            best.weights = w;
        }
    if (!dgrad8 || !wgrad8) return best;
    const double whole = step.both_ways(gradients, of_gradients),
                 in_halves = rows_and_peaks_us(*rates, gradients) + beside_us(*rates, gradients, step.dgrad(true));
    best.gradients = in_halves < whole;
    // One product of backward comes first, and what is beside it is for the other.
    if (weights == WeightCasts::in_both && forward8 &&
        whole + beside_us(*rates, all_weights, step.wgrad(true)) <
            std::min(whole, in_halves) + cast_us(*rates, all_weights, 1, of_weights.columns)) {
        best.gradients = false;
        best.weights = true;
    }
    return best;
}

CastsBeside casts_beside(const Recipe& recipe, const StepChoice& choice, const LinearShape& shape, std::int64_t tokens,
                         WeightCasts weights, Device device) {
    return casts_beside(step_rates(device), recipe, choice, shape, tokens, weights);
}

namespace {

WeightCasts casts_of(const Recipe& recipe) {
    return recipe.weight_uses == 1 ? WeightCasts::in_forward : WeightCasts::none;
}

}  // namespace

StepCost step_cost(const StepRates& rates, const Recipe& recipe, const StepChoice& choice, const LinearShape& shape,
                   std::int64_t tokens) {
    const Step step(rates, recipe, shape, tokens);
    const bool forward8 = choice.forward == fp8, dgrad8 = choice.dgrad == fp8,
               wgrad8 = choice.wgrad == WgradPrecision::fp8;
    const double activations = step.m * step.k, gradients = step.m * step.n, weights = step.e * step.n * step.k;
    const CastsBeside beside = casts_beside(&rates, recipe, choice, shape, tokens, casts_of(recipe));
    StepCost cost;
    cost.activation_casts =
        beside.activations ? rows_and_peaks_us(rates, activations)
                           : cast_us(rates, activations, forward8, wgrad8, token_rates(rates, activations / step.e));
    cost.gradient_casts = beside.gradients
                              ? rows_and_peaks_us(rates, gradients)
                              : cast_us(rates, gradients, dgrad8, wgrad8, token_rates(rates, gradients / step.e));
    cost.weight_casts = beside.weights
                            ? rows_and_peaks_us(rates, weights)
                            : cast_us(rates, weights, forward8, dgrad8, weight_rates(rates, step.n * step.k)) /
                                  static_cast<double>(recipe.weight_uses);
    cost.forward = step.forward(forward8);
    cost.forward +=
        beside_us(rates, (beside.activations ? activations : 0) + (beside.weights ? weights : 0), cost.forward);
    cost.dgrad = step.dgrad(dgrad8);
    cost.dgrad += beside_us(rates, beside.gradients ? gradients : 0, cost.dgrad);
    cost.wgrad = step.wgrad(wgrad8);
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
    const CastsBeside beside = casts_beside(&rates, recipe, chosen, shape, tokens, casts_of(recipe));
    std::string names;
    for (const auto& [taken, name] : {std::pair{beside.activations, "A and forward"},
                                      {beside.weights, "W and forward"},
                                      {beside.gradients, "dY and dgrad"}})
        if (taken) names += (names.empty() ? "" : ", ") + std::string(name);
    return text + "second half of a cast beside a product: " + (names.empty() ? "none" : names) + "\n";
}

}  // namespace octet
