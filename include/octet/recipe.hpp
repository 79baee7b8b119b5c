// Recipes: a named, complete choice of how a product is made in 8 bits.
#pragma once

#include <string>
#include <string_view>

#include "octet/format.hpp"

namespace octet {

// Which elements share a scale.
enum class Scaling : std::uint8_t {
    rowwise,    // 1 x K: a whole row (or a group's column)
    blockwise,  // 1 x 128 activations, 128 x 128 weights
    mx,         // 1 x 32, the scale is a power of two in one byte
};

enum class ScaleRounding : std::uint8_t { power_of_two, exact };
enum class MxMode : std::uint8_t { rceil, floor, ceil, even };

std::string_view name(Scaling scaling);
std::string_view name(ScaleRounding rounding);
std::string_view name(MxMode mode);
Scaling parse_scaling(std::string_view text);
ScaleRounding parse_scale_rounding(std::string_view text);
MxMode parse_mx_mode(std::string_view text);

// Elements along the reduction that share a scale; 0 when all of them do.
constexpr std::int64_t block_of(Scaling scaling) {
    return scaling == Scaling::blockwise ? 128 : scaling == Scaling::mx ? 32 : 0;
}

enum class RecipeKind : std::uint8_t { bf16, fp8_rowwise, fp8_blockwise, mxfp8 };
enum class Accumulation : std::uint8_t { promoted, fast };  // f32 every 128 of the reduction | the tensor cores' own
enum class WgradPrecision : std::uint8_t { fp8, bf16 };
// Of forward and of dgrad. automatic: 8 bits, or bf16 where a cost model of the GPU says that the casts cost more than
// 8 bits save; on the CPU always 8 bits. bf16 products read the weights as they are and need no cast for the product.
enum class ProductPrecision : std::uint8_t { automatic, fp8, bf16 };

struct Recipe {
    RecipeKind kind = RecipeKind::fp8_rowwise;
    Format format = Format::e4m3;           // weights and activations
    Format gradient_format = Format::e4m3;  // dY
    ScaleRounding scale_rounding = ScaleRounding::power_of_two;
    MxMode mx_mode = MxMode::rceil;
    ProductPrecision forward = ProductPrecision::automatic;
    ProductPrecision dgrad = ProductPrecision::automatic;
    WgradPrecision wgrad = WgradPrecision::fp8;
    std::int64_t weight_uses = 1;  // forward passes between two changes of the weights, as the cost model counts them
    Accumulation accumulation = Accumulation::promoted;

    static Recipe of(RecipeKind kind);  // the kind with its default options
    bool quantizes() const { return kind != RecipeKind::bf16; }
    Scaling scaling() const;  // throws for bf16
    friend bool operator==(const Recipe&, const Recipe&) = default;
};

// "fp8_rowwise", or with options that differ from the kind's defaults: "fp8_rowwise:scales=exact,gradient=e5m2".
// Options: format, gradient, scales (power_of_two | exact), mx (rceil | floor | ceil | even), forward and dgrad
// (auto | fp8 | bf16), wgrad (fp8 | bf16), weight_uses (a number), accumulation (promoted | fast).
std::string to_string(const Recipe& recipe);
Recipe parse_recipe(std::string_view text);

std::string_view name(RecipeKind kind);
std::string_view name(Accumulation accumulation);
std::string_view name(ProductPrecision precision);
std::string_view name(WgradPrecision wgrad);

}  // namespace octet
