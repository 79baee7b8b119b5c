#include "octet/error.hpp"
#include "operators.hpp"

namespace octet::torch_binding {
namespace {

ProductOptions product_options(const Text& accumulation) {
    require(accumulation == "promoted" || accumulation == "fast", "accumulation '", accumulation,
            "' was given, expected promoted or fast");
    return {Update::overwrite, accumulation == "fast" ? Accumulation::fast : Accumulation::promoted};
}

}  // namespace

Tensor grouped_forward(Tensor a, std::optional<Tensor> a_scale, Tensor w, std::optional<Tensor> w_scale, Tensor ends,
                       Text scaling, Text accumulation, Text out) {
    require(a.dim() == 2 && w.dim() == 3, "a has ", a.dim(), " axes and w ", w.dim(),
            "; expected [M, K] and [E, N, K]");
    const Scaling shared = parse_scaling(scaling);
    Tensor y = allocate(a, parse_format(out), {a.size(0), w.size(1)}, Contents::zeroed);
    octet::grouped_forward(operand_of("a", a, a_scale, shared), operand_of("w", w, w_scale, shared), groups_of(ends),
                           view_of("y", y), product_options(accumulation), Call(a).on());
    return y;
}

Tensor grouped_dgrad(Tensor dy, std::optional<Tensor> dy_scale, Tensor w, std::optional<Tensor> w_scale, Tensor ends,
                     Text scaling, Text accumulation, Text out) {
    require(dy.dim() == 2 && w.dim() == 3, "dy has ", dy.dim(), " axes and w ", w.dim(),
            "; expected [M, N] and [E, K, N], or plain [E, N, K]");
    const Scaling shared = parse_scaling(scaling);
    Tensor da = allocate(dy, parse_format(out), {dy.size(0), w.size(w_scale.has_value() ? 1 : 2)}, Contents::zeroed);
    octet::grouped_dgrad(operand_of("dy", dy, dy_scale, shared), operand_of("w", w, w_scale, shared), groups_of(ends),
                         view_of("da", da), product_options(accumulation), Call(dy).on());
    return da;
}

Tensor grouped_wgrad(Tensor dy, std::optional<Tensor> dy_scale, Tensor a, std::optional<Tensor> a_scale, Tensor ends,
                     std::int64_t alignment, Text scaling, Text accumulation, Text out) {
    require(dy.dim() == 2 && a.dim() == 2, "dy has ", dy.dim(), " axes and a ", a.dim(), "; expected 2 of each");
    const Scaling shared = parse_scaling(scaling);
    const std::int64_t n = dy.size(dy_scale.has_value() ? 0 : 1), k = a.size(a_scale.has_value() ? 0 : 1);
    Tensor dw = allocate(dy, parse_format(out), {ends.numel(), n, k});
    octet::grouped_wgrad(operand_of("dy", dy, dy_scale, shared), operand_of("a", a, a_scale, shared), groups_of(ends),
                         alignment, view_of("dw", dw), product_options(accumulation), Call(dy).on());
    return dw;
}

}  // namespace octet::torch_binding
