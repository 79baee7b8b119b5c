// The permutation and SwiGLU of octet/permute.hpp and octet/activation.hpp on CUDA: arguments already checked, device
// pointers, asynchronous on Execution::stream, capturable in a graph.
#pragma once

#include "core/operations.hpp"

namespace octet::cuda {

OCTET_TOKEN_OPERATIONS(OCTET_DECLARE_OPERATION)

std::size_t swiglu_workspace_bytes(Format format, std::int64_t tokens, std::int64_t features, std::int64_t groups);

}  // namespace octet::cuda
