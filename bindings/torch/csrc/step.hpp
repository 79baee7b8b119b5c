// The parts of a training step's products, with memory from torch: weights and tokens cast, products in 8 bits or
// plain, what forward keeps. grouped_mm.cpp and experts.cpp put them together.
#pragma once

#include "operators.hpp"

namespace octet::torch_binding {

// b [E, K, N] as it lies in memory: w [E, N, K] (the layout of torch._grouped_mm's examples: a transposed parameter) or
// w [E, K, N]. Either serves both products, since Octet casts weights both ways.
struct Weights {
    Tensor memory;    // whose elements they are
    TensorView view;  // of w
    bool k_last;
    std::int64_t experts, k, n;
};
Weights weights_of(const Tensor& b);
// A parameter [E, N, K].
Weights weights_of_parameter(const char* what, const Tensor& w);

enum class Product { forward, dgrad };

bool wgrad_in_8_bits(const Recipe& recipe);
// Of a recipe that does not quantize, any: nothing reads them.
QuantizeOptions options_for(const Recipe& recipe, Format format);

// Weights that were cast before, or none.
struct Given {
    const std::optional<Tensor>&data, &scale;
};

// Whether a product of `x`, of so many rows, runs in 8 bits: as GroupedLinear would choose. Weights that come cast cost
// nothing to cast.
bool in_8_bits(const Recipe& recipe, Product product, const Weights& weights, std::int64_t rows, const Tensor& x,
               bool weights_are_cast = false);

// Which casts of a step of so many rows are better made in halves, the second one beside a product. `x` are the tokens
// or their gradients. in_visits: how those of the weights may be.
CastsBeside casts_beside(const Recipe& recipe, const Weights& weights, std::int64_t rows, const Tensor& x,
                         WeightCasts in_visits, bool weights_are_cast = false);

// Where the tokens of a product are cast, in `workspace` bytes, and its weights, in `weight_workspace`. `beside`: the
// second half of the tokens' cast is left for run_later(), and their workspace is their own.
class CastPlaces {
public:
    CastPlaces(bool beside, std::size_t workspace, std::size_t weight_workspace);
    std::size_t bytes() const;
    // Takes the workspaces of the call's memory; call.on() is then where weights are cast.
    void take(Call& call);
    const Execution& tokens() const { return tokens_; }
    void run_later(const Call& call) { later_.run(call.on().stream); }

private:
    bool beside_;
    std::size_t workspace_, weight_workspace_;
    LaterCasts later_{};
    Execution tokens_{};
};

// The weights in 8 bits for the products that are asked for (not null), from one visit.
QuantizedShape cast_shape(const Weights& weights, const Recipe& recipe, Product product);
void cast(const Weights& weights, const Recipe& recipe, const QuantizedView& forward, const QuantizedView& dgrad,
          const Execution& on);
std::size_t workspace_bytes(const Weights& weights);

// What a product in 8 bits needs besides its output: tokens along their rows, and the weights where they were not
// given.
struct ProductMemory {
    QuantizedShape rows, weights;
    bool casts_weights;

    ProductMemory(const Recipe& recipe, Format format, std::int64_t tokens, const Weights& w, Product product,
                  const Given& given);
    std::size_t bytes() const { return bytes_of(rows) + weight_bytes(); }
    std::size_t weight_bytes() const { return casts_weights ? bytes_of(weights) : 0; }
};

// The weights in 8 bits as a product reads them: as they were given, or cast under `on` into the call's memory.
Operand weights_in_8_bits(const Weights& weights, const Recipe& recipe, Product product, const ProductMemory& memory,
                          const Given& given, Call& call, const Execution& on);
// rows [M, reduction] times the weights of each group, both in 8 bits.
void multiply(const Operand& rows, const Operand& weights, const Recipe& recipe, Product product, const Groups& groups,
              const Tensor& out, const Call& call, Update update = Update::overwrite);
// x [M, reduction] times the weights of each group, neither of them cast.
void multiply_plain(const Tensor& x, const Weights& weights, const Recipe& recipe, Product product,
                    const Groups& groups, const Tensor& out, const Call& call);

// x in 8 bits along its rows, along tokens, or both from one visit: whichever is not null.
void quantize_tokens(const Tensor& x, const Groups& groups, const QuantizeOptions& options, const QuantizedView& rows,
                     const QuantizedView& columns, const Execution& on);

// Tokens in 8 bits, as bytes, with the scale that products read, in tensors of their own; without a shape, nothing.
struct CastTokens {
    Tensor data, scale;
    QuantizedView view{};

    explicit CastTokens(const Tensor& like);
    CastTokens(const Tensor& like, const QuantizedShape& shape);
};
// Along tokens, `rows` of them: what a weight gradient reads. Nothing where it is not wanted.
CastTokens cast_columns(const Tensor& like, std::int64_t rows, std::int64_t features, const QuantizeOptions& options,
                        const Groups& groups, bool wanted);
// What such tensors hold.
Operand operand_of_cast(const Tensor& data, const std::optional<Tensor>& scale, Scaling scaling, Format format);

// The weight gradient [E, K, N], laid out as the weights are.
Tensor weight_gradient(std::int64_t tokens, const Operand& dy, const Operand& a, const Weights& weights,
                       const Recipe& recipe, const Groups& groups, const Call& call);

}  // namespace octet::torch_binding
