// Where the driver's decisions come from: a seeded generator in the tests, the fuzzer's bytes under libFuzzer.
#pragma once

#include <cstddef>
#include <cstdint>

namespace octet::fuzz {

class Choices {
public:
    explicit Choices(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {}
    Choices(const std::uint8_t* bytes, std::size_t count) : bytes_(bytes), left_(count) {}

    // 0 to count - 1. When the fuzzer's bytes have run out, always 0.
    std::int64_t below(std::int64_t count) {
        return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(count));
    }
    std::int64_t between(std::int64_t low, std::int64_t high) { return low + below(high - low + 1); }
    bool one_in(std::int64_t count) { return below(count) == count - 1; }
    template <class T, std::size_t N>
    const T& of(const T (&values)[N]) {
        return values[static_cast<std::size_t>(below(static_cast<std::int64_t>(N)))];
    }

private:
    std::uint64_t next() {
        if (bytes_ == nullptr) {  // splitmix64
            std::uint64_t z = state_ += 0x9E3779B97F4A7C15u;
            z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
            z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
            return z ^ (z >> 31);
        }
        if (left_ == 0) return 0;
        // One byte is enough: no choice has more than 256 alternatives.
        --left_;
        return *bytes_++;
    }

    std::uint64_t state_ = 0;
    const std::uint8_t* bytes_ = nullptr;
    std::size_t left_ = 0;
};

}  // namespace octet::fuzz
