// Checks a grouped product, chooses its kernel and plan, and hands it to its kernel family.
#include "cuda/launch/product.hpp"

#include <algorithm>
#include <tuple>

#include "cuda/launch/product_kernels.hpp"
#include "cuda/launch/product_tensor_map.hpp"
#include "octet/error.hpp"

namespace octet::cuda {
namespace {

constexpr std::int64_t index_limit = std::int64_t{1} << 31;  // tile and row indices are 32-bit on the device

void check_extents(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t e) {
    require(m >= 0 && n >= 1 && k >= 1 && e >= 1, "grouped product: M ", m, ", N ", n, ", K ", k, ", E ", e,
            " (M may be 0, the others must be positive)");
    require(m < index_limit && n < index_limit && k < index_limit && e < index_limit, "grouped product: M ", m, ", N ",
            n, ", K ", k, ", E ", e, " (each must be below 2^31)");
    require((m / 64 + e) * (n / 64 + 1) < index_limit && e * (n / 64 + 1) * (k / 64 + 1) < index_limit,
            "grouped product: M ", m, ", N ", n, ", K ", k, ", E ", e, " gives 2^31 tiles or more");
}

void check_pointer(const void* pointer, const char* name) {
    require(pointer != nullptr, "grouped product: ", name, " is null");
}

bool scaled_in_f32(ProductRecipe recipe) {
    return recipe == ProductRecipe::fp8_rowwise || recipe == ProductRecipe::fp8_blockwise;
}

int output_bytes(ProductOutput output) {
    return output == ProductOutput::bf16 || output == ProductOutput::add_bf16 ? 2 : 4;
}

void check(const TokenGroupedProduct& p) {
    check_extents(p.m, p.n, p.k, p.e);
    require(p.output != ProductOutput::add_f32, "token-grouped product: the output is bf16 or f32, not added to f32");
    require(p.output != ProductOutput::add_bf16 || scaled_in_f32(p.recipe),
            "token-grouped product: only fp8_rowwise and fp8_blockwise products are added to bf16");
    require(p.recipe != ProductRecipe::mxfp8 || p.elements == ProductElements::e4m3, "mxfp8 products are of e4m3");
    if (p.m == 0) return;
    check_pointer(p.a, "a");
    check_pointer(p.w, "w");
    check_pointer(p.ends, "ends");
    check_pointer(p.out, "out");
    if (p.recipe == ProductRecipe::bf16) return;
    const bool mx = p.recipe == ProductRecipe::mxfp8;
    check_pointer(mx ? p.a_scale : p.a_inverse, mx ? "a_scale" : "a_inverse");
    check_pointer(mx ? p.w_scale : p.w_inverse, mx ? "w_scale" : "w_inverse");
    if (mx) check_pointer(p.workspace, "workspace");
}

void check(const WeightGradientProduct& p) {
    check_extents(p.m, p.n, p.k, p.e);
    require(p.output != ProductOutput::add_bf16, "wgrad: the output is bf16 or f32, or added to f32");
    check_pointer(p.ends, "ends");
    check_pointer(p.dw, "dw");
    if (p.m == 0) return;
    check_pointer(p.dy, "dy");
    check_pointer(p.a, "a");
    if (p.recipe == ProductRecipe::bf16) return;
    const bool mx = p.recipe == ProductRecipe::mxfp8;
    check_pointer(mx ? p.a_scale : p.a_inverse, mx ? "a_scale" : "a_inverse");
    check_pointer(mx ? p.dy_scale : p.dy_inverse, mx ? "dy_scale" : "dy_inverse");
    if (mx) check_pointer(p.workspace, "workspace");
    require(!mx || p.elements == ProductElements::e4m3, "mxfp8 products are of e4m3");
    const bool blocks = p.recipe != ProductRecipe::fp8_rowwise;
    const std::int64_t block = mx ? 32 : blocks ? 128 : 1;
    for (const auto& [what, padded, alignment] :
         {std::tuple{"dy", p.dy_padded, p.dy_alignment}, {"a", p.a_padded, p.a_alignment}})
        require(alignment >= 1 && alignment % block == 0 && padded % block == 0 && padded < index_limit,
                "wgrad: ", what, " has ", padded, " columns and groups on multiples of ", alignment,
                ", expected multiples of ", block, " below 2^31");
    require(!blocks || (p.dy_padded == p.a_padded && p.dy_alignment == p.a_alignment), "wgrad: dy has ", p.dy_padded,
            " columns on ", p.dy_alignment, " and a ", p.a_padded, " on ", p.a_alignment,
            "; operands scaled by blocks are padded alike");
}

// M = 0: nothing to read, every group is empty.
void clear(const WeightGradientProduct& p, cudaStream_t stream) {
    if (p.output == ProductOutput::add_f32) return;
    const std::size_t bytes = static_cast<std::size_t>(p.e * p.n * p.k * output_bytes(p.output));
    check_cuda(cudaMemsetAsync(p.dw, 0, bytes, stream), "cudaMemsetAsync");
}

bool on_hopper() { return launch_device().hopper_multiprocessors > 0; }

bool aligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }
// Whether most rows' blocks of 128 bytes lie in two lines of as many, which costs the copy engine as much as two rows.
// On multiples of 64 bytes every other row's do, and those are not waited for.
bool straddles_lines(const void* rows, std::int64_t row_bytes) {
    return (reinterpret_cast<std::uintptr_t>(rows) | static_cast<std::uintptr_t>(row_bytes)) % 64 != 0;
}
bool whole_units(std::int64_t elements, int bytes) { return elements * bytes % 16 == 0; }
bool whole_columns(const WeightGradientProduct& p) {
    return (p.dy_padded | p.a_padded | p.dy_alignment | p.a_alignment) % 16 == 0;
}

}  // namespace

// Tokens as rows come in tiles of 128, of which a group leaves half of one empty on average: the weights have to be
// much smaller.
bool mx_decodes_weights(const TokenGroupedProduct& p) { return p.m >= 2 * p.e * p.n; }
// A pass over the activations costs less than the slower product where they are multiplied with many gradients.
bool mx_decodes_activations(const WeightGradientProduct& p) { return p.n >= 6144; }
// The smaller operand, where the tile is not added to an old one.
bool mx_gradients_left(const WeightGradientProduct& p) {
    return p.n > p.k && p.output != ProductOutput::add_f32 && !mx_decodes_activations(p);
}

std::size_t workspace_bytes(const TokenGroupedProduct& p) {
    if (p.recipe != ProductRecipe::mxfp8) return 0;
    const std::int64_t weights = p.e * p.n, right = mx_decodes_weights(p) ? weights : p.m, left = p.m + weights - right;
    return static_cast<std::size_t>(right * mx_decoded_pitch(p.k) * 2 + mx_look_bytes + mx_packed_bytes(left, p.k));
}
std::size_t workspace_bytes(const WeightGradientProduct& p) {
    if (p.recipe != ProductRecipe::mxfp8) return 0;
    // Enough for any output: activations are the smaller ones where they are decoded alone.
    const std::int64_t row_bytes = mx_decoded_pitch(p.dy_padded) * 2;
    const std::int64_t left_bytes =
        mx_decodes_activations(p) ? p.k * row_bytes : mx_look_bytes + mx_packed_bytes(std::max(p.n, p.k), p.a_padded);
    return static_cast<std::size_t>(p.n * row_bytes + left_bytes);
}

const char* name(ProductKernel kernel) { return kernel == ProductKernel::hopper ? "hopper" : "generic"; }

// The copy engine wants 16-byte aligned pointers and rows of whole 16-byte units.
ProductKernel choose_kernel(const TokenGroupedProduct& p) {
    const bool across = p.weights == WeightLayout::across_reduction, bf16 = p.recipe == ProductRecipe::bf16;
    const int bytes = bf16 ? 2 : 1;
    const bool fits = aligned(p.a) && aligned(p.w) && aligned(p.out) && whole_units(p.k, bytes) &&
                      whole_units(p.a_pitch, bytes) && whole_units(p.w_pitch, bytes) &&
                      std::max(p.a_pitch, p.w_pitch) < index_limit && whole_units(p.n, output_bytes(p.output)) &&
                      (!across || (bf16 && whole_units(p.n, 2)));
    return fits && on_hopper() ? ProductKernel::hopper : ProductKernel::generic;
}
ProductKernel choose_kernel(const WeightGradientProduct& p) {
    const bool bf16 = p.recipe == ProductRecipe::bf16;
    const bool fits = aligned(p.a) && aligned(p.dy) && aligned(p.dw) && whole_units(p.k, output_bytes(p.output)) &&
                      (bf16 ? whole_units(p.k, 2) && whole_units(p.n, 2) : whole_columns(p));
    return fits && on_hopper() ? ProductKernel::hopper : ProductKernel::generic;
}

// Two sets of accumulators leave room for 192 right rows; half of the rows' at a time (fp8_blockwise wgrad), for 224,
// and there three slots for an f32 tile's halves to wait whole for their store.
// With one set, 256, and three slots, so that a whole tile can wait in shared memory for its store; but where an expert
// has few tokens its weights come from device memory for little work each, loads and not stores are what is waited for,
// and a fourth slot is worth more.
ProductPlan choose_plan(const TokenGroupedProduct& p) {
    const bool rowwise = p.recipe == ProductRecipe::fp8_rowwise;
    // Tokens whose rows straddle lines are what is waited for: two blocks load them for each other.
    const bool straddles = straddles_lines(p.a, p.a_pitch == 0 ? p.k : p.a_pitch);
    const int cluster = rowwise && p.output == ProductOutput::bf16 && straddles ? 2 : 1;
    if (rowwise && p.accumulation == ProductAccumulation::promoted) return {8, 192, 4, cluster};
    // Bands of as many tokens, in two tiles of 128.
    if (p.recipe == ProductRecipe::fp8_blockwise) return {8, 192, 4, 2};
    if (p.recipe == ProductRecipe::mxfp8 && mx_decodes_weights(p)) return {16, 256, 3};
    return {8, 256, p.output == ProductOutput::bf16 && p.m < 512 * p.e ? 4 : 3, cluster};
}
ProductPlan choose_plan(const WeightGradientProduct& p) {
    const bool two_sets = p.recipe == ProductRecipe::fp8_rowwise && p.accumulation == ProductAccumulation::promoted;
    // Added to: the old tile lies in shared memory as a whole, unless there is so much work for it that the engine has
    // the time to add in L2.
    const bool adds = p.output == ProductOutput::add_f32;
    if (p.recipe == ProductRecipe::fp8_blockwise) {
        if (adds) return p.m < 1280 * p.e ? ProductPlan{8, 192, 3} : ProductPlan{2, 224, 3};
        return {8, 224, p.output == ProductOutput::bf16 ? 4 : 3};
    }
    if (adds && (two_sets || p.m < 2048 * p.e)) return {8, 192, 3};
    if (two_sets) return {8, 192, 4};
    // With few tokens the stores are what is waited for: in narrow bands, what is written at one time are whole rows.
    return {p.recipe == ProductRecipe::fp8_rowwise && p.m < 512 * p.e ? 2 : 8, 256, 3};
}

void launch(const TokenGroupedProduct& p, const ProductPlan& plan, cudaStream_t stream) {
    check(p);
    if (p.m == 0) return;
    if (p.recipe == ProductRecipe::bf16)
        launch_bf16_token(p, plan, stream);
    else if (p.recipe == ProductRecipe::mxfp8)
        launch_mx_token(p, plan, stream);
    else if (p.elements == ProductElements::e4m3)
        launch_fp8_token(p, plan, stream);
    else
        launch_e5m2_token(p, plan, stream);
}

void launch(const WeightGradientProduct& p, const ProductPlan& plan, cudaStream_t stream) {
    check(p);
    if (p.m == 0) return clear(p, stream);
    if (p.recipe == ProductRecipe::bf16)
        launch_bf16_wgrad(p, plan, stream);
    else if (p.recipe == ProductRecipe::mxfp8)
        launch_mx_wgrad(p, plan, stream);
    else if (p.elements == ProductElements::e4m3)
        launch_fp8_wgrad(p, plan, stream);
    else
        launch_e5m2_wgrad(p, plan, stream);
}

void launch(const TokenGroupedProduct& p, cudaStream_t stream) { launch(p, choose_plan(p), stream); }
void launch(const WeightGradientProduct& p, cudaStream_t stream) { launch(p, choose_plan(p), stream); }

}  // namespace octet::cuda
