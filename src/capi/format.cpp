// Formats at the C ABI: names, and arrays of f32 to codes and back.
#include "octet/format.hpp"

#include <cstdint>

#include "capi/guard.hpp"
#include "capi/handles.hpp"

using namespace octet;
using namespace octet::capi;

static_assert(OCTET_F32 == static_cast<int>(Format::f32) && OCTET_BF16 == static_cast<int>(Format::bf16) &&
              OCTET_E4M3 == static_cast<int>(Format::e4m3) && OCTET_E4M3FNUZ == static_cast<int>(Format::e4m3fnuz) &&
              OCTET_E5M2 == static_cast<int>(Format::e5m2) && OCTET_E8M0 == static_cast<int>(Format::e8m0));

namespace {

void check_array(const void* pointer, std::int64_t count, std::int64_t element_bytes, const char* what) {
    constexpr std::int64_t largest = std::int64_t{1} << 48;  // bytes; no machine has more
    require(count >= 0 && count <= largest / element_bytes, "count is ", count,
            ", expected 0 or more, and no more elements than a machine has room for");
    if (count == 0) return;
    require(pointer != nullptr, what, " is NULL, expected an array of ", count, " elements");
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    require(address % static_cast<std::uintptr_t>(element_bytes) == 0, what, " is at address ", pointer,
            ", expected a multiple of its element's ", element_bytes, " bytes");
}

// Calls f with a pair of functions, f32 to code and code to f32.
template <class F>
void with_codec(Format format, F&& f) {
    switch (format) {
        case Format::f32: return f([](float x) { return x; }, [](float x) { return x; });
        case Format::bf16: return f(BF16::encode, BF16::decode);
        case Format::e4m3: return f(E4M3::encode, E4M3::decode);
        case Format::e4m3fnuz: return f(E4M3Fnuz::encode, E4M3Fnuz::decode);
        case Format::e5m2: return f(E5M2::encode, E5M2::decode);
        case Format::e8m0: return f(E8M0::encode_up, E8M0::decode);
    }
}

}  // namespace

extern "C" {

const char* octet_format_name(octet_format format) {
    const char* text = nullptr;
    guarded(__func__, [&] { text = name(checked_format(format)).data(); });
    return text;
}

octet_status octet_format_parse(const char* text, octet_format* format) {
    return guarded(__func__, [&] {
        auto& out = checked_pointer(format, "format");
        out = static_cast<octet_format>(parse_format(checked_text(text, "text")));
    });
}

octet_status octet_format_bytes(octet_format format, int64_t* bytes) {
    return guarded(__func__, [&] {
        auto& out = checked_pointer(bytes, "bytes");
        out = bytes_of(checked_format(format));
    });
}

octet_status octet_encode(octet_format format, const float* values, int64_t count, void* codes) {
    return guarded(__func__, [&] {
        const Format to = checked_format(format);
        check_array(values, count, sizeof(float), "values");
        check_array(codes, count, bytes_of(to), "codes");
        with_codec(to, [&](auto encode, auto) {
            using Code = decltype(encode(0.0f));
            for (std::int64_t i = 0; i < count; ++i) static_cast<Code*>(codes)[i] = encode(values[i]);
        });
    });
}

octet_status octet_decode(octet_format format, const void* codes, int64_t count, float* values) {
    return guarded(__func__, [&] {
        const Format from = checked_format(format);
        check_array(codes, count, bytes_of(from), "codes");
        check_array(values, count, sizeof(float), "values");
        with_codec(from, [&](auto encode, auto decode) {
            using Code = decltype(encode(0.0f));
            for (std::int64_t i = 0; i < count; ++i) values[i] = decode(static_cast<const Code*>(codes)[i]);
        });
    });
}

}  // extern "C"
