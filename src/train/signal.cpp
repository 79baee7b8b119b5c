#include "train/signal.hpp"

#include <signal.h>
#include <unistd.h>

namespace octet::train {
namespace {

volatile sig_atomic_t interrupts = 0;  // a signal handler can reach nothing but a global

void on_interrupt(int signal_number) {
    if (interrupts != 0) _exit(128 + signal_number);  // checkpoints are complete or not there, so nothing is lost
    interrupts = 1;
    constexpr char text[] = "\nstopping after this step, with a checkpoint; once more to stop at once\n";
    [[maybe_unused]] const ssize_t ignored = write(STDERR_FILENO, text, sizeof text - 1);
}

}  // namespace

InterruptGuard::InterruptGuard() {
    interrupts = 0;
    struct sigaction action {};
    action.sa_handler = on_interrupt;
    action.sa_flags = SA_RESTART;
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
}

InterruptGuard::~InterruptGuard() {
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
}

bool InterruptGuard::requested() { return interrupts != 0; }

}  // namespace octet::train
