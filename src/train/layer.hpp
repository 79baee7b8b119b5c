// One layer of the model: attention, then experts or a dense MLP, each behind a norm and beside the residual stream.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "octet/moe.hpp"
#include "train/attention.hpp"
#include "train/dense_linear.hpp"
#include "train/model.hpp"
#include "train/norm.hpp"
#include "train/probe.hpp"
#include "train/scales.hpp"

namespace octet::train {

// What forward leaves for backward.
struct LayerKept {
    explicit LayerKept(const MoeOptions& options) : moe(options) {}
    ReusedTensor h_attention{}, h_mlp{};              // [T, D] f32: the stream in front of each norm
    ReusedTensor inverse_attention{}, inverse_mlp{};  // [T] f32
    ReusedTensor x_attention{}, x_mlp{};              // [T, D] normed
    ReusedTensor qkv{}, log_sums{}, context{};  // [T, (heads + 2 kv) head_dim] f32, [heads, T] f32, [T, heads head_dim]
    LinearKept qkv_kept{}, o_kept{};
    MoeKept moe;
    ExpertKept mlp{};
    std::int32_t token_end = 0;  // the one group of a dense MLP
    ConstTensorView first{};     // the stream in front of the first layer's norm, which is the embedding
};

// Scratch that all layers share, and who looks on.
struct LayerWorkspace {
    LinearWorkspace linear{};
    MoeWorkspace moe{};
    ReusedTensor branch{}, attention_branch{};  // [T, D]
    ReusedTensor dy{}, dx{}, dx_attention{}, dcontext{}, dqkv{};
    ReusedTensor partial{};
    double attention_seconds = 0;
    Probe* probe = nullptr;
    ScaleObserver* scales = nullptr;
};

// The stream between layers: `before` + `branch`, not added yet; a null branch counts as 0.
struct Stream {
    ConstTensorView before{}, branch{};
};

enum class Keep : std::uint8_t { nothing, for_backward };

class Layer {
public:
    Layer(const ModelConfig& config, const ModelOptions& options, std::int64_t index);

    static MoeOptions moe_options(const ModelConfig& config, const ModelOptions& options);
    void add_parameters(std::vector<Parameter>& all);
    void add_buffers(std::vector<NamedTensor>& all);
    void weights_changed();
    void step_taken();
    MoeLayer* moe() { return moe_.get(); }  // null in a dense layer

    // The result's tensors are `kept`'s and the workspace's.
    Stream forward(const Stream& in, const AttentionShape& shape, const RotaryTable& rotary, LayerKept& kept, Keep keep,
                   LayerWorkspace& workspace, const Execution& on);
    // dh [T, D] f32: the gradient of the stream behind the layer becomes that in front of it.
    void backward(TensorView dh, const AttentionShape& shape, const RotaryTable& rotary, LayerKept& kept,
                  double auxiliary_scale, LayerWorkspace& workspace, const Execution& on);

    std::size_t kept_bytes(const LayerKept& kept) const;
    LinearReport report() const;
    void reset_report();

private:
    std::string named(const char* part) const { return prefix_ + part; }

    std::int64_t index_;
    std::string prefix_;
    ModelConfig config_;
    Format activations_;
    DenseLinear qkv_, o_;
    Tensor norm_attention_, norm_attention_gradient_, norm_mlp_, norm_mlp_gradient_;  // [D] f32
    std::unique_ptr<MoeLayer> moe_{};
    std::unique_ptr<Experts> mlp_{};
};

}  // namespace octet::train
