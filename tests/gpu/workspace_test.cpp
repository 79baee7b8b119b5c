// Workspace: what the library says is enough is, for every kernel. That calls ask for no more than this, the other
// tests hold (quantize_checks.cpp).
#include "gpu/workspace.hpp"

#include <gtest/gtest.h>

#include <random>

namespace octet::gpu {
namespace {

TEST(GpuWorkspace, IsEnoughForEveryKernel) {
    std::mt19937_64 random(1);
    const auto up_to = [&](i64 most) {  // of all magnitudes
        return static_cast<i64>(random() % static_cast<std::uint64_t>(std::max<i64>(1, most >> (random() % 14)))) + 1;
    };
    for (int i = 0; i < 20000; ++i) {
        const i64 tokens = up_to(1 << 20), features = up_to(1 << 15), groups = up_to(1 << 14),
                  alignment = i64{1} << (random() % 11);
        const i64 enough = most_token_workspace(tokens, features, groups);
        SCOPED_TRACE(testing::Message() << "[" << tokens << ", " << features << "], " << groups << " groups, alignment "
                                        << alignment);
        const i64 wide = ceil_div(features, 128), narrow = ceil_div(features, 64);
        const i64 row_tiles = ceil_div(padded_bound(tokens, groups, alignment), 128) + groups + 1;
        ASSERT_LE(pair_workspace(groups, wide, features, tokens).bytes(), enough);
        // Of two tensors, either of which may end within a tile.
        ASSERT_LE(columns_workspace(groups, narrow + 1, features).bytes(), enough);
        ASSERT_LE(tiles_workspace(groups, row_tiles * (wide + 1)).bytes(), enough);
        ASSERT_LE(halves_workspace(groups, features, tokens).bytes(), enough);
        ASSERT_LE(ranges_workspace(groups).bytes(), enough);
        if (features <= widest_noted && tokens <= most_noted) {
            ASSERT_LE(notes_workspace(groups, wide, tokens).bytes(), enough);
        }
        // A workspace of the largest sizes is enough for smaller ones.
        ASSERT_LE(enough, most_token_workspace(tokens + up_to(1000), features + up_to(1000), groups + up_to(100) - 1));
    }
}

}  // namespace
}  // namespace octet::gpu
