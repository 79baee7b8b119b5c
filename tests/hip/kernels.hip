// Every kernel of src/gpu, as the calls of octet/quantize.hpp, tokens.hpp and activation.hpp launch them, for an AMD
// GPU. Compiled for the device only: what is built here is not run.
#include "gpu/layout_ops.hpp"
#include "gpu/ops.hpp"
#include "gpu/token_ops.hpp"

namespace octet::gpu {

struct Runner {
    const QuantizerTuning& tuning() const;
    void* workspace(std::int64_t bytes);
    template <class Kernel>
    std::int64_t resident() {
        return 1;
    }
    template <class Kernel>
    void launch(std::int64_t, const typename Kernel::Params&) {
        use(simt::entry<Kernel>);
    }
    template <class Kernel>
    void launch_next(std::int64_t blocks, const typename Kernel::Params& params) {
        launch<Kernel>(blocks, params);
    }
    template <class Kernel>
    void launch_together(std::int64_t blocks, const typename Kernel::Params& params) {
        launch<Kernel>(blocks, params);
    }
    bool may_wait() const;
    WeightVisit visit() const;
    template <class Kernel>
    void launch_later(std::int64_t blocks, const typename Kernel::Params& params) {
        launch<Kernel>(blocks, params);
    }
    template <class Entry>
    void use(Entry*);
};

template <class Codec>
void every_quantizer(Runner& runner, const ConstTensorView& x, const Groups& groups, const QuantizeOptions& options,
                     const QuantizedView& a, const QuantizedView& b, const SwigluCall& call) {
    quantize_rows<Codec>(runner, x, options, a);
    quantize_columns<Codec>(runner, x, x, groups, 16, options, a, b);
    quantize_pair<Codec>(runner, x, groups, 16, options, a, b);
    quantize_transposed<Codec>(runner, x, groups, 16, options, a);
    quantize_weights<Codec>(runner, x, options, a, b);
    swiglu_rows<Codec>(runner, call, options, a);
}

void everything(Runner& runner, const ConstTensorView& x, const TensorView& y, const ConstQuantizedView& q,
                const Groups& groups, const QuantizeOptions& options, const QuantizedView& a, const QuantizedView& b,
                const SwigluCall& call, const TokenOrder& order) {
    every_quantizer<E4M3Fnuz>(runner, x, groups, options, a, b, call);
#if !defined(OCTET_ONE_FORMAT)
    every_quantizer<E4M3>(runner, x, groups, options, a, b, call);
    every_quantizer<E5M2>(runner, x, groups, options, a, b, call);
#endif
    dequantize_rows(runner, q, options, y);
    dequantize_tokens(runner, q, groups, 16, options, y, false);
    dequantize_weights(runner, q, {}, options, y);
    pad_or_unpad(runner, x, y, groups, 1, 16, nullptr, false);
    swizzle(runner, nullptr, nullptr, x.extents, &groups, false);
    permute_tokens(runner, order, x, y);
    combine_tokens(runner, order, x, nullptr, {}, y);
    combine_tokens_backward(runner, order, x, x, nullptr, y, nullptr);
    swiglu(runner, call);
}

}  // namespace octet::gpu
