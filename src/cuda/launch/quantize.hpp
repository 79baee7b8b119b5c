// The quantizers of include/octet/quantize.hpp on CUDA: arguments already checked, device pointers, asynchronous on
// Execution::stream, nothing read back by the host, capturable in a graph.
#pragma once

#include "core/operations.hpp"

namespace octet::cuda {

OCTET_QUANTIZE_OPERATIONS(OCTET_DECLARE_OPERATION)

// Workspace that a call of the operations above needs at most; 0 groups for those without them. Without a workspace the
// calls allocate from the stream's memory pool.
//   tokens: rows of x, features: columns of x (of both, for the dual form), groups: of tokens
std::size_t token_workspace_bytes(std::int64_t tokens, std::int64_t features, std::int64_t groups);
std::size_t weight_workspace_bytes(std::int64_t experts, std::int64_t n, std::int64_t k);
bool keeps_maxima(const ConstTensorView& w, const QuantizeOptions& options);  // w [E, N, K]

}  // namespace octet::cuda
