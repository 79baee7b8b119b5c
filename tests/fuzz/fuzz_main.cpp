// libFuzzer's way into the same driver: build with clang, then run build/<preset>/tests/fuzz/octet_fuzz.
#include <cstdio>
#include <cstdlib>

#include "fuzz/hostile_call.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
    using namespace octet::fuzz;
    if (count == 0) return 0;
    Choices choices(bytes + 1, count - 1);
    try {
        const int operation = *bytes % (operation_count + 1);
        if (operation < operation_count)
            hostile_call(operation, choices);
        else
            hostile_small_call(choices);
    } catch (const Broken& story) {
        std::fprintf(stderr, "%s\n", story.what());
        std::abort();
    }
    return 0;
}
