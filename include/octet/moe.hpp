// The Mixture-of-Experts layer: router, permutation, SwiGLU experts, shared experts; forward and backward.
//
//   logits[T,E] = x[T,D] . Wr[E,D]^T, in f32          scores = softmax or sigmoid of them
//   token t goes to its top_k experts                  M = T * top_k rows, sorted by expert, tokens in order
//   g, u [M,H]  = rows . gate_up[E,2H,D]^T             one product for both: the rows are quantized once
//   s[M,H]      = weight * silu(g) * u                 the router's weight goes in here, not into the output ...
//   o[M,D]      = s . down[E,D,H]^T
//   y[t]        = sum of token t's rows of o + shared experts(x[t])
//
// ... because o = down(weight * s) = weight * down(s), and so the backward pass needs no copy of o.
//
// T tokens, D hidden, H expert hidden. Everything is deterministic and does not depend on the number of threads.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octet/activation.hpp"
#include "octet/linear.hpp"
#include "octet/permute.hpp"

namespace octet {

enum class RouterScore : std::uint8_t { softmax, sigmoid };
enum class RouterWeights : std::uint8_t { as_scored, normalized };  // normalized: a token's weights sum to `scaling`
enum class RouterBalance : std::uint8_t { none, bias };  // bias: added to scores for the choice, never to the weights

std::string_view name(RouterScore score);
std::string_view name(RouterWeights weights);
std::string_view name(RouterBalance balance);
RouterScore parse_router_score(std::string_view text);
RouterWeights parse_router_weights(std::string_view text);
RouterBalance parse_router_balance(std::string_view text);

struct RouterOptions {
    std::int64_t experts = 0, top_k = 0;
    RouterScore score = RouterScore::softmax;
    RouterWeights weights = RouterWeights::normalized;
    float scaling = 1.0f;  // of the weights
    RouterBalance balance = RouterBalance::none;
    float balance_rate = 1e-3f;   // how far update_balance moves an expert's bias
    float auxiliary_loss = 0.0f;  // its factor; 0: none
};

// Where every token goes. A slot is one choice of one token: slot t * top_k + j is token t's j-th. A row is a slot's
// place after sorting by expert; within an expert slots keep their order.
struct Routing {
    std::int64_t tokens = 0, top_k = 0;
    Groups groups{};                            // of the rows: ends [E]
    const std::int32_t* chosen = nullptr;       // [T * top_k] expert of each slot, best score first
    const float* weights = nullptr;             // [T * top_k] by slot
    const float* row_weights = nullptr;         // [M] the same by row
    const std::int32_t* row_of_slot = nullptr;  // [M]
    const std::int32_t* slot_of_row = nullptr;  // [M]
    std::int64_t rows() const { return tokens * top_k; }
    TokenOrder order() const { return {tokens, top_k, rows(), row_of_slot, slot_of_row, groups.device}; }
};

// The router's choice for logits [T, E] f32, into memory that is reused. Equal scores: the lower expert index wins; NaN
// ranks last, and stays in the weights. bias [E] is added for the choice alone; null where there is none.
class Router {
public:
    explicit Router(const RouterOptions& options);
    static void check(const RouterOptions& options);  // throws Error(invalid_argument)
    const RouterOptions& options() const { return options_; }

    const Routing& route(ConstTensorView logits, const float* bias, const Execution& on = {});
    const Routing& routing() const { return routing_; }

    // auxiliary_loss * sum over e of f_e P_e: f_e the share of the slots that expert e got, times E, P_e its mean score
    // (each token's scores taken to sum to 1). It is 1 * auxiliary_loss when all experts get the same.
    float auxiliary_loss() const { return auxiliary_loss_; }

    // dlogits [T, E] f32 from row_gradients [M], the gradients of row_weights. The auxiliary loss adds its own, times
    // auxiliary_scale.
    void backward(const float* row_gradients, float auxiliary_scale, TensorView dlogits, const Execution& on = {});
    std::size_t bytes() const;

private:
    void score_and_choose(ConstTensorView logits, const float* bias, const Execution& on);
    void sort_slots();
    void compute_auxiliary_loss();

    RouterOptions options_;
    Routing routing_{};
    float auxiliary_loss_ = 0.0f;
    ReusedTensor scores_{}, weights_{}, row_weights_{};  // [T, E], [M], [M] f32
    std::vector<std::int32_t> chosen_{}, row_of_slot_{}, slot_of_row_{}, ends_{};
};

// rows[m] = tokens[slot_of_row[m] / top_k]. Both of one format.
void gather_rows(const Routing& routing, ConstTensorView tokens, TensorView rows, const Execution& on = {});

// y[t] = sum over token t's rows, in the order of its slots, then every addend [T, D] in turn; summed in f32.
void sum_rows(const Routing& routing, ConstTensorView rows, std::span<const ConstTensorView> addends, TensorView y,
              const Execution& on = {});

// A trainable tensor: f32, with the gradient that backward passes add into.
struct Parameter {
    std::string name;
    TensorView value{}, gradient{};
};

struct ExpertShape {
    std::int64_t experts = 1, hidden = 0, expert_hidden = 0;
};

// What forward leaves for backward, and scratch that layers running one after the other share.
struct ExpertKept {
    ReusedTensor input{}, gate_up{}, activated{};  // input and activated only where a GroupedLinear borrows them
    LinearKept gate_up_kept{}, down_kept{};
    std::size_t bytes() const { return gate_up.bytes() + gate_up_kept.bytes() + down_kept.bytes(); }
};
struct ExpertWorkspace {
    LinearWorkspace linear{};
    ReusedTensor input{}, gate_up{}, activated{};
    ReusedTensor dactivated{}, dgate_up{};
};

// SwiGLU MLPs, one an expert: gate_up [E, 2H, D] (gate first), down [E, D, H].
class Experts {
public:
    Experts(std::string prefix, ExpertShape shape, Format activations, Recipe recipe);

    std::vector<Parameter> parameters();
    void weights_changed();
    bool borrows_input() const { return gate_up_.borrows_activation(); }

    // rows [M, D] -> out [M, D]. Where borrows_input(), rows must stay until backward.
    void forward(ConstTensorView rows, Groups groups, const float* row_weights, TensorView out, ExpertKept* kept,
                 ExpertWorkspace& workspace, const Execution& on);
    // drows [M, D] is overwritten; row_weight_gradients [M] may be null.
    void backward(ConstTensorView dout, Groups groups, const float* row_weights, ExpertKept& kept, TensorView drows,
                  float* row_weight_gradients, ExpertWorkspace& workspace, const Execution& on);

    LinearReport report() const;
    double activation_seconds() const { return activation_seconds_; }
    void reset_report();

private:
    void prepare_weights(const Execution& on);

    std::string prefix_;
    ExpertShape shape_;
    Format activations_;
    GroupedLinear gate_up_, down_;
    Tensor gate_up_weights_, gate_up_gradient_, down_weights_, down_gradient_;  // f32
    ReusedTensor gate_up_bf16_{}, down_bf16_{};                                 // what the bf16 recipe multiplies with
    bool prepared_ = false;
    double activation_seconds_ = 0;
};

struct MoeOptions {
    std::int64_t hidden = 0, expert_hidden = 0;
    std::int64_t shared_hidden = 0;  // of all shared experts together: they are one MLP that every token takes; 0: none
    RouterOptions router{};
    Recipe recipe{};
    Format activations = Format::bf16;  // of x, y and what lies between; f32 for tests
};

// What forward leaves for backward. x itself is borrowed: it must stay as it is until backward.
struct MoeKept {
    explicit MoeKept(const MoeOptions& options) : router(options.router) {}
    std::size_t bytes() const { return router.bytes() + experts.bytes() + shared.bytes(); }
    Router router;
    ConstTensorView x{};
    std::int32_t token_end = 0;  // the one group of router and shared experts
    ExpertKept experts{}, shared{};
};

struct MoeWorkspace {
    ExpertWorkspace experts{};
    ReusedTensor logits{}, rows{}, outputs{}, shared{};
    ReusedTensor drows{}, dlogits{}, dx_router{}, row_gradients{};
};

struct MoeReport {
    LinearReport linear{};  // casts and products of all experts
    double router_seconds = 0, permutation_seconds = 0, activation_seconds = 0;
    std::size_t kept_bytes = 0;
    float auxiliary_loss = 0.0f;                    // of the last forward
    std::vector<std::int64_t> tokens_per_expert{};  // since the report was reset
};

class MoeLayer {
public:
    explicit MoeLayer(const MoeOptions& options);
    const MoeOptions& options() const { return options_; }

    // router [E, D], experts.gate_up, experts.down, and shared.gate_up, shared.down where there are shared experts.
    // Values and gradients start at zero. After changing a value, call weights_changed().
    std::vector<Parameter> parameters();
    Parameter parameter(std::string_view name);  // throws naming the known ones
    void weights_changed();
    void zero_gradients();

    // x, y [T, D] in the layer's activation format. `kept` is null where no backward will follow.
    void forward(ConstTensorView x, TensorView y, MoeKept* kept, MoeWorkspace& workspace, const Execution& on = {});

    // dy, dx [T, D]; dx is overwritten, gradients of parameters are added to. auxiliary_scale is what the auxiliary
    // loss counts in the loss that dy is the gradient of (1 / micro-batches, when their losses are averaged).
    void backward(ConstTensorView dy, MoeKept& kept, TensorView dx, float auxiliary_scale, MoeWorkspace& workspace,
                  const Execution& on = {});

    // Moves every expert's bias by balance_rate: up where it got fewer tokens than the mean since the last update, down
    // where more. Only forwards that keep something count. Call it once an optimizer step.
    void update_balance();
    std::span<float> balance_bias() { return balance_bias_; }  // [E]: part of a checkpoint
    std::span<std::int64_t> balance_counts() { return balance_counts_; }

    MoeReport report() const;
    void reset_report();

private:
    void check_tokens(const char* what, const ConstTensorView& x) const;
    const Routing& route(ConstTensorView x, Router& router, const std::int32_t& token_end, MoeWorkspace& workspace,
                         const Execution& on);

    MoeOptions options_;
    Tensor router_weights_, router_gradient_;  // [1, E, D] f32
    Experts experts_;
    std::vector<Experts> shared_;  // none or one
    Router inference_router_;
    std::vector<float> balance_bias_;
    std::vector<std::int64_t> balance_counts_;
    MoeReport report_{};
};

}  // namespace octet
