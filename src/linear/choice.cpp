#include "linear/choice.hpp"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <utility>
#include <vector>

#include "octet/error.hpp"

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
    .rows = 0.97,
    .columns = 0.8,
    .pair = 0.66,
    .pair_held = 0.81,
    .weights_along_k = 0.98,
    .weights_along_n = 0.85,
    .weights_both = 0.65,
    .weights_both_held = 0.86,
    .held_bytes = 25.9e6,
    .rows_and_peaks = 0.92,
    .columns_by_peaks = 0.85,
    .beside_gbps = 1150,
    .beside_cost = 0.4,
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
// Groups differ: one of half as much again as the average should be held too.
Rates token_rates(const StepRates& rates, double group_elements) {
    return {rates.rows, rates.columns, 3 * group_elements <= rates.held_bytes ? rates.pair_held : rates.pair};
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

constexpr std::pair<std::string_view, CastsBeside> casts_by_name[] = {
    {"A and forward", {.activations = true}},
    {"W and forward", {.weights = Beside::forward}},
    {"W and wgrad", {.weights = Beside::wgrad}},
    {"dY and dgrad", {.gradients = true}},
};

// Those that a recipe leaves open, 8 bits first.
std::vector<ProductPrecision> allowed(ProductPrecision asked, bool may_choose) {
    if (asked != ProductPrecision::automatic) return {asked};
    return may_choose ? std::vector{fp8, bf16} : std::vector{fp8};
}

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
};

WeightCasts casts_of(const Recipe& recipe) {
    return recipe.weight_uses == 1 ? WeightCasts::in_forward : WeightCasts::none;
}

// What runs in 8 bits.
struct Eight {
    bool forward, dgrad, wgrad;
    explicit Eight(const StepChoice& choice)
        : forward(choice.forward == fp8), dgrad(choice.dgrad == fp8), wgrad(choice.wgrad == WgradPrecision::fp8) {}
};

StepCost cost_of(const Step& step, const Eight& in8, WeightCasts casts, const CastsBeside& beside) {
    const StepRates& rates = step.rates;
    const double activations = step.m * step.k, gradients = step.m * step.n, weights = step.e * step.n * step.k;
    const Rates of_weights = weight_rates(rates, step.n * step.k);
    StepCost cost;
    cost.activation_casts = beside.activations ? rows_and_peaks_us(rates, activations)
                                               : cast_us(rates, activations, in8.forward, in8.wgrad,
                                                         token_rates(rates, activations / step.e));
    cost.gradient_casts = beside.gradients
                              ? rows_and_peaks_us(rates, gradients)
                              : cast_us(rates, gradients, in8.dgrad, in8.wgrad, token_rates(rates, gradients / step.e));
    if (beside.weights != Beside::nothing)
        cost.weight_casts = rows_and_peaks_us(rates, weights);
    else if (casts == WeightCasts::in_both)
        cost.weight_casts = cast_us(rates, weights, in8.forward, false, of_weights) +
                            cast_us(rates, weights, false, in8.dgrad, of_weights);
    else if (casts == WeightCasts::in_forward)
        cost.weight_casts = cast_us(rates, weights, in8.forward, in8.dgrad, of_weights);
    const auto with = [&](double product, double elements) { return product + beside_us(rates, elements, product); };
    cost.forward = with(step.forward(in8.forward),
                        (beside.activations ? activations : 0) + (beside.weights == Beside::forward ? weights : 0));
    cost.dgrad = with(step.dgrad(in8.dgrad), beside.gradients ? gradients : 0);
    cost.wgrad = with(step.wgrad(in8.wgrad), beside.weights == Beside::wgrad ? weights : 0);
    return cost;
}

}  // namespace

CastsBeside casts_beside(const StepRates* rates, const Recipe& recipe, const StepChoice& choice,
                         const LinearShape& shape, std::int64_t tokens, WeightCasts casts) {
    // With fewer tokens an expert the product's pipeline has a slot more, with `promoted` it has more registers: there
    // is no room beside it.
    if (rates == nullptr || recipe.kind != RecipeKind::fp8_rowwise || recipe.accumulation != Accumulation::fast ||
        tokens < 512 * shape.experts)
        return {};
    const Step step(*rates, recipe, shape, tokens);
    const Eight in8(choice);
    const auto possible = [&](const CastsBeside& b) {
        const bool weights = in8.forward && in8.dgrad && casts != WeightCasts::none;
        // One product of backward comes first, and what is beside it is for the other.
        return (!b.activations || (in8.forward && in8.wgrad)) && (!b.gradients || (in8.dgrad && in8.wgrad)) &&
               (b.weights == Beside::nothing || weights) &&
               (b.weights != Beside::forward || casts == WeightCasts::in_forward) &&
               (b.weights != Beside::wgrad || (casts == WeightCasts::in_both && in8.wgrad && !b.gradients));
    };
    CastsBeside best{};
    double least = cost_of(step, in8, casts, best).total();
    for (const bool activations : {false, true})
        for (const bool gradients : {false, true})
            for (const Beside weights : {Beside::nothing, Beside::forward, Beside::wgrad}) {
                const CastsBeside beside{activations, gradients, weights};
                if (!possible(beside)) continue;
                const double us = cost_of(step, in8, casts, beside).total();
                if (us >= least) continue;
                least = us;
                best = beside;
            }
    return best;
}

CastsBeside casts_beside(const Recipe& recipe, const StepChoice& choice, const LinearShape& shape, std::int64_t tokens,
                         WeightCasts casts, Device device) {
    return casts_beside(step_rates(device), recipe, choice, shape, tokens, casts);
}

StepCost step_cost(const StepRates& rates, const Recipe& recipe, const StepChoice& choice, const LinearShape& shape,
                   std::int64_t tokens) {
    const Step step(rates, recipe, shape, tokens);
    const Eight in8(choice);
    const WeightCasts casts = casts_of(recipe);
    StepCost cost = cost_of(step, in8, casts, casts_beside(&rates, recipe, choice, shape, tokens, casts));
    if (casts == WeightCasts::none)
        cost.weight_casts =
            cast_us(rates, step.e * step.n * step.k, in8.forward, in8.dgrad, weight_rates(rates, step.n * step.k)) /
            static_cast<double>(recipe.weight_uses);
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

std::string to_string(const CastsBeside& beside) {
    std::string text;
    for (const auto& [name, with] : casts_by_name) {
        const bool taken = (with.activations && beside.activations) || (with.gradients && beside.gradients) ||
                           (with.weights != Beside::nothing && with.weights == beside.weights);
        if (taken) text += (text.empty() ? "" : ", ") + std::string(name);
    }
    return text.empty() ? "none" : text;
}

CastsBeside parse_casts_beside(std::string_view text) {
    CastsBeside beside{};
    std::string_view rest = text;
    for (bool more = text != "none"; more;) {
        const std::size_t comma = rest.find(", ");
        const std::string_view name = rest.substr(0, comma);
        more = comma != std::string_view::npos;
        if (more) rest.remove_prefix(comma + 2);
        const auto* named = std::find_if(std::begin(casts_by_name), std::end(casts_by_name),
                                         [&](const auto& cast) { return cast.first == name; });
        require(named != std::end(casts_by_name), "'", name, "' is no cast beside a product in '", text,
                "'; expected none, or some of: A and forward, W and forward, W and wgrad, dY and dgrad");
        const CastsBeside& with = named->second;
        require(with.weights == Beside::nothing || beside.weights == Beside::nothing, "'", text,
                "' has the weights beside two products, expected one");
        beside.activations = beside.activations || with.activations;
        beside.gradients = beside.gradients || with.gradients;
        if (with.weights != Beside::nothing) beside.weights = with.weights;
    }
    return beside;
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
    return text + "second half of a cast beside a product: " +
           to_string(casts_beside(&rates, recipe, chosen, shape, tokens, casts_of(recipe))) + "\n";
}

}  // namespace octet
