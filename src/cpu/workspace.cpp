#include "cpu/workspace.hpp"

#include "octet/groups.hpp"

namespace octet::cpu {
namespace {

thread_local Buffer block;

constexpr std::size_t largest_kept = std::size_t{4} << 20;  // what a thread may hold on to

}  // namespace

std::byte* Workspace::take_bytes(std::size_t bytes) {
    bytes = static_cast<std::size_t>(round_up(static_cast<std::int64_t>(bytes), Buffer::alignment));
    wanted_ += bytes;
    if (used_ + bytes <= block.bytes()) {
        std::byte* memory = block.as<std::byte>() + used_;
        used_ += bytes;
        return memory;
    }
    overflow_.emplace_back(bytes > 0 ? bytes : Buffer::alignment);
    return overflow_.back().as<std::byte>();
}

Workspace::~Workspace() {
    if (overflow_.empty() || wanted_ > largest_kept) return;
    try {
        block = Buffer(wanted_);
    } catch (...) {
        // Without the larger block the next task goes on as this one did.
    }
}

}  // namespace octet::cpu
