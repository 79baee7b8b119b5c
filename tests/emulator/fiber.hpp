// Fibers: stacks that one host thread switches between. Enough of them to give every GPU thread of a few blocks its
// own.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace octet::emulator {

#if defined(__x86_64__)
// Saves the callee-saved registers and the stack pointer, and continues where `to` was left.
__attribute__((naked, noinline)) inline void switch_stacks(void** /*save*/, void* /*to*/) {
    __asm__ volatile(
        "pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
        "movq %rsp, (%rdi)\n movq %rsi, %rsp\n"
        "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n ret\n");
}
#endif

class Fiber {
public:
    static constexpr std::size_t stack_bytes = 128 * 1024;
    using Entry = void (*)(void*);

    Fiber() = default;
    ~Fiber() {
        if (stack_) munmap(stack_, stack_bytes);
    }
    Fiber(const Fiber&) = delete;
    Fiber& operator=(const Fiber&) = delete;

    // The next resume() calls entry(argument) on the fiber's own stack. The entry must end in finish().
    void start(Entry entry, void* argument) {
        if (!stack_) {
            stack_ =
                mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (stack_ == MAP_FAILED) {
                stack_ = nullptr;
                throw std::bad_alloc();
            }
        }
#if defined(__SANITIZE_ADDRESS__)
        // A fiber that was left for good, as after an error, has not taken its guards off the stack.
        __asan_unpoison_memory_region(stack_, stack_bytes);
#endif
        entry_ = entry;
        argument_ = argument;
#if defined(__x86_64__)
        auto** top = reinterpret_cast<void**>(static_cast<std::byte*>(stack_) + stack_bytes) - 1;
        *top = nullptr;  // where begin() would return to, which it never does; keeps the stack aligned as after a call
        *--top = reinterpret_cast<void*>(&Fiber::begin);
        for (int i = 0; i < 6; ++i) *--top = nullptr;
        inside_ = top;
#else
        getcontext(&inside_context_);
        inside_context_.uc_stack.ss_sp = stack_;
        inside_context_.uc_stack.ss_size = stack_bytes;
        inside_context_.uc_link = nullptr;
        makecontext(&inside_context_, &Fiber::begin, 0);
#endif
    }

    void resume() {
        current() = this;
#if defined(__SANITIZE_ADDRESS__)
        __sanitizer_start_switch_fiber(&outside_shadow_, stack_, stack_bytes);
#endif
        enter();
#if defined(__SANITIZE_ADDRESS__)
        __sanitizer_finish_switch_fiber(outside_shadow_, nullptr, nullptr);
#endif
    }

    // From inside: back to whoever resumed.
    void yield() {
#if defined(__SANITIZE_ADDRESS__)
        void* shadow = nullptr;
        __sanitizer_start_switch_fiber(&shadow, outside_stack_, outside_bytes_);
#endif
        leave();
#if defined(__SANITIZE_ADDRESS__)
        __sanitizer_finish_switch_fiber(shadow, &outside_stack_, &outside_bytes_);
#endif
    }

    [[noreturn]] void finish() {
#if defined(__SANITIZE_ADDRESS__)
        __sanitizer_start_switch_fiber(nullptr, outside_stack_, outside_bytes_);
#endif
        while (true) leave();
    }

private:
    static Fiber*& current() {
        static thread_local Fiber* fiber = nullptr;
        return fiber;
    }

    static void begin() {
        Fiber* self = current();
#if defined(__SANITIZE_ADDRESS__)
        __sanitizer_finish_switch_fiber(nullptr, &self->outside_stack_, &self->outside_bytes_);
#endif
        self->entry_(self->argument_);
        self->finish();
    }

#if defined(__x86_64__)
    void enter() { switch_stacks(&outside_, inside_); }
    void leave() { switch_stacks(&inside_, outside_); }
    void* outside_ = nullptr;
    void* inside_ = nullptr;
#else
    void enter() { swapcontext(&outside_context_, &inside_context_); }
    void leave() { swapcontext(&inside_context_, &outside_context_); }
    ucontext_t outside_context_{}, inside_context_{};
#endif
    void* stack_ = nullptr;
    Entry entry_ = nullptr;
    void* argument_ = nullptr;
#if defined(__SANITIZE_ADDRESS__)
    void* outside_shadow_ = nullptr;
    const void* outside_stack_ = nullptr;
    std::size_t outside_bytes_ = 0;
#endif
};

}  // namespace octet::emulator
