// Quantizers: bf16 or f32 in, 8-bit elements and their scales out. docs/numerics.md explains every bit.
//
// Shapes. M tokens, K features, G groups, E experts; B is the block of the scaling (128 or 32); P is the padded token
// axis, at least padded_bound(M, G, alignment) long.
//
//                          data         scale: rowwise   blockwise               mx (e8m0)
//   rows        x[M,K]     [M,K]        [M]              [M, ceil(K/B)]          [M, ceil(K/B)]
//   columns     x[M,K]     [K,P]        [G,K]            [K, P/B]                [K, P/B]
//   transposed  x[N,M]     [N,P]        [G,N]            [N, P/B]                [N, P/B]
//   weights     w[E,N,K]
//     along_k              [E,N,K]      [E,N]            [E,ceil(N/B),ceil(K/B)] [E,N,ceil(K/B)]
//     along_n              [E,K,N]      [E,K]            [E,ceil(K/B),ceil(N/B)] [E,K,ceil(N/B)]
//
// The last axis of inputs and data steps by 1; rows may be further apart. Scales may have any strides, so that each
// product can ask for the layout it reads best.
#pragma once

#include <cstddef>
#include <cstdint>

#include "octet/groups.hpp"
#include "octet/recipe.hpp"
#include "octet/tensor.hpp"

namespace octet {

enum class Backend : std::uint8_t { automatic, reference, cpu, cuda, hip };

struct KernelTuning;  // src/tune

// The transposed halves of casts, still to be made. A cast both ways (quantize_pair, quantize_weights) under an
// Execution that names a LaterCasts may make the rows alone, and leave the rest here: run() starts it. So may a cast
// along tokens alone (quantize_columns), all of it. A product that does not need it must be launched on the same stream
// in between, one of these tokens: it then has the rest of the cast beside it, or behind its last blocks. Until run(),
// x, the outputs and the workspace must stay as they are. What cannot be left is made at once: then nothing is here.
class LaterCasts {
public:
    LaterCasts() = default;
    LaterCasts(const LaterCasts&) = delete;
    LaterCasts& operator=(const LaterCasts&) = delete;

    bool full() const { return count_ == most; }
    void run(void* stream);

    using Start = void (*)(const void* parameters, std::int64_t blocks, void* stream);
    void add(Start start, std::int64_t blocks, const void* parameters, std::size_t bytes);

private:
    static constexpr std::size_t most = 2, parameter_bytes = 1024;
    struct Launch {
        Start start;
        std::int64_t blocks;
        alignas(16) std::byte parameters[parameter_bytes];
    };
    Launch launch_[most]{};
    std::size_t count_ = 0;
};

// Weights both ways in two calls, so that the second orientation need not live as long as the first. `first`, a call
// for along_k, leaves the columns' maxima in the workspace; `second`, one for along_n with the same w and that
// workspace as it is, takes them from there: it reads w once, and may be left for later (LaterCasts). Bits do not
// depend on it. Where no maxima are kept (keeps_maxima: on the CPU, for quantizers other than rowwise, for sizes that
// are not whole) they are two calls like any others.
enum class WeightVisit : std::uint8_t { only, first, second };

// Where and how a call runs. `automatic` takes the fast implementation for the tensors' device.
struct Execution {
    Backend backend = Backend::automatic;
    int threads = 0;            // CPU: 0 means every core; results do not depend on it
    void* stream = nullptr;     // GPU: the cudaStream_t or hipStream_t to run on
    void* workspace = nullptr;  // GPU: device memory on a multiple of 256 bytes; null: from the stream's memory pool
    std::size_t workspace_bytes = 0;
    void* tickets = nullptr;      // GPU: a word that is zero, for weight gradients, which leave it so (Tickets)
    LaterCasts* later = nullptr;  // GPU: where a cast both ways may leave its second half; needs a workspace of its own
    WeightVisit visit = WeightVisit::only;  // of quantize_weights; on a GPU another than `only` needs a workspace
    const KernelTuning* tuning = nullptr;   // GPU: instead of the tuning table's choice; for `octet tune`
};

struct QuantizeOptions {
    Scaling scaling = Scaling::rowwise;
    Format format = Format::e4m3;                                // of the data
    ScaleRounding scale_rounding = ScaleRounding::power_of_two;  // rowwise and blockwise
    MxMode mx_mode = MxMode::rceil;                              // mx
};

// Where a quantizer writes. rowwise and blockwise: `scale` is the f32 multiplier that was applied, `inverse` its
// reciprocal, which products use; either may be null, not both. mx: `scale` is e8m0, `inverse` is null.
struct QuantizedView {
    TensorView data{};
    TensorView scale{};
    TensorView inverse{};
};

struct ConstQuantizedView {
    ConstTensorView data{};
    ConstTensorView scale{};
    ConstTensorView inverse{};
    ConstQuantizedView() = default;
    ConstQuantizedView(ConstTensorView elements, ConstTensorView scales, ConstTensorView inverses)
        : data(elements), scale(scales), inverse(inverses) {}
    ConstQuantizedView(const QuantizedView& view) : data(view.data), scale(view.scale), inverse(view.inverse) {}
};

// The workspace that any quantizer call with an alignment of up to 1024 needs at most on a device: of tokens (for the
// dual form `features` are those of both tensors), and of weights. 0 on the CPU.
std::size_t token_workspace_bytes(Device device, std::int64_t tokens, std::int64_t features, std::int64_t groups);
std::size_t weight_workspace_bytes(Device device, std::int64_t experts, std::int64_t n, std::int64_t k);

// Whether two visits of such weights share the maxima.
bool keeps_maxima(ConstTensorView w, const QuantizeOptions& options);

// Along K: every row of x has its own scale or scales.
void quantize_rows(ConstTensorView x, const QuantizeOptions& options, QuantizedView out, const Execution& on = {});

// Along tokens: every column of every group has its own scale or scales; the data is transposed and each group starts
// on a multiple of `alignment` (a multiple of the block, for blockwise and mx) and ends in zeros. Columns past the last
// group are left as they are.
void quantize_columns(ConstTensorView x, Groups groups, std::int64_t alignment, const QuantizeOptions& options,
                      QuantizedView out, const Execution& on = {});

// The same for two tensors that share rows and groups, in one call.
void quantize_columns_dual(ConstTensorView x0, ConstTensorView x1, Groups groups, std::int64_t alignment,
                           const QuantizeOptions& options, QuantizedView out0, QuantizedView out1,
                           const Execution& on = {});

// Both orientations of x from one visit: what quantize_rows and quantize_columns would write.
void quantize_pair(ConstTensorView x, Groups groups, std::int64_t alignment, const QuantizeOptions& options,
                   QuantizedView rows, QuantizedView columns, const Execution& on = {});

// Along tokens, from a tensor whose tokens are already contiguous: x[N, M].
void quantize_transposed(ConstTensorView x, Groups groups, std::int64_t alignment, const QuantizeOptions& options,
                         QuantizedView out, const Execution& on = {});

// Expert weights: along K for the forward product, along N (transposed) for the input gradient; both from one visit.
// An orientation whose data is null is not made; at least one must be asked for.
void quantize_weights(ConstTensorView w, const QuantizeOptions& options, QuantizedView along_k, QuantizedView along_n,
                      const Execution& on = {});

// Back to bf16 or f32, in the layout of the tensor that was quantized. Rows that no group owns are left as they are.
void dequantize_rows(ConstQuantizedView q, const QuantizeOptions& options, TensorView x, const Execution& on = {});
void dequantize_columns(ConstQuantizedView q, Groups groups, std::int64_t alignment, const QuantizeOptions& options,
                        TensorView x, const Execution& on = {});
void dequantize_transposed(ConstQuantizedView q, Groups groups, std::int64_t alignment, const QuantizeOptions& options,
                           TensorView x, const Execution& on = {});
enum class WeightOrientation : std::uint8_t { along_k, along_n };
void dequantize_weights(ConstQuantizedView q, WeightOrientation orientation, const QuantizeOptions& options,
                        TensorView w, const Execution& on = {});

// Token groups to aligned starts with zero rows between, and back. Any format. padded: [P, K]. padded_ends[G] (may be
// null) receives the cumulative ends of the padded groups. unpad leaves rows that no group owns as they are.
void pad_groups(ConstTensorView x, Groups groups, std::int64_t alignment, TensorView padded, std::int32_t* padded_ends,
                const Execution& on = {});
void unpad_groups(ConstTensorView padded, Groups groups, std::int64_t alignment, TensorView x,
                  const Execution& on = {});

// The blocked layout of MX scales that Blackwell's tensor cores read: 128 x 4 tiles of 512 bytes, byte
// (r%32)*16 + (r/32)*4 + c, tiles in row-major order, zero padded.
//   scale [R,C]    -> blocked [swizzled_rows(R) * swizzled_columns(C)] bytes
//   scale [E,R,C]  -> blocked [E, swizzled_rows(R) * swizzled_columns(C)]
//   with groups along R: each group starts on a new multiple of 128 rows; blocked has
//   swizzled_group_rows(R, G) * swizzled_columns(C) bytes, of which those past the last group are zero.
constexpr std::int64_t swizzled_rows(std::int64_t rows) { return round_up(rows, 128); }
constexpr std::int64_t swizzled_columns(std::int64_t columns) { return round_up(columns, 4); }
constexpr std::int64_t swizzled_group_rows(std::int64_t rows, std::int64_t groups) {
    return padded_bound(rows, groups, 128);
}
// Back again, rows that no group owns are left as they are.
void swizzle_scales(ConstTensorView scale, TensorView blocked, const Execution& on = {});
void unswizzle_scales(ConstTensorView blocked, TensorView scale, const Execution& on = {});
void swizzle_group_scales(ConstTensorView scale, Groups groups, TensorView blocked, const Execution& on = {});
void unswizzle_group_scales(ConstTensorView blocked, Groups groups, TensorView scale, const Execution& on = {});

}  // namespace octet
