#include "train/checkpoint.hpp"

#include <fcntl.h>
#include <stdio.h>

#include <algorithm>
#include <sstream>

#include "octet/error.hpp"

namespace octet::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* model_file = "model.safetensors";
constexpr const char* optimizer_file = "optimizer.safetensors";
constexpr const char* state_file = "state.json";
constexpr const char* complete_prefix = "step-";
constexpr const char* writing_prefix = ".writing-";
constexpr const char* removing_prefix = ".removing-";

bool starts_with(const std::string& text, const std::string& prefix) { return text.rfind(prefix, 0) == 0; }

std::string folder_name(std::int64_t step) {
    char text[32];
    std::snprintf(text, sizeof text, "step-%08lld", static_cast<long long>(step));
    return text;
}

void rename_folder(const fs::path& from, const fs::path& to) {
    std::error_code error;
    fs::rename(from, to, error);
    if (error)
        fail(Status::io_error, "could not rename '", from.string(), "' to '", to.string(), "': ", error.message());
}

// Renamed first: a folder named step-* is never half removed.
void remove_checkpoint(const fs::path& folder) {
    const fs::path doomed = folder.parent_path() / (removing_prefix + folder.filename().string());
    std::error_code ignored;
    fs::remove_all(doomed, ignored);
    rename_folder(folder, doomed);
    fs::remove_all(doomed, ignored);  // what remains goes with the next remove_leftovers
}

// Where the step was saved before (a run resumed and stopped at once), old and new change places in one instant.
void put_in_place(const fs::path& writing, const fs::path& complete) {
    if (!fs::exists(complete)) return rename_folder(writing, complete);
    if (::renameat2(AT_FDCWD, writing.c_str(), AT_FDCWD, complete.c_str(), RENAME_EXCHANGE) != 0) {
        remove_checkpoint(complete);  // a file system that cannot exchange
        return rename_folder(writing, complete);
    }
    std::error_code ignored;
    fs::remove_all(writing, ignored);
}

}  // namespace

fs::path save_checkpoint(const fs::path& root, CheckpointState state, const CheckpointTensors& tensors, int keep) {
    require(keep >= 1, "to keep ", keep, " checkpoints was asked for, expected at least 1");
    std::error_code error;
    fs::create_directories(root, error);
    if (error) fail(Status::io_error, "could not make the folder '", root.string(), "': ", error.message());
    const std::string name = folder_name(state.step);
    const fs::path writing = root / (writing_prefix + name), complete = root / name;
    fs::remove_all(writing, error);
    try {
        if (!fs::create_directory(writing, error))
            fail(Status::io_error, "could not make the folder '", writing.string(), "': ", error.message());
        const Metadata metadata{{"format", "pt"}, {"step", std::to_string(state.step)}, {"recipe", state.recipe}};
        state.files.clear();
        state.files[model_file] = write_safetensors(writing / model_file, tensors.model, metadata);
        state.files[optimizer_file] = write_safetensors(writing / optimizer_file, tensors.optimizer, metadata);
        DurableFile file(writing / state_file);
        file.write(to_json(state));
        file.close();
        flush_folder(writing);
        put_in_place(writing, complete);
        flush_folder(root);
    } catch (const Error&) {
        fs::remove_all(writing, error);
        throw;
    }
    const std::vector<fs::path> all = list_checkpoints(root);
    const std::size_t kept = std::min(all.size(), static_cast<std::size_t>(keep));
    for (std::size_t i = 0; i + kept < all.size(); ++i) remove_checkpoint(all[i]);
    return complete;
}

std::vector<fs::path> list_checkpoints(const fs::path& root) {
    std::vector<std::pair<long long, fs::path>> found;
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(root, error)) {
        const std::string name = entry.path().filename().string();
        long long step = 0;
        int used = 0;
        if (std::sscanf(name.c_str(), "step-%lld%n", &step, &used) == 1 &&
            static_cast<std::size_t>(used) == name.size())
            found.emplace_back(step, entry.path());
    }
    std::sort(found.begin(), found.end());
    std::vector<fs::path> paths;
    paths.reserve(found.size());
    for (const auto& [step, path] : found) paths.push_back(path);
    return paths;
}

std::optional<fs::path> newest_checkpoint(const fs::path& root) {
    const std::vector<fs::path> all = list_checkpoints(root);
    if (all.empty()) return std::nullopt;
    return all.back();
}

void remove_leftovers(const fs::path& root) {
    std::error_code error;
    std::vector<fs::path> leftovers;
    for (const fs::directory_entry& entry : fs::directory_iterator(root, error)) {
        const std::string name = entry.path().filename().string();
        if (starts_with(name, std::string(writing_prefix) + complete_prefix) ||
            starts_with(name, std::string(removing_prefix) + complete_prefix))
            leftovers.push_back(entry.path());
    }
    for (const fs::path& leftover : leftovers) fs::remove_all(leftover, error);
}

fs::path find_checkpoint(const fs::path& given) {
    if (fs::exists(given / state_file)) return given;
    for (const fs::path& root : {given, given / "checkpoints"})
        if (const std::optional<fs::path> newest = newest_checkpoint(root)) return *newest;
    fail(Status::invalid_argument, "there is no checkpoint in '", given.string(),
         fs::exists(given) ? "'" : "', which does not exist",
         "; give the folder of a run (it has checkpoints/step-... in it) or of one checkpoint");
}

Checkpoint::Checkpoint(fs::path folder) : folder_(std::move(folder)), state_(read_state(folder_ / state_file)) {}

SafetensorsFile Checkpoint::open(const std::string& name) const {
    const fs::path path = folder_ / name;
    const auto written = state_.files.find(name);
    if (written == state_.files.end())
        fail(Status::io_error, "'", (folder_ / state_file).string(), "' does not mention ", name);
    const MappedFile file(path);
    if (file.bytes().size() != written->second.bytes)
        fail(Status::io_error, "'", path.string(), "' has ", file.bytes().size(), " bytes and was written with ",
             written->second.bytes, ": it was truncated or altered; use an older checkpoint");
    if (checksum_of(file.bytes()) != written->second.checksum)
        fail(Status::io_error, "'", path.string(), "' was altered: its checksum is ", hex(checksum_of(file.bytes())),
             " and was ", hex(written->second.checksum), " when it was written; use an older checkpoint");
    return SafetensorsFile(path);
}

void Checkpoint::load(const CheckpointTensors& tensors) const {
    const SafetensorsFile model = open(model_file), optimizer = open(optimizer_file);
    model.require_same(tensors.model, "this model");
    optimizer.require_same(tensors.optimizer, "this optimizer");
    model.copy_to(tensors.model);
    optimizer.copy_to(tensors.optimizer);
}

void Checkpoint::load_model(const std::vector<StoredTensor>& tensors) const {
    const SafetensorsFile model = open(model_file);
    model.require_same(tensors, "this model");
    model.copy_to(tensors);
}

void Checkpoint::verify() const {
    for (const auto& [name, written] : state_.files) open(name);
}

std::string first_model_difference(const std::string& stored_toml, const std::string& given_toml) {
    const auto model_lines = [](const std::string& toml) {
        std::vector<std::string> lines;
        std::istringstream in(toml);
        std::string section;
        for (std::string line; std::getline(in, line);) {
            if (!line.empty() && line.front() == '[') {
                section = line;
            } else if (!line.empty() && section != "[training]") {
                lines.push_back((section.empty() ? "" : section + " ") + line);
            }
        }
        return lines;
    };
    const std::vector<std::string> stored = model_lines(stored_toml), given = model_lines(given_toml);
    for (std::size_t i = 0; i < std::max(stored.size(), given.size()); ++i) {
        const std::string a = i < stored.size() ? stored[i] : "nothing more",
                          b = i < given.size() ? given[i] : "nothing more";
        if (a != b) return "the checkpoint has " + a + " and this model has " + b;
    }
    return "";
}

}  // namespace octet::train
