// The specification of every quantizer as plain scalar C++. Slow and obvious; the oracle of every test.
// Arguments are those of include/octet/quantize.hpp, already checked.
#pragma once

#include "core/operations.hpp"

namespace octet::reference {

OCTET_QUANTIZE_OPERATIONS(OCTET_DECLARE_OPERATION)

}  // namespace octet::reference
