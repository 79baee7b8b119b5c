#include "cuda/products.hpp"

#include <initializer_list>

#include "cuda/launch/product.hpp"
#include "octet/error.hpp"

namespace octet::cuda {
namespace {

// The wgrad kernels walk groups that start on multiples of this many tokens.
constexpr std::int64_t token_block = 128;

ProductOutput output_of(const TensorView& out, Update update) {
    if (out.format == Format::bf16) return ProductOutput::bf16;
    return update == Update::add ? ProductOutput::add_f32 : ProductOutput::f32;
}

ProductAccumulation accumulation_of(const ProductOptions& options) {
    return options.accumulation == Accumulation::fast ? ProductAccumulation::fast : ProductAccumulation::promoted;
}

// The kernels read whole tensors: no gaps between rows.
void need_contiguous(const char* what, const ConstTensorView& view) {
    if (view.extents.contiguous()) return;
    fail(Status::unsupported, what, " of shape ", to_string(view.extents),
         " has gaps between its rows, which the CUDA products do not take yet; make it contiguous");
}

// What both sides of a product have in common decides the kernel.
ProductRecipe recipe_of(const char* left, const Operand& x, const char* right, const Operand& y) {
    const Format a = x.data().format, b = y.data().format;
    if (a == Format::bf16 && b == Format::bf16) return ProductRecipe::bf16;
    const bool rowwise = x.scaling == Scaling::rowwise && y.scaling == Scaling::rowwise;
    if (a == Format::e4m3 && b == Format::e4m3 && rowwise) return ProductRecipe::fp8_rowwise;
    fail(Status::unsupported, left, " is ", name(a), " and ", right, " is ", name(b), x.quantized() ? ", scaled " : "",
         x.quantized() ? name(x.scaling) : "",
         "; the CUDA products take bf16 with bf16, and e4m3 with e4m3 scaled rowwise");
}

const float* inverse_of(const char* what, const Operand& operand) {
    if (!operand.quantized()) return nullptr;
    need_contiguous(what, operand.values.inverse);
    return static_cast<const float*>(operand.values.inverse.data);
}

}  // namespace

void grouped_rows(const Operand& x, const Operand& w, Groups groups, TensorView y, const ProductOptions& options,
                  const Execution& on) {
    if (options.update == Update::add)
        fail(Status::unsupported, "adding into the output was asked for; on CUDA only weight gradients add");
    TokenGroupedProduct product;
    product.recipe = recipe_of("the tokens", x, "w", w);
    product.accumulation = accumulation_of(options);
    product.output = output_of(y, options.update);
    need_contiguous("the tokens", x.data());
    need_contiguous("w", w.data());
    need_contiguous("the output", y);
    product.a = x.data().data;
    product.a_inverse = inverse_of("the tokens' inverse scale", x);
    product.w = w.data().data;
    product.w_inverse = inverse_of("w's inverse scale", w);
    product.ends = groups.ends;
    product.out = y.data;
    product.m = x.data().size(0);
    product.n = w.data().size(1);
    product.k = w.data().size(2);
    product.e = w.data().size(0);
    if (product.m == 0) return;
    launch(product, static_cast<cudaStream_t>(on.stream));
}

void grouped_wgrad(const Operand& dy, const Operand& a, Groups groups, std::int64_t alignment, TensorView dw,
                   const ProductOptions& options, const Execution& on) {
    WeightGradientProduct product;
    product.recipe = recipe_of("dy", dy, "a", a);
    product.accumulation = accumulation_of(options);
    product.output = output_of(dw, options.update);
    for (const auto& [what, view] :
         {std::pair<const char*, ConstTensorView>{"dy", dy.data()}, {"a", a.data()}, {"dw", dw}})
        need_contiguous(what, view);
    if (dy.quantized() && alignment != token_block)
        fail(Status::unsupported, "the operands' groups start on multiples of ", alignment,
             "; the CUDA weight gradient takes multiples of ", token_block, ": quantize with that alignment");
    product.dy = dy.data().data;
    product.dy_inverse = inverse_of("dy's inverse scale", dy);
    product.a = a.data().data;
    product.a_inverse = inverse_of("a's inverse scale", a);
    product.ends = groups.ends;
    product.dw = dw.data;
    product.n = dw.size(1);
    product.k = dw.size(2);
    product.e = dw.size(0);
    // Quantized operands do not say how many tokens there are; the padded columns bound them.
    product.padded = dy.quantized() ? dy.data().size(1) : 0;
    product.m = dy.quantized() ? dy.data().size(1) : dy.data().size(0);
    launch(product, static_cast<cudaStream_t>(on.stream));
}

}  // namespace octet::cuda
