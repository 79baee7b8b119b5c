#include "cuda/launch/quantize.hpp"

#include "cuda/launch/quantize_runner.cuh"
#include "cuda/tuned.hpp"

namespace octet::cuda {
namespace {

constexpr gpu::QuantizerTuning untuned{};  // of what has nothing to choose

}  // namespace

void quantize_rows(ConstTensorView x, const QuantizeOptions& options, QuantizedView out, const Execution& on) {
    const gpu::QuantizerTuning tuning = tuned(on);
    Runner runner(on, tuning);
    with_fp8(options.format, [&](auto codec) { Quantizers<decltype(codec)>::rows(runner, x, options, out); });
}

void quantize_columns(ConstTensorView x, Groups groups, std::int64_t alignment, const QuantizeOptions& options,
                      QuantizedView out, const Execution& on) {
    const gpu::QuantizerTuning tuning = tuned(on);
    Runner runner(on, tuning);
    with_fp8(options.format, [&](auto codec) {
        Quantizers<decltype(codec)>::columns(runner, x, {}, groups, alignment, options, out, {});
    });
}

void quantize_columns_dual(ConstTensorView x0, ConstTensorView x1, Groups groups, std::int64_t alignment,
                           const QuantizeOptions& options, QuantizedView out0, QuantizedView out1,
                           const Execution& on) {
    const gpu::QuantizerTuning tuning = tuned(on);
    Runner runner(on, tuning);
    with_fp8(options.format, [&](auto codec) {
        Quantizers<decltype(codec)>::columns(runner, x0, x1, groups, alignment, options, out0, out1);
    });
}

void quantize_pair(ConstTensorView x, Groups groups, std::int64_t alignment, const QuantizeOptions& options,
                   QuantizedView rows, QuantizedView columns, const Execution& on) {
    const gpu::QuantizerTuning tuning = tuned(on);
    Runner runner(on, tuning);
    with_fp8(options.format, [&](auto codec) {
        Quantizers<decltype(codec)>::pair(runner, x, groups, alignment, options, rows, columns);
    });
}

void quantize_transposed(ConstTensorView x, Groups groups, std::int64_t alignment, const QuantizeOptions& options,
                         QuantizedView out, const Execution& on) {
    const gpu::QuantizerTuning tuning = tuned(on);
    Runner runner(on, tuning);
    with_fp8(options.format,
             [&](auto codec) { Quantizers<decltype(codec)>::transposed(runner, x, groups, alignment, options, out); });
}

void quantize_weights(ConstTensorView w, const QuantizeOptions& options, QuantizedView along_k, QuantizedView along_n,
                      const Execution& on) {
    require(on.visit == WeightVisit::only || on.workspace != nullptr,
            "weights were to be cast in two visits without a workspace; give both the same one");
    const gpu::QuantizerTuning tuning = tuned(on);
    Runner runner(on, tuning);
    with_fp8(options.format,
             [&](auto codec) { Quantizers<decltype(codec)>::weights(runner, w, options, along_k, along_n); });
}

void dequantize_rows(ConstQuantizedView q, const QuantizeOptions& options, TensorView x, const Execution& on) {
    Runner runner(on, untuned);
    gpu::dequantize_rows(runner, q, options, x);
}

void dequantize_columns(ConstQuantizedView q, Groups groups, std::int64_t alignment, const QuantizeOptions& options,
                        TensorView x, const Execution& on) {
    Runner runner(on, untuned);
    gpu::dequantize_tokens(runner, q, groups, alignment, options, x, false);
}

void dequantize_transposed(ConstQuantizedView q, Groups groups, std::int64_t alignment, const QuantizeOptions& options,
                           TensorView x, const Execution& on) {
    Runner runner(on, untuned);
    gpu::dequantize_tokens(runner, q, groups, alignment, options, x, true);
}

void dequantize_weights(ConstQuantizedView q, WeightOrientation orientation, const QuantizeOptions& options,
                        TensorView w, const Execution& on) {
    Runner runner(on, untuned);
    gpu::dequantize_weights(runner, q, orientation, options, w);
}

void pad_groups(ConstTensorView x, Groups groups, std::int64_t alignment, TensorView padded, std::int32_t* padded_ends,
                const Execution& on) {
    Runner runner(on, untuned);
    gpu::pad_or_unpad(runner, x, padded, groups, x.size(0), alignment, padded_ends, false);
}

void unpad_groups(ConstTensorView padded, Groups groups, std::int64_t alignment, TensorView x, const Execution& on) {
    Runner runner(on, untuned);
    gpu::pad_or_unpad(runner, padded, x, groups, x.size(0), alignment, nullptr, true);
}

void swizzle_scales(ConstTensorView scale, TensorView blocked, const Execution& on) {
    Runner runner(on, untuned);
    gpu::swizzle(runner, scale.data, blocked.data, scale.extents, nullptr, false);
}

void unswizzle_scales(ConstTensorView blocked, TensorView scale, const Execution& on) {
    Runner runner(on, untuned);
    gpu::swizzle(runner, blocked.data, scale.data, scale.extents, nullptr, true);
}

void swizzle_group_scales(ConstTensorView scale, Groups groups, TensorView blocked, const Execution& on) {
    Runner runner(on, untuned);
    gpu::swizzle(runner, scale.data, blocked.data, scale.extents, &groups, false);
}

void unswizzle_group_scales(ConstTensorView blocked, Groups groups, TensorView scale, const Execution& on) {
    Runner runner(on, untuned);
    gpu::swizzle(runner, blocked.data, scale.data, scale.extents, &groups, true);
}

std::size_t token_workspace_bytes(std::int64_t tokens, std::int64_t features, std::int64_t groups) {
    return static_cast<std::size_t>(gpu::most_token_workspace(tokens, features, groups));
}

bool keeps_maxima(const ConstTensorView& w, const QuantizeOptions& options) {
    return gpu::keeps_maxima<E4M3>(w, options);  // of any format
}

std::size_t weight_workspace_bytes(std::int64_t experts, std::int64_t n, std::int64_t k) {
    return static_cast<std::size_t>(gpu::most_weight_workspace(experts, n, k));
}

}  // namespace octet::cuda
