// Random numbers whose whole state is one 64-bit number, so that a checkpoint can hold it.
#pragma once

#include <cstdint>

namespace octet::train {

// A bijection of 64-bit numbers that leaves no pattern (the finalizer of SplitMix64).
constexpr std::uint64_t mix(std::uint64_t x) {
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

class Random {
public:
    explicit Random(std::uint64_t seed) : state_(seed) {}
    std::uint64_t next() { return mix(state_ += 0x9E3779B97F4A7C15u); }
    double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }  // in [0, 1)
    std::uint64_t state() const { return state_; }

private:
    std::uint64_t state_;
};

// A permutation of 0 .. size-1 that is computed, not stored: a Feistel network over the next even number of bits,
// walked until it lands inside. Memory and time do not grow with the size.
class Permutation {
public:
    Permutation(std::int64_t size, std::uint64_t key);
    std::int64_t operator()(std::int64_t index) const;

private:
    std::uint64_t once(std::uint64_t x) const;
    std::uint64_t size_, key_;
    int half_bits_ = 1;
};

}  // namespace octet::train
