#include "train/probe.hpp"

namespace octet::train {
namespace {

bool all_finite(const ConstTensorView& x) {
    const std::int64_t count = x.extents.elements();
    bool finite = true;
    if (x.format == Format::bf16) {
        const auto* codes = static_cast<const std::uint16_t*>(x.data);
        for (std::int64_t i = 0; i < count; ++i) finite &= (codes[i] & 0x7F80u) != 0x7F80u;
    } else {
        const auto* numbers = static_cast<const float*>(x.data);
        for (std::int64_t i = 0; i < count; ++i) finite &= detail::f32_abs_bits(numbers[i]) < 0x7F800000u;
    }
    return finite;
}

}  // namespace

void Probe::look(std::int64_t layer, const std::string& what, const ConstTensorView& x) {
    if (!found_ && !all_finite(x)) found_ = NonFinite{layer, what};
}

}  // namespace octet::train
