// The grouped products on the CPU: operands are decoded into f32 panels, OpenBLAS multiplies them, scales are applied
// at the end. Arguments are checked, and brought to two forms, by src/ops/product.cpp.
#pragma once

#include "octet/product.hpp"

namespace octet::cpu {

// y[M,R] = x[M,C] . w[E,R,C]^T, group by group: forward, and dgrad with w along_n. A plain w may step by 1 along R
// instead of C.
void grouped_rows(const Operand& x, const Operand& w, Groups groups, TensorView y, const ProductOptions& options,
                  const Execution& on);

// dw[E,N,K] = dy . a^T over each group's tokens; dy [N,P] and a [K,P], or plain [M,N] and [M,K].
void grouped_wgrad(const Operand& dy, const Operand& a, Groups groups, std::int64_t alignment, TensorView dw,
                   const ProductOptions& options, const Execution& on);

}  // namespace octet::cpu
