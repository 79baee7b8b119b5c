// state.json of a checkpoint: everything a run needs to go on that is not a tensor.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "train/safetensors.hpp"

namespace octet::train {

// Where a run is in its data. The order is a function of the seed, so one number says it.
struct DataState {
    std::string path{};         // as it was given
    std::string tokenizer{};    // "bytes", "u16", "u32" or "sentencepiece:<model file>"
    std::string fingerprint{};  // of the tokens, so that another file under the same name is noticed
    std::int64_t tokens = 0;
    std::uint64_t seed = 0;
    std::int64_t position = 0;  // windows taken since the beginning of the run
    friend bool operator==(const DataState&, const DataState&) = default;
};

struct CheckpointState {
    std::int64_t step = 0;             // optimizer steps taken
    std::int64_t optimizer_steps = 0;  // those that changed something
    std::int64_t tokens_seen = 0;
    std::string config{};  // TOML
    std::string recipe{}, dense_recipe{}, activations{};
    std::uint64_t seed = 0;    // of the weights
    std::uint64_t random = 0;  // state of the run's generator
    DataState data{};
    std::map<std::string, WrittenFile> files{};  // beside state.json: sizes and checksums
};

std::string to_json(const CheckpointState& state);

// Throws Error(io_error) naming the file when it is missing, truncated, altered or of a later format.
CheckpointState read_state(const std::filesystem::path& file);

}  // namespace octet::train
