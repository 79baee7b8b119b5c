#include "cuda/products.hpp"

#include <optional>
#include <utility>

#include "cuda/launch/product.hpp"
#include "cuda/launch/product_generic.hpp"
#include "cuda/launch/product_tensor_map.hpp"
#include "octet/error.hpp"

namespace octet::cuda {
namespace {

ProductOutput output_of(const TensorView& out, Update update) {
    if (out.format == Format::bf16) return update == Update::add ? ProductOutput::add_bf16 : ProductOutput::bf16;
    return update == Update::add ? ProductOutput::add_f32 : ProductOutput::f32;
}

ProductAccumulation accumulation_of(const ProductOptions& options) {
    return options.accumulation == Accumulation::fast ? ProductAccumulation::fast : ProductAccumulation::promoted;
}

// What both sides have in common decides the Hopper kernel; nothing where it has none. x: tokens or gradients, w:
// weights or activations.
std::optional<ProductRecipe> recipe_of(const Operand& x, const Operand& w) {
    const Format a = x.data().format, b = w.data().format;
    if (a == Format::bf16 && b == Format::bf16) return ProductRecipe::bf16;
    const bool e5m2 = a == Format::e5m2;
    if ((a != Format::e4m3 && !e5m2) || b != Format::e4m3 || (e5m2 && x.scaling == Scaling::mx)) return std::nullopt;
    switch (x.scaling) {
        case Scaling::rowwise: return ProductRecipe::fp8_rowwise;
        case Scaling::blockwise: return ProductRecipe::fp8_blockwise;
        case Scaling::mx: return ProductRecipe::mxfp8;
    }
    return std::nullopt;
}

ProductElements elements_of(const Operand& x) {
    return x.data().format == Format::e5m2 ? ProductElements::e5m2_gradients : ProductElements::e4m3;
}

const ConstTensorView& scales_of(const Operand& x) {
    return x.scaling == Scaling::mx ? x.values.scale : x.values.inverse;
}

// A view of [rows, blocks] scales whose rows lie beside each other.
bool rows_beside(const ConstTensorView& scales) {
    return (scales.size(0) < 2 || scales.stride(0) == 1) && (scales.size(1) < 2 || scales.stride(1) == scales.size(0));
}

// Elements from row to row of [.., rows, columns], where matrices follow each other and rows are dense, perhaps further
// apart than they are long; nothing where they lie otherwise.
std::optional<std::int64_t> pitch_of(const ConstTensorView& x) {
    const int row = x.rank() - 2;
    const std::int64_t rows = x.size(row), columns = x.size(row + 1), pitch = rows < 2 ? columns : x.stride(row);
    const bool dense = (columns < 2 || x.stride(row + 1) == 1) && pitch >= columns;
    const bool follow = row == 0 || x.size(0) < 2 || x.stride(0) == rows * pitch;
    return dense && follow ? std::optional(pitch) : std::nullopt;
}

// The scales of tokens, or of operands along tokens, lie as the Hopper kernel reads them.
bool scales_fit(const Operand& x) {
    if (!x.quantized()) return true;
    return x.scaling == Scaling::blockwise ? rows_beside(scales_of(x)) : scales_of(x).extents.contiguous();
}

void set_scales(const Operand& x, const float*& inverse, const void*& scale) {
    if (!x.quantized()) return;
    if (x.scaling == Scaling::mx)
        scale = x.values.scale.data;
    else
        inverse = static_cast<const float*>(x.values.inverse.data);
}

GenericFormat generic_format(Format format) {
    switch (format) {
        case Format::e4m3: return GenericFormat::e4m3;
        case Format::e4m3fnuz: return GenericFormat::e4m3fnuz;
        case Format::e5m2: return GenericFormat::e5m2;
        case Format::bf16: return GenericFormat::bf16;
        default: return GenericFormat::f32;
    }
}

// The strides of the data; scales are added by the caller, who knows which axis is which.
GenericOperand generic_operand(const Operand& x, std::int64_t group_stride, std::int64_t row_stride,
                               std::int64_t step_stride) {
    GenericOperand operand;
    operand.data = x.data().data;
    operand.format = generic_format(x.data().format);
    operand.group_stride = group_stride;
    operand.row_stride = row_stride;
    operand.step_stride = step_stride;
    if (!x.quantized()) return operand;
    operand.scales = scales_of(x).data;
    operand.scale_format = x.scaling == Scaling::mx ? GenericScale::e8m0 : GenericScale::f32;
    if (x.scaling != Scaling::rowwise) operand.scale_steps = static_cast<int>(block_of(x.scaling));
    return operand;
}

void set_output(GenericProduct& product, const TensorView& out, Update update) {
    product.out = out.data;
    const bool add = update == Update::add;
    if (out.format == Format::bf16)
        product.output = add ? GenericOutput::add_bf16 : GenericOutput::bf16;
    else
        product.output = add ? GenericOutput::add_f32 : GenericOutput::f32;
    product.out_row_stride = out.stride(out.rank() - 2);
    if (out.rank() == 3) product.out_group_stride = out.stride(0);
}

// x[M, C] with w[E, R, C], any strides.
GenericProduct generic_rows(const Operand& x, const Operand& w, Groups groups, const TensorView& y,
                            const ProductOptions& options) {
    GenericProduct product;
    product.left = generic_operand(w, w.data().stride(0), w.data().stride(1), w.data().stride(2));
    if (w.quantized()) {
        const ConstTensorView& scales = scales_of(w);
        product.left.scale_group_stride = scales.stride(0);
        product.left.scale_row_stride = scales.stride(1);
        if (w.scaling != Scaling::rowwise) product.left.scale_block_stride = scales.stride(2);
        if (w.scaling == Scaling::blockwise) product.left.scale_rows = static_cast<int>(block_of(w.scaling));
    }
    product.right = generic_operand(x, 0, x.data().stride(0), 1);
    if (x.quantized()) {
        product.right.scale_row_stride = scales_of(x).stride(0);
        if (x.scaling != Scaling::rowwise) product.right.scale_block_stride = scales_of(x).stride(1);
    }
    product.ends = groups.ends;
    product.experts = groups.count;
    product.tokens = x.data().size(0);
    product.left_extent = w.data().size(1);
    product.left_reduce = product.right_reduce = w.data().size(2);
    set_output(product, y, options.update);
    return product;
}

// Of a wgrad: [features, P] quantized, [M, features] plain.
GenericOperand generic_tokens(const Operand& x) {
    if (!x.quantized()) return generic_operand(x, 0, 1, x.data().stride(0));
    GenericOperand operand = generic_operand(x, 0, x.data().stride(0), 1);
    const ConstTensorView& scales = scales_of(x);
    if (x.scaling == Scaling::rowwise) {  // [E, features]
        operand.scale_group_stride = scales.stride(0);
        operand.scale_row_stride = scales.stride(1);
    } else {  // [features, P / block], blocks counted from the buffer's start: groups start on one
        operand.scale_row_stride = scales.stride(0);
        operand.scale_block_stride = scales.stride(1);
    }
    return operand;
}

GenericProduct generic_wgrad(const Operand& dy, const Operand& a, Groups groups, std::int64_t alignment,
                             const TensorView& dw, const ProductOptions& options) {
    GenericProduct product;
    const bool quantized = dy.quantized();
    product.reduction = quantized ? GenericReduction::along_padded_tokens : GenericReduction::along_tokens;
    product.left = generic_tokens(a);
    product.right = generic_tokens(dy);
    product.ends = groups.ends;
    product.experts = groups.count;
    product.tokens = dy.data().size(quantized ? 1 : 0);
    product.left_extent = dw.size(2);
    product.right_extent = dw.size(1);
    product.left_reduce = a.data().size(quantized ? 1 : 0);
    product.right_reduce = product.tokens;
    if (quantized) {
        product.left_alignment = a.aligned_to(alignment);
        product.right_alignment = dy.aligned_to(alignment);
    }
    set_output(product, dw, options.update);
    return product;
}

// The product as the Hopper kernel takes it, where it lies as that reads it; the kernel may still refuse the shape.
std::optional<TokenGroupedProduct> hopper_rows(const Operand& x, const Operand& w, Groups groups, const TensorView& y,
                                               const ProductOptions& options) {
    const std::optional<ProductRecipe> recipe = recipe_of(x, w);
    if (!recipe) return std::nullopt;
    const ConstTensorView& weights = w.data();
    const std::int64_t n = weights.size(1), k = weights.size(2);
    // Plain dgrad comes with the weights of forward, their two feature axes exchanged.
    const std::optional<std::int64_t> x_pitch = pitch_of(x.data()), along = pitch_of(weights);
    ConstTensorView exchanged = weights;
    std::swap(exchanged.extents.shape[1], exchanged.extents.shape[2]);
    std::swap(exchanged.extents.strides[1], exchanged.extents.strides[2]);
    const bool across = !along && *recipe == ProductRecipe::bf16;
    const std::optional<std::int64_t> w_pitch = across ? pitch_of(exchanged) : along;
    const bool adds = options.update == Update::add;
    const bool can_add = y.format == Format::bf16 && x.quantized() && x.scaling != Scaling::mx;
    const bool fits = (!adds || can_add) && x_pitch && w_pitch && y.extents.contiguous() && scales_fit(x) &&
                      (!w.quantized() || scales_of(w).extents.contiguous());
    if (!fits) return std::nullopt;
    TokenGroupedProduct product;
    product.recipe = *recipe;
    product.accumulation = accumulation_of(options);
    product.output = output_of(y, options.update);
    product.a = x.data().data;
    product.w = weights.data;
    set_scales(x, product.a_inverse, product.a_scale);
    set_scales(w, product.w_inverse, product.w_scale);
    product.elements = elements_of(x);
    product.weights = across ? WeightLayout::across_reduction : WeightLayout::along_reduction;
    product.ends = groups.ends;
    product.out = y.data;
    product.m = x.data().size(0);
    product.n = n;
    product.k = k;
    product.e = weights.size(0);
    product.a_pitch = *x_pitch;
    product.w_pitch = *w_pitch;
    if (choose_kernel(product) != ProductKernel::hopper) return std::nullopt;
    return product;
}

std::optional<WeightGradientProduct> hopper_wgrad(const Operand& dy, const Operand& a, Groups groups,
                                                  std::int64_t alignment, const TensorView& dw,
                                                  const ProductOptions& options) {
    const std::optional<ProductRecipe> recipe = recipe_of(dy, a);
    const int tokens = dy.quantized() ? 1 : 0;
    const bool fits = recipe && dy.data().extents.contiguous() && a.data().extents.contiguous() &&
                      dw.extents.contiguous() && (dy.quantized() || dy.data().size(0) == a.data().size(0)) &&
                      scales_fit(dy) && scales_fit(a) && dy.data().size(tokens) > 0;
    if (!fits) return std::nullopt;
    WeightGradientProduct product;
    product.recipe = *recipe;
    product.accumulation = accumulation_of(options);
    product.output = output_of(dw, options.update);
    product.dy = dy.data().data;
    product.a = a.data().data;
    set_scales(dy, product.dy_inverse, product.dy_scale);
    set_scales(a, product.a_inverse, product.a_scale);
    product.ends = groups.ends;
    product.dw = dw.data;
    product.n = dw.size(1);
    product.k = dw.size(2);
    product.e = dw.size(0);
    // Quantized operands do not say how many tokens there are; the padded columns bound them.
    product.m = dy.data().size(tokens);
    product.dy_padded = dy.quantized() ? product.m : 0;
    product.a_padded = dy.quantized() ? a.data().size(1) : 0;
    product.dy_alignment = dy.aligned_to(alignment);
    product.a_alignment = a.aligned_to(alignment);
    product.elements = elements_of(dy);
    if (choose_kernel(product) != ProductKernel::hopper) return std::nullopt;
    return product;
}

// What the Hopper kernel works in: the caller's memory where that is enough, otherwise of the stream's memory pool.
class Workspace {
public:
    Workspace(std::size_t bytes, const Execution& on)
        : memory_(on.workspace), stream_(static_cast<cudaStream_t>(on.stream)) {
        if (bytes == 0 || (on.workspace != nullptr && on.workspace_bytes >= bytes)) return;
        check_cuda(cudaMallocAsync(&own_, bytes, stream_), "cudaMallocAsync of a workspace");
        memory_ = own_;
    }
    Workspace(const Workspace&) = delete;
    ~Workspace() {
        if (own_ != nullptr) cudaFreeAsync(own_, stream_);
    }
    void* memory() const { return memory_; }

private:
    void *memory_, *own_ = nullptr;
    cudaStream_t stream_;
};

}  // namespace

std::size_t product_workspace_bytes(const Operand& tokens, const Operand& weights) {
    TokenGroupedProduct product;
    product.recipe = recipe_of(tokens, weights).value_or(ProductRecipe::bf16);
    product.m = tokens.data().size(0);
    product.n = weights.data().size(1);
    product.k = weights.data().size(2);
    product.e = weights.data().size(0);
    return workspace_bytes(product);
}

std::size_t wgrad_workspace_bytes(const Operand& dy, const Operand& a) {
    WeightGradientProduct product;
    product.recipe = recipe_of(dy, a).value_or(ProductRecipe::bf16);
    product.n = dy.data().size(0);
    product.k = a.data().size(0);
    product.dy_padded = dy.data().size(1);
    product.a_padded = a.data().size(1);
    return workspace_bytes(product);
}

void grouped_rows(const Operand& x, const Operand& w, Groups groups, TensorView y, const ProductOptions& options,
                  const Execution& on) {
    if (x.data().size(0) == 0) return;
    const auto stream = static_cast<cudaStream_t>(on.stream);
    if (auto product = hopper_rows(x, w, groups, y, options)) {
        const Workspace workspace(workspace_bytes(*product), on);
        product->workspace = workspace.memory();
        launch(*product, stream);
    } else {
        launch(generic_rows(x, w, groups, y, options), stream);
    }
}

void grouped_wgrad(const Operand& dy, const Operand& a, Groups groups, std::int64_t alignment, TensorView dw,
                   const ProductOptions& options, const Execution& on) {
    const auto stream = static_cast<cudaStream_t>(on.stream);
    if (auto product = hopper_wgrad(dy, a, groups, alignment, dw, options)) {
        const Workspace workspace(workspace_bytes(*product), on);
        product->workspace = workspace.memory();
        product->tickets = static_cast<unsigned*>(on.tickets);
        launch(*product, stream);
    } else {
        launch(generic_wgrad(dy, a, groups, alignment, dw, options), stream);
    }
}

}  // namespace octet::cuda
