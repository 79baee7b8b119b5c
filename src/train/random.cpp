#include "train/random.hpp"

#include "octet/error.hpp"

namespace octet::train {

Permutation::Permutation(std::int64_t size, std::uint64_t key) : size_(static_cast<std::uint64_t>(size)), key_(key) {
    require(size >= 1 && size <= std::int64_t{1} << 61, "a permutation of ", size, " elements was asked for");
    while (std::uint64_t{1} << (2 * half_bits_) < size_) ++half_bits_;
}

std::uint64_t Permutation::once(std::uint64_t x) const {
    const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
    std::uint64_t left = x >> half_bits_, right = x & mask;
    for (std::uint64_t round = 0; round < 6; ++round) {
        const std::uint64_t next = left ^ (mix(key_ ^ mix(right + (round << 58))) & mask);
        left = right;
        right = next;
    }
    return left << half_bits_ | right;
}

std::int64_t Permutation::operator()(std::int64_t index) const {
    require(index >= 0 && static_cast<std::uint64_t>(index) < size_, "index ", index, " of a permutation of ", size_,
            " elements was asked for");
    std::uint64_t x = static_cast<std::uint64_t>(index);
    do x = once(x);
    while (x >= size_);  // at most 4 times as many numbers as elements, so a few rounds on average
    return static_cast<std::int64_t>(x);
}

}  // namespace octet::train
