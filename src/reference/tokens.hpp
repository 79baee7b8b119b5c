// The specification of the permutation and of SwiGLU as plain scalar C++. Arguments are those of octet/permute.hpp and
// octet/activation.hpp, already checked.
#pragma once

#include "core/operations.hpp"

namespace octet::reference {

OCTET_TOKEN_OPERATIONS(OCTET_DECLARE_OPERATION)

}  // namespace octet::reference
