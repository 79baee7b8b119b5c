// mxfp8 wgrad.
#include <utility>

#include "cuda/launch/product_mx.cuh"

namespace octet::cuda {
namespace {

// An operand as it comes: [rows, columns], tokens contiguous.
struct MxOperand {
    const char* name;
    const void *data, *exponents;
    std::int64_t rows, columns;
};

template <Output output, Rows gradients_lie>
void launch_wgrad(const WeightGradientProduct& p, const ProductPlan& plan, cudaStream_t stream) {
    constexpr bool exchanged = gradients_lie == Rows::left;
    const MxOperand gradients = {"dy", p.dy, p.dy_scale, p.n, p.dy_padded},
                    activations = {"a", p.a, p.a_scale, p.k, p.a_padded};
    const auto& left = exchanged ? gradients : activations;
    const auto& right = exchanged ? activations : gradients;
    const auto right_map = [&](int box_rows) {
        return mx_decoded_map(p.workspace, 1, right.rows, right.columns, box_rows);
    };
    const ProductMaps maps = {mx_left_map(left.name, left.data, 1, left.rows, left.columns), right_map(32),
                              right_map(plan.right_tile / 2), make_output_map(p.output, p.dw, p.e, p.n, p.k)};
    void* large = behind_right(p.workspace, right.rows * right.columns);
    decode_rows(right.data, right.exponents, p.workspace, right.rows, right.columns, stream,
                {left.exponents, left.rows * (left.columns / 32), large});
    ProductParameters parameters = parameters_of(p, plan);
    if (exchanged) {
        std::swap(parameters.shape.left_extent, parameters.shape.right_extent);
        std::swap(parameters.left_exponents, parameters.right_exponents);
    }
    parameters.large_exponents = static_cast<const std::uint32_t*>(large);
    launch_product<Element::mx, Reduction::along_padded_tokens, output, Accumulation::fast, Lies::along_reduction,
                   gradients_lie>(maps, parameters, plan, most_tiles(p, plan), stream);
}

}  // namespace

void launch_mx_wgrad(const WeightGradientProduct& p, const ProductPlan& plan, cudaStream_t stream) {
    if (mx_decodes_activations(p)) return launch_mx_decoded_wgrad(p, plan, stream);
    if (!mx_gradients_left(p))
        return launch_output(p, plan, [&]<Output output>() { launch_wgrad<output, Rows::right>(p, plan, stream); });
    p.output == ProductOutput::bf16 ? launch_wgrad<Output::bf16, Rows::left>(p, plan, stream)
                                    : launch_wgrad<Output::f32, Rows::left>(p, plan, stream);
}

}  // namespace octet::cuda
