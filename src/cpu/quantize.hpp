// The CPU backend: the quantizers in SIMD (Highway), on all cores, bit-identical with octet::reference.
// Arguments are those of include/octet/quantize.hpp, already checked.
#pragma once

#include "core/operations.hpp"

namespace octet::cpu {

OCTET_QUANTIZE_OPERATIONS(OCTET_DECLARE_OPERATION)

}  // namespace octet::cpu
