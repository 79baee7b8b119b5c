// The named shapes of the benchmarks: M tokens, N out-features, K in-features, E experts. Those from models are the
// ones that peers were measured on; `on a CPU` is what the CPU's targets are stated for.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace octet::bench_cases {

struct ProductShape {
    std::string_view name, what;
    std::int64_t m, n, k, e;
};

inline constexpr std::array<ProductShape, 10> product_shapes{{
    {"cpu", "what the CPU's targets are stated for", 4096, 1408, 2048, 8},
    {"llama4-e1", "Llama 4 expert, one group", 16640, 8192, 5120, 1},
    {"llama4-e4", "Llama 4 expert, 4 groups", 16640, 8192, 5120, 4},
    {"llama4-e16", "Llama 4 Scout", 16640, 8192, 5120, 16},
    {"llama4-e64", "Llama 4 expert, 64 groups", 16640, 8192, 5120, 64},
    {"deepseek-16b-short", "DeepSeek-MoE-16B, few tokens an expert", 16640, 1408, 2048, 64},
    {"deepseek-16b", "DeepSeek-MoE-16B", 98304, 1408, 2048, 64},
    {"deepseek-16b-gate-up", "DeepSeek-MoE-16B, gate and up together, 8 experts a rank", 98304, 2816, 2048, 8},
    {"deepseek-v3", "DeepSeek-V3, 8 experts a rank", 32768, 2048, 7168, 8},
    {"deepseek-v3-gate-up", "DeepSeek-V3, gate and up together", 32768, 4096, 7168, 8},
}};

// The same proportions at a sixty-fourth of the work or less: seconds on a CPU.
constexpr ProductShape scaled_down(ProductShape shape) {
    if (shape.name == "cpu") return shape;
    shape.m /= 16;
    shape.n /= 2;
    shape.k /= 2;
    shape.e = std::min<std::int64_t>(shape.e, 16);
    return shape;
}

struct LayerShape {
    std::string_view name, what;
    std::int64_t tokens, hidden, expert_hidden, experts, top_k, shared_hidden;
};

inline constexpr std::array<LayerShape, 4> layer_shapes{{
    {"deepseek-16b", "DeepSeek-MoE-16B", 16384, 2048, 1408, 64, 6, 2816},
    {"deepseek-v3", "DeepSeek-V3, 8 experts a rank", 4096, 7168, 2048, 8, 8, 2048},
    {"qwen3-30b", "Qwen3-30B-A3B", 16384, 2048, 768, 128, 8, 0},
    {"llama4-scout", "Llama 4 Scout", 16384, 5120, 8192, 16, 1, 8192},
}};

constexpr LayerShape scaled_down(LayerShape shape) {
    shape.tokens /= 32;
    shape.hidden /= 2;
    shape.expert_hidden /= 2;
    shape.shared_hidden /= 2;
    shape.experts = std::max<std::int64_t>(std::min<std::int64_t>(shape.experts, 16), shape.top_k);
    return shape;
}

}  // namespace octet::bench_cases
