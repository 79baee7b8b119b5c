// Groups: which tokens belong to which expert.
#pragma once

#include <cstdint>

#include "octet/tensor.hpp"

namespace octet {

// Cumulative end offsets: group g owns the rows from ends[g-1] (0 for the first) up to ends[g]. A group may be empty.
// Rows past the last offset belong to nobody. On a GPU the offsets stay on the device and are never read by the host.
struct Groups {
    const std::int32_t* ends = nullptr;  // [count]
    std::int64_t count = 0;
    Device device{};
};

// Where the hardware wants aligned token ranges, each group of a transposed operand starts on a multiple of
// `alignment` and ends in zeros: group g of r rows takes round_up(r, alignment) columns.
constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}
constexpr std::int64_t ceil_div(std::int64_t value, std::int64_t divisor) { return (value + divisor - 1) / divisor; }

// The most columns any `count` groups of `tokens` rows together can take: what a caller allocates without knowing the
// offsets. Needs alignment >= 1.
constexpr std::int64_t padded_bound(std::int64_t tokens, std::int64_t count, std::int64_t alignment) {
    const std::int64_t occupied = tokens < count ? tokens : count;
    return (tokens + occupied * (alignment - 1)) / alignment * alignment;
}

}  // namespace octet
