// The public layout operations: padded groups and blocked MX scales. Checked here, done by a backend.
#include <limits>

#include "octet/quantize.hpp"
#include "ops/check.hpp"
#include "ops/op_table.hpp"

namespace octet {
namespace {

using check::any_size;

// x[M,K] and padded[P,K] of one format, P large enough for any groups.
void check_padding(const ConstTensorView& x, const Groups& groups, std::int64_t alignment,
                   const ConstTensorView& padded) {
    const std::initializer_list<Format> every = {Format::f32,      Format::bf16, Format::e4m3,
                                                 Format::e4m3fnuz, Format::e5m2, Format::e8m0};
    check::dense("x", x, every, {any_size, any_size});
    check::groups(groups, x.size(0), x.device);
    const std::int64_t bound = check::padded_tokens(x.size(0), groups.count, alignment, 0);
    check::dense("padded", padded, {x.format}, {any_size, x.size(1)});
    check::same_device("x", x.device, "padded", padded.device);
    require(padded.size(0) >= bound, "padded has ", padded.size(0), " rows, expected at least ", bound, ": ", x.size(0),
            " tokens in ", groups.count, " groups, each starting on a multiple of ", alignment);
}

// scale [R,C] or [E,R,C] and the bytes of its blocked layout.
void check_swizzle(const ConstTensorView& scale, const ConstTensorView& blocked) {
    require(scale.rank() == 2 || scale.rank() == 3, "scale has shape ", to_string(scale.extents),
            ", expected [rows, columns] or [experts, rows, columns]");
    if (scale.rank() == 2) {
        check::strided("scale", scale, {Format::e8m0}, {any_size, any_size});
        check::dense("blocked", blocked, {Format::e8m0},
                     {swizzled_rows(scale.size(0)) * swizzled_columns(scale.size(1))});
    } else {
        check::strided("scale", scale, {Format::e8m0}, {any_size, any_size, any_size});
        const std::int64_t bytes = swizzled_rows(scale.size(1)) * swizzled_columns(scale.size(2));
        check::dense("blocked", blocked, {Format::e8m0}, {scale.size(0), bytes});
        require(blocked.size(0) < 2 || blocked.stride(0) == bytes, "blocked has rows ", blocked.stride(0),
                " bytes apart, expected ", bytes, ": experts follow each other without a gap");
    }
    check::same_device("scale", scale.device, "blocked", blocked.device);
}

void check_group_swizzle(const ConstTensorView& scale, const Groups& groups, const ConstTensorView& blocked) {
    check::strided("scale", scale, {Format::e8m0}, {any_size, any_size});
    check::groups(groups, scale.size(0), scale.device);
    check::dense("blocked", blocked, {Format::e8m0},
                 {swizzled_group_rows(scale.size(0), groups.count) * swizzled_columns(scale.size(1))});
    check::same_device("scale", scale.device, "blocked", blocked.device);
}

}  // namespace

void pad_groups(ConstTensorView x, Groups groups, std::int64_t alignment, TensorView padded, std::int32_t* padded_ends,
                const Execution& on) {
    check_padding(x, groups, alignment, padded);
    require(padded_ends == nullptr || padded.size(0) <= std::numeric_limits<std::int32_t>::max(), "padded has ",
            padded.size(0), " rows, more than 32-bit padded offsets can reach; pass no padded_ends");
    check::disjoint({{"x", x}, check::offsets(groups)},
                    {{"padded", padded}, {"padded_ends", {padded_ends, Format::f32, {groups.count}, groups.device}}});
    op_table(on, x.device).pad_groups(x, groups, alignment, padded, padded_ends, on);
}

void unpad_groups(ConstTensorView padded, Groups groups, std::int64_t alignment, TensorView x, const Execution& on) {
    check_padding(x, groups, alignment, padded);
    check::disjoint({{"padded", padded}, check::offsets(groups)}, {{"x", x}});
    op_table(on, x.device).unpad_groups(padded, groups, alignment, x, on);
}

void swizzle_scales(ConstTensorView scale, TensorView blocked, const Execution& on) {
    check_swizzle(scale, blocked);
    check::disjoint({{"scale", scale}}, {{"blocked", blocked}});
    op_table(on, scale.device).swizzle_scales(scale, blocked, on);
}

void unswizzle_scales(ConstTensorView blocked, TensorView scale, const Execution& on) {
    check_swizzle(scale, blocked);
    check::disjoint({{"blocked", blocked}}, {{"scale", scale}});
    op_table(on, scale.device).unswizzle_scales(blocked, scale, on);
}

void swizzle_group_scales(ConstTensorView scale, Groups groups, TensorView blocked, const Execution& on) {
    check_group_swizzle(scale, groups, blocked);
    check::disjoint({{"scale", scale}, check::offsets(groups)}, {{"blocked", blocked}});
    op_table(on, scale.device).swizzle_group_scales(scale, groups, blocked, on);
}

void unswizzle_group_scales(ConstTensorView blocked, Groups groups, TensorView scale, const Execution& on) {
    check_group_swizzle(scale, groups, blocked);
    check::disjoint({{"blocked", blocked}, check::offsets(groups)}, {{"scale", scale}});
    op_table(on, scale.device).unswizzle_group_scales(blocked, groups, scale, on);
}

}  // namespace octet
