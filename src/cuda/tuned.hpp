// The settings of a call's tuning, as the kernels take them; what it does not name stays at its default.
#pragma once

#include "gpu/tuning.hpp"
#include "octet/error.hpp"
#include "octet/quantize.hpp"
#include "tune/setting.hpp"

namespace octet::cuda {

inline void apply(const tune::Setting& setting, gpu::QuantizerTuning& tuning) {
    const auto within = [&](std::int64_t least, std::int64_t most) {
        require(setting.value >= least && setting.value <= most, "the tuning setting ", setting.name, " is ",
                setting.value, ", expected ", least, " to ", most);
        return setting.value;
    };
    if (setting.name == "rows_vectors")
        tuning.rows_vectors = static_cast<int>(within(1, 8));
    else if (setting.name == "fused_tiles")
        tuning.fused_tiles = static_cast<int>(within(0, 4));
    else if (setting.name == "tall_tiles")
        tuning.tall_tiles = static_cast<int>(within(0, 1 << 20));
    else if (setting.name == "short_groups")
        tuning.short_groups = static_cast<int>(within(0, 1 << 20));
    else if (setting.name == "tile_blocks")
        tuning.tile_blocks = static_cast<int>(within(1, 32));
    else if (setting.name == "strip_rows")
        tuning.strip_rows = static_cast<int>(within(0, 1 << 20));
    else if (setting.name == "strip_tokens")
        tuning.strip_tokens = static_cast<int>(within(0, 1 << 20));
    else if (setting.name == "ranked_rows")
        tuning.ranked_rows = static_cast<int>(within(0, 1 << 20));
    else if (setting.name == "whole_rows")
        tuning.whole_rows = static_cast<int>(within(0, 1 << 20));
    else if (setting.name == "whole_columns")
        tuning.whole_columns = static_cast<int>(within(0, 1 << 20));
    else if (setting.name == "from_rows")
        tuning.from_rows = static_cast<int>(within(0, 1 << 24));
    else if (setting.name == "noted_rows")
        tuning.noted_rows = static_cast<int>(within(0, 1 << 20));
    else if (setting.name == "swiglu_vectors")
        tuning.swiglu_vectors = static_cast<int>(within(1, 8));
    else
        fail(Status::invalid_argument, "the tuning setting '", setting.name,
             "' is unknown; docs/tuning.md lists those there are");
}

inline gpu::QuantizerTuning tuned(const Execution& on) {
    gpu::QuantizerTuning tuning;
    if (on.tuning != nullptr)
        for (const tune::Setting& setting : on.tuning->configuration) apply(setting, tuning);
    return tuning;
}

}  // namespace octet::cuda
