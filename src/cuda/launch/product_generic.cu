#include "cuda/launch/product_generic.hpp"

#include <algorithm>

#include "cuda/kernels/generic_grouped_product.cuh"
#include "cuda/launch/product_tensor_map.hpp"
#include "octet/error.hpp"

namespace octet::cuda {
namespace {

template <Reduction reduction>
void launch_reduction(const GenericProduct& p, std::int64_t most_tiles, cudaStream_t stream) {
    int device = 0, count = 0;
    check_cuda(cudaGetDevice(&device), "cudaGetDevice");
    check_cuda(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
    const ProductShape shape = {p.ends,
                                static_cast<int>(p.experts),
                                static_cast<int>(p.tokens),
                                static_cast<int>(p.left_extent),
                                static_cast<int>(p.right_extent),
                                static_cast<int>(p.left_reduce),
                                static_cast<int>(p.right_reduce),
                                p.output == GenericOutput::add_f32,
                                static_cast<int>(p.left_alignment),
                                static_cast<int>(p.right_alignment),
                                16};
    const auto grid = static_cast<unsigned>(std::min<std::int64_t>(most_tiles, 8 * count));
    generic_grouped_product<reduction><<<grid, generic_threads, 0, stream>>>(p, shape);
    check_cuda(cudaGetLastError(), "launch of generic_grouped_product");
}

std::int64_t tiles(std::int64_t extent) { return (extent + generic_tile - 1) / generic_tile; }

}  // namespace

void launch(const GenericProduct& p, cudaStream_t stream) {
    constexpr std::int64_t limit = std::int64_t{1} << 31;  // tile and row indices are 32-bit on the device
    const bool along_k = p.reduction == GenericReduction::along_k;
    const std::int64_t rights =
        along_k ? p.tokens / generic_tile + std::min(p.tokens, p.experts) : p.experts * tiles(p.right_extent);
    require(rights * tiles(p.left_extent) < limit && std::max({p.tokens, p.left_reduce, p.right_reduce}) < limit,
            "grouped product of ", p.tokens, " tokens, ", p.experts, " experts and ", p.left_extent, " by ",
            p.right_extent, " features has 2^31 tiles or more");
    const std::int64_t most_tiles = rights * tiles(p.left_extent);
    if (most_tiles == 0) return;
    switch (p.reduction) {
        case GenericReduction::along_k: return launch_reduction<Reduction::along_k>(p, most_tiles, stream);
        case GenericReduction::along_tokens: return launch_reduction<Reduction::along_tokens>(p, most_tiles, stream);
        case GenericReduction::along_padded_tokens:
            return launch_reduction<Reduction::along_padded_tokens>(p, most_tiles, stream);
    }
}

}  // namespace octet::cuda
