// Random calls of the grouped products for `octet verify`, and how far a backend may be from the oracle: f32
// accumulation has a bound (docs/numerics.md), not one result.
#pragma once

#include "op_case.hpp"

namespace octet::tool {

struct ProductCase {
    OpCase op_case;
    std::int64_t reduction = 1;  // the longest sum
    bool adds = false;           // into what the output held
    bool eight_bits = false;     // both sides, scaled rowwise or blockwise: what tensor cores add with fewer bits
    bool fast = false;           // through the whole reduction
    double bound(Device device, Format out) const;
};

std::vector<std::string> product_op_names();

// Plain and quantized operands, every scaling and pair of formats, empty and one-row groups, tokens nobody owns,
// overwriting and adding; now and then a NaN.
ProductCase random_product_case(const std::string& op, Random& random);

// An empty string when `given` is within the bound of `expected`; otherwise what is wrong. Both were poisoned with
// `poison` beforehand: what the oracle left alone must be left alone.
std::string compare_products(const ProductCase& product, Device device, const Tensor& given, const Tensor& expected,
                             unsigned char poison);

// A whole step of GroupedLinear under a random recipe and mix of precisions, on a device against the scalar reference;
// the device makes it twice, and both must give the same bits. An empty string, or what is wrong.
std::string check_linear(Random& random, Device device, const Execution& on, std::string& text);

}  // namespace octet::tool
