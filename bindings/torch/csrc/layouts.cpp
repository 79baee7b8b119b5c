#include "octet/error.hpp"
#include "operators.hpp"

namespace octet::torch_binding {
namespace {

std::int64_t swizzled_bytes(std::int64_t rows, std::int64_t columns) {
    return swizzled_rows(rows) * swizzled_columns(columns);
}

}  // namespace

Two pad_groups(Tensor x, Tensor ends, std::int64_t alignment) {
    require(x.dim() == 2, "x has ", x.dim(), " axes, expected 2: [tokens, features]");
    require(alignment >= 1, "groups were asked to start on multiples of ", alignment, ", expected at least 1");
    const std::int64_t padded_rows = padded_bound(x.size(0), ends.numel(), alignment);
    Tensor padded = allocate(x, format_of("x", x), {padded_rows, x.size(1)}, Contents::zeroed);
    const Groups groups = groups_of(ends);
    Tensor padded_ends = ::torch::stable::empty_like(ends);
    octet::pad_groups(view_of("x", with_dense_rows(x)), groups, alignment, view_of("padded", padded),
                      static_cast<std::int32_t*>(padded_ends.data_ptr()), Call(x).on());
    return {padded, padded_ends};
}

Tensor unpad_groups(Tensor padded, Tensor ends, std::int64_t alignment, std::int64_t tokens) {
    require(padded.dim() == 2, "padded has ", padded.dim(), " axes, expected 2: [padded tokens, features]");
    Tensor x = allocate(padded, format_of("padded", padded), {tokens, padded.size(1)}, Contents::zeroed);
    octet::unpad_groups(view_of("padded", with_dense_rows(padded)), groups_of(ends), alignment, view_of("x", x),
                        Call(padded).on());
    return x;
}

Tensor swizzle_scales(Tensor scale) {
    const std::int64_t rank = scale.dim();
    require(rank == 2 || rank == 3, "scale has ", rank, " axes, expected 2 or 3: [rows, columns], experts before them");
    const std::int64_t bytes = swizzled_bytes(scale.size(rank - 2), scale.size(rank - 1));
    Tensor blocked = allocate(scale, Format::e8m0, rank == 2 ? Shape{bytes} : Shape{scale.size(0), bytes});
    octet::swizzle_scales(view_of("scale", scale), view_of("blocked", blocked), Call(scale).on());
    return blocked;
}

Tensor unswizzle_scales(Tensor blocked, std::int64_t rows, std::int64_t columns) {
    const bool single = blocked.dim() == 1;
    Tensor scale =
        allocate(blocked, Format::e8m0, single ? Shape{rows, columns} : Shape{blocked.size(0), rows, columns});
    octet::unswizzle_scales(view_of("blocked", blocked), view_of("scale", scale), Call(blocked).on());
    return scale;
}

Tensor swizzle_group_scales(Tensor scale, Tensor ends) {
    require(scale.dim() == 2, "scale has ", scale.dim(), " axes, expected 2: [rows, columns]");
    const std::int64_t bytes = swizzled_group_rows(scale.size(0), ends.numel()) * swizzled_columns(scale.size(1));
    Tensor blocked = allocate(scale, Format::e8m0, {bytes});
    octet::swizzle_group_scales(view_of("scale", scale), groups_of(ends), view_of("blocked", blocked),
                                Call(scale).on());
    return blocked;
}

Tensor unswizzle_group_scales(Tensor blocked, Tensor ends, std::int64_t rows, std::int64_t columns) {
    Tensor scale = allocate(blocked, Format::e8m0, {rows, columns}, Contents::zeroed);
    octet::unswizzle_group_scales(view_of("blocked", blocked), groups_of(ends), view_of("scale", scale),
                                  Call(blocked).on());
    return scale;
}

}  // namespace octet::torch_binding
