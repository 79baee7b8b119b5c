// The grouped products on CUDA, in the two forms that src/ops/product.cpp brings them to: which kernel serves a call,
// and a clear refusal before any launch where none does.
#pragma once

#include "octet/product.hpp"

namespace octet::cuda {

void grouped_rows(const Operand& x, const Operand& w, Groups groups, TensorView y, const ProductOptions& options,
                  const Execution& on);
void grouped_wgrad(const Operand& dy, const Operand& a, Groups groups, std::int64_t alignment, TensorView dw,
                   const ProductOptions& options, const Execution& on);

}  // namespace octet::cuda
