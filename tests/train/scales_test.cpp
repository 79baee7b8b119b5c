// What the observer of scales counts, on a row whose codes are known.
#include "train/scales.hpp"

#include <gtest/gtest.h>

#include <cstring>

namespace octet::train {
namespace {

TEST(ScaleObserver, CountsWhatBecameZeroAndWhatIsLargest) {
    MoeOptions options;
    options.hidden = options.expert_hidden = 8;
    options.router.experts = 2;
    options.router.top_k = 1;
    options.recipe = Recipe::of(RecipeKind::fp8_rowwise);
    MoeLayer layer(options);  // its weights are zero
    MoeKept kept(options);
    MoeWorkspace workspace;
    // 1.75 times the scale 2^8 is e4m3's largest, and 2^-20 times it less than half of the smallest; zeros stay zeros.
    const float row[8] = {1.75f, 0.0f, 0x1p-20f, 1.0f, -0.0f, -1.75f, 0.0f, 0.5f};
    Tensor x(Format::bf16, {2, 8}), y(Format::bf16, {2, 8}), dy(Format::bf16, {2, 8}), dx(Format::bf16, {2, 8});
    for (std::size_t i = 0; i < 16; ++i)
        x.as<std::uint16_t>()[i] = dy.as<std::uint16_t>()[i] = BF16::encode(row[i % 8]);
    layer.forward(x, y, &kept, workspace);
    layer.backward(dy, kept, dx, 1.0f, workspace);

    std::vector<ScaleStatistics> found;
    ScaleObserver(found, options.recipe).observe(3, layer, kept, dy, {});
    ASSERT_EQ(found.size(), 6u);
    for (const ScaleStatistics& s : found) {
        const bool rows = s.tensor == "gate_up.input" || s.tensor == "down.gradient";  // the others are all zero
        EXPECT_EQ(s.layer, 3);
        EXPECT_EQ(s.underflowed, rows ? 2 : 0) << s.tensor;
        EXPECT_EQ(s.saturated, rows ? 4 : 0) << s.tensor;
        if (!rows) continue;
        EXPECT_EQ(s.elements, 16);
        EXPECT_EQ(s.smallest_scale, 256.0);
        EXPECT_EQ(s.largest_scale, 256.0);
    }
}

}  // namespace
}  // namespace octet::train
