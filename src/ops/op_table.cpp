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

namespace octet {
namespace {

// A column: every operation of one backend's namespace.
#define OCTET_ENTRY(name) .name = backend::name,
#define OCTET_COLUMN OCTET_QUANTIZE_OPERATIONS(OCTET_ENTRY) OCTET_TOKEN_OPERATIONS(OCTET_ENTRY)

constexpr OpTable reference_column() {
    namespace backend = reference;
    return {OCTET_COLUMN};
}
constexpr OpTable cpu_column() {
    namespace backend = cpu;
    return {OCTET_COLUMN};
}
constexpr OpTable reference_ops = reference_column(), cpu_ops = cpu_column();
#if OCTET_HAVE_CUDA
constexpr OpTable cuda_column() {
    namespace backend = cuda;
    return {OCTET_COLUMN};
}
constexpr OpTable cuda_ops = cuda_column();
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
    if (!reaches)
        fail(Status::invalid_argument, "the tensors are on ", to_string(device),
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
