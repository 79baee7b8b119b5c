// Tensor maps for the products, built on the host from pointers and shapes alone.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace octet::cuda {

// A row-major tensor [batches, rows, columns] seen through boxes of [1, box_rows, box_columns]; a box line is 128 or 64
// bytes.
struct TensorMapShape {
    const char* what;  // for messages
    const void* data;
    CUtensorMapDataType type;
    int element_bytes;
    std::int64_t batches, rows, columns;
    int box_rows, box_columns;
};

// Swizzled over its lines; what a box covers outside the tensor reads as zero and is not written.
CUtensorMap make_tensor_map(const TensorMapShape& shape);

// Throws octet::Error with the call's name unless `result` is success.
void check_cuda(cudaError_t result, const char* call);

// Multiprocessors of the current device; throws unless it is compute capability 9.0.
int hopper_multiprocessors();

}  // namespace octet::cuda
