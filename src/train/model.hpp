// The model: a decoder-only Mixture-of-Experts transformer, forward and backward.
//
//   h[T,D]  = embedding[tokens]                       T = B * S tokens
//   each layer:
//   h      += o_proj( attention( qkv_proj( rms_norm(h) ) ) )
//   h      += moe( rms_norm(h) )                      or a dense SwiGLU MLP in the first dense_layers
//   logits  = head( rms_norm(h) )                     loss = mean cross-entropy of the counted targets
//
// Precision. The stream h, norms, rotary, softmax, router and loss are f32. What enters a product is in the activation
// format (bf16, or f32 for an f32 model); expert products follow the recipe, attention's projections and dense MLPs the
// dense recipe, bf16 unless asked for; the head is never quantized. Weights are f32 masters, rounded or quantized once
// a step. Inside attention and the head everything, gradients too, is f32.
//
// The same seed and batches give the same bits for any number of threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "octet/quantize.hpp"
#include "octet/recipe.hpp"
#include "train/config.hpp"
#include "train/parameters.hpp"

namespace octet::train {

struct ModelOptions {
    Recipe recipe = Recipe::of(RecipeKind::bf16);  // of expert products, shared experts included
    Recipe dense = Recipe::of(RecipeKind::bf16);   // of the other products with weights
    Format activations = Format::bf16;             // f32: with recipe bf16 everything is f32
    std::uint64_t seed = 1;
    int threads = 0;  // 0: every core
};

// tokens and targets [B, S]. A negative target is not counted.
struct Batch {
    std::span<const std::int32_t> tokens{}, targets{};
    std::int64_t sequences = 0, length = 0;
};

struct StepResult {
    double loss = 0;            // mean cross-entropy of the counted targets, natural logarithm
    double auxiliary_loss = 0;  // of all routers together; its gradient is included in the backward pass
    std::int64_t counted = 0;   // targets
};

// Of one tensor that a recipe quantizes in one layer, as of the last observed step.
struct ScaleStatistics {
    std::string tensor;  // "gate_up.input", "gate_up.weight", "gate_up.gradient", "down.input", ...
    std::int64_t layer = 0;
    double smallest_scale = 0, largest_scale = 0;  // multipliers
    std::int64_t elements = 0;
    std::int64_t underflowed = 0;  // 0 in 8 bits, not 0 before
    std::int64_t saturated = 0;    // at the format's largest magnitude
};

// Since reset_statistics().
struct ModelStatistics {
    double total_seconds = 0;                      // forward and backward passes, evaluation included
    double cast_seconds = 0, product_seconds = 0;  // with weights; the rest is attention and what lies between
    double attention_seconds = 0;                  // rotary, scores, softmax, mixing
    std::size_t kept_bytes = 0;                    // for backward, by the last forward_backward
    std::vector<std::int64_t> moe_layers{};        // which layers have experts
    std::vector<std::vector<std::int64_t>> tokens_per_expert{};  // [moe_layers][E]
    std::vector<ScaleStatistics> scales{};                       // filled by observed steps
};

// Where a NaN or an infinity first appeared.
struct NonFinite {
    std::int64_t layer = -1;  // -1: outside the layers
    std::string tensor;       // a parameter's name, or "attention output", ...
};

enum class Observe : std::uint8_t { nothing, scales };

class Model {
public:
    Model(const ModelConfig& config, const ModelOptions& options);  // weights drawn from the seed
    ~Model();
    Model(Model&&) noexcept;
    Model& operator=(Model&&) noexcept;

    const ModelConfig& config() const;
    const ModelOptions& options() const;

    // Adds scale times the gradient of (loss + auxiliary loss) to every parameter's gradient. With gradient
    // accumulation over n batches, scale is 1/n.
    StepResult forward_backward(const Batch& batch, double scale = 1.0, Observe observe = Observe::nothing);

    // Evaluation: nothing is kept and no statistic is touched but the times.
    StepResult loss(const Batch& batch);

    // [B * S, V] f32, or the last position of every sequence alone, [B, V]. Targets are not read.
    void logits(const Batch& batch, std::span<float> out);
    void next_logits(const Batch& batch, std::span<float> out);

    // In a fixed order. After changing a value, call weights_changed().
    std::span<const Parameter> parameters() const;
    std::span<const NamedTensor> buffers() const;  // the state that is not trained
    void weights_changed();
    void zero_gradients();

    // Once after every optimizer step: the routers' balance biases move, and weights_changed().
    void step_taken();

    ModelStatistics statistics() const;
    void reset_statistics();

    // For when a loss or a gradient is not finite: runs the batch once more and looks at every tensor in the order of
    // computation. Nothing when all are finite. Gradients are left as they are.
    std::optional<NonFinite> find_non_finite(const Batch& batch);

private:
    struct Parts;
    std::unique_ptr<Parts> parts_;
};

}  // namespace octet::train
