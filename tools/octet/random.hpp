// Random choices of the cases that `octet verify` makes up.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <random>

namespace octet::tool {

using Random = std::mt19937_64;

inline std::int64_t below(Random& random, std::int64_t end) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(end));
}

template <class T>
T one_of(Random& random, std::initializer_list<T> choices) {
    return choices.begin()[below(random, static_cast<std::int64_t>(choices.size()))];
}

}  // namespace octet::tool
