#include "ops/measure.hpp"

#include "octet/error.hpp"
#if OCTET_HAVE_CUDA
#include "cuda/device_info.hpp"
#include "cuda/measure.hpp"
#endif

namespace octet {

#if OCTET_HAVE_CUDA

struct DeviceStopwatch::Implementation {
    cuda::Stopwatch stopwatch;
};

DeviceStopwatch::DeviceStopwatch(Device device) {
    require(device.kind == DeviceKind::cuda, "device ", to_string(device), " was given, expected a GPU");
    cuda::use(device.index);
    implementation_ = std::make_unique<Implementation>();
}
DeviceStopwatch::~DeviceStopwatch() = default;

void* DeviceStopwatch::stream() const { return implementation_->stopwatch.stream(); }
void DeviceStopwatch::fill_normal(void* bf16, std::int64_t count, std::uint32_t seed) {
    implementation_->stopwatch.fill_normal(bf16, count, seed);
}
double DeviceStopwatch::us(const std::function<void()>& work) { return implementation_->stopwatch.us(work); }
double DeviceStopwatch::copy_us(std::size_t bytes) { return implementation_->stopwatch.copy_us(bytes); }

#else

struct DeviceStopwatch::Implementation {};

DeviceStopwatch::DeviceStopwatch(Device device) {
    fail(Status::unsupported, "this build of Octet cannot measure on ", to_string(device), "; build it where nvcc is");
}
DeviceStopwatch::~DeviceStopwatch() = default;

void* DeviceStopwatch::stream() const { return nullptr; }
void DeviceStopwatch::fill_normal(void* /*bf16*/, std::int64_t /*count*/, std::uint32_t /*seed*/) {}
double DeviceStopwatch::us(const std::function<void()>& /*work*/) { return 0; }
double DeviceStopwatch::copy_us(std::size_t /*bytes*/) { return 0; }

#endif

}  // namespace octet
