#include <cstring>

#include "octet/error.hpp"
#include "octet/quantize.hpp"

namespace octet {

void LaterCasts::run(void* stream) {
    const std::size_t count = count_;
    count_ = 0;
    for (std::size_t i = 0; i < count; ++i) launch_[i].start(launch_[i].parameters, launch_[i].blocks, stream);
}

void LaterCasts::add(Start start, std::int64_t blocks, const void* parameters, std::size_t bytes) {
    require(!full() && bytes <= parameter_bytes, "a cast of ", bytes, " bytes of parameters was to be left for later, ",
            count_, " are waiting; expected at most ", parameter_bytes, " bytes and ", most, " casts");
    launch_[count_].start = start;
    launch_[count_].blocks = blocks;
    std::memcpy(launch_[count_++].parameters, parameters, bytes);
}

}  // namespace octet
