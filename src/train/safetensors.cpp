#include "train/safetensors.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "octet/error.hpp"

namespace octet::train {
namespace {

using Json = nlohmann::json;

struct TypeRow {
    StoredType type;
    std::string_view name;
    int bytes;
};
constexpr std::array<TypeRow, 15> types{{{StoredType::f32, "F32", 4},
                                         {StoredType::bf16, "BF16", 2},
                                         {StoredType::f16, "F16", 2},
                                         {StoredType::f64, "F64", 8},
                                         {StoredType::e4m3, "F8_E4M3", 1},
                                         {StoredType::e5m2, "F8_E5M2", 1},
                                         {StoredType::u8, "U8", 1},
                                         {StoredType::i8, "I8", 1},
                                         {StoredType::u16, "U16", 2},
                                         {StoredType::i16, "I16", 2},
                                         {StoredType::u32, "U32", 4},
                                         {StoredType::i32, "I32", 4},
                                         {StoredType::u64, "U64", 8},
                                         {StoredType::i64, "I64", 8},
                                         {StoredType::boolean, "BOOL", 1}}};
constexpr std::size_t length_bytes = 8;
constexpr std::uint64_t header_limit = 100'000'000;  // what Hugging Face's library accepts

const TypeRow& row_of(StoredType type) {
    return *std::find_if(types.begin(), types.end(), [&](const TypeRow& row) { return row.type == type; });
}

// Elements of a shape, or nothing when they do not fit a 64-bit number.
bool count_elements(const Shape& shape, std::uint64_t& elements) {
    elements = 1;
    for (const std::int64_t extent : shape)
        if (__builtin_mul_overflow(elements, static_cast<std::uint64_t>(extent), &elements)) return false;
    return true;
}

std::string header_of(std::span<const StoredTensor> tensors, const Metadata& metadata) {
    // Written by hand around nlohmann's strings, because the order of the tensors is the order of their elements.
    std::string text = "{";
    if (!metadata.empty()) text += "\"__metadata__\":" + Json(metadata).dump();
    std::set<std::string> seen;
    std::uint64_t offset = 0;
    for (const StoredTensor& tensor : tensors) {
        require(seen.insert(tensor.name).second, "two tensors named '", tensor.name, "' cannot be in one file");
        if (text.size() > 1) text += ',';
        const std::uint64_t end = offset + tensor.bytes();
        text += Json(tensor.name).dump() + ":{\"dtype\":\"" + std::string(name(tensor.type)) +
                "\",\"shape\":" + Json(tensor.shape).dump() + ",\"data_offsets\":[" + std::to_string(offset) + "," +
                std::to_string(end) + "]}";
        offset = end;
    }
    text += '}';
    text.resize((text.size() + 7) / 8 * 8, ' ');
    return text;
}

// Parses the header, refusing a name that occurs twice (the parser would keep the last of them).
Json parse_header(std::string_view text, const std::string& path) {
    std::set<std::string> names;
    const Json::parser_callback_t no_name_twice = [&](int depth, Json::parse_event_t event, Json& value) {
        if (depth == 1 && event == Json::parse_event_t::key && !names.insert(value.get<std::string>()).second)
            fail(Status::io_error, "'", path, "' has two tensors named '", value.get<std::string>(), "'");
        return true;
    };
    try {
        Json header = Json::parse(text, no_name_twice);
        if (header.is_object()) return header;
    } catch (const Json::exception&) {  // reported below
    }
    fail(Status::io_error, "'", path, "' is not a safetensors file: its header is not a JSON object");
}

std::uint64_t read_length(std::span<const std::byte> bytes) {
    std::uint64_t value = 0;
    for (std::size_t i = length_bytes; i-- > 0;) value = value << 8 | static_cast<std::uint64_t>(bytes[i]);
    return value;
}

struct Range {
    std::uint64_t begin, end;
    std::string name;
};

SafetensorsFile::Entry parse_entry(const std::string& path, const std::string& tensor, const Json& fields,
                                   Range& range) {
    SafetensorsFile::Entry entry;
    try {
        const std::string type = fields.at("dtype").get<std::string>();
        const auto row = std::find_if(types.begin(), types.end(), [&](const TypeRow& t) { return t.name == type; });
        if (row == types.end())
            fail(Status::unsupported, "tensor '", tensor, "' of '", path, "' has type ", type,
                 ", which Octet does not read");
        entry.type = row->type;
        if (!fields.at("shape").is_array())
            fail(Status::io_error, "tensor '", tensor, "' of '", path, "' has shape ", fields.at("shape").dump(),
                 ", expected a list");
        for (const Json& extent : fields.at("shape")) {
            if (!extent.is_number_unsigned() ||
                extent.get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()})
                fail(Status::io_error, "tensor '", tensor, "' of '", path, "' has an impossible shape ",
                     fields.at("shape").dump());
            entry.shape.push_back(extent.get<std::int64_t>());
        }
        const Json& offsets = fields.at("data_offsets");
        if (offsets.size() != 2 || !offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned())
            fail(Status::io_error, "tensor '", tensor, "' of '", path, "' has data_offsets ", offsets.dump(),
                 ", expected two numbers that are not negative");
        range = {offsets[0].get<std::uint64_t>(), offsets[1].get<std::uint64_t>(), tensor};
    } catch (const Json::exception&) {
        fail(Status::io_error, "tensor '", tensor, "' of '", path,
             "' is described wrongly; expected dtype, shape and data_offsets, found ", fields.dump());
    }
    return entry;
}

}  // namespace

std::string_view name(StoredType type) { return row_of(type).name; }
int bytes_of(StoredType type) { return row_of(type).bytes; }

StoredType stored_type(Format format) {
    switch (format) {
        case Format::f32: return StoredType::f32;
        case Format::bf16: return StoredType::bf16;
        case Format::e4m3: return StoredType::e4m3;
        case Format::e5m2: return StoredType::e5m2;
        case Format::e8m0: return StoredType::u8;
        default: fail(Status::unsupported, "safetensors has no type for ", octet::name(format));
    }
}

std::string to_string(const Shape& shape) {
    std::string text = "[";
    for (std::size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
    return text + "]";
}

std::size_t StoredTensor::bytes() const {
    std::uint64_t elements = 0;
    require(count_elements(shape, elements), "tensor '", name, "' has an impossible shape ", to_string(shape));
    return elements * static_cast<std::size_t>(bytes_of(type));
}

StoredTensor stored(std::string name, TensorView view) {
    require(view.extents.contiguous(), "tensor '", name, "' is not contiguous and cannot be stored");
    const auto begin = view.extents.shape.begin();
    return {std::move(name), stored_type(view.format), Shape(begin, begin + view.rank()), view.data};
}

StoredTensor stored(std::string name, std::span<std::int32_t> values) {
    return {std::move(name), StoredType::i32, {static_cast<std::int64_t>(values.size())}, values.data()};
}

WrittenFile write_safetensors(const std::filesystem::path& path, std::span<const StoredTensor> tensors,
                              const Metadata& metadata) {
    const std::string header = header_of(tensors, metadata);
    DurableFile file(path);
    unsigned char length[length_bytes];
    for (std::size_t i = 0; i < length_bytes; ++i) length[i] = static_cast<unsigned char>(header.size() >> (8 * i));
    file.write(length, sizeof length);
    file.write(header);
    for (const StoredTensor& tensor : tensors) file.write(tensor.data, tensor.bytes());
    file.close();
    return {file.bytes(), file.checksum()};
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(path) {
    const std::string where = path.string();
    const std::span<const std::byte> bytes = file_.bytes();
    if (bytes.size() < length_bytes)
        fail(Status::io_error, "'", where, "' has ", bytes.size(),
             " bytes: it is not a safetensors file, or truncated");
    const std::uint64_t length = read_length(bytes);
    if (length > header_limit || length > bytes.size() - length_bytes)
        fail(Status::io_error, "'", where, "' says its header has ", length, " bytes and the file has ", bytes.size(),
             ": it is not a safetensors file, or truncated");
    const Json header = parse_header(
        {reinterpret_cast<const char*>(bytes.data()) + length_bytes, static_cast<std::size_t>(length)}, where);
    const std::span<const std::byte> elements = bytes.subspan(length_bytes + static_cast<std::size_t>(length));

    std::vector<Range> ranges;
    for (const auto& [tensor, fields] : header.items()) {
        if (tensor == "__metadata__") {
            for (const auto& [key, value] : fields.items())
                metadata_[key] = value.is_string() ? value.get<std::string>() : value.dump();
            continue;
        }
        Range range{};
        Entry entry = parse_entry(where, tensor, fields, range);
        std::uint64_t count = 0;
        const bool fits = range.begin <= range.end && range.end <= elements.size();
        if (!fits)
            fail(Status::io_error, "tensor '", tensor, "' of '", where, "' is at bytes ", range.begin, " to ",
                 range.end, " of ", elements.size(), ": the file is truncated or damaged");
        if (!count_elements(entry.shape, count) || count > elements.size() ||
            count * static_cast<std::uint64_t>(bytes_of(entry.type)) != range.end - range.begin)
            fail(Status::io_error, "tensor '", tensor, "' of '", where, "' is ", train::name(entry.type), " ",
                 to_string(entry.shape), " and has ", range.end - range.begin, " bytes: the header is damaged");
        entry.data =
            elements.subspan(static_cast<std::size_t>(range.begin), static_cast<std::size_t>(range.end - range.begin));
        entries_.emplace(tensor, std::move(entry));
        ranges.push_back(std::move(range));
    }
    std::sort(ranges.begin(), ranges.end(),
              [](const Range& a, const Range& b) { return std::tie(a.begin, a.end) < std::tie(b.begin, b.end); });
    std::uint64_t expected = 0;
    for (const Range& range : ranges) {
        if (range.begin != expected)
            fail(Status::io_error, "tensor '", range.name, "' of '", where, "' starts at byte ", range.begin,
                 ", expected ", expected, ": tensors overlap or leave a hole");
        expected = range.end;
    }
    if (expected != elements.size())
        fail(Status::io_error, "'", where, "' has ", elements.size() - expected, " bytes after its last tensor");
}

void SafetensorsFile::require_same(std::span<const StoredTensor> wanted, const std::string& owner) const {
    const std::string where = file_.path().string();
    std::set<std::string> names;
    for (const StoredTensor& tensor : wanted) {
        names.insert(tensor.name);
        const auto found = entries_.find(tensor.name);
        require(found != entries_.end(), owner, " has a tensor '", tensor.name, "' and '", where, "' has not");
        const Entry& entry = found->second;
        require(entry.type == tensor.type && entry.shape == tensor.shape, "tensor '", tensor.name, "' is ",
                train::name(entry.type), " ", to_string(entry.shape), " in '", where, "' and ",
                train::name(tensor.type), " ", to_string(tensor.shape), " in ", owner);
    }
    for (const auto& [tensor, entry] : entries_)
        require(names.count(tensor) == 1, "'", where, "' has a tensor '", tensor, "' and ", owner, " has not");
}

void SafetensorsFile::copy_to(std::span<const StoredTensor> wanted) const {
    for (const StoredTensor& tensor : wanted) {
        const std::span<const std::byte> data = entries_.at(tensor.name).data;
        if (!data.empty()) std::memcpy(tensor.data, data.data(), data.size());
    }
}

}  // namespace octet::train
