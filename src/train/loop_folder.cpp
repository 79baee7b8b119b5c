#include "train/loop_folder.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "octet/error.hpp"
#include "train/checkpoint.hpp"

namespace octet::train {

namespace fs = std::filesystem;

RunFolder::RunFolder(const fs::path& path, Start start) : path_(path) {
    std::error_code error;
    fs::create_directories(path_, error);
    if (error) fail(Status::io_error, "could not make the run's folder '", path_.string(), "': ", error.message());
    lock_ = ::open((path_ / ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (lock_ < 0) fail(Status::io_error, "could not write in the run's folder '", path_.string(), "'");
    if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
        ::close(lock_);
        fail(Status::invalid_argument, "another octet is training in '", path_.string(),
             "'; wait for it, or give another --out");
    }
    remove_leftovers(checkpoints());
    const bool used = fs::exists(metrics());
    const bool has_checkpoint = newest_checkpoint(checkpoints()).has_value();
    if (start == Start::fresh && used) {
        ::close(lock_);
        fail(Status::invalid_argument, "'", path_.string(),
             "' has a run already; --resume goes on with it, --overwrite begins anew, --out takes another folder");
    }
    if (start == Start::resume && !has_checkpoint) {
        ::close(lock_);
        fail(Status::invalid_argument, "there is no checkpoint in '", checkpoints().string(),
             "' to resume from; begin the run without --resume");
    }
    anew_ = start == Start::overwrite || (start == Start::resume_or_fresh && !has_checkpoint);
}

void RunFolder::clear() {
    if (!anew_) return;
    std::error_code ignored;
    fs::remove_all(checkpoints(), ignored);
    for (const fs::path& file : {metrics(), config(), report()}) fs::remove(file, ignored);
}

RunFolder::~RunFolder() {
    if (lock_ >= 0) ::close(lock_);
}

fs::path RunFolder::diagnostic(std::int64_t step) const { return path_ / ("diagnostic-step-" + std::to_string(step)); }

}  // namespace octet::train
