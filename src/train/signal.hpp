// Ctrl-C: the first asks the run to stop after its step, the second ends the program at once.
#pragma once

namespace octet::train {

// While it lives, SIGINT and SIGTERM are caught.
class InterruptGuard {
public:
    InterruptGuard();
    ~InterruptGuard();
    InterruptGuard(const InterruptGuard&) = delete;
    InterruptGuard& operator=(const InterruptGuard&) = delete;
    static bool requested();
};

}  // namespace octet::train
