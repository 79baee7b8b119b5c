// Launches of src/gpu kernels on a CUDA stream: the Runner of gpu/ops.hpp.
#pragma once

#include <array>
#include <atomic>
#include <span>

#include "cuda/device.hpp"
#include "gpu/layout_ops.hpp"
#include "gpu/ops.hpp"
#include "octet/error.hpp"

namespace octet::cuda {

class Runner {
public:
    Runner(const Execution& on, const gpu::QuantizerTuning& tuning)
        : on_(on), stream_(static_cast<cudaStream_t>(on.stream)), tuning_(tuning) {}
    ~Runner() {
        if (own_) cudaFreeAsync(own_, stream_);
    }
    Runner(const Runner&) = delete;
    Runner& operator=(const Runner&) = delete;

    const gpu::QuantizerTuning& tuning() const { return tuning_; }

    // The caller's memory, or, where none was given, the stream's pool: allocated and freed in stream order, so that a
    // graph can capture it too.
    void* workspace(std::int64_t bytes) {
        const auto needed = static_cast<std::size_t>(bytes);
        if (on_.workspace) {
            require(on_.workspace_bytes >= needed, "the workspace has ", on_.workspace_bytes,
                    " bytes, and the call needs ", needed, "; give at least that, or leave the workspace null");
            require(reinterpret_cast<std::uintptr_t>(on_.workspace) % 256 == 0,
                    "the workspace lies at an address that is not a multiple of 256");
            return on_.workspace;
        }
        checked(cudaMallocAsync(&own_, needed, stream_), "cudaMallocAsync of a workspace");
        return own_;
    }

    template <class Kernel>
    std::int64_t resident() {
        static std::array<std::atomic<int>, 64> known{};  // blocks a multiprocessor, by device
        const int device = current_device();
        const auto slot = static_cast<std::size_t>(device) % known.size();
        int blocks = known[slot].load(std::memory_order_relaxed);
        if (blocks == 0) {
            // More shared memory a block than 48 KB must be asked for.
            if (sizeof(typename Kernel::Shared) > 48 * 1024)
                checked(cudaFuncSetAttribute(simt::entry<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                             sizeof(typename Kernel::Shared)),
                        "cudaFuncSetAttribute");
            checked(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, simt::entry<Kernel>, Kernel::threads,
                                                                  sizeof(typename Kernel::Shared)),
                    "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
            known[slot].store(blocks, std::memory_order_relaxed);
        }
        if (blocks < 1)
            fail(Status::unsupported, "a kernel of ", Kernel::threads, " threads and ", sizeof(typename Kernel::Shared),
                 " bytes of shared memory does not fit this device");
        return static_cast<std::int64_t>(std::min(blocks, tuning_.tile_blocks)) * multiprocessors(device);
    }

    template <class Kernel>
    void launch(std::int64_t blocks, const typename Kernel::Params& params) {
        go<Kernel>(blocks, params, {});
    }
    // Begins while the call's kernel before it ends, and waits for it.
    template <class Kernel>
    void launch_next(std::int64_t blocks, const typename Kernel::Params& params) {
        cudaLaunchAttribute early{};
        early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        early.val.programmaticStreamSerializationAllowed = 1;
        go<Kernel>(blocks, params, {&early, 1});
    }
    // A cooperative launch: blocks that wait for each other are all running, or none is.
    template <class Kernel>
    void launch_together(std::int64_t blocks, const typename Kernel::Params& params) {
        cudaLaunchAttribute together{};
        together.id = cudaLaunchAttributeCooperative;
        together.val.cooperative = 1;
        go<Kernel>(blocks, params, {&together, 1});
    }

    // Only in memory that outlives the call can maxima wait for the second half.
    bool may_wait() const { return on_.later != nullptr && on_.workspace != nullptr && !on_.later->full(); }
    WeightVisit visit() const { return on_.visit; }
    // Begins beside the product before it in the stream, which has waited for all that this kernel reads.
    template <class Kernel>
    void launch_later(std::int64_t blocks, const typename Kernel::Params& params) {
        on_.later->add(
            [](const void* parameters, std::int64_t count, void* stream) {
                cudaLaunchAttribute attributes[2]{};
                attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
                attributes[0].val.programmaticStreamSerializationAllowed = 1;
                // As the product has it: a multiprocessor divides its memory one way at a time.
                attributes[1].id = cudaLaunchAttributePreferredSharedMemoryCarveout;
                attributes[1].val.sharedMemCarveout = cudaSharedmemCarveoutMaxShared;
                Execution on;
                on.stream = stream;
                constexpr gpu::QuantizerTuning untuned{};
                Runner(on, untuned)
                    .go<Kernel>(count, *static_cast<const typename Kernel::Params*>(parameters), attributes);
            },
            blocks, &params, sizeof(params));
    }

private:
    template <class Kernel>
    void go(std::int64_t blocks, const typename Kernel::Params& params, std::span<cudaLaunchAttribute> attributes) {
        require(blocks < (std::int64_t{1} << 31), "the call needs ", blocks, " blocks, more than a launch can have");
        cudaLaunchConfig_t config{};
        config.gridDim = dim3(static_cast<unsigned>(blocks));
        config.blockDim = dim3(Kernel::threads);
        config.dynamicSmemBytes = sizeof(typename Kernel::Shared);
        config.stream = stream_;
        config.attrs = attributes.data();
        config.numAttrs = static_cast<unsigned>(attributes.size());
        checked(cudaLaunchKernelEx(&config, simt::entry<Kernel>, params), "launch of a quantizer kernel");
    }

    const Execution& on_;
    cudaStream_t stream_;
    const gpu::QuantizerTuning& tuning_;
    void* own_ = nullptr;
};

// One instantiation for each element format, each in a file of its own.
template <class Codec>
struct Quantizers {
    static void rows(Runner& runner, const ConstTensorView& x, const QuantizeOptions& options,
                     const QuantizedView& out);
    static void columns(Runner& runner, const ConstTensorView& x0, const ConstTensorView& x1, const Groups& groups,
                        std::int64_t alignment, const QuantizeOptions& options, const QuantizedView& out0,
                        const QuantizedView& out1);
    static void pair(Runner& runner, const ConstTensorView& x, const Groups& groups, std::int64_t alignment,
                     const QuantizeOptions& options, const QuantizedView& rows, const QuantizedView& columns);
    static void transposed(Runner& runner, const ConstTensorView& x, const Groups& groups, std::int64_t alignment,
                           const QuantizeOptions& options, const QuantizedView& out);
    static void weights(Runner& runner, const ConstTensorView& w, const QuantizeOptions& options,
                        const QuantizedView& along_k, const QuantizedView& along_n);
};

}  // namespace octet::cuda
