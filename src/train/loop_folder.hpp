// The folder of a run: config.toml, metrics.jsonl, checkpoints/, report.html; held by one process at a time.
#pragma once

#include <cstdint>
#include <filesystem>

namespace octet::train {

// What to do with a run that is there already.
enum class Start : std::uint8_t {
    fresh,            // refuse
    overwrite,        // remove it
    resume,           // go on from its newest checkpoint; refuse when there is none
    resume_or_fresh,  // go on when there is a checkpoint
};

class RunFolder {
public:
    // Makes the folder and locks it. Throws when another process holds it, or has a run that `start` refuses.
    RunFolder(const std::filesystem::path& path, Start start);
    ~RunFolder();
    RunFolder(const RunFolder&) = delete;
    RunFolder& operator=(const RunFolder&) = delete;

    // Removes the run that is there, where `start` says so: for when the new one is certain to begin.
    void clear();

    const std::filesystem::path& path() const { return path_; }
    std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }
    std::filesystem::path metrics() const { return path_ / "metrics.jsonl"; }
    std::filesystem::path config() const { return path_ / "config.toml"; }
    std::filesystem::path report() const { return path_ / "report.html"; }
    std::filesystem::path diagnostic(std::int64_t step) const;

private:
    std::filesystem::path path_;
    bool anew_ = false;
    int lock_ = -1;
};

}  // namespace octet::train
