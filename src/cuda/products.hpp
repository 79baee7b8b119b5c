// The grouped products on CUDA, in the two forms that src/ops/product.cpp brings them to. The Hopper kernels serve bf16
// and e4m3 (rowwise, blockwise, mx; gradients also e5m2, not mx) where rows are whole 16-byte units without gaps; the
// generic kernel serves everything else.
#pragma once

#include "octet/product.hpp"

namespace octet::cuda {

std::size_t product_workspace_bytes(const Operand& tokens, const Operand& weights);
std::size_t wgrad_workspace_bytes(const Operand& dy, const Operand& a);

void grouped_rows(const Operand& x, const Operand& w, Groups groups, TensorView y, const ProductOptions& options,
                  const Execution& on);
void grouped_wgrad(const Operand& dy, const Operand& a, Groups groups, std::int64_t alignment, TensorView dw,
                   const ProductOptions& options, const Execution& on);

}  // namespace octet::cuda
