// The CUDA quantizers on a device, without the rest of the library: checks against the scalar reference, then
// bandwidth.
//
//     quantizers_device check [seconds]     random cases of every operation, from several threads at once
//     quantizers_device large               full-size shapes, more than 2^31 elements, repetition, graphs
//     quantizers_device bench FILE [key=value ...]   the nine shapes; keys are QuantizerTuning's
//     quantizers_device small               few launches of every kernel, for compute-sanitizer
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "quantizers/quantizers.hpp"

using namespace octet;
using namespace octet::quantizers;

int main(int argc, char** argv) try {
    const std::string what = argc > 1 ? argv[1] : "";
    gpu::QuantizerTuning tuning;
    bool every = true;
    for (int i = 2; i < argc; ++i) {
        int value = 0;
        const auto key = [&](const char* name) {
            return std::sscanf(argv[i], (std::string(name) + "=%d").c_str(), &value) == 1;
        };
        if (key("rows_vectors")) tuning.rows_vectors = value;
        if (key("fused_tiles")) tuning.fused_tiles = value;
        if (key("tall_tiles")) tuning.tall_tiles = value;
        if (key("short_groups")) tuning.short_groups = value;
        if (key("tile_blocks")) tuning.tile_blocks = value;
        if (key("strip_rows")) tuning.strip_rows = value;
        if (key("strip_tokens")) tuning.strip_tokens = value;
        if (key("ranked_rows")) tuning.ranked_rows = value;
        if (key("whole_rows")) tuning.whole_rows = value;
        if (key("whole_columns")) tuning.whole_columns = value;
        if (key("from_rows")) tuning.from_rows = value;
        if (key("noted_rows")) tuning.noted_rows = value;
        if (key("every")) every = value != 0;
    }
    if (what == "check") return check(argc > 2 ? std::atof(argv[2]) : 10) != 0;
    if (what == "large") return large() != 0;
    if (what == "small") return small() != 0;
    if (what == "once") return once(tuning);
    if (what == "bench" && argc > 2) return bench(argv[2], tuning, every);
    std::printf("usage: quantizers_device check [seconds] | large | small | once | bench FILE [key=value ...]\n");
    return 2;
} catch (const std::exception& error) {
    std::printf("FAILED: %s\n", error.what());
    return 1;
}
