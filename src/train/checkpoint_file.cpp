#include "train/checkpoint_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "octet/error.hpp"

namespace octet::train {
namespace {

constexpr std::uint64_t prime1 = 0x9E3779B185EBCA87u, prime2 = 0xC2B2AE3D27D4EB4Fu, prime3 = 0x165667B19E3779F9u,
                        prime4 = 0x85EBCA77C2B2AE63u, prime5 = 0x27D4EB2F165667C5u;

template <class T>
T load(const unsigned char* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

std::uint64_t round_of(std::uint64_t lane, std::uint64_t input) {
    return std::rotl(lane + input * prime2, 31) * prime1;
}

void add_block(std::uint64_t (&lanes)[4], const unsigned char* block) {
    for (std::size_t i = 0; i < 4; ++i) lanes[i] = round_of(lanes[i], load<std::uint64_t>(block + 8 * i));
}

[[noreturn]] void fail_io(const std::string& what, const std::filesystem::path& path) {
    const int error = errno;
    std::string advice;
    if (error == ENOSPC || error == EDQUOT) advice = "; free some space or choose another --out";
    if (error == EFBIG) advice = "; a limit on file sizes is in force (ulimit -f)";
    fail(Status::io_error, "could not ", what, " '", path.string(), "': ", std::strerror(error), advice);
}

}  // namespace

Checksum::Checksum() : lanes_{prime1 + prime2, prime2, 0, 0 - prime1}, pending_{} {}

void Checksum::add(const void* data, std::size_t bytes) {
    const auto* at = static_cast<const unsigned char*>(data);
    total_ += bytes;
    if (waiting_ > 0) {
        const std::size_t taken = std::min(bytes, sizeof pending_ - waiting_);
        std::memcpy(pending_ + waiting_, at, taken);
        waiting_ += taken, at += taken, bytes -= taken;
        if (waiting_ < sizeof pending_) return;
        add_block(lanes_, pending_);
        waiting_ = 0;
    }
    for (; bytes >= 32; at += 32, bytes -= 32) add_block(lanes_, at);
    if (bytes > 0) std::memcpy(pending_, at, bytes);
    waiting_ = bytes;
}

std::uint64_t Checksum::value() const {
    std::uint64_t hash = lanes_[2] + prime5;
    if (total_ >= 32) {
        hash = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) + std::rotl(lanes_[3], 18);
        for (const std::uint64_t lane : lanes_) hash = (hash ^ round_of(0, lane)) * prime1 + prime4;
    }
    hash += total_;
    const unsigned char* at = pending_;
    std::size_t left = waiting_;
    for (; left >= 8; at += 8, left -= 8)
        hash = std::rotl(hash ^ round_of(0, load<std::uint64_t>(at)), 27) * prime1 + prime4;
    if (left >= 4) {
        hash = std::rotl(hash ^ load<std::uint32_t>(at) * prime1, 23) * prime2 + prime3;
        at += 4, left -= 4;
    }
    for (; left > 0; ++at, --left) hash = std::rotl(hash ^ *at * prime5, 11) * prime1;
    hash = (hash ^ hash >> 33) * prime2;
    hash = (hash ^ hash >> 29) * prime3;
    return hash ^ hash >> 32;
}

std::uint64_t checksum_of(std::span<const std::byte> bytes) {
    Checksum checksum;
    checksum.add(bytes.data(), bytes.size());
    return checksum.value();
}

std::string hex(std::uint64_t value) {
    std::string text(16, '0');
    for (std::size_t i = 16; i-- > 0; value >>= 4) text[i] = "0123456789abcdef"[value & 15];
    return text;
}

DurableFile::DurableFile(std::filesystem::path path) : path_(std::move(path)) {
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (descriptor_ < 0) fail_io("create", path_);
}

DurableFile::~DurableFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

void DurableFile::write(const void* data, std::size_t bytes) {
    checksum_.add(data, bytes);
    bytes_ += bytes;
    const auto* at = static_cast<const char*>(data);
    while (bytes > 0) {
        const ssize_t written = ::write(descriptor_, at, std::min(bytes, std::size_t{1} << 30));
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) fail_io("write", path_);
        at += written, bytes -= static_cast<std::size_t>(written);
    }
}

void DurableFile::close() {
    if (::fsync(descriptor_) != 0 && errno != EINVAL) fail_io("flush", path_);  // EINVAL: a device or a pipe
    if (::close(std::exchange(descriptor_, -1)) != 0) fail_io("close", path_);
}

void flush_folder(const std::filesystem::path& folder) {
    const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) fail_io("open", folder);
    const int result = ::fsync(descriptor);
    const int error = errno;
    ::close(descriptor);
    errno = error;
    if (result != 0) fail_io("flush", folder);
}

void replace_file(const std::filesystem::path& path, const std::function<void(const std::filesystem::path&)>& write) {
    namespace fs = std::filesystem;
    std::error_code error;
    if (fs::exists(path, error) && !fs::is_regular_file(path, error)) return write(path);
    const fs::path real = fs::weakly_canonical(path, error);  // what a link points to is replaced, not the link
    const fs::path target = error ? path : real;
    fs::path temporary = target;
    temporary += ".tmp";
    try {
        write(temporary);
        if (::rename(temporary.c_str(), target.c_str()) != 0) fail_io("rename to", target);
    } catch (...) {
        fs::remove(temporary, error);
        throw;
    }
    flush_folder(target.has_parent_path() ? target.parent_path() : ".");
}

void write_in_place(const std::filesystem::path& path, const std::string& text) {
    replace_file(path, [&](const std::filesystem::path& temporary) {
        DurableFile file(temporary);
        file.write(text);
        file.close();
    });
}

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) fail_io("open", path);
    struct stat status {};
    if (::fstat(descriptor, &status) != 0) {
        ::close(descriptor);
        fail_io("look at", path);
    }
    if (!S_ISREG(status.st_mode)) {
        ::close(descriptor);
        fail(Status::io_error, "'", path.string(), "' is not a file", S_ISDIR(status.st_mode) ? " but a folder" : "");
    }
    size_ = static_cast<std::size_t>(status.st_size);
    if (size_ > 0) data_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
    const int error = errno;
    ::close(descriptor);
    errno = error;
    if (data_ == MAP_FAILED) {
        data_ = nullptr;
        fail_io("map", path);
    }
}

MappedFile::~MappedFile() {
    if (data_ != nullptr) ::munmap(data_, size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
}

}  // namespace octet::train
