// Checkpoints: a folder a step, complete or not there.
//
//   <root>/step-00000100/model.safetensors       weights, under the names of parameters.hpp, and the untrained state
//                        optimizer.safetensors   "first_moment.<parameter>", "second_moment.<parameter>"
//                        state.json              the rest; written last, with the checksums of the others
//
// A checkpoint is written to <root>/.writing-..., every file and the folder flushed, and renamed. Whenever the program
// or the machine stops, every folder named step-* is complete.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "train/checkpoint_state.hpp"
#include "train/safetensors.hpp"

namespace octet::train {

struct CheckpointTensors {
    std::vector<StoredTensor> model{}, optimizer{};
};

// Writes the checkpoint of state.step, removes all but the newest `keep`, and returns its folder. When that fails
// (a full disk) throws Error(io_error): nothing of it is left and the older ones are untouched.
std::filesystem::path save_checkpoint(const std::filesystem::path& root, CheckpointState state,
                                      const CheckpointTensors& tensors, int keep);

std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& root);  // oldest first
std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& root);

// What an interrupted save or removal left behind.
void remove_leftovers(const std::filesystem::path& root);

// A checkpoint's folder, or a folder that has some below it (a run's): then the newest. Throws when there is none.
std::filesystem::path find_checkpoint(const std::filesystem::path& given);

// A checkpoint opened for reading: state.json is checked at once, the other files when they are loaded.
class Checkpoint {
public:
    explicit Checkpoint(std::filesystem::path folder);
    const CheckpointState& state() const { return state_; }
    const std::filesystem::path& folder() const { return folder_; }

    // Every check is made before the first element is copied. Throws naming the file and what is wrong with it.
    void load(const CheckpointTensors& tensors) const;
    void load_model(const std::vector<StoredTensor>& model) const;
    void verify() const;  // every file's size, checksum and header

private:
    SafetensorsFile open(const std::string& name) const;
    std::filesystem::path folder_;
    CheckpointState state_;
};

// The first line that differs between the [model] and later sections of two configurations, as a sentence; empty when
// the models are the same.
std::string first_model_difference(const std::string& stored_toml, const std::string& given_toml);

}  // namespace octet::train
