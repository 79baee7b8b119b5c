// Checks a grouped product's shape, chooses its plan, and hands it to its kernel family.
#include "cuda/launch/product.hpp"

#include "cuda/launch/product_kernels.hpp"
#include "octet/error.hpp"

namespace octet::cuda {
namespace {

constexpr std::int64_t index_limit = std::int64_t{1} << 31;  // tile and row indices are 32-bit on the device

void check_extents(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t e) {
    require(m >= 0 && n >= 1 && k >= 1 && e >= 1, "grouped product: M ", m, ", N ", n, ", K ", k, ", E ", e,
            " (M may be 0, the others must be positive)");
    require(m < index_limit && n < index_limit && k < index_limit && e < index_limit, "grouped product: M ", m, ", N ", n,
            ", K ", k, ", E ", e, " (each must be below 2^31)");
    require((m / 128 + e) * (n / 128 + 1) < index_limit && e * (n / 128 + 1) * (k / 128 + 1) < index_limit,
            "grouped product: M ", m, ", N ", n, ", K ", k, ", E ", e, " gives 2^31 tiles or more");
}

void check_pointer(const void* pointer, const char* name) { require(pointer != nullptr, "grouped product: ", name, " is null"); }

}  // namespace

ProductPlan choose_plan(const TokenGroupedProduct&) { return {2, 8}; }
ProductPlan choose_plan(const WeightGradientProduct&) { return {2, 8}; }

void launch(const TokenGroupedProduct& p, const ProductPlan& plan, cudaStream_t stream) {
    check_extents(p.m, p.n, p.k, p.e);
    require(p.output != ProductOutput::add_f32, "token-grouped product: the output is bf16 or f32, not added to f32");
    if (p.m == 0) return;
    check_pointer(p.a, "a");
    check_pointer(p.w, "w");
    check_pointer(p.ends, "ends");
    check_pointer(p.out, "out");
    if (p.recipe == ProductRecipe::bf16) return launch_bf16_token(p, plan, stream);
    check_pointer(p.a_inverse, "a_inverse");
    check_pointer(p.w_inverse, "w_inverse");
    launch_rowwise_token(p, plan, stream);
}

void launch(const WeightGradientProduct& p, const ProductPlan& plan, cudaStream_t stream) {
    check_extents(p.m, p.n, p.k, p.e);
    check_pointer(p.ends, "ends");
    check_pointer(p.dw, "dw");
    check_pointer(p.dy, "dy");
    check_pointer(p.a, "a");
    if (p.recipe == ProductRecipe::bf16) return launch_bf16_wgrad(p, plan, stream);
    check_pointer(p.a_inverse, "a_inverse");
    check_pointer(p.dy_inverse, "dy_inverse");
    require(p.padded >= p.m, "wgrad: the transposed operands have ", p.padded, " columns for ", p.m, " tokens");
    launch_rowwise_wgrad(p, plan, stream);
}

void launch(const TokenGroupedProduct& p, cudaStream_t stream) { launch(p, choose_plan(p), stream); }
void launch(const WeightGradientProduct& p, cudaStream_t stream) { launch(p, choose_plan(p), stream); }

}  // namespace octet::cuda
