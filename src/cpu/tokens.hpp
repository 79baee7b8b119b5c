// The permutation and SwiGLU on the CPU. Arguments are those of octet/permute.hpp and octet/activation.hpp, already
// checked.
#pragma once

#include "core/operations.hpp"

namespace octet::cpu {

OCTET_TOKEN_OPERATIONS(OCTET_DECLARE_OPERATION)

}  // namespace octet::cpu
