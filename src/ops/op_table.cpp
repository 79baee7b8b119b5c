#include "ops/op_table.hpp"

#include "cpu/quantize.hpp"
#include "cpu/tokens.hpp"
#include "octet/error.hpp"
#include "reference/quantize.hpp"
#include "reference/tokens.hpp"
#if OCTET_HAVE_CUDA
#include "cuda/launch/quantize.hpp"
#include "cuda/launch/tokens.hpp"
#endif

// A column: every operation of one backend's namespace, in the order of OpTable.
#define OCTET_COLUMN(backend)                                                                                          \
    OpTable {                                                                                                          \
#backend, backend::quantize_rows, backend::quantize_columns, backend::quantize_columns_dual,                   \
            backend::quantize_pair, backend::quantize_transposed, backend::quantize_weights, backend::dequantize_rows, \
            backend::dequantize_columns, backend::dequantize_transposed, backend::dequantize_weights,                  \
            backend::pad_groups, backend::unpad_groups, backend::swizzle_scales, backend::unswizzle_scales,            \
            backend::swizzle_group_scales, backend::unswizzle_group_scales, backend::permute_tokens,                   \
            backend::combine_tokens, backend::combine_tokens_backward, backend::swiglu, backend::swiglu_backward,      \
            backend::swiglu_quantize, backend::swiglu_backward_quantize                                                \
    }

namespace octet {
namespace {

constexpr OpTable reference_ops = OCTET_COLUMN(reference);
constexpr OpTable cpu_ops = OCTET_COLUMN(cpu);
#if OCTET_HAVE_CUDA
constexpr OpTable cuda_ops = OCTET_COLUMN(cuda);
#endif

Backend backend_for(DeviceKind kind) {
    return kind == DeviceKind::cpu ? Backend::cpu : kind == DeviceKind::cuda ? Backend::cuda : Backend::hip;
}

}  // namespace

const OpTable& op_table(const Execution& on, Device device) {
    require(on.threads >= 0, "threads is ", on.threads, ", expected 0 (every core) or more");
    const Backend native = backend_for(device.kind);
    const Backend backend = on.backend == Backend::automatic ? native : on.backend;
    const bool host_backend = backend == Backend::reference || backend == Backend::cpu;
    const bool reaches = host_backend ? device.kind == DeviceKind::cpu : backend == native;
    require(reaches, "the tensors are on ", to_string(device),
            ", where the backend asked for cannot reach them; leave the backend at automatic");
    switch (backend) {
        case Backend::reference: return reference_ops;
        case Backend::cpu: return cpu_ops;
        case Backend::cuda:
#if OCTET_HAVE_CUDA
            return cuda_ops;
#else
            fail(Status::unsupported, "this build of Octet has no CUDA backend; build it where nvcc is found");
#endif
        default: break;
    }
    fail(Status::unsupported, "this build of Octet has no backend for ", to_string(device));
}

}  // namespace octet
