// Outputs large enough to be written past the caches, on aligned tensors, and slabs tall enough to be read twice: paths
// that small shapes do not take.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "cpu/cases.hpp"
#include "cpu/quantize.hpp"
#include "cpu/rows.hpp"
#include "cpu/simd.hpp"
#include "reference/quantize.hpp"

namespace octet::cpu::test {
namespace {

Tensor normal(Extents extents) {
    Tensor x(Format::bf16, extents);
    Random random(3);
    std::vector<std::uint16_t> pool(4099);
    for (auto& value : pool) value = BF16::encode(random.normal());
    for (std::int64_t i = 0; i < x.elements(); ++i)
        x.as<std::uint16_t>()[i] = pool[static_cast<std::size_t>((i * 7 + i / 4099) % 4099)];
    return x;
}

// Poisoned, aligned data and scales.
struct Whole {
    Tensor data, scale;
    Whole(Format format, Extents data_extents, Format scale_format, Extents scale_extents)
        : data(format, data_extents), scale(scale_format, scale_extents) {
        std::memset(data.as<char>(), 0xA5, data.bytes());
        std::memset(scale.as<char>(), 0xA5, scale.bytes());
    }
    QuantizedView view() { return {data.view(), scale.view(), {}}; }
    bool operator==(const Whole& other) const {
        return std::memcmp(data.as<char>(), other.data.as<char>(), data.bytes()) == 0 &&
               std::memcmp(scale.as<char>(), other.scale.as<char>(), scale.bytes()) == 0;
    }
};

class Large : public ::testing::TestWithParam<Scaling> {
protected:
    static constexpr std::int64_t m = 4400, k = 960;
    static_assert(m * k >= stream_from_bytes);

    QuantizeOptions options() const {
        QuantizeOptions chosen;
        chosen.scaling = GetParam();
        return chosen;
    }
    Format scale_format() const { return GetParam() == Scaling::mx ? Format::e8m0 : Format::f32; }
    std::int64_t blocks(std::int64_t count) const { return ceil_div(count, block_of(GetParam())); }
};

TEST_P(Large, PairsAndColumns) {
    const Tensor x = normal({m, k});
    // A tall group and rows nobody owns; two groups of middling height.
    for (const std::vector<std::int32_t>& ends : {std::vector<std::int32_t>{100, 100, 4390}, {2100, 4400}}) {
        if (GetParam() != Scaling::rowwise && ends.size() == 2) continue;  // blocks do not look at the height
        const Groups groups{ends.data(), static_cast<std::int64_t>(ends.size()), {}};
        const std::int64_t padded = padded_bound(m, groups.count, 128);
        const bool whole = GetParam() == Scaling::rowwise;
        const auto blank_rows = [&] {
            return Whole(Format::e4m3, {m, k}, scale_format(), whole ? Extents{m} : Extents{m, blocks(k)});
        };
        const auto blank_columns = [&] {
            return Whole(Format::e4m3, {k, padded}, scale_format(),
                         whole ? Extents{groups.count, k} : Extents{k, blocks(padded)});
        };
        Whole expected_rows = blank_rows(), expected_columns = blank_columns();
        reference::quantize_pair(x.view(), groups, 128, options(), expected_rows.view(), expected_columns.view(), {});
        for (const Target target : supported_targets()) {
            SCOPED_TRACE(std::string(name(target)));
            const ForcedTarget forced(target);
            Execution on;
            on.threads = 2;
            Whole rows = blank_rows(), columns = blank_columns(), both_rows = blank_rows(),
                  both_columns = blank_columns();
            cpu::quantize_rows(x.view(), options(), rows.view(), on);
            EXPECT_TRUE(rows == expected_rows);
            cpu::quantize_columns(x.view(), groups, 128, options(), columns.view(), on);
            EXPECT_TRUE(columns == expected_columns);
            cpu::quantize_pair(x.view(), groups, 128, options(), both_rows.view(), both_columns.view(), on);
            EXPECT_TRUE(both_rows == expected_rows);
            EXPECT_TRUE(both_columns == expected_columns);
        }
    }
}

TEST_P(Large, Weights) {
    const std::int64_t e = 4, n = 1408, w_k = 768;
    ASSERT_GE(e * n * w_k, stream_from_bytes);
    const Tensor w = normal({e, n, w_k});
    const auto scales = [&](std::int64_t rows, std::int64_t columns) {
        switch (GetParam()) {
            case Scaling::rowwise: return Extents{e, rows};
            case Scaling::blockwise: return Extents{e, blocks(rows), blocks(columns)};
            case Scaling::mx: break;
        }
        return Extents{e, rows, blocks(columns)};
    };
    const auto blank_k = [&] { return Whole(Format::e4m3, {e, n, w_k}, scale_format(), scales(n, w_k)); };
    const auto blank_n = [&] { return Whole(Format::e4m3, {e, w_k, n}, scale_format(), scales(w_k, n)); };
    Whole expected_k = blank_k(), expected_n = blank_n();
    reference::quantize_weights(w.view(), options(), expected_k.view(), expected_n.view(), {});
    for (const Target target : supported_targets()) {
        SCOPED_TRACE(std::string(name(target)));
        const ForcedTarget forced(target);
        Whole along_k = blank_k(), along_n = blank_n();
        cpu::quantize_weights(w.view(), options(), along_k.view(), along_n.view(), {});
        EXPECT_TRUE(along_k == expected_k);
        EXPECT_TRUE(along_n == expected_n);
    }
}

INSTANTIATE_TEST_SUITE_P(Scalings, Large, ::testing::Values(Scaling::rowwise, Scaling::blockwise, Scaling::mx),
                         [](const auto& scaling) { return std::string(name(scaling.param)); });

}  // namespace
}  // namespace octet::cpu::test
