#include <algorithm>
#include <cmath>
#include <limits>

#include "core/names.hpp"
#include "core/parallel.hpp"
#include "octet/error.hpp"
#include "octet/moe.hpp"

namespace octet {
namespace {

constexpr NamedValue<RouterScore> scores[] = {{RouterScore::softmax, "softmax"}, {RouterScore::sigmoid, "sigmoid"}};
constexpr NamedValue<RouterWeights> weight_rules[] = {{RouterWeights::as_scored, "as_scored"},
                                                      {RouterWeights::normalized, "normalized"}};
constexpr NamedValue<RouterBalance> balances[] = {{RouterBalance::none, "none"}, {RouterBalance::bias, "bias"}};

// Keeps the sum of a token's chosen scores from being zero when all of them underflow.
constexpr float smallest_sum = 1e-20f;
constexpr std::int64_t tokens_per_task = 64;

void softmax(const float* logits, std::int64_t count, float* out) {
    float largest = -std::numeric_limits<float>::infinity();
    for (std::int64_t e = 0; e < count; ++e) largest = std::max(largest, logits[e]);
    float sum = 0.0f;
    for (std::int64_t e = 0; e < count; ++e) sum += out[e] = std::exp(logits[e] - largest);
    for (std::int64_t e = 0; e < count; ++e) out[e] /= sum;
}

// The top_k of scores + bias, best first. Equal values: the lower index wins. NaN ranks below everything.
void choose(const float* score, const float* bias, std::int64_t experts, std::int64_t top_k, std::int32_t* chosen) {
    const auto rank_of = [&](std::int64_t e) {
        const float value = bias == nullptr ? score[e] : score[e] + bias[e];
        return std::isnan(value) ? -std::numeric_limits<float>::infinity() : value;
    };
    // Insertion into the sorted best so far: an equal rank does not pass one that came before it.
    std::int64_t count = 0;
    for (std::int64_t e = 0; e < experts; ++e) {
        const float rank = rank_of(e);
        if (count == top_k && !(rank > rank_of(chosen[top_k - 1]))) continue;
        std::int64_t place = count < top_k ? count++ : top_k - 1;
        for (; place > 0 && rank > rank_of(chosen[place - 1]); --place) chosen[place] = chosen[place - 1];
        chosen[place] = static_cast<std::int32_t>(e);
    }
}

}  // namespace

std::string_view name(RouterScore score) { return name_in<RouterScore>(scores, score); }
std::string_view name(RouterWeights weights) { return name_in<RouterWeights>(weight_rules, weights); }
std::string_view name(RouterBalance balance) { return name_in<RouterBalance>(balances, balance); }
RouterScore parse_router_score(std::string_view text) { return parse_in<RouterScore>(scores, "router score", text); }
RouterWeights parse_router_weights(std::string_view text) {
    return parse_in<RouterWeights>(weight_rules, "router weights", text);
}
RouterBalance parse_router_balance(std::string_view text) {
    return parse_in<RouterBalance>(balances, "router balance", text);
}

void Router::check(const RouterOptions& options) {
    constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
    require(options.experts >= 1 && options.experts <= most && options.top_k >= 1 && options.top_k <= options.experts,
            "a router of ", options.experts, " experts and top_k ", options.top_k,
            " was asked for; expected at least 1 of each, at most ", most, " experts, and top_k at most the experts");
    require(std::isfinite(options.scaling) && options.scaling > 0, "a router's scaling is ", options.scaling,
            ", expected a positive number");
    require(std::isfinite(options.balance_rate) && options.balance_rate >= 0, "a router's balance_rate is ",
            options.balance_rate, ", expected 0 or a positive number");
    require(std::isfinite(options.auxiliary_loss) && options.auxiliary_loss >= 0, "a router's auxiliary_loss is ",
            options.auxiliary_loss, ", expected 0 or a positive number");
}

Router::Router(const RouterOptions& options) : options_(options) {
    check(options);
    ends_.resize(static_cast<std::size_t>(options.experts));
}

const Routing& Router::route(ConstTensorView logits, const float* bias, const Execution& on) {
    const bool fits = logits.rank() == 2 && logits.size(1) == options_.experts && logits.format == Format::f32;
    require(fits, "logits have shape ", to_string(logits.extents), " and format ", name(logits.format),
            "; the router expects [tokens, ", options_.experts, "] f32");
    require(logits.extents.contiguous(), "logits of shape ", to_string(logits.extents), " are not contiguous");
    routing_.tokens = logits.size(0);
    routing_.top_k = options_.top_k;
    require(routing_.rows() <= std::numeric_limits<std::int32_t>::max(), routing_.tokens, " tokens times top_k ",
            routing_.top_k, " make more rows than 32 bits can count");
    const auto slots = static_cast<std::size_t>(routing_.rows());
    scores_.reshape(Format::f32, {routing_.tokens, options_.experts});
    weights_.reshape(Format::f32, {routing_.rows()});
    row_weights_.reshape(Format::f32, {routing_.rows()});
    chosen_.resize(slots);
    row_of_slot_.resize(slots);
    slot_of_row_.resize(slots);
    score_and_choose(logits, bias, on);
    sort_slots();
    compute_auxiliary_loss();
    routing_.groups = {ends_.data(), options_.experts, {}};
    routing_.chosen = chosen_.data();
    routing_.weights = static_cast<const float*>(weights_.view().data);
    routing_.row_weights = static_cast<const float*>(row_weights_.view().data);
    routing_.row_of_slot = row_of_slot_.data();
    routing_.slot_of_row = slot_of_row_.data();
    return routing_;
}

void Router::score_and_choose(ConstTensorView logits, const float* bias, const Execution& on) {
    const std::int64_t experts = options_.experts, top_k = options_.top_k;
    const auto* in = static_cast<const float*>(logits.data);
    auto* score = static_cast<float*>(scores_.view().data);
    auto* weights = static_cast<float*>(weights_.view().data);
    parallel_for(on.threads, routing_.tokens, tokens_per_task, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t t = begin; t < end; ++t) {
            float* s = score + t * experts;
            if (options_.score == RouterScore::softmax) {
                softmax(in + t * experts, experts, s);
            } else {
                for (std::int64_t e = 0; e < experts; ++e) s[e] = 1.0f / (1.0f + std::exp(-in[t * experts + e]));
            }
            std::int32_t* chosen = chosen_.data() + t * top_k;
            choose(s, bias, experts, top_k, chosen);
            float sum = smallest_sum;
            for (std::int64_t j = 0; j < top_k; ++j) sum += s[chosen[j]];
            const float divisor = options_.weights == RouterWeights::normalized ? sum : 1.0f;
            for (std::int64_t j = 0; j < top_k; ++j) weights[t * top_k + j] = s[chosen[j]] / divisor * options_.scaling;
        }
    });
}

// A counting sort by expert: stable, so that the order within an expert is the order of the tokens.
void Router::sort_slots() {
    std::fill(ends_.begin(), ends_.end(), 0);
    for (const std::int32_t expert : chosen_) ++ends_[static_cast<std::size_t>(expert)];
    std::int32_t begin = 0;
    for (std::int32_t& end : ends_) {  // for now the next free row of each expert; its end once all are placed
        const std::int32_t count = end;
        end = begin;
        begin += count;
    }
    const auto* weights = static_cast<const float*>(weights_.view().data);
    auto* row_weights = static_cast<float*>(row_weights_.view().data);
    for (std::size_t slot = 0; slot < chosen_.size(); ++slot) {
        const std::int32_t row = ends_[static_cast<std::size_t>(chosen_[slot])]++;
        row_of_slot_[slot] = row;
        slot_of_row_[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(slot);
        row_weights[row] = weights[slot];
    }
}

void Router::compute_auxiliary_loss() {
    auxiliary_loss_ = 0.0f;
    if (options_.auxiliary_loss == 0.0f || routing_.tokens == 0) return;
    const std::int64_t experts = options_.experts;
    const auto* score = static_cast<const float*>(scores_.view().data);
    std::vector<double> mean(static_cast<std::size_t>(experts), 0.0);
    for (std::int64_t t = 0; t < routing_.tokens; ++t) {
        double sum = 1.0;
        if (options_.score == RouterScore::sigmoid) {
            sum = 0.0;
            for (std::int64_t e = 0; e < experts; ++e) sum += static_cast<double>(score[t * experts + e]);
        }
        for (std::int64_t e = 0; e < experts; ++e)
            mean[static_cast<std::size_t>(e)] += static_cast<double>(score[t * experts + e]) / sum;
    }
    double loss = 0.0;
    std::int32_t begin = 0;
    for (std::size_t e = 0; e < mean.size(); ++e) {
        const double share = static_cast<double>(ends_[e] - begin) / static_cast<double>(routing_.rows());
        loss += share * static_cast<double>(experts) * mean[e] / static_cast<double>(routing_.tokens);
        begin = ends_[e];
    }
    auxiliary_loss_ = static_cast<float>(static_cast<double>(options_.auxiliary_loss) * loss);
}

void Router::backward(const float* row_gradients, float auxiliary_scale, TensorView dlogits, const Execution& on) {
    const std::int64_t experts = options_.experts, top_k = options_.top_k, tokens = routing_.tokens;
    const bool fits = dlogits.rank() == 2 && dlogits.size(0) == tokens && dlogits.size(1) == experts &&
                      dlogits.format == Format::f32 && dlogits.extents.contiguous();
    require(fits, "dlogits have shape ", to_string(dlogits.extents), " and format ", name(dlogits.format),
            "; the router expects contiguous [", tokens, ", ", experts, "] f32");
    // The auxiliary loss as the slope of each expert's mean score: the shares are counts and have no gradient.
    std::vector<float> slope(static_cast<std::size_t>(experts), 0.0f);
    for (std::size_t e = 0; e < slope.size() && tokens > 0; ++e) {
        const std::int32_t count = ends_[e] - (e == 0 ? 0 : ends_[e - 1]);
        const double share = static_cast<double>(count) / static_cast<double>(routing_.rows());
        slope[e] =
            static_cast<float>(static_cast<double>(options_.auxiliary_loss) * static_cast<double>(auxiliary_scale) *
                               share * static_cast<double>(experts) / static_cast<double>(tokens));
    }
    const bool has_slope = options_.auxiliary_loss != 0.0f;
    const bool normalized = options_.weights == RouterWeights::normalized;
    const auto* score = static_cast<const float*>(scores_.view().data);
    auto* out = static_cast<float*>(dlogits.data);
    parallel_for(on.threads, tokens, tokens_per_task, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t t = begin; t < end; ++t) {
            const float* s = score + t * experts;
            const std::int32_t* chosen = chosen_.data() + t * top_k;
            const std::int32_t* rows = row_of_slot_.data() + t * top_k;
            float* d = out + t * experts;  // first the gradient of the scores, then of the logits
            std::fill_n(d, experts, 0.0f);
            if (has_slope) {
                float sum = 1.0f, mixed = 0.0f;
                if (options_.score == RouterScore::sigmoid) {
                    sum = 0.0f;
                    for (std::int64_t e = 0; e < experts; ++e) {
                        sum += s[e];
                        mixed += slope[static_cast<std::size_t>(e)] * s[e];
                    }
                }
                for (std::int64_t e = 0; e < experts; ++e)
                    d[e] += (slope[static_cast<std::size_t>(e)] - mixed / sum) / sum;
            }
            float sum = smallest_sum, mixed = 0.0f;
            for (std::int64_t j = 0; j < top_k; ++j) {
                sum += s[chosen[j]];
                mixed += row_gradients[rows[j]] * s[chosen[j]];
            }
            for (std::int64_t j = 0; j < top_k; ++j) {
                const float g = row_gradients[rows[j]];
                d[chosen[j]] += options_.scaling * (normalized ? (g - mixed / sum) / sum : g);
            }
            if (options_.score == RouterScore::softmax) {
                float inner = 0.0f;
                for (std::int64_t e = 0; e < experts; ++e) inner += d[e] * s[e];
                for (std::int64_t e = 0; e < experts; ++e) d[e] = s[e] * (d[e] - inner);
            } else {
                for (std::int64_t e = 0; e < experts; ++e) d[e] *= s[e] * (1.0f - s[e]);
            }
        }
    });
}

std::size_t Router::bytes() const {
    const std::size_t indices = chosen_.size() + row_of_slot_.size() + slot_of_row_.size() + ends_.size();
    return scores_.bytes() + weights_.bytes() + row_weights_.bytes() + indices * sizeof(std::int32_t);
}

}  // namespace octet
