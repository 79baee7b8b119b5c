// Calls of any real size, launching nothing: workspace that the library says is enough is, for whatever they ask for,
// and not far more; which of them take columns out of quantized rows.
#include "gpu/workspace.hpp"

#include <gtest/gtest.h>

#include <random>

#include "gpu/ops.hpp"

namespace octet::gpu {
namespace {

// Launches nothing: what a call asks for, and which kernels it takes, follows from sizes alone.
class AskingRunner {
public:
    explicit AskingRunner(const QuantizerTuning& tuning, bool may_wait = false)
        : tuning_(tuning), may_wait_(may_wait) {}
    const QuantizerTuning& tuning() const { return tuning_; }
    void* workspace(std::int64_t bytes) {
        asked_ += bytes;
        return reinterpret_cast<void*>(256);
    }
    template <class Kernel>
    std::int64_t resident() {
        return 264;
    }
    template <class Kernel>
    void launch(std::int64_t, const typename Kernel::Params&) {}
    template <class Kernel>
    void launch_next(std::int64_t, const typename Kernel::Params&) {
        from_rows_ = from_rows_ || std::is_same_v<Kernel, ColumnsFromRowsKernel<E4M3>>;
    }
    template <class Kernel>
    void launch_together(std::int64_t, const typename Kernel::Params&) {}
    template <class Kernel>
    void launch_later(std::int64_t, const typename Kernel::Params&) {}
    bool may_wait() const { return may_wait_; }
    WeightVisit visit() const { return WeightVisit::only; }
    std::int64_t asked() const { return asked_; }
    bool from_rows() const { return from_rows_; }

private:
    QuantizerTuning tuning_;
    bool may_wait_;
    std::int64_t asked_ = 0;
    bool from_rows_ = false;
};

// Views of memory that nobody touches.
TensorView nowhere(Format format, const Extents& extents) { return {reinterpret_cast<void*>(256), format, extents}; }
QuantizedView quantized(const QuantizeOptions& options, const Extents& data, const Extents& scale) {
    const bool mx = options.scaling == Scaling::mx;
    return {nowhere(options.format, data), nowhere(mx ? Format::e8m0 : Format::f32, scale),
            mx ? TensorView{} : nowhere(Format::f32, scale)};
}

struct Call {
    std::int64_t tokens, features, groups, alignment;
    Scaling scaling = Scaling::rowwise;
    Format input = Format::bf16;
    QuantizerTuning tuning{};
    bool later = false;

    QuantizeOptions options() const {
        QuantizeOptions of;
        of.scaling = scaling;
        return of;
    }
    QuantizedView rows(std::int64_t m, std::int64_t k) const {
        const std::int64_t block = block_of(scaling);
        return quantized(options(), {m, k}, block ? Extents{m, ceil_div(k, block)} : Extents{m});
    }
    QuantizedView columns(std::int64_t k) const {
        const std::int64_t block = block_of(scaling), padded = padded_bound(tokens, groups, alignment);
        return quantized(options(), {k, padded}, block ? Extents{k, padded / block} : Extents{groups, k});
    }
    Groups of() const { return {reinterpret_cast<const std::int32_t*>(256), groups, {}}; }

    AskingRunner both_ways() const {
        AskingRunner runner(tuning, later);
        quantize_pair<E4M3>(runner, nowhere(input, {tokens, features}), of(), alignment, options(),
                            rows(tokens, features), columns(features));
        return runner;
    }
    // Of two tensors.
    std::int64_t dual() const {
        AskingRunner runner(tuning, later);
        const std::int64_t first = ceil_div(features, 3), second = features - first;
        if (second == 0) return 0;
        quantize_columns<E4M3>(runner, nowhere(input, {tokens, first}), nowhere(input, {tokens, second}), of(),
                               alignment, options(), columns(first), columns(second));
        return runner.asked();
    }
    std::int64_t transposed() const {
        AskingRunner runner(tuning, later);
        quantize_transposed<E4M3>(runner, nowhere(input, {features, tokens}), of(), alignment, options(),
                                  columns(features));
        return runner.asked();
    }
    // `groups` experts of `tokens` rows.
    AskingRunner weights() const {
        AskingRunner runner(tuning, later);
        const std::int64_t block = block_of(scaling), n = tokens, k = features, e = groups;
        const auto of_weights = [&](std::int64_t down, std::int64_t across) {
            return quantized(
                options(), {e, down, across},
                block ? Extents{e, scaling == Scaling::mx ? down : ceil_div(down, block), ceil_div(across, block)}
                      : Extents{e, down});
        };
        quantize_weights<E4M3>(runner, nowhere(input, {e, n, k}), options(), of_weights(n, k), of_weights(k, n));
        return runner;
    }
};

// Where L2 does not hold a group, and where it would, but two kernels are faster than one that waits for all of it.
TEST(GpuColumnsFromRows, AreTakenForLongGroups) {
    const auto tokens = [](std::int64_t m, std::int64_t k, std::int64_t groups) {
        return Call{m, k, groups, 128}.both_ways().from_rows();
    };
    const auto experts = [](std::int64_t e, std::int64_t n, std::int64_t k) {
        return Call{n, k, e, 1}.weights().from_rows();
    };
    EXPECT_TRUE(tokens(16640, 5120, 1));
    EXPECT_TRUE(tokens(16640, 5120, 5));   // 32 MiB a group, of 162
    EXPECT_FALSE(tokens(16640, 5120, 6));  // 27
    EXPECT_TRUE(tokens(32768, 4096, 8));   // 32, of 256
    EXPECT_FALSE(tokens(8192, 2048, 1));   // 32, of as many
    EXPECT_FALSE(tokens(16384, 2048, 2));
    EXPECT_TRUE(tokens(98304, 2048, 8));
    EXPECT_FALSE(tokens(98304, 2048, 64));
    EXPECT_TRUE(experts(1, 8192, 5120));
    EXPECT_FALSE(experts(1, 4096, 5120));  // 40, of as many
    EXPECT_FALSE(experts(8, 2048, 7168));  // 28, of 224
    EXPECT_TRUE(experts(64, 8192, 5120));
}

TEST(GpuWorkspace, IsEnoughForAnyCall) {
    std::mt19937_64 random(1);
    const auto up_to = [&](std::int64_t most) {  // of all magnitudes
        return static_cast<std::int64_t>(
                   random() % static_cast<std::uint64_t>(std::max<std::int64_t>(1, most >> (random() % 14)))) +
               1;
    };
    const auto either = [&](int a, int b) { return random() % 2 ? a : b; };
    for (int i = 0; i < 20000; ++i) {
        Call call{up_to(1 << 20), up_to(1 << 14), up_to(1 << 12), std::int64_t{1} << (random() % 11)};
        const Scaling scalings[] = {Scaling::rowwise, Scaling::blockwise, Scaling::mx};
        call.scaling = scalings[random() % 3];
        if (call.scaling != Scaling::rowwise) call.alignment = std::max(call.alignment, block_of(call.scaling));
        call.input = random() % 4 ? Format::bf16 : Format::f32;
        call.later = random() % 4 == 0;
        call.tuning.strip_rows = either(0, 384);
        call.tuning.strip_tokens = either(0, 1024);
        call.tuning.from_rows = either(0, 1);
        call.tuning.noted_rows = either(0, 1 << 20);
        call.tuning.tall_tiles = either(0, 1);
        SCOPED_TRACE(testing::Message() << "[" << call.tokens << ", " << call.features << "], " << call.groups
                                        << " groups, alignment " << call.alignment << ", " << name(call.scaling));
        const std::int64_t enough = most_token_workspace(call.tokens, call.features, call.groups);
        ASSERT_LE(call.both_ways().asked(), enough);
        ASSERT_LE(call.dual(), enough);
        ASSERT_LE(call.transposed(), enough);
        // A workspace of the largest sizes is enough for smaller ones.
        ASSERT_LE(enough,
                  most_token_workspace(call.tokens + up_to(1000), call.features + up_to(1000), call.groups + up_to(9)));
        call.tokens = up_to(1 << 14);  // now rows of an expert
        ASSERT_LE(call.weights().asked(), most_weight_workspace(call.groups, call.tokens, call.features));
    }
}

// Each part of what is enough is nearly asked for by some call, so that none can be left out.
TEST(GpuWorkspace, IsNotFarMore) {
    const auto expect_near = [](std::int64_t asked, std::int64_t enough) {
        EXPECT_LE(asked, enough);
        EXPECT_GT(asked, enough * 8 / 10);
    };
    QuantizerTuning folds, notes;
    folds.strip_rows = folds.strip_tokens = folds.noted_rows = 0;
    folds.from_rows = 0;
    notes = folds;
    notes.noted_rows = 1 << 20;
    const Call pair{200000, 40, 1, 128, Scaling::rowwise, Format::bf16, folds},
        noted{32768, 2048, 1, 128, Scaling::rowwise, Format::bf16, notes},
        listed{4000, 5120, 4000, 1024, Scaling::mx, Format::bf16, folds};
    expect_near(pair.both_ways().asked(), most_token_workspace(pair.tokens, pair.features, pair.groups));
    expect_near(noted.both_ways().asked(), most_token_workspace(noted.tokens, noted.features, noted.groups));
    expect_near(listed.dual(), most_token_workspace(listed.tokens, listed.features, listed.groups));
}

}  // namespace
}  // namespace octet::gpu
