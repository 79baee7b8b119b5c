#include "ops/check.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <string>

namespace octet::check {
namespace {

// For checks whose sentence holds texts that must be made: require() would make them in every call that passes, and
// they cost many times what the check does.
template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
    fail(Status::invalid_argument, parts...);
}

std::string join(std::initializer_list<Format> formats) {
    std::string text;
    for (const Format format : formats) text += (text.empty() ? "" : " or ") + std::string(name(format));
    return text;
}

std::string shape_text(std::initializer_list<std::int64_t> shape) {
    std::string text;
    for (const std::int64_t size : shape)
        text += (text.empty() ? "" : ", ") + (size == any_size ? std::string("any") : std::to_string(size));
    return "[" + text + "]";
}

std::string strides_text(const Extents& extents) {
    std::string text;
    for (int axis = 0; axis < extents.rank; ++axis)
        text += (axis ? ", " : "") + std::to_string(extents.strides[static_cast<std::size_t>(axis)]);
    return "(" + text + ")";
}

void format_and_shape(std::string_view what, const ConstTensorView& view, std::initializer_list<Format> formats,
                      std::initializer_list<std::int64_t> shape) {
    if (std::find(formats.begin(), formats.end(), view.format) == formats.end())
        refuse(what, " has format ", name(view.format), ", expected ", join(formats));
    if (view.rank() != static_cast<int>(shape.size()))
        refuse(what, " has shape ", to_string(view.extents), ", expected ", shape_text(shape));
    int axis = 0;
    for (const std::int64_t size : shape) {
        if (view.size(axis) < 0) refuse(what, " has shape ", to_string(view.extents), ": a size is negative");
        if (size != any_size && view.size(axis) != size)
            refuse(what, " has shape ", to_string(view.extents), ", expected ", shape_text(shape));
        ++axis;
    }
}

// More bytes than this no machine has: a shape or stride that spans more is a mistake. Far enough from the end of 64
// bits that rounding a size up to a block, or a scale layout to whole tiles, cannot overflow.
constexpr std::int64_t most_bytes = std::int64_t{1} << 48;

// Sizes and the span of the elements are such as a machine can have, so that no offset computed later can overflow.
void addressable(std::string_view what, const ConstTensorView& view) {
    std::int64_t last = 0, count = 1;
    bool fits = true;
    for (int axis = 0; axis < view.rank(); ++axis) {
        fits = fits && !__builtin_mul_overflow(count, std::max<std::int64_t>(view.size(axis), 1), &count);
        if (view.size(axis) < 2) continue;
        std::int64_t reach = 0;
        fits = fits && !__builtin_mul_overflow(view.size(axis) - 1, view.stride(axis), &reach) &&
               !__builtin_add_overflow(last, reach, &last);
    }
    fits = fits && std::max(count, last) < most_bytes / bytes_of(view.format);
    if (!fits)
        refuse(what, " of shape ", to_string(view.extents), " and strides ", strides_text(view.extents),
               " spans more bytes than a machine has (2^48); check the sizes");
}

void pointer(std::string_view what, const ConstTensorView& view) {
    if (view.extents.elements() == 0) return;
    if (view.null()) refuse(what, " of shape ", to_string(view.extents), " has a null data pointer");
    const auto address = reinterpret_cast<std::uintptr_t>(view.data);
    const auto size = static_cast<std::uintptr_t>(bytes_of(view.format));
    require(address % size == 0, what, " lies at an address that is not a multiple of ", size, ", the size of its ",
            name(view.format), " elements");
}

}  // namespace

void dense(std::string_view what, const ConstTensorView& view, std::initializer_list<Format> formats,
           std::initializer_list<std::int64_t> shape) {
    format_and_shape(what, view, formats, shape);
    std::int64_t row = 1;
    for (int axis = view.rank() - 1; axis >= 0; --axis) {
        const bool last = axis == view.rank() - 1;
        const bool fits = view.size(axis) < 2 || (last ? view.stride(axis) == 1 : view.stride(axis) >= row);
        if (!fits)
            refuse(
                what, " of shape ", to_string(view.extents), " has strides ", strides_text(view.extents),
                "; expected the last axis to step by 1 and the others by at least the length of what they step over");
        const std::int64_t step = view.size(axis) < 2 ? row : view.stride(axis);
        if (__builtin_mul_overflow(step, std::max<std::int64_t>(view.size(axis), 1), &row))
            refuse(what, " of shape ", to_string(view.extents), " has more elements than 63 bits can count");
    }
    addressable(what, view);
    pointer(what, view);
}

void strided(std::string_view what, const ConstTensorView& view, std::initializer_list<Format> formats,
             std::initializer_list<std::int64_t> shape) {
    format_and_shape(what, view, formats, shape);
    std::array<int, Extents::max_rank> order{};
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int a, int b) { return view.stride(a) < view.stride(b); });
    std::int64_t reach = 1;  // elements spanned by the axes so far
    for (const int axis : order) {
        if (view.size(axis) < 2) continue;  // axes past the rank have size 0
        if (view.stride(axis) < reach)
            refuse(what, " of shape ", to_string(view.extents), " has strides ", strides_text(view.extents),
                   ", under which elements share a place or lie backwards");
        if (__builtin_mul_overflow(view.stride(axis), view.size(axis), &reach))
            refuse(what, " of shape ", to_string(view.extents), " and strides ", strides_text(view.extents),
                   " spans more elements than 63 bits can count");
    }
    addressable(what, view);
    pointer(what, view);
}

void not_empty(std::string_view what, const ConstTensorView& view, std::initializer_list<int> axes) {
    for (const int axis : axes)
        if (view.size(axis) < 1)
            refuse(what, " has shape ", to_string(view.extents), ", expected at least 1 along axis ", axis);
}

void groups(const Groups& groups, std::int64_t tokens, Device device) {
    require(groups.count >= 1, groups.count, " groups were given, expected at least 1");
    require(groups.count <= std::numeric_limits<std::int32_t>::max(), groups.count,
            " groups were given, more than 32 bits can count");
    require(groups.ends != nullptr, "the offsets of ", groups.count, " groups have a null pointer");
    require(reinterpret_cast<std::uintptr_t>(groups.ends) % alignof(std::int32_t) == 0,
            "the group offsets lie at an address that is not a multiple of 4");
    require(tokens <= std::numeric_limits<std::int32_t>::max(), "a tensor of ", tokens,
            " tokens was given, more than the groups' 32-bit offsets can reach");
    same_device("the tensors", device, "the group offsets", groups.device);
    if (device.kind != DeviceKind::cpu) return;
    std::int64_t previous = 0;
    for (std::int64_t g = 0; g < groups.count; ++g) {
        const std::int64_t end = groups.ends[g];
        require(end >= previous, "group offset ", g, " is ", end, ", below the one before it (", previous,
                "); offsets are cumulative ends and must not decrease");
        require(end <= tokens, "group offset ", g, " is ", end, ", past the last of the ", tokens, " tokens");
        previous = end;
    }
}

std::int64_t padded_tokens(std::int64_t tokens, std::int64_t group_count, std::int64_t alignment, std::int64_t block) {
    constexpr std::int64_t largest = std::int64_t{1} << 20;
    require(alignment >= 1 && alignment <= largest, "alignment is ", alignment, ", expected 1 to ", largest);
    require(block == 0 || alignment % block == 0, "alignment is ", alignment, ", expected a multiple of ", block,
            ", the block of the scaling, so that no block spans two groups");
    return padded_bound(tokens, group_count, alignment);
}

void options(const QuantizeOptions& options) {
    const bool scaling =
        options.scaling == Scaling::rowwise || options.scaling == Scaling::blockwise || options.scaling == Scaling::mx;
    require(scaling, "scaling is ", static_cast<int>(options.scaling), ", expected rowwise, blockwise or mx");
    require(is_fp8(options.format), "the data format is ", name(options.format), ", expected e4m3, e4m3fnuz or e5m2");
    const bool rounding =
        options.scale_rounding == ScaleRounding::power_of_two || options.scale_rounding == ScaleRounding::exact;
    require(rounding, "scale rounding is ", static_cast<int>(options.scale_rounding),
            ", expected power_of_two or exact");
    require(options.mx_mode <= MxMode::even, "mx mode is ", static_cast<int>(options.mx_mode),
            ", expected rceil, floor, ceil or even");
}

void same_device(std::string_view what, Device expected, std::string_view other, Device given) {
    if (expected != given)
        refuse(what, " are on ", to_string(expected), " and ", other, " on ", to_string(given),
               "; bring them to one device");
}

Named offsets(const Groups& groups) {
    // Four bytes each, compared as memory only.
    return {"the group offsets", {groups.ends, Format::f32, {groups.count}, groups.device}};
}

void disjoint(const std::vector<Named>& inputs, const std::vector<Named>& outputs) {
    struct Range {
        std::string_view what;
        std::uintptr_t begin, end;
    };
    const auto range = [](const Named& named) {
        const auto begin = reinterpret_cast<std::uintptr_t>(named.view.data);
        const bool whole = !named.view.null() && named.view.extents.contiguous();
        const std::int64_t bytes = whole ? named.view.extents.elements() * bytes_of(named.view.format) : 0;
        return Range{named.what, begin, begin + static_cast<std::uintptr_t>(bytes)};
    };
    std::vector<Range> seen;
    for (const Named& input : inputs) seen.push_back(range(input));
    for (const Named& output : outputs) {
        const Range mine = range(output);
        for (const Range& other : seen)
            require(!(mine.begin < other.end && other.begin < mine.end), mine.what, " and ", other.what,
                    " share memory; an output needs its own");
        seen.push_back(mine);
    }
}

}  // namespace octet::check
