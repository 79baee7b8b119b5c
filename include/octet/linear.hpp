// GroupedLinear: the expert product of a training step, forward and backward, under a recipe.
//
//   forward    Y[M,N]    = A[M,K] . W[E,N,K]^T
//   backward   dA[M,K]   = dY[M,N] . W             dW[E,N,K] = dY^T . A, group by group
//
// A is quantized once, in forward, both ways; the copy along tokens, in 8 bits, is all that is kept for backward. W is
// quantized both ways once and cached until weights_changed(). dY is quantized once, both ways, in backward. What a
// product in bf16 would have read is not made: forward and dgrad may be in bf16 (Recipe::forward, Recipe::dgrad) where
// the weights' casts cost more than 8 bits save, and wgrad then still is in 8 bits.
//
// A layer is a sequence of the operations of octet/quantize.hpp and octet/product.hpp and holds no arithmetic of its
// own. Memory is reused from call to call: once shapes repeat, nothing is allocated.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "octet/device.hpp"
#include "octet/groups.hpp"
#include "octet/memory.hpp"
#include "octet/product.hpp"
#include "octet/quantize.hpp"
#include "octet/recipe.hpp"

namespace octet {

// Memory of a device that changes shape and only ever grows.
class ReusedTensor {
public:
    // The elements are not set.
    TensorView reshape(Format format, Extents extents, Device device = {});
    TensorView view() { return {memory_.data(), format_, extents_, device_}; }
    ConstTensorView view() const { return {memory_.data(), format_, extents_, device_}; }
    std::size_t bytes() const;  // of the present shape

private:
    DeviceMemory memory_{};
    Device device_{};
    Format format_ = Format::f32;
    Extents extents_{};
};

// One orientation of a quantized tensor: data, and the scales that products read.
class QuantizedTensor {
public:
    QuantizedView reshape_rows(const QuantizeOptions& options, std::int64_t tokens, std::int64_t features,
                               Device device = {});
    QuantizedView reshape_columns(const QuantizeOptions& options, std::int64_t tokens, std::int64_t groups,
                                  std::int64_t alignment, std::int64_t features, Device device = {});
    QuantizedView reshape_weights(const QuantizeOptions& options, std::int64_t experts, std::int64_t rows,
                                  std::int64_t columns, Device device = {});
    QuantizedView view();
    ConstQuantizedView view() const;
    Operand operand() const;
    std::size_t bytes() const { return data_.bytes() + scales_.bytes(); }

private:
    QuantizedView reshape(const QuantizeOptions& options, Extents data, Extents scales, Device device);
    Scaling scaling_ = Scaling::rowwise;
    std::int64_t alignment_ = 0;  // of columns
    ReusedTensor data_{}, scales_{};
};

// Elements from row to row of operands along features. A GPU's copy engine fetches lines of 128 bytes, and rows that
// straddle two cost it twice: they start on whole lines, unless that is over an eighth more memory.
std::int64_t row_pitch(std::int64_t features, Device device);
// Where each group of an operand along tokens starts: what GroupedLinear pads to, invisibly.
std::int64_t token_alignment(Scaling scaling, Device device);
// The same for what is kept between forward and backward: less, where padding would make it much larger than it need
// be.
std::int64_t kept_alignment(Scaling scaling, std::int64_t tokens, std::int64_t groups, Device device);

struct LinearShape {
    std::int64_t experts = 1, out_features = 0, in_features = 0;
    friend bool operator==(const LinearShape&, const LinearShape&) = default;
};

// What each product of a step runs in. Never automatic.
struct StepChoice {
    ProductPrecision forward = ProductPrecision::automatic, dgrad = ProductPrecision::automatic;
    WgradPrecision wgrad = WgradPrecision::fp8;
    friend bool operator==(const StepChoice&, const StepChoice&) = default;
};
std::string to_string(const StepChoice& choice);  // "forward fp8, dgrad fp8, wgrad fp8"

// What a step of so many tokens should run in: the recipe's word, and where it leaves forward or dgrad open a cost
// model of the device. `plain` is the format of activations, gradients and weights: bf16 products need bf16.
StepChoice choose_step(const Recipe& recipe, const LinearShape& shape, std::int64_t tokens, Format plain,
                       Device device);

// When a step casts its weights: not at all (they are cached); both ways in forward; or along K in forward and along N
// in backward, because no second copy is kept between the two.
enum class WeightCasts : std::uint8_t { none, in_forward, in_both };

// Which casts both ways of a step are made in halves, the second one beside a product (LaterCasts): activations beside
// forward, gradients beside dgrad, weights beside forward or, where they are cast in both, beside wgrad, which then
// comes before dgrad. By the same cost model; results do not depend on it.
enum class Beside : std::uint8_t { nothing, forward, wgrad };
struct CastsBeside {
    bool activations = false, gradients = false;
    Beside weights = Beside::nothing;
    friend bool operator==(const CastsBeside&, const CastsBeside&) = default;
};
CastsBeside casts_beside(const Recipe& recipe, const StepChoice& choice, const LinearShape& shape, std::int64_t tokens,
                         WeightCasts casts, Device device);
std::string to_string(const CastsBeside& beside);  // "A and forward, W and wgrad", or "none"
CastsBeside parse_casts_beside(std::string_view text);

// What forward leaves for backward. Where the weight gradient is made in 8 bits that is A along tokens, and A itself
// may go. Otherwise it is A itself, borrowed: it must stay as it is until backward.
class LinearKept {
public:
    std::size_t bytes() const;
    void forget() { tokens_ = none; }

private:
    friend class GroupedLinear;
    static constexpr std::int64_t none = -1;
    std::int64_t tokens_ = none, groups_ = 0, weights_version_ = 0;
    LinearShape shape_{};
    Format format_ = Format::bf16;  // of A
    QuantizedTensor columns_{};
    ConstTensorView borrowed_{};
};

// A word of a GPU's memory that is zero whenever nothing runs. Where some experts have many more tokens than others,
// the blocks of a weight gradient draw tickets for its tiles from it as they come by.
class Tickets {
public:
    void* on(Device device);  // null on a CPU

private:
    DeviceMemory memory_{};
    Device device_{};
};

// Scratch that layers which run one after the other share.
struct LinearWorkspace {
    QuantizedTensor activation_rows{}, gradient_rows{}, gradient_columns{};
    ReusedTensor scratch{};         // what the quantizers and the mxfp8 products of a GPU work in
    ReusedTensor weight_scratch{};  // and the weights' quantizer, whose second half runs beside the tokens'
    Tickets tickets{};
};

// A cast is one visit of a tensor by a quantizer, whether it writes one orientation or two.
struct LinearReport {
    std::int64_t activation_casts = 0, gradient_casts = 0, weight_casts = 0;
    std::size_t kept_bytes = 0;  // by the last forward that kept anything
    double cast_seconds = 0, product_seconds = 0;
    LinearReport& operator+=(const LinearReport& other);
};

class GroupedLinear {
public:
    GroupedLinear(LinearShape shape, Recipe recipe);

    const LinearShape& shape() const { return shape_; }
    const Recipe& recipe() const { return recipe_; }

    // w [E, N, K], bf16 or f32: borrowed, and read whenever the cache is made anew.
    void bind_weights(ConstTensorView w);
    // Whether forward with `kept` borrows its activation until backward: where the weight gradient is not made in 8
    // bits.
    bool borrows_activation() const { return !wgrad_in_8_bits(); }
    // To be called whenever the elements of w have changed.
    void weights_changed();
    // Which casts are made in halves from now on, instead of those that the cost model names: to time them, or to test.
    void arrange_casts(const CastsBeside& beside);

    // a [M, K] and y [M, N], bf16 or f32. `kept` is null where no backward will follow.
    void forward(ConstTensorView a, Groups groups, TensorView y, LinearKept* kept, LinearWorkspace& workspace,
                 const Execution& on = {});

    // dy [M, N]; da [M, K] and dw [E, N, K], either of which may be null views where it is not wanted. `update` says
    // whether dw is overwritten or, f32, added to; da is overwritten.
    void backward(ConstTensorView dy, Groups groups, const LinearKept& kept, TensorView da, TensorView dw,
                  Update update, LinearWorkspace& workspace, const Execution& on = {});

    // What the products of a step of so many tokens run in: a function of the recipe, the shape, the formats and the
    // device alone.
    StepChoice choice(std::int64_t tokens) const { return choice(tokens, weights_.format); }

    const LinearReport& report() const { return report_; }
    void reset_report() { report_ = {}; }

private:
    QuantizeOptions options_for(Format format) const;
    bool wgrad_in_8_bits() const { return recipe_.quantizes() && recipe_.wgrad == WgradPrecision::fp8; }
    StepChoice choice(std::int64_t tokens, Format activations) const;
    CastsBeside beside(const StepChoice& now, std::int64_t tokens, bool casts_weights) const;
    void cache_weights(bool along_k, bool along_n, ReusedTensor& scratch, const Execution& on);
    void cast_tokens(ConstTensorView x, Groups groups, std::int64_t alignment, const QuantizeOptions& options,
                     QuantizedView rows, QuantizedView columns, LinearWorkspace& workspace, const Execution& on);
    void check_activation(const char* what, const ConstTensorView& x, std::int64_t features) const;

    LinearShape shape_;
    Recipe recipe_;
    std::optional<CastsBeside> arranged_{};
    ConstTensorView weights_{};
    std::int64_t weights_version_ = 0;
    bool along_k_cached_ = false, along_n_cached_ = false;
    QuantizedTensor along_k_{}, along_n_{};
    LinearReport report_{};
};

}  // namespace octet
