// Random and adversarial inputs for the CPU quantizers, and outputs that show every byte that was or was not written.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "octet/memory.hpp"
#include "octet/quantize.hpp"

namespace octet::cpu::test {

class Random {
public:
    explicit Random(std::uint32_t seed) : engine_(seed) {}
    std::uint32_t bits() { return static_cast<std::uint32_t>(engine_()); }
    std::int64_t between(std::int64_t low, std::int64_t high) {
        return std::uniform_int_distribution<std::int64_t>(low, high)(engine_);
    }
    float normal() { return std::normal_distribution<float>()(engine_); }
    bool chance(double probability) { return std::bernoulli_distribution(probability)(engine_); }
    template <class T>
    T pick(std::initializer_list<T> choices) {
        return choices.begin()[between(0, static_cast<std::int64_t>(choices.size()) - 1)];
    }

private:
    std::mt19937 engine_;
};

// One value of a kind of data. The kinds: what training sees, everything f32 can hold that is finite, halves between
// two 8-bit values, subnormals and zeros of both signs, and values with NaN or infinity among them.
enum class Data { normal, wide, ties, tiny, with_infinity, with_nan, wild };

inline float value_of(Data kind, Random& random) {
    switch (kind) {
        case Data::normal: return random.normal();
        case Data::wide: {
            const std::uint32_t bits = random.bits();
            return octet::detail::f32_from_bits((bits & 0x7F800000u) == 0x7F800000u ? bits & 0xBFFFFFFFu : bits);
        }
        case Data::ties: {
            // 5 significant bits end in a one: halfway between two values of 3 bits of mantissa; 4 of 2 bits.
            const int significand = static_cast<int>(random.between(16, 31)) | 1;
            const float sign = random.chance(0.5) ? -1.0f : 1.0f;
            return sign * static_cast<float>(significand) *
                   octet::detail::pow2(static_cast<int>(random.between(-20, 3)));
        }
        case Data::tiny: {
            if (random.chance(0.3)) return random.chance(0.5) ? 0.0f : -0.0f;
            return octet::detail::f32_from_bits(random.bits() & 0x80FFFFFFu);
        }
        case Data::with_infinity:
            if (random.chance(0.02))
                return octet::detail::f32_from_bits(random.chance(0.5) ? 0x7F800000u : 0xFF800000u);
            return random.normal();
        case Data::with_nan:
            if (random.chance(0.01)) return octet::detail::f32_from_bits(0x7FC00000u | (random.bits() & 0x803FFFFFu));
            return random.normal();
        case Data::wild: return octet::detail::f32_from_bits(random.bits());
    }
    return 0.0f;
}

// A tensor in a larger allocation: rows (and experts) may lie further apart than they must, scales in any order.
// Every byte starts as poison, so that two of them compare equal only when the same bytes were written.
class Poisoned {
public:
    Poisoned() = default;
    Poisoned(Format format, Extents extents) : format_(format), extents_(extents) {
        std::int64_t span = 1;
        for (int axis = 0; axis < extents.rank; ++axis) {
            const auto a = static_cast<std::size_t>(axis);
            if (extents.shape[a] == 0) span = 0;
            if (span > 0) span += (extents.shape[a] - 1) * extents.strides[a];
        }
        // At least something, so that the data pointer of an empty tensor is not null.
        bytes_.assign(static_cast<std::size_t>((span + 1) * bytes_of(format)) + slack, poison);
    }
    TensorView view() { return {start(), format_, extents_}; }
    const std::vector<std::uint8_t>& bytes() const { return bytes_; }
    std::uint8_t* start() { return bytes_.data() + slack / 2; }
    Format format() const { return format_; }

private:
    static constexpr std::uint8_t poison = 0xA5;
    static constexpr std::size_t slack = 64;
    Format format_ = Format::f32;
    Extents extents_{};
    std::vector<std::uint8_t> bytes_;
};

inline bool nan_code(Format format, std::uint8_t code) {
    return format != Format::e8m0 && with_fp8(format, [&](auto codec) { return codec.is_nan(code); });
}

// Equal byte for byte; NaNs equal each other.
inline ::testing::AssertionResult same(const char* what, const Poisoned& expected, const Poisoned& given) {
    const auto &a = expected.bytes(), &b = given.bytes();
    if (a.size() != b.size()) return ::testing::AssertionFailure() << what << ": sizes differ";
    const auto width = static_cast<std::size_t>(bytes_of(expected.format()));
    for (std::size_t i = 0; i + width <= a.size(); i += width) {
        if (std::memcmp(a.data() + i, b.data() + i, width) == 0) continue;
        bool both_nan = false;
        if (expected.format() == Format::f32) {
            float x, y;
            std::memcpy(&x, a.data() + i, 4);
            std::memcpy(&y, b.data() + i, 4);
            both_nan = octet::detail::is_nan(x) && octet::detail::is_nan(y);
        } else if (expected.format() == Format::bf16) {
            std::uint16_t x, y;
            std::memcpy(&x, a.data() + i, 2);
            std::memcpy(&y, b.data() + i, 2);
            both_nan = octet::detail::is_nan(BF16::decode(x)) && octet::detail::is_nan(BF16::decode(y));
        } else {
            both_nan = nan_code(expected.format(), a[i]) && nan_code(expected.format(), b[i]);
        }
        if (!both_nan)
            return ::testing::AssertionFailure() << what << ": byte " << i << " is " << int{b[i]} << ", expected "
                                                 << int{a[i]} << " (of " << a.size() << ")";
    }
    return ::testing::AssertionSuccess();
}

// Data and scales of one orientation, poisoned.
struct Output {
    Poisoned data{}, scale{}, inverse{};
    bool with_scale = true, with_inverse = true;

    QuantizedView view() {
        return {data.view(), with_scale ? scale.view() : TensorView{}, with_inverse ? inverse.view() : TensorView{}};
    }
};

inline ::testing::AssertionResult same(const char* what, const Output& expected, const Output& given) {
    const auto data = same((std::string(what) + " data").c_str(), expected.data, given.data);
    if (!data) return data;
    const auto scale = same((std::string(what) + " scale").c_str(), expected.scale, given.scale);
    if (!scale) return scale;
    return same((std::string(what) + " inverse").c_str(), expected.inverse, given.inverse);
}

// Strides of a dense tensor whose axes but the last may have gaps.
inline Extents with_gaps(std::vector<std::int64_t> shape, Random& random) {
    Extents extents;
    extents.rank = static_cast<int>(shape.size());
    std::int64_t step = 1;
    for (std::size_t axis = shape.size(); axis-- > 0;) {
        extents.shape[axis] = shape[axis];
        extents.strides[axis] = step;
        step *= std::max<std::int64_t>(shape[axis], 1);
        if (random.chance(0.4)) step += random.pick<std::int64_t>({1, 3, 8, 64});
    }
    return extents;
}

// Any order of the axes, with gaps.
inline Extents shuffled(std::vector<std::int64_t> shape, Random& random) {
    std::vector<std::size_t> order(shape.size());
    for (std::size_t axis = 0; axis < order.size(); ++axis) order[axis] = axis;
    for (std::size_t axis = order.size(); axis > 1; --axis)
        std::swap(order[axis - 1],
                  order[static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(axis) - 1))]);
    Extents extents;
    extents.rank = static_cast<int>(shape.size());
    std::int64_t step = random.pick<std::int64_t>({1, 1, 2});
    for (const std::size_t axis : order) {
        extents.shape[axis] = shape[axis];
        extents.strides[axis] = step;
        step = step * std::max<std::int64_t>(shape[axis], 1) + random.pick<std::int64_t>({0, 0, 5});
    }
    return extents;
}

inline Output make_output(std::vector<std::int64_t> data, std::vector<std::int64_t> scale,
                          const QuantizeOptions& options, Random& random) {
    Output out;
    out.data = Poisoned(options.format, with_gaps(data, random));
    const bool mx = options.scaling == Scaling::mx;
    out.scale = Poisoned(mx ? Format::e8m0 : Format::f32, shuffled(scale, random));
    out.inverse = Poisoned(Format::f32, shuffled(scale, random));
    const int which = static_cast<int>(random.between(0, 3));
    out.with_scale = mx || which != 1;
    out.with_inverse = !mx && which != 2;
    return out;
}

inline Poisoned make_input(Format format, std::vector<std::int64_t> shape, Random& random) {
    Poisoned x(format, with_gaps(shape, random));
    const TensorView view = x.view();
    const Data kind = random.pick({Data::normal, Data::normal, Data::normal, Data::wide, Data::ties, Data::ties,
                                   Data::tiny, Data::with_infinity, Data::with_nan, Data::wild});
    const std::int64_t rank = view.rank();
    const std::int64_t outer = rank == 3 ? view.size(0) : 1;
    const std::int64_t rows = view.size(view.rank() - 2), columns = view.size(view.rank() - 1);
    for (std::int64_t e = 0; e < outer; ++e)
        for (std::int64_t r = 0; r < rows; ++r)
            for (std::int64_t c = 0; c < columns; ++c) {
                const std::int64_t offset = (rank == 3 ? e * view.stride(0) : 0) + r * view.stride(view.rank() - 2) + c;
                const float value = value_of(kind, random);
                if (format == Format::f32) std::memcpy(x.start() + 4 * offset, &value, 4);
                const std::uint16_t code =
                    random.chance(0.01) && kind == Data::wild ? std::uint16_t{0x7F81} : BF16::encode(value);
                if (format == Format::bf16) std::memcpy(x.start() + 2 * offset, &code, 2);
            }
    return x;
}

inline QuantizeOptions random_options(Random& random) {
    QuantizeOptions options;
    options.scaling = random.pick({Scaling::rowwise, Scaling::rowwise, Scaling::blockwise, Scaling::mx});
    options.format = random.pick({Format::e4m3, Format::e4m3, Format::e4m3fnuz, Format::e5m2});
    options.scale_rounding = random.pick({ScaleRounding::power_of_two, ScaleRounding::exact});
    options.mx_mode = random.pick({MxMode::rceil, MxMode::floor, MxMode::ceil, MxMode::even});
    return options;
}

// A size that is as likely odd and small as a multiple of something or just beside one.
inline std::int64_t random_size(std::int64_t most, Random& random) {
    const std::int64_t size =
        random.chance(0.4)
            ? random.between(1, std::min<std::int64_t>(most, 40))
            : random.pick<std::int64_t>({32, 64, 128, 256}) * random.between(1, 3) + random.between(-2, 2);
    return std::clamp<std::int64_t>(size, 1, most);
}

struct RandomGroups {
    std::vector<std::int32_t> ends;
    std::int64_t tokens = 0, alignment = 1, padded = 0;
    Groups view() const { return {ends.data(), static_cast<std::int64_t>(ends.size()), {}}; }
};

inline RandomGroups random_groups(const QuantizeOptions& options, std::int64_t most, Random& random) {
    RandomGroups groups;
    const std::int64_t count = random.pick<std::int64_t>({1, 1, 2, 3, 7});
    for (std::int64_t g = 0; g < count; ++g) {
        const std::int64_t rows = random.chance(0.2) ? 0 : random.chance(0.1) ? 1 : random_size(most / count, random);
        groups.tokens += rows;
        groups.ends.push_back(static_cast<std::int32_t>(groups.tokens));
    }
    if (random.chance(0.3)) groups.tokens += random.between(1, 20);  // rows nobody owns
    const std::int64_t block = block_of(options.scaling);
    groups.alignment = block == 0 ? random.pick<std::int64_t>({1, 3, 16, 32, 64, 128, 200})
                                  : block * random.pick<std::int64_t>({1, 1, 2, 3, 4});
    groups.padded = padded_bound(groups.tokens, count, groups.alignment);
    if (block == 0) {
        groups.padded += random.pick<std::int64_t>({0, 0, 1, 64});
    } else {
        groups.padded += block * random.between(0, 2);
    }
    return groups;
}

}  // namespace octet::cpu::test
