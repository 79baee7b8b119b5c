// Grouped products: every token group times its own expert's weights. docs/numerics.md says what they compute.
//
// Shapes. M tokens, K in-features, N out-features, E experts (as many as groups), P the padded token axis.
//
//   grouped_forward   Y[M,N]    = A . W^T      a: rows [M,K]         w: along_k [E,N,K]
//   grouped_dgrad     dA[M,K]   = dY . W       dy: rows [M,N]        w: along_n [E,K,N], or plain [E,N,K]
//   grouped_wgrad     dW[E,N,K] = dY^T . A     dy: columns [N,P]     a: columns [K,P], or plain [M,N] and [M,K]
//
// Operands lie as the quantizers of octet/quantize.hpp write them; plain ones (bf16, f32) lie as the model has them and
// need no transposed copy. Any group may be empty, of one row, or of any number; any M, N and K. Rows may be further
// apart than they are long: on a GPU 8-bit rows along features are read at full speed where they start on multiples of
// 128 bytes (row_pitch of octet/linear.hpp).
#pragma once

#include "octet/groups.hpp"
#include "octet/quantize.hpp"
#include "octet/recipe.hpp"
#include "octet/tensor.hpp"

namespace octet {

// One side of a product: plain bf16 or f32, or 8-bit elements with their scales. Rowwise and blockwise operands need
// `inverse`, mx ones `scale`. The two sides may be of different formats, and one of them may be plain (not in wgrad);
// two quantized sides have one scaling.
struct Operand {
    ConstQuantizedView values{};
    Scaling scaling = Scaling::rowwise;  // of quantized values
    std::int64_t alignment = 0;          // wgrad: on what its groups start, where that is not what the call says

    Operand(ConstTensorView plain) : values(plain, {}, {}) {}
    Operand(TensorView plain) : values(plain, {}, {}) {}
    Operand(ConstQuantizedView view, Scaling shared) : values(view), scaling(shared) {}

    const ConstTensorView& data() const { return values.data; }
    bool quantized() const { return is_fp8(values.data.format); }
    std::int64_t aligned_to(std::int64_t of_the_call) const {
        return !quantized() ? 1 : alignment > 0 ? alignment : of_the_call;
    }
};

// add: into an f32 output; a product of tokens into bf16 too, rounded before it is added.
enum class Update : std::uint8_t { overwrite, add };

struct ProductOptions {
    Update update = Update::overwrite;
    Accumulation accumulation = Accumulation::promoted;  // the CPU always accumulates in f32
};

// The workspace that a product works in on a device, of its two operands. 0 but for mxfp8 on a GPU. A product whose
// Execution has less takes it from the stream's memory pool.
std::size_t product_workspace_bytes(const Operand& tokens, const Operand& weights);
std::size_t wgrad_workspace_bytes(const Operand& dy, const Operand& a);

// The output is bf16 or f32. Rows that no group owns are left as they are.
void grouped_forward(const Operand& a, const Operand& w, Groups groups, TensorView y,
                     const ProductOptions& options = {}, const Execution& on = {});
void grouped_dgrad(const Operand& dy, const Operand& w, Groups groups, TensorView da,
                   const ProductOptions& options = {}, const Execution& on = {});

// `alignment` is the one the columns were quantized with, unless an operand has its own; plain operands ignore it. An
// empty group's gradient is exactly zero, or as it was when adding.
void grouped_wgrad(const Operand& dy, const Operand& a, Groups groups, std::int64_t alignment, TensorView dw,
                   const ProductOptions& options = {}, const Execution& on = {});

}  // namespace octet
