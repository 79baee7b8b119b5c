#include "octet/recipe.hpp"

#include <charconv>
#include <system_error>

#include "core/names.hpp"

namespace octet {
namespace {

constexpr NamedValue<Scaling> scalings[] = {
    {Scaling::rowwise, "rowwise"}, {Scaling::blockwise, "blockwise"}, {Scaling::mx, "mx"}};
constexpr NamedValue<ScaleRounding> roundings[] = {{ScaleRounding::power_of_two, "power_of_two"},
                                                   {ScaleRounding::exact, "exact"}};
constexpr NamedValue<MxMode> mx_modes[] = {
    {MxMode::rceil, "rceil"}, {MxMode::floor, "floor"}, {MxMode::ceil, "ceil"}, {MxMode::even, "even"}};
constexpr NamedValue<RecipeKind> kinds[] = {{RecipeKind::bf16, "bf16"},
                                            {RecipeKind::fp8_rowwise, "fp8_rowwise"},
                                            {RecipeKind::fp8_blockwise, "fp8_blockwise"},
                                            {RecipeKind::mxfp8, "mxfp8"}};
constexpr NamedValue<Accumulation> accumulations[] = {{Accumulation::promoted, "promoted"},
                                                      {Accumulation::fast, "fast"}};
constexpr NamedValue<WgradPrecision> wgrads[] = {{WgradPrecision::fp8, "fp8"}, {WgradPrecision::bf16, "bf16"}};
constexpr NamedValue<ProductPrecision> precisions[] = {
    {ProductPrecision::automatic, "auto"}, {ProductPrecision::fp8, "fp8"}, {ProductPrecision::bf16, "bf16"}};
constexpr NamedValue<Format> formats[] = {{Format::f32, "f32"},   {Format::bf16, "bf16"},
                                          {Format::e4m3, "e4m3"}, {Format::e4m3fnuz, "e4m3fnuz"},
                                          {Format::e5m2, "e5m2"}, {Format::e8m0, "e8m0"}};

template <class Enum, std::size_t N>
std::string_view lookup(const NamedValue<Enum> (&table)[N], Enum value) {
    return name_in<Enum>(table, value);
}

template <class Enum, std::size_t N>
Enum find(const NamedValue<Enum> (&table)[N], std::string_view what, std::string_view text) {
    return parse_in<Enum>(table, what, text);
}

Format find_fp8(std::string_view what, std::string_view text) {
    const Format format = find(formats, what, text);
    require(is_fp8(format), what, " is '", text, "', expected an 8-bit element format: e4m3, e4m3fnuz or e5m2");
    return format;
}

std::int64_t parse_uses(std::string_view text) {
    std::int64_t uses = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), uses);
    require(error == std::errc{} && end == text.data() + text.size() && uses >= 1, "weight_uses is '", text,
            "', expected a whole number of forward passes, at least 1");
    return uses;
}

void set_option(Recipe& recipe, std::string_view key, std::string_view value) {
    if (key == "format") {
        recipe.format = find_fp8("format", value);
    } else if (key == "gradient") {
        recipe.gradient_format = find_fp8("gradient format", value);
    } else if (key == "scales") {
        recipe.scale_rounding = find(roundings, "scale rounding", value);
    } else if (key == "mx") {
        recipe.mx_mode = find(mx_modes, "mx mode", value);
    } else if (key == "forward") {
        recipe.forward = find(precisions, "forward precision", value);
    } else if (key == "dgrad") {
        recipe.dgrad = find(precisions, "dgrad precision", value);
    } else if (key == "wgrad") {
        recipe.wgrad = find(wgrads, "wgrad precision", value);
    } else if (key == "weight_uses") {
        recipe.weight_uses = parse_uses(value);
    } else if (key == "accumulation") {
        recipe.accumulation = find(accumulations, "accumulation", value);
    } else {
        fail(Status::invalid_argument, "unknown recipe option '", key,
             "'; known: format, gradient, scales, mx, forward, dgrad, wgrad, weight_uses, accumulation");
    }
}

// Options that mean nothing for a recipe are refused rather than ignored.
void check_option_applies(const Recipe& recipe, std::string_view key) {
    const bool mx_only = key == "mx", scaled_only = key == "scales";
    const bool applies = recipe.quantizes() && !(mx_only && recipe.kind != RecipeKind::mxfp8) &&
                         !(scaled_only && recipe.kind == RecipeKind::mxfp8);
    require(applies, "recipe ", name(recipe.kind), " has no option '", key, "'; leave it out");
}

}  // namespace

std::string_view name(Scaling scaling) { return lookup(scalings, scaling); }
std::string_view name(ScaleRounding rounding) { return lookup(roundings, rounding); }
std::string_view name(MxMode mode) { return lookup(mx_modes, mode); }
std::string_view name(RecipeKind kind) { return lookup(kinds, kind); }
std::string_view name(Accumulation accumulation) { return lookup(accumulations, accumulation); }
std::string_view name(ProductPrecision precision) { return lookup(precisions, precision); }
std::string_view name(WgradPrecision wgrad) { return lookup(wgrads, wgrad); }
std::string_view name(Format format) { return lookup(formats, format); }

Scaling parse_scaling(std::string_view text) { return find(scalings, "scaling", text); }
ScaleRounding parse_scale_rounding(std::string_view text) { return find(roundings, "scale rounding", text); }
MxMode parse_mx_mode(std::string_view text) { return find(mx_modes, "mx mode", text); }
Format parse_format(std::string_view text) { return find(formats, "format", text); }

Recipe Recipe::of(RecipeKind kind) {
    Recipe recipe;
    recipe.kind = kind;
    // Blocks of 128 have a smaller range to cover, and the formulation they come from keeps their scales exact.
    if (kind == RecipeKind::fp8_blockwise) recipe.scale_rounding = ScaleRounding::exact;
    if (kind == RecipeKind::bf16) {
        recipe.forward = recipe.dgrad = ProductPrecision::bf16;
        recipe.wgrad = WgradPrecision::bf16;
    }
    return recipe;
}

Scaling Recipe::scaling() const {
    switch (kind) {
        case RecipeKind::fp8_rowwise: return Scaling::rowwise;
        case RecipeKind::fp8_blockwise: return Scaling::blockwise;
        case RecipeKind::mxfp8: return Scaling::mx;
        case RecipeKind::bf16: break;
    }
    fail(Status::invalid_argument, "recipe bf16 has no scaling: it does not quantize");
}

std::string to_string(const Recipe& recipe) {
    const Recipe plain = Recipe::of(recipe.kind);
    std::string options;
    const auto add = [&](std::string_view key, std::string_view value, bool differs) {
        if (differs) options += (options.empty() ? ":" : ",") + std::string(key) + "=" + std::string(value);
    };
    add("format", name(recipe.format), recipe.format != plain.format);
    add("gradient", name(recipe.gradient_format), recipe.gradient_format != plain.gradient_format);
    add("scales", name(recipe.scale_rounding), recipe.scale_rounding != plain.scale_rounding);
    add("mx", name(recipe.mx_mode), recipe.mx_mode != plain.mx_mode);
    add("forward", name(recipe.forward), recipe.forward != plain.forward);
    add("dgrad", name(recipe.dgrad), recipe.dgrad != plain.dgrad);
    add("wgrad", name(recipe.wgrad), recipe.wgrad != plain.wgrad);
    add("weight_uses", std::to_string(recipe.weight_uses), recipe.weight_uses != plain.weight_uses);
    add("accumulation", name(recipe.accumulation), recipe.accumulation != plain.accumulation);
    return std::string(name(recipe.kind)) + options;
}

Recipe parse_recipe(std::string_view text) {
    const std::size_t colon = text.find(':');
    Recipe recipe = Recipe::of(find(kinds, "recipe", text.substr(0, colon)));
    if (colon == std::string_view::npos) return recipe;
    std::string_view rest = text.substr(colon + 1);
    while (true) {
        const std::size_t comma = rest.find(',');
        const std::string_view option = rest.substr(0, comma);
        const std::size_t equals = option.find('=');
        require(equals != std::string_view::npos, "recipe option '", option, "' in '", text,
                "' has no value; write it as name=value");
        check_option_applies(recipe, option.substr(0, equals));
        set_option(recipe, option.substr(0, equals), option.substr(equals + 1));
        if (comma == std::string_view::npos) return recipe;
        rest.remove_prefix(comma + 1);
    }
}

}  // namespace octet
