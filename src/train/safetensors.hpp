// The safetensors file format: 8 bytes of header length (little-endian), a JSON header
//   {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ..., "__metadata__": {"key": "text"}}
// padded with spaces to a multiple of 8, then the tensors' elements, one after the other, without holes.
//
// Reading trusts nothing: a file that is truncated, whose offsets overlap, leave holes or leave the file, or whose
// shapes do not match its sizes, is refused with the tensor's name and the numbers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octet/tensor.hpp"
#include "train/checkpoint_file.hpp"

namespace octet::train {

enum class StoredType : std::uint8_t { f32, bf16, f16, f64, e4m3, e5m2, u8, i8, u16, i16, u32, i32, u64, i64, boolean };

std::string_view name(StoredType type);  // as the format writes it: "F32", "BF16", "F8_E4M3", "I64" ...
int bytes_of(StoredType type);
StoredType stored_type(Format format);  // throws for formats that safetensors has no name for

using Shape = std::vector<std::int64_t>;
std::string to_string(const Shape& shape);  // "[2, 3]"

// A tensor in memory, to be written or to be filled.
struct StoredTensor {
    std::string name;
    StoredType type = StoredType::f32;
    Shape shape{};
    void* data = nullptr;
    std::size_t bytes() const;
};

StoredTensor stored(std::string name, TensorView view);  // a contiguous one
StoredTensor stored(std::string name, std::span<std::int32_t> values);

using Metadata = std::map<std::string, std::string>;

struct WrittenFile {
    std::uint64_t bytes = 0, checksum = 0;
};

// Elements are written in the order given, and flushed. Names must differ.
WrittenFile write_safetensors(const std::filesystem::path& path, std::span<const StoredTensor> tensors,
                              const Metadata& metadata);

class SafetensorsFile {
public:
    struct Entry {
        StoredType type = StoredType::f32;
        Shape shape{};
        std::span<const std::byte> data{};
    };

    explicit SafetensorsFile(const std::filesystem::path& path);  // maps it and checks all of the header

    const std::map<std::string, Entry>& entries() const { return entries_; }
    const Metadata& metadata() const { return metadata_; }
    const MappedFile& file() const { return file_; }

    // Every tensor of `wanted`, and no other, with the same type and shape; otherwise throws naming the first
    // difference. `owner` is what the tensors belong to, for the message: "this model".
    void require_same(std::span<const StoredTensor> wanted, const std::string& owner) const;
    void copy_to(std::span<const StoredTensor> wanted) const;  // after require_same

private:
    MappedFile file_;
    std::map<std::string, Entry> entries_{};
    Metadata metadata_{};
};

}  // namespace octet::train
