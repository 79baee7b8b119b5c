// Calls of every quantizer, of the permutation and of SwiGLU on device memory: what `octet bench kernels` times on a
// GPU and `octet tune` tunes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "../../bench/cases/shapes.hpp"
#include "octet/device.hpp"
#include "octet/quantize.hpp"
#include "ops/measure.hpp"

namespace octet::tool {

// Of the cases, whatever the shape.
std::vector<std::string> device_op_names();

struct DeviceCase {
    std::string op, recipe;
    std::string tuned_as;                               // the tuning table's operation; empty: it has none
    std::int64_t tokens = 0, features = 0, groups = 0;  // of its key
    double bytes = 0;                                   // compulsory: each input read once, each output written once
    std::function<void(const Execution&)> call;
};

// The tensors of one shape, and the calls on them. Groups are uneven multiples of 16, as splits of real routers are
// once they are padded for tensor cores; alignment is 128.
class DeviceShape {
public:
    DeviceShape(DeviceStopwatch& stopwatch, Device device, const bench_cases::ProductShape& shape);
    const std::vector<DeviceCase>& cases() const { return cases_; }
    Execution execution() const;

private:
    void add_quantizers(const QuantizeOptions& options);
    void add_tokens();
    DeviceMemory& take(std::size_t bytes);
    TensorView bf16(DeviceMemory& memory, Extents extents) const;
    // One of two operands whose memory all cases share.
    QuantizedView quantized(int which, const QuantizeOptions& options, Extents data, Extents scale) const;

    Device device_;
    bench_cases::ProductShape shape_;
    DeviceStopwatch& stopwatch_;
    std::vector<std::unique_ptr<DeviceMemory>> memory_{};
    DeviceMemory *a_, *dy_, *w_, *ends_, *lists_, *floats_, *workspace_;
    DeviceMemory *data_[2], *scale_[2], *inverse_[2];
    std::vector<DeviceCase> cases_{};
};

}  // namespace octet::tool
