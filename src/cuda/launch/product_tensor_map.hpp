// What a launch of the Hopper products needs from the host: tensor maps, built from pointers and shapes alone, and the
// current device.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>

namespace octet::cuda {

// A row-major tensor [batches, rows, columns] seen through boxes of [1, box_rows, box_columns]; a box line is 128 or 64
// bytes. Rows may be further apart than they are long; batches follow each other.
struct TensorMapShape {
    const char* what;  // for messages
    const void* data;
    CUtensorMapDataType type;
    int element_bytes;
    std::int64_t batches, rows, columns;
    int box_rows, box_columns;
    std::int64_t pitch = 0;  // elements from row to row; 0: columns
};

// Swizzled over its lines; what a box covers outside the tensor reads as zero and is not written.
CUtensorMap make_tensor_map(const TensorMapShape& shape);

// Throws octet::Error with the call's name unless `result` is success.
void check_cuda(cudaError_t result, const char* call);

// The current device, asked about once: the runtime's answers take longer than what is done with them.
struct LaunchDevice {
    int index;
    int hopper_multiprocessors;  // 0 unless it is compute capability 9.0
};
LaunchDevice launch_device();

// What a kernel is told once on every device before its first launch there.
class OncePerDevice {
public:
    // Twice does no harm: two threads may come at the same time, and devices past the 64th always do it.
    template <class Prepare>
    void operator()(int device, Prepare prepare) {
        const std::uint64_t bit = device < 64 ? std::uint64_t{1} << device : 0;
        if ((done_.load(std::memory_order_acquire) & bit) != 0) return;
        prepare();
        done_.fetch_or(bit, std::memory_order_release);
    }

private:
    std::atomic<std::uint64_t> done_ = 0;
};

}  // namespace octet::cuda
