// mxfp8 grouped products, exact: e4m3 times a power of two is multiplied as bf16. The right operand (the smaller one of
// tokens and weights, or of gradients and activations) is decoded into the workspace first, since every left tile reads
// it again. The left one is decoded on its way to the tensor cores, which takes an eighth longer than a
// bf16 product, or, where that is more than a pass over it (wgrad), first too.
#pragma once

#include "cuda/kernels/mx_rows.cuh"
#include "cuda/launch/product_kernels.hpp"
#include "cuda/launch/product_launch.cuh"

namespace octet::cuda {

// An operand as it comes: [batches, rows, columns], the reduction contiguous, and its exponents.
struct MxOperand {
    const char* name;
    const void *data, *exponents;
    std::int64_t batches, rows, columns;
    std::int64_t pitch = 0;  // elements from row to row of the data; 0: columns

    std::int64_t all_rows() const { return batches * rows; }
    std::int64_t blocks() const { return (columns + 31) / 32; }
};

inline CUtensorMap mx_left_map(const MxOperand& x) {
    return make_tensor_map(
        {x.name, x.data, CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, x.batches, x.rows, x.columns, 128, 64, x.pitch});
}

inline CUtensorMap mx_decoded_map(const void* decoded, const MxOperand& x, int box_rows) {
    return make_tensor_map({"the workspace", decoded, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, x.batches, x.rows, x.columns,
                            box_rows, 64, mx_decoded_pitch(x.columns)});
}

// What follows the decoded operand in the workspace.
inline std::uint8_t* behind(void* decoded, const MxOperand& x) {
    return static_cast<std::uint8_t*>(decoded) + x.all_rows() * mx_decoded_pitch(x.columns) * 2;
}

static_assert(mx_look_bytes == mx_lookers * sizeof(std::uint32_t));

// An operand to bf16.
inline void decode_rows(const MxOperand& x, void* decoded, cudaStream_t stream, const MxLook& look = {}) {
    const std::int64_t units = x.all_rows() * x.columns / 16, pitch = x.pitch == 0 ? x.columns : x.pitch;
    constexpr std::int64_t block_units = mx_rows_threads / 2 * mx_rows_each;
    const MxRows work = {static_cast<const std::uint8_t*>(x.data),
                         static_cast<const std::uint8_t*>(x.exponents),
                         static_cast<std::uint8_t*>(decoded),
                         units,
                         static_cast<int>(x.columns / 16),
                         static_cast<int>(pitch / 16),
                         static_cast<int>(mx_decoded_pitch(x.columns) / 16),
                         look};
    const std::int64_t blocks = std::max<std::int64_t>((units + block_units - 1) / block_units, mx_lookers);
    decode_mx_rows<<<static_cast<unsigned>(blocks), mx_rows_threads, 0, stream>>>(work);
    check_cuda(cudaGetLastError(), "launch of decode_mx_rows");
}

// The product of two operands of which the right one is decoded first, into the workspace, and the left one on its way.
template <Reduction reduction, Output output, Rows rows, class Product>
void launch_mx(const Product& p, const MxOperand& left, const MxOperand& right, const CUtensorMap& out,
               const ProductPlan& plan, cudaStream_t stream) {
    const ProductMaps maps = {mx_left_map(left), mx_decoded_map(p.workspace, right, 32),
                              mx_decoded_map(p.workspace, right, plan.right_tile / 2), out};
    std::uint8_t* const large = behind(p.workspace, right);
    const bool packs = mx_packed_bytes(left.all_rows(), left.columns) > 0;
    const MxLook look = {static_cast<const std::uint8_t*>(left.exponents), left.all_rows(),
                         static_cast<int>(left.blocks()), reinterpret_cast<std::uint32_t*>(large),
                         packs ? reinterpret_cast<std::uint32_t*>(large + mx_look_bytes) : nullptr};
    decode_rows(right, p.workspace, stream, look);
    ProductParameters parameters = parameters_of(p, plan);
    parameters.large_exponents = look.large;
    if (packs) {
        parameters.left_exponents = large + mx_look_bytes;
        parameters.exponent_pitch = (look.blocks + 3) / 4 * 4;
    }
    launch_product<Element::mx, reduction, output, Accumulation::fast, Lies::along_reduction, rows>(
        maps, parameters, plan, most_tiles(p, plan), stream);
}

}  // namespace octet::cuda
