#include "cuda/launch/product_tensor_map.hpp"

#include <cudaTypedefs.h>

#include "octet/error.hpp"

namespace octet::cuda {

void check_cuda(cudaError_t result, const char* call) {
    if (result != cudaSuccess) fail(Status::device_error, call, " failed: ", cudaGetErrorString(result));
}

namespace {

// Found at run time: the library then loads on machines that have no driver.
PFN_cuTensorMapEncodeTiled_v12000 tensor_map_encoder() {
    static const auto encoder = [] {
        void* function = nullptr;
        cudaDriverEntryPointQueryResult found{};
        check_cuda(
            cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found),
            "cudaGetDriverEntryPointByVersion(cuTensorMapEncodeTiled)");
        if (found != cudaDriverEntryPointSuccess || function == nullptr)
            fail(Status::unsupported,
                 "the CUDA driver has no cuTensorMapEncodeTiled; install a driver for CUDA 12 or newer");
        return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
    }();
    return encoder;
}

}  // namespace

CUtensorMap make_tensor_map(const TensorMapShape& shape) {
    require(reinterpret_cast<std::uintptr_t>(shape.data) % 16 == 0, shape.what, ": data must be 16-byte aligned");
    const std::int64_t pitch = shape.pitch == 0 ? shape.columns : shape.pitch;
    require(shape.columns * shape.element_bytes % 16 == 0, shape.what, ": rows of ", shape.columns, " elements of ",
            shape.element_bytes, " bytes are not a multiple of 16 bytes");
    require(pitch >= shape.columns && pitch * shape.element_bytes % 16 == 0, shape.what, ": rows of ", shape.columns,
            " elements of ", shape.element_bytes, " bytes are ", pitch,
            " elements apart, expected at least as many as they have and a multiple of 16 bytes");
    require(shape.batches >= 1 && shape.rows >= 1 && shape.columns >= 1, shape.what, ": shape [", shape.batches, ", ",
            shape.rows, ", ", shape.columns, "] must be positive");
    constexpr std::int64_t axis_limit = std::int64_t{1} << 31;  // coordinates are 32-bit integers
    require(shape.batches < axis_limit && shape.rows < axis_limit && shape.columns < axis_limit, shape.what,
            ": shape [", shape.batches, ", ", shape.rows, ", ", shape.columns, "] has an axis of 2^31 or more");

    const cuuint64_t extents[3] = {static_cast<cuuint64_t>(shape.columns), static_cast<cuuint64_t>(shape.rows),
                                   static_cast<cuuint64_t>(shape.batches)};
    const auto row_bytes = static_cast<cuuint64_t>(pitch * shape.element_bytes);
    const cuuint64_t strides[2] = {row_bytes, row_bytes * extents[1]};
    const cuuint32_t box[3] = {static_cast<cuuint32_t>(shape.box_columns), static_cast<cuuint32_t>(shape.box_rows), 1};
    const cuuint32_t steps[3] = {1, 1, 1};
    CUtensorMap map;
    const CUresult result = tensor_map_encoder()(
        &map, shape.type, 3, const_cast<void*>(shape.data), extents, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
        shape.box_columns * shape.element_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS)
        fail(Status::device_error, shape.what, ": cuTensorMapEncodeTiled returned ", static_cast<int>(result), " for [",
             shape.batches, ", ", shape.rows, ", ", shape.columns, "] elements of ", shape.element_bytes, " bytes");
    return map;
}

LaunchDevice launch_device() {
    constexpr int known = 64;
    static std::atomic<int> answers[known];  // 0: not asked yet; otherwise multiprocessors + 1
    int device = 0;
    check_cuda(cudaGetDevice(&device), "cudaGetDevice");
    const int answer = device < known ? answers[device].load(std::memory_order_relaxed) : 0;
    if (answer > 0) return {device, answer - 1};
    int major = 0, minor = 0, count = 0;
    check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
    check_cuda(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "cudaDeviceGetAttribute");
    check_cuda(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
    if (major != 9 || minor != 0) count = 0;
    if (device < known) answers[device].store(count + 1, std::memory_order_relaxed);
    return {device, count};
}

}  // namespace octet::cuda
