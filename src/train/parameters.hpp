// Parameters: what is trained, under the names it has in a checkpoint.
//
//   model.embed_tokens.weight                                    [V, D]
//   model.layers.0.input_layernorm.weight                        [D]
//   model.layers.0.self_attn.q_proj.weight                       [heads * head_dim, D]
//   model.layers.0.self_attn.k_proj.weight, v_proj.weight        [kv_heads * head_dim, D]
//   model.layers.0.self_attn.o_proj.weight                       [D, heads * head_dim]
//   model.layers.0.post_attention_layernorm.weight               [D]
//   model.layers.0.mlp.gate.weight                               [E, D] the router
//   model.layers.0.mlp.experts.gate_up_proj                      [E, 2H, D] gate first
//   model.layers.0.mlp.experts.down_proj                         [E, D, H]
//   model.layers.0.mlp.shared_experts.gate_up_proj.weight        [2 shared H, D]
//   model.layers.0.mlp.shared_experts.down_proj.weight           [D, shared H]
//   model.layers.0.mlp.gate_up_proj.weight, down_proj.weight     in a dense layer instead of the five above
//   model.norm.weight                                            [D]
//   lm_head.weight                                               [V, D] unless tied to the embedding
//
// A model's state that is not trained goes into checkpoints beside them:
//   model.layers.0.mlp.gate.e_score_correction_bias              [E] with router.balance = "bias"
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "octet/tensor.hpp"

namespace octet::train {

// Views into the model's memory: they stay valid as long as the model.
struct Parameter {
    std::string name;
    TensorView value{};     // f32, contiguous
    TensorView gradient{};  // f32, the same shape; backward passes add into it
    bool decays = false;    // weight decay: matrices of products, not norms, biases or embeddings
};

struct NamedTensor {
    std::string name;
    TensorView value{};  // f32, contiguous
};

inline std::span<float> values(const TensorView& view) {
    return {static_cast<float*>(view.data), static_cast<std::size_t>(view.extents.elements())};
}

}  // namespace octet::train
