// Calls without tensors.
#include <cstring>
#include <string>

#include "fuzz/guarded.hpp"
#include "fuzz/hostile_call.hpp"
#include "fuzz/plan.hpp"

namespace octet::fuzz {
namespace {

std::string hostile_text(Choices& choices) {
    constexpr const char* pieces[] = {
        "fp8_rowwise", "fp8_blockwise", "mxfp8",        "bf16",         ":",      ",",       "=",
        "scales",      "exact",         "gradient",     "e5m2",         "e4m3",   "mx",      "rceil",
        "even",        "wgrad",         "accumulation", "fast",         "format", "scaling", "\xff",
        " ",           "%s%n",          "f32",          "power_of_two", ""};
    std::string text;
    for (std::int64_t n = choices.below(7); n > 0; --n) text += choices.of(pieces);
    if (choices.one_in(20)) text += std::string(5000, 'x');
    return text;
}

void insist(bool condition, const char* what) {
    if (!condition) throw Broken(std::string(what) + "; last error: " + octet_last_error());
}

Outcome hostile_recipe(Choices& choices) {
    const std::string text = hostile_text(choices);
    octet_recipe* recipe = nullptr;
    const char* given = choices.one_in(15) ? nullptr : text.c_str();
    if (octet_recipe_parse(given, choices.one_in(15) ? nullptr : &recipe) != OCTET_OK) {
        insist(recipe == nullptr, "octet_recipe_parse failed and wrote its handle");
        return Outcome::refused;
    }
    // What it prints, it parses again to the same.
    std::size_t needed = 0;
    insist(octet_recipe_print(recipe, nullptr, 0, &needed) == OCTET_OK && needed > 1,
           "octet_recipe_print gave no size");
    Guarded buffer(needed, 0, 0xA5);
    buffer.remember();
    auto* out = reinterpret_cast<char*>(buffer.data());
    insist(octet_recipe_print(recipe, out, needed - 1, nullptr) == OCTET_INVALID_ARGUMENT && buffer.unchanged(),
           "octet_recipe_print wrote to a buffer that is too small");
    insist(octet_recipe_print(recipe, out, needed, nullptr) == OCTET_OK && buffer.canaries_alive(),
           "octet_recipe_print");
    octet_recipe* again = nullptr;
    insist(octet_recipe_parse(out, &again) == OCTET_OK, "a printed recipe did not parse");
    std::string second(needed, '\0');
    insist(
        octet_recipe_print(again, second.data(), needed, nullptr) == OCTET_OK && std::strcmp(second.c_str(), out) == 0,
        "a recipe changed when printed and parsed");
    octet_quantize_options* options = nullptr;
    const auto role = static_cast<octet_role>(choices.between(-1, 3));
    const octet_status status = octet_quantize_options_from_recipe(recipe, role, &options);
    insist((status == OCTET_OK) == (options != nullptr), "octet_quantize_options_from_recipe");
    insist(status != OCTET_OK || (role >= 0 && role <= 2), "an unknown role was accepted");
    octet_quantize_options_destroy(options);
    octet_recipe_destroy(again);
    octet_recipe_destroy(recipe);
    return Outcome::accepted;
}

Outcome hostile_array(Choices& choices) {
    const auto format = static_cast<octet_format>(choices.between(-1, 6));
    const bool known = format >= 0 && format <= 5;
    std::int64_t count = choices.between(0, 40);
    const auto unit = static_cast<std::size_t>(known ? bytes_of(format) : 1);
    const bool shifted = choices.one_in(5), null_in = choices.one_in(8), null_out = choices.one_in(8);
    const bool encoding = choices.one_in(2);
    const auto elements = static_cast<std::size_t>(count);
    Guarded values(elements * 4, shifted ? 1 : 0, 0x41), codes(elements * unit, 0, 0x5A);
    if (choices.one_in(6)) count = choices.of(absurd);
    values.remember(), codes.remember();
    auto* f32 = reinterpret_cast<float*>(values.data());
    const octet_status status =
        encoding ? octet_encode(format, null_in ? nullptr : f32, count, null_out ? nullptr : codes.data())
                 : octet_decode(format, null_in ? nullptr : codes.data(), count, null_out ? nullptr : f32);
    const bool valid = known && count >= 0 && count <= 40 && (count == 0 || !(shifted || null_in || null_out));
    insist((status == OCTET_OK) == valid, encoding ? "octet_encode" : "octet_decode");
    insist(values.canaries_alive() && codes.canaries_alive(), "octet_encode or octet_decode wrote past its array");
    const Guarded& kept = encoding ? values : codes;
    insist(kept.unchanged() && (valid || (values.unchanged() && codes.unchanged())), "octet_encode or octet_decode");
    return valid ? Outcome::accepted : Outcome::refused;
}

Outcome hostile_sizes(Choices& choices) {
    const auto size = [&] { return choices.one_in(3) ? choices.of(absurd) : choices.between(0, 200); };
    const std::int64_t a = size(), b = size(), c = size();
    const auto sane = [](std::int64_t value) { return value >= 0 && value <= 200; };
    std::int64_t out = -77;
    octet_status status = OCTET_OK;
    bool valid = sane(a) && sane(b);
    switch (choices.below(4)) {
        case 0:
            status = octet_padded_bound(a, b, c, &out);
            valid = valid && sane(c) && c > 0;
            break;
        case 1: status = octet_swizzled_bytes(a, b, &out); break;
        case 2:
            status = octet_swizzled_group_bytes(a, b, c, &out);
            valid = valid && sane(c);
            break;
        default:
            insist(octet_padded_bound(1, 1, 1, nullptr) == OCTET_INVALID_ARGUMENT, "a null result was accepted");
            insist(octet_swizzled_bytes(1, 1, nullptr) == OCTET_INVALID_ARGUMENT, "a null result was accepted");
            insist(octet_swizzled_group_bytes(1, 1, 1, nullptr) == OCTET_INVALID_ARGUMENT,
                   "a null result was accepted");
            return Outcome::refused;
    }
    // Some absurd sizes still have an answer; none may be negative, and a refused call leaves the result alone.
    insist(!valid || status == OCTET_OK, "a sane size was refused");
    insist(status == OCTET_OK ? out >= 0 : out == -77, "a size is negative, or was written by a call that failed");
    return status == OCTET_OK ? Outcome::accepted : Outcome::refused;
}

Outcome hostile_names(Choices& choices) {
    const auto number = static_cast<std::int32_t>(choices.between(-3, 9));
    insist(octet_status_name(number) != nullptr, "octet_status_name");
    insist((octet_format_name(number) != nullptr) == (number >= 0 && number <= 5), "octet_format_name");
    std::int64_t bytes = -77;
    const bool known = octet_format_bytes(number, &bytes) == OCTET_OK;
    insist(known == (number >= 0 && number <= 5) && (known || bytes == -77), "octet_format_bytes");
    octet_quantize_options* options = nullptr;
    insist(octet_quantize_options_create(&options) == OCTET_OK, "octet_quantize_options_create");
    const std::string name = hostile_text(choices), value = hostile_text(choices);
    const octet_status status = octet_quantize_options_set(choices.one_in(10) ? nullptr : options, name.c_str(),
                                                           choices.one_in(10) ? nullptr : value.c_str());
    char text[64];
    std::memset(text, 0x7E, sizeof text);
    const octet_status got =
        octet_quantize_options_get(options, name.c_str(), text, static_cast<std::size_t>(choices.below(65)), nullptr);
    insist(got == OCTET_OK || text[0] == 0x7E, "octet_quantize_options_get failed and wrote");
    octet_format format = -77;
    insist(octet_format_parse(value.c_str(), &format) == OCTET_OK || format == -77, "octet_format_parse");
    octet_quantize_options_destroy(options);
    return status == OCTET_OK ? Outcome::accepted : Outcome::refused;
}

}  // namespace

Outcome hostile_small_call(Choices& choices) {
    switch (choices.below(4)) {
        case 0: return hostile_recipe(choices);
        case 1: return hostile_array(choices);
        case 2: return hostile_sizes(choices);
        default: return hostile_names(choices);
    }
}

}  // namespace octet::fuzz
