// Files that survive: written with a checksum, flushed to the disk, and put in place by a rename.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

namespace octet::train {

// XXH64 with seed 0, as `xxhsum -H64` prints it. Finds damage; it is no defence against malice.
class Checksum {
public:
    Checksum();
    void add(const void* data, std::size_t bytes);
    std::uint64_t value() const;

private:
    std::uint64_t lanes_[4];
    std::uint64_t total_ = 0;
    unsigned char pending_[32];
    std::size_t waiting_ = 0;  // bytes in pending_
};

std::uint64_t checksum_of(std::span<const std::byte> bytes);
std::string hex(std::uint64_t value);  // 16 digits

// A file being written. It is complete only after close(), which flushes it to the disk; the destructor of a file that
// was not closed leaves what was written, for whoever removes the temporary folder around it.
class DurableFile {
public:
    explicit DurableFile(std::filesystem::path path);  // throws Error(io_error), as every call does, naming the path
    ~DurableFile();
    DurableFile(const DurableFile&) = delete;
    DurableFile& operator=(const DurableFile&) = delete;

    void write(const void* data, std::size_t bytes);
    void write(const std::string& text) { write(text.data(), text.size()); }
    void close();
    std::uint64_t bytes() const { return bytes_; }
    std::uint64_t checksum() const { return checksum_.value(); }

private:
    std::filesystem::path path_;
    int descriptor_ = -1;
    std::uint64_t bytes_ = 0;
    Checksum checksum_{};
};

// The names in a folder reach the disk only when the folder itself is flushed.
void flush_folder(const std::filesystem::path& folder);

// Lets `write` fill a file beside `path` and renames it: a reader sees the old file or the new one, and where writing
// fails the old one stays. A device or a pipe is written to as it is.
void replace_file(const std::filesystem::path& path, const std::function<void(const std::filesystem::path&)>& write);
void write_in_place(const std::filesystem::path& path, const std::string& text);

// A whole file, mapped read-only.
class MappedFile {
public:
    MappedFile() = default;
    explicit MappedFile(const std::filesystem::path& path);
    ~MappedFile();
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;

    std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }
    const std::filesystem::path& path() const { return path_; }

private:
    std::filesystem::path path_{};
    void* data_ = nullptr;
    std::size_t size_ = 0;
};

}  // namespace octet::train
