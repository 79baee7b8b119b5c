// A position in a ring of shared-memory slots: which slot, and the parity of its barriers' phase.
#pragma once

#include <cstdint>

namespace octet::cuda {

template <int Slots>
struct RingPosition {
    int slot = 0;
    std::uint32_t phase = 0;  // what a reader waits for; a writer waits for phase ^ 1 on the "free" barrier

    __device__ __forceinline__ void advance() {
        if (++slot == Slots) {
            slot = 0;
            phase ^= 1;
        }
    }
};

}  // namespace octet::cuda
