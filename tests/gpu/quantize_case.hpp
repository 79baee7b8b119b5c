// A random case of a quantizer, its tensors and what is expected of them: for the tests of quantizers.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "gpu/emulator_runner.hpp"
#include "octet/memory.hpp"

namespace octet::gpu {

using Random = std::mt19937_64;

#if defined(OCTET_ONE_FORMAT)  // the sanitized build, which is slow: fewer cases, and fewer groups, each of them blocks
constexpr int every = 4;
constexpr std::size_t most_groups = 33;
#else
constexpr int every = 1;
constexpr std::size_t most_groups = 300;
#endif

inline std::int64_t below(Random& random, std::int64_t end) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(end));
}

template <class T>
T one_of(Random& random, std::initializer_list<T> choices) {
    return choices.begin()[below(random, static_cast<std::int64_t>(choices.size()))];
}

inline float value_of(Random& random, int kind) {
    std::normal_distribution<float> normal;
    const float ordinary = normal(random);
    switch (kind) {
        case 1: return 0.0f * ordinary;
        case 2: return below(random, 200) == 0 ? NAN : ordinary;
        case 3: return below(random, 200) == 0 ? std::copysign(INFINITY, ordinary) : ordinary;
        case 4: return ordinary * 1e-39f;
        case 5: return std::ldexp(ordinary, static_cast<int>(below(random, 250)) - 125);
        case 6: return static_cast<float>(below(random, 33) - 16) * 0.25f;
        default: return ordinary;
    }
}

// What rows or columns are multiplied with: mostly 1, or powers of two near it, and now and then one that stands out.
inline std::vector<float> magnitudes(Random& random, bool uneven) {
    std::vector<float> factors(uneven ? 101 : 1, 1.0f);
    const int common = static_cast<int>(below(random, 3));
    for (float& factor : factors) {
        if (!uneven) continue;
        const bool apart = below(random, 20) == 0;
        const int most = apart ? 20 : common;
        factor = apart && below(random, 4) == 0
                     ? 0.0f
                     : std::ldexp(1.0f, static_cast<int>(below(random, 2 * most + 1)) - most);
    }
    return factors;
}

// A tensor with room between its rows, so that a stray write is seen.
struct Strided {
    Tensor storage;
    Extents extents;

    Strided(Format format, std::initializer_list<std::int64_t> shape, std::int64_t gap) {
        const std::vector<std::int64_t> sizes(shape);
        extents.rank = static_cast<int>(sizes.size());
        std::int64_t step = 1;
        for (int axis = extents.rank - 1; axis >= 0; --axis) {
            const auto i = static_cast<std::size_t>(axis);
            extents.shape[i] = sizes[i];
            extents.strides[i] = step;
            step *= sizes[i];
            if (axis == extents.rank - 1 && extents.rank > 1) step += gap;
        }
        storage = Tensor(format, {std::max<std::int64_t>(step, 1)});
        std::memset(storage.as<unsigned char>(), 0xA5, storage.bytes());
    }
    TensorView view() { return {storage.as<unsigned char>(), storage.format(), extents}; }
};

constexpr std::int64_t any_gap = -1;

inline Strided random_input(Random& random, Format format, std::initializer_list<std::int64_t> shape,
                            std::int64_t gap = any_gap) {
    Strided x(format, shape, gap == any_gap ? one_of<std::int64_t>(random, {0, 0, 8, 3}) : gap);
    const int kind = static_cast<int>(below(random, 7));
    const bool uneven = below(random, 2) == 0;
    const std::vector<float> of_row = magnitudes(random, uneven), of_column = magnitudes(random, uneven);
    const std::int64_t row_step =
        x.extents.rank > 1 ? std::max<std::int64_t>(1, x.extents.strides[static_cast<std::size_t>(x.extents.rank - 2)])
                           : 1;
    for (std::int64_t i = 0; i < x.storage.elements(); ++i) {
        const auto row = static_cast<std::size_t>(i / row_step), column = static_cast<std::size_t>(i % row_step);
        const float value = value_of(random, below(random, 60) == 0 ? static_cast<int>(below(random, 7)) : kind) *
                            of_row[row % of_row.size()] * of_column[column % of_column.size()];
        if (format == Format::f32)
            x.storage.as<float>()[i] = value;
        else
            x.storage.as<std::uint16_t>()[i] = BF16::encode(value);
    }
    return x;
}

inline bool same(Format format, const unsigned char* a, const unsigned char* b) {
    if (std::memcmp(a, b, static_cast<std::size_t>(bytes_of(format))) == 0) return true;
    if (format == Format::f32) {
        float x, y;
        std::memcpy(&x, a, 4);
        std::memcpy(&y, b, 4);
        return std::isnan(x) && std::isnan(y);
    }
    if (!is_fp8(format)) return false;
    return with_fp8(format, [&](auto codec) { return codec.is_nan(*a) && codec.is_nan(*b); });
}

inline void expect_same(const char* what, const Strided& expected, const Strided& given) {
    const Format format = expected.storage.format();
    for (std::int64_t i = 0; i < expected.storage.elements(); ++i) {
        const auto offset = static_cast<std::size_t>(i) * static_cast<std::size_t>(bytes_of(format));
        ASSERT_TRUE(
            same(format, expected.storage.as<unsigned char>() + offset, given.storage.as<unsigned char>() + offset))
            << what << " differs at element " << i << " of its storage, shape " << to_string(expected.extents);
    }
}

// Data, scale and inverse of one operand.
struct Operand {
    Strided data, scale, inverse;
    bool mx;

    Operand(const QuantizeOptions& options, std::int64_t gap, std::initializer_list<std::int64_t> data_shape,
            std::initializer_list<std::int64_t> scale_shape)
        : data(options.format, data_shape, gap),
          scale(options.scaling == Scaling::mx ? Format::e8m0 : Format::f32, scale_shape, gap),
          inverse(Format::f32, scale_shape, 0),
          mx(options.scaling == Scaling::mx) {}
    QuantizedView view() { return {data.view(), scale.view(), mx ? TensorView{} : inverse.view()}; }
};

inline void expect_same(const char* what, const Operand& expected, const Operand& given) {
    expect_same((std::string(what) + " data").c_str(), expected.data, given.data);
    expect_same((std::string(what) + " scale").c_str(), expected.scale, given.scale);
    if (!expected.mx) expect_same((std::string(what) + " inverse").c_str(), expected.inverse, given.inverse);
}

template <class F>
void with_codec(Format format, F&& f) {
#if defined(OCTET_ONE_FORMAT)
    EXPECT_EQ(format, Format::e4m3);
    f(E4M3{});
#else
    with_fp8(format, [&](auto codec) { f(codec); });
#endif
}

struct Case {
    Random random;
    QuantizeOptions options;
    Format input;
    std::int64_t m, k, alignment, gap, input_gap = any_gap, many_experts = 0;  // 0: a random few
    std::int64_t other = 0;                                                    // columns of a second tensor; 0: any
    std::vector<std::int32_t> ends;
    EmulatorRunner runner;

    Case(std::uint64_t seed, int width, Scaling scaling) : random(seed), runner(width, 1, {}) {
        options.scaling = scaling;
        options.format = one_of(random, {Format::e4m3, Format::e4m3, Format::e4m3fnuz, Format::e5m2});
#if defined(OCTET_ONE_FORMAT)  // the kernels are one text for all
        options.format = Format::e4m3;
#endif
        options.scale_rounding = one_of(random, {ScaleRounding::power_of_two, ScaleRounding::exact});
        options.mx_mode = one_of(random, {MxMode::rceil, MxMode::floor, MxMode::ceil, MxMode::even});
        input = one_of(random, {Format::bf16, Format::f32});
        m = one_of<std::int64_t>(random, {0, 1, 5, 31, 64, 127, 128, 129, 200, 260, 384});
        k = one_of<std::int64_t>(random, {1, 7, 8, 40, 127, 128, 136, 256, 270});
        const std::int64_t block = block_of(scaling);
        alignment = block == 0 ? one_of<std::int64_t>(random, {1, 2, 16, 32, 100, 128})
                               : block * one_of<std::int64_t>(random, {1, 2});
        gap = one_of<std::int64_t>(random, {0, 0, 16, 5});
        if (block) gap = 0;
        ends.resize(std::min(one_of<std::size_t>(random, {1, 2, 5, 33, 300}), most_groups));
        const std::int64_t owned = below(random, 3) == 0 ? below(random, m + 1) : m;
        for (auto& end : ends) end = static_cast<std::int32_t>(below(random, owned + 1));
        std::sort(ends.begin(), ends.end());
        ends.back() = static_cast<std::int32_t>(owned);
        QuantizerTuning tuning;
        tuning.rows_vectors = one_of(random, {2, 4, 8});
        tuning.fused_tiles = one_of(random, {0, 1, 2, 3, 4, 4});
        tuning.short_groups = one_of(random, {0, 20, 512});
        tuning.strip_rows = one_of(random, {0, 384});
        tuning.strip_tokens = one_of(random, {0, 40, 1024});
        tuning.tall_tiles = one_of(random, {0, 1, 128});
        tuning.ranked_rows = one_of(random, {0, 192});
        tuning.whole_rows = one_of(random, {0, 8});
        tuning.whole_columns = one_of(random, {0, 1024});
        tuning.from_rows = one_of(random, {0, 1, 100});
        tuning.noted_rows = one_of(random, {0, 2048});
        runner = EmulatorRunner(width, one_of<std::int64_t>(random, {1, 3, 7}), tuning);
    }

    Groups groups() const { return {ends.data(), static_cast<std::int64_t>(ends.size()), {}}; }
    Operand rows_operand() const {
        const std::int64_t block = block_of(options.scaling);
        if (block == 0) return Operand(options, gap, {m, k}, {m});
        return Operand(options, gap, {m, k}, {m, ceil_div(k, block)});
    }
    Operand tokens_operand(std::int64_t features) const {
        const std::int64_t block = block_of(options.scaling), count = static_cast<std::int64_t>(ends.size());
        const std::int64_t padded = padded_bound(m, count, alignment);
        if (block == 0) return Operand(options, gap, {features, padded}, {count, features});
        return Operand(options, gap, {features, padded}, {features, padded / block});
    }
    Operand weights_operand(std::int64_t experts, std::int64_t rows, std::int64_t columns) const {
        const std::int64_t block = block_of(options.scaling);
        if (block == 0) return Operand(options, gap, {experts, rows, columns}, {experts, rows});
        return Operand(
            options, gap, {experts, rows, columns},
            {experts, options.scaling == Scaling::mx ? rows : ceil_div(rows, block), ceil_div(columns, block)});
    }
    template <class F>
    void with_codec(F&& f) {
        gpu::with_codec(options.format, f);
    }
};

}  // namespace octet::gpu
