// Data that the parts share.
#include <random>

#include "quantizers/quantizers.hpp"

namespace octet::quantizers {
namespace {

__global__ void fill_normal(std::uint16_t* x, i64 count, std::uint32_t seed) {
    for (i64 i = blockIdx.x * static_cast<i64>(blockDim.x) + threadIdx.x; i < count;
         i += static_cast<i64>(gridDim.x) * blockDim.x) {
        std::uint64_t h = (static_cast<std::uint64_t>(i) + seed) * 0x9E3779B97F4A7C15ull;
        h ^= h >> 31;
        h *= 0xBF58476D1CE4E5B9ull;
        h ^= h >> 29;
        const float u = (static_cast<float>(h >> 40) + 0.5f) * 0x1p-24f,
                    v = static_cast<float>(h & 0xFFFFFFu) * 0x1p-24f;
        x[i] = BF16::encode(sqrtf(-2.0f * logf(u)) * cospif(2.0f * v));
    }
}

__global__ void hash_words(const std::uint32_t* x, i64 count, unsigned long long* out) {
    unsigned long long sum = 0;
    for (i64 i = blockIdx.x * static_cast<i64>(blockDim.x) + threadIdx.x; i < count;
         i += static_cast<i64>(gridDim.x) * blockDim.x)
        sum += (static_cast<unsigned long long>(x[i]) + 0x9E37u) *
               (2 * static_cast<unsigned long long>(i) + 0x9E3779B97F4A7C15ull);
    atomicAdd(out, sum);
}

}  // namespace

DeviceBuffer normal_bf16(i64 count, std::uint32_t seed) {
    DeviceBuffer x(static_cast<std::size_t>(count) * 2);
    fill_normal<<<2112, 256>>>(x.as<std::uint16_t>(), count, seed);
    checked(cudaGetLastError(), "fill_normal");
    return x;
}

unsigned long long hash_of(const DeviceBuffer& x) {
    static DeviceBuffer sum(8);
    sum.fill(0);
    hash_words<<<1056, 256>>>(x.as<std::uint32_t>(), static_cast<i64>(x.bytes() / 4), sum.as<unsigned long long>());
    unsigned long long value = 0;
    sum.download(&value, 8);
    return value;
}

std::vector<std::int32_t> uneven_ends(i64 tokens, i64 count, i64 align, unsigned seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> weight(0.5, 1.5);
    std::vector<double> w(static_cast<std::size_t>(count));
    double sum = 0;
    for (double& value : w) sum += value = weight(random);
    std::vector<std::int32_t> ends;
    i64 end = 0;
    for (const double value : w)
        ends.push_back(static_cast<std::int32_t>(
            end += static_cast<i64>(value / sum * static_cast<double>(tokens) / static_cast<double>(align)) * align));
    ends.back() = static_cast<std::int32_t>(tokens);
    return ends;
}

}  // namespace octet::quantizers
