// mxfp8 grouped products, exact: e4m3 times a power of two is multiplied as bf16. The right operand (the smaller one of
// tokens and weights, or of gradients and activations) is decoded into the workspace first, since every left tile reads
// it again. The left one is decoded on its way to the tensor cores, which takes an eighth longer than a
// bf16 product, or, where that is more than a pass over it (wgrad), first too.
#pragma once

#include "cuda/kernels/mx_rows.cuh"
#include "cuda/launch/product_kernels.hpp"
#include "cuda/launch/product_launch.cuh"

namespace octet::cuda {

// The workspace: the decoded right operand, and behind it what was found in the left one's exponents, or the left
// operand.
inline void* behind_right(void* workspace, std::int64_t right_elements) {
    return static_cast<std::uint8_t*>(workspace) + right_elements * 2;
}

inline CUtensorMap mx_left_map(const char* what, const void* data, std::int64_t batches, std::int64_t rows,
                               std::int64_t columns) {
    return make_tensor_map({what, data, CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, batches, rows, columns, 128, 64});
}

inline CUtensorMap mx_decoded_map(const void* decoded, std::int64_t batches, std::int64_t rows, std::int64_t columns,
                                  int box_rows) {
    return make_tensor_map(
        {"the workspace", decoded, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, batches, rows, columns, box_rows, 64});
}

static_assert(mx_look_bytes == mx_lookers * sizeof(std::uint32_t));

// Exponents of the other operand, and where it is said whether one takes two factors.
struct MxLook {
    const void* exponents = nullptr;
    std::int64_t bytes = 0;
    void* large = nullptr;
};

// e4m3 [rows, columns] to bf16.
inline void decode_rows(const void* data, const void* exponents, void* decoded, std::int64_t rows, std::int64_t columns,
                        cudaStream_t stream, const MxLook& look = {}) {
    const std::int64_t units = rows * columns / 16;
    constexpr std::int64_t block_units = mx_rows_threads / 2 * mx_rows_each;
    const MxRows work = {static_cast<const std::uint8_t*>(data),
                         static_cast<const std::uint8_t*>(exponents),
                         static_cast<std::uint8_t*>(decoded),
                         units,
                         static_cast<int>(columns / 16),
                         static_cast<const std::uint8_t*>(look.exponents),
                         look.bytes,
                         static_cast<std::uint32_t*>(look.large)};
    const std::int64_t blocks = std::max<std::int64_t>((units + block_units - 1) / block_units, mx_lookers);
    decode_mx_rows<<<static_cast<unsigned>(blocks), mx_rows_threads, 0, stream>>>(work);
    check_cuda(cudaGetLastError(), "launch of decode_mx_rows");
}

// An operand as it comes: [batches, rows, columns], the reduction contiguous.
struct MxOperand {
    const char* name;
    const void *data, *exponents;
    std::int64_t batches, rows, columns;
};

// The product of two operands of which the right one is decoded first, into the workspace, and the left one on its way.
template <Reduction reduction, Output output, Rows rows, class Product>
void launch_mx(const Product& p, const MxOperand& left, const MxOperand& right, const CUtensorMap& out,
               const ProductPlan& plan, cudaStream_t stream) {
    const auto right_map = [&](int box_rows) {
        return mx_decoded_map(p.workspace, right.batches, right.rows, right.columns, box_rows);
    };
    const ProductMaps maps = {mx_left_map(left.name, left.data, left.batches, left.rows, left.columns), right_map(32),
                              right_map(plan.right_tile / 2), out};
    const std::int64_t right_rows = right.batches * right.rows;
    void* large = behind_right(p.workspace, right_rows * right.columns);
    decode_rows(right.data, right.exponents, p.workspace, right_rows, right.columns, stream,
                {left.exponents, left.batches * left.rows * ((left.columns + 31) / 32), large});
    ProductParameters parameters = parameters_of(p, plan);
    parameters.large_exponents = static_cast<const std::uint32_t*>(large);
    launch_product<Element::mx, reduction, output, Accumulation::fast, Lies::along_reduction, rows>(
        maps, parameters, plan, most_tiles(p, plan), stream);
}

}  // namespace octet::cuda
