// Scratch memory of a task. It is kept by its thread and used again by the next task: fresh pages for every task would
// cost more than some tasks do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "octet/memory.hpp"

namespace octet::cpu {

// What is taken lives until the workspace goes. One at a time on each thread.
class Workspace {
public:
    Workspace() = default;
    ~Workspace();
    Workspace(const Workspace&) = delete;
    Workspace& operator=(const Workspace&) = delete;

    template <class T>
    T* take(std::int64_t count) {
        return reinterpret_cast<T*>(take_bytes(static_cast<std::size_t>(count) * sizeof(T)));
    }
    template <class T>
    T* take_zeroed(std::int64_t count) {
        T* memory = take<T>(count);
        std::memset(static_cast<void*>(memory), 0, static_cast<std::size_t>(count) * sizeof(T));
        return memory;
    }

private:
    std::byte* take_bytes(std::size_t bytes);
    std::size_t used_ = 0;          // of the thread's block
    std::size_t wanted_ = 0;        // by this task in all
    std::vector<Buffer> overflow_;  // what did not fit: the next task's block will be larger
};

}  // namespace octet::cpu
