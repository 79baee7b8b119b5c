// Causal self-attention with rotary positions, multi-head or grouped-query, in f32.
//
//   qkv[T, (heads + 2 kv_heads) * head_dim]      queries, then keys, then values of each token; T = B * S
//   q, k turned by their position                pairs are features i and i + head_dim / 2
//   p[i,j]  = softmax over j <= i of q_i . k_j / sqrt(head_dim)
//   out[T, heads * head_dim] = p . v
//
// Probabilities are not kept: backward makes them again from q, k and the log-sum-exp of each row, block of queries by
// block, so that memory grows with S and not with S^2.
#pragma once

#include "octet/linear.hpp"
#include "octet/tensor.hpp"

namespace octet::train {

struct AttentionShape {
    std::int64_t sequences = 0, length = 0;  // B, S
    std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
    std::int64_t tokens() const { return sequences * length; }
    std::int64_t features() const { return (heads + 2 * kv_heads) * head_dim; }
};

// cos and sin of every position and pair, made when a longer sequence comes.
class RotaryTable {
public:
    RotaryTable(double theta, std::int64_t head_dim) : theta_(theta), pairs_(head_dim / 2) {}
    void reserve(std::int64_t length);
    const float* cosines() const { return static_cast<const float*>(table_.view().data); }  // [length, pairs]
    const float* sines() const { return cosines() + length_ * pairs_; }                     // [length, pairs]

private:
    double theta_;
    std::int64_t pairs_, length_ = 0;
    ReusedTensor table_{};
};

// qkv f32 is turned in place. out f32 or bf16. log_sums [heads, T] f32; null where no backward will follow.
void attention(const AttentionShape& shape, const RotaryTable& rotary, TensorView qkv, TensorView out, float* log_sums,
               const Execution& on);

// qkv as attention left it; dout [T, heads * head_dim] f32; dqkv as qkv, f32, is overwritten.
void attention_backward(const AttentionShape& shape, const RotaryTable& rotary, ConstTensorView qkv,
                        const float* log_sums, ConstTensorView dout, TensorView dqkv, const Execution& on);

}  // namespace octet::train
