#include "cuda/launch/tokens.hpp"

#include "cuda/launch/quantize.hpp"
#include "cuda/launch/swiglu_rows.cuh"
#include "cuda/tuned.hpp"

namespace octet::cuda {

template <>
void SwigluRows<E4M3>::run(Runner&, const gpu::SwigluCall&, const QuantizeOptions&, const QuantizedView&);
template <>
void SwigluRows<E4M3Fnuz>::run(Runner&, const gpu::SwigluCall&, const QuantizeOptions&, const QuantizedView&);
template <>
void SwigluRows<E5M2>::run(Runner&, const gpu::SwigluCall&, const QuantizeOptions&, const QuantizedView&);

namespace {

constexpr gpu::QuantizerTuning untuned{};

std::size_t result_bytes(Format format, std::int64_t tokens, std::int64_t features) {
    return static_cast<std::size_t>(round_up(tokens * features * bytes_of(format), 256));
}

// Room for the result between two kernels: the front of the caller's workspace, or of the stream's pool.
class Between {
public:
    Between(std::size_t bytes, const Execution& on) : rest(on), stream_(static_cast<cudaStream_t>(on.stream)) {
        if (on.workspace) {
            require(on.workspace_bytes >= bytes, "the workspace has ", on.workspace_bytes,
                    " bytes, and the call needs more than ", bytes, "; ask swiglu_workspace_bytes");
            data = on.workspace;
            rest.workspace = static_cast<unsigned char*>(on.workspace) + bytes;
            rest.workspace_bytes = on.workspace_bytes - bytes;
        } else {
            checked(cudaMallocAsync(&own_, std::max<std::size_t>(bytes, 1), stream_), "cudaMallocAsync of a workspace");
            data = own_;
        }
    }
    ~Between() {
        if (own_) cudaFreeAsync(own_, stream_);
    }
    Between(const Between&) = delete;
    Between& operator=(const Between&) = delete;

    void* data = nullptr;
    Execution rest;  // with what is left of the workspace

private:
    cudaStream_t stream_;
    void* own_ = nullptr;
};

void fused_rows(const gpu::SwigluCall& call, const QuantizeOptions& options, const QuantizedView& rows,
                const Execution& on) {
    const gpu::QuantizerTuning tuning = tuned(on);
    Runner runner(on, tuning);
    with_fp8(options.format, [&](auto codec) { SwigluRows<decltype(codec)>::run(runner, call, options, rows); });
}

void quantized(gpu::SwigluCall call, const Groups& groups, std::int64_t alignment, const QuantizeOptions& options,
               const QuantizedView& rows, const QuantizedView& columns, const Execution& on) {
    const bool fused = gpu::swiglu_fuses(call, options), transposes = !columns.data.null();
    if (fused && !transposes) return fused_rows(call, options, rows, on);
    const std::int64_t m = call.gate_up.size(0), features = call.features();
    const Format format = call.gate_up.format;
    Between between(result_bytes(format, m, features), on);
    call.out = TensorView(between.data, format, {m, features}, call.gate_up.device);
    if (fused) {
        fused_rows(call, options, rows, on);
        cuda::quantize_columns(call.out, groups, alignment, options, columns, between.rest);
        return;
    }
    {
        Runner runner(on, untuned);
        gpu::swiglu(runner, call);
    }
    if (transposes)
        cuda::quantize_pair(call.out, groups, alignment, options, rows, columns, between.rest);
    else
        cuda::quantize_rows(call.out, options, rows, between.rest);
}

}  // namespace

void permute_tokens(const TokenOrder& order, ConstTensorView tokens, TensorView rows, const Execution& on) {
    Runner runner(on, untuned);
    gpu::permute_tokens(runner, order, tokens, rows);
}

void combine_tokens(const TokenOrder& order, ConstTensorView rows, const float* weights,
                    std::span<const ConstTensorView> addends, TensorView y, const Execution& on) {
    Runner runner(on, untuned);
    gpu::combine_tokens(runner, order, rows, weights, addends, y);
}

void combine_tokens_backward(const TokenOrder& order, ConstTensorView dy, ConstTensorView rows, const float* weights,
                             TensorView drows, float* weight_gradients, const Execution& on) {
    Runner runner(on, untuned);
    gpu::combine_tokens_backward(runner, order, dy, rows, weights, drows, weight_gradients);
}

void swiglu(ConstTensorView gate_up, const float* weights, TensorView s, const Execution& on) {
    Runner runner(on, untuned);
    gpu::swiglu(runner, {gate_up, weights, {}, s, nullptr});
}

void swiglu_backward(ConstTensorView gate_up, const float* weights, ConstTensorView ds, TensorView dgate_up,
                     float* weight_gradients, const Execution& on) {
    Runner runner(on, untuned);
    gpu::swiglu(runner, {gate_up, weights, ds, dgate_up, weight_gradients});
}

void swiglu_quantize(ConstTensorView gate_up, const float* weights, Groups groups, std::int64_t alignment,
                     const QuantizeOptions& options, QuantizedView rows, QuantizedView columns, const Execution& on) {
    quantized({gate_up, weights, {}, {}, nullptr}, groups, alignment, options, rows, columns, on);
}

void swiglu_backward_quantize(ConstTensorView gate_up, const float* weights, ConstTensorView ds, Groups groups,
                              std::int64_t alignment, const QuantizeOptions& options, QuantizedView rows,
                              QuantizedView columns, float* weight_gradients, const Execution& on) {
    quantized({gate_up, weights, ds, {}, weight_gradients}, groups, alignment, options, rows, columns, on);
}

std::size_t swiglu_workspace_bytes(Format format, std::int64_t tokens, std::int64_t features, std::int64_t groups) {
    return result_bytes(format, tokens, features) + token_workspace_bytes(tokens, features, groups);
}

}  // namespace octet::cuda
