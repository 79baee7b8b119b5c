// Time of a piece of host code, added to a running total.
#pragma once

#include <chrono>

namespace octet {

template <class F>
void timed(double& seconds, F&& f) {
    const auto begin = std::chrono::steady_clock::now();
    f();
    seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace octet
