#include <algorithm>
#include <cstring>

#include "fuzz/plan.hpp"

namespace octet::fuzz {
namespace {

// Whether one more or one less along this axis must be noticed. Not so where any size that is large enough will do: a
// padded token axis, the tokens of a grouped tensor, and scales that fill up a tile.
bool pinned(const Plan& plan, std::size_t which, std::size_t axis) {
    const bool x = std::strchr("xw", plan.tensors[which].what[0]) != nullptr;
    switch (plan.operation) {
        case columns:
        case undo_columns: return x ? axis == 1 : axis == 0;
        case transposed:
        case undo_transposed: return axis == 0;
        case columns_dual:
        case pair: return x || axis == 0;
        case pad:
        case unpad: return axis == 1;
        case wgrad: return axis == 0 || plan.plain || plan.tensors[which].role == Role::output;
        case swizzle:
        case unswizzle:
        case swizzle_groups:
        case unswizzle_groups: return which == 1;
        default: return true;
    }
}

}  // namespace

void spoil_once(Plan& plan, Choices& choices) {
    const auto count = static_cast<std::int64_t>(plan.tensors.size());
    const auto which = static_cast<std::size_t>(choices.below(count));
    TensorPlan& tensor = plan.tensors[which];
    const std::string what = std::string(tensor.what) + " (tensor " + std::to_string(which) + ")";
    const bool filled = tensor.given && !tensor.absurd && !tensor.shape.empty() && tensor.elements() > 0;
    const auto axis = tensor.shape.empty()
                          ? 0
                          : static_cast<std::size_t>(choices.below(static_cast<std::int64_t>(tensor.shape.size())));
    const std::int64_t kind = choices.below(16);
    if (plan.kinds >> kind & 1u) return;  // two of a kind may undo each other
    plan.kinds |= 1u << kind;
    switch (kind) {
        case 0:  // a null data pointer; a null scale beside its inverse only means that it is not wanted
            if (!filled || tensor.format == OCTET_F32 || (plan.operation == weights && which > 0)) return;
            tensor.null_data = true;
            return plan.spoil("null data of " + what);
        case 1:
            if (!filled || bytes_of(tensor.format) == 1) return;
            tensor.shift = 1;
            return plan.spoil("misaligned " + what);
        case 2:
            if (!tensor.given || tensor.shape.empty()) return;
            tensor.shape[axis] = choices.of(absurd);
            tensor.absurd = true;
            return plan.spoil("absurd size of " + what);
        case 3: {  // a size that differs by one, where another argument fixes it
            if (!filled || !pinned(plan, which, axis)) return;
            const bool growing = choices.one_in(2);
            tensor.shape[axis] += growing ? 1 : -1;
            if (growing) tensor.absurd = false;
            // Strides that still fit, so that the size alone is wrong.
            std::int64_t step = 1;
            for (std::size_t a = tensor.shape.size(); a-- > 0;) {
                tensor.strides[a] = step;
                step *= std::max<std::int64_t>(tensor.shape[a], 1);
            }
            return plan.spoil("size off by one of " + what);
        }
        case 4: {
            if (!filled || tensor.shape[axis] < 2) return;
            constexpr std::int64_t bad[] = {0, -1, min64, max64, std::int64_t{1} << 61};
            tensor.strides[axis] = choices.of(bad);
            tensor.absurd = true;
            return plan.spoil("stride " + std::to_string(tensor.strides[axis]) + " of " + what);
        }
        case 5: {
            if (!tensor.given) return;
            constexpr std::int32_t bad[] = {-1, 6, 7, 255, 1 << 20, std::numeric_limits<std::int32_t>::min()};
            tensor.format = choices.of(bad);
            tensor.absurd = true;
            return plan.spoil("unknown format of " + what);
        }
        case 6: {  // a known format that does not belong there
            if (!filled) return;
            const bool scale_like = tensor.format == OCTET_E8M0;
            if (plan.operation == pad || plan.operation == unpad) {
                tensor.format = tensor.format == OCTET_F32 ? OCTET_BF16 : OCTET_F32;
            } else {
                tensor.format = scale_like ? OCTET_E4M3 : OCTET_E8M0;
            }
            return plan.spoil("another format of " + what);
        }
        case 7: {
            if (!filled) return;
            constexpr std::int32_t kinds[] = {-1, 3, 99, OCTET_DEVICE_CUDA, OCTET_DEVICE_HIP, OCTET_DEVICE_CPU};
            tensor.device_kind = choices.of(kinds);
            if (tensor.device_kind == OCTET_DEVICE_CPU) tensor.device_index = choices.one_in(2) ? 1 : -1;
            return plan.spoil("another device of " + what);
        }
        case 8:
            plan.null_handle = static_cast<int>(choices.below(8));
            return;  // counted as spoiled when such a handle exists
        case 9: plan.wrong_handle = static_cast<int>(choices.below(8)); return;
        case 10: {
            if (!plan.grouped) return;
            constexpr std::int64_t bad[] = {0, -1, min64, max64, std::int64_t{1} << 40};
            plan.alignment = choices.of(bad);
            const bool ignored = plan.operation == swizzle_groups || plan.operation == unswizzle_groups ||
                                 plan.operation == forward || plan.operation == dgrad ||
                                 (plan.operation == wgrad && plan.plain);
            return ignored ? void() : plan.spoil("alignment " + std::to_string(plan.alignment));
        }
        case 11: {
            if (!plan.grouped) return;
            constexpr std::int64_t bad[] = {0, -1, min64, max64, std::int64_t{1} << 31};
            plan.group_count = choices.of(bad);
            return plan.spoil("group count " + std::to_string(plan.group_count));
        }
        case 12: {
            if (!plan.grouped || plan.ends.empty()) return;
            const auto g = static_cast<std::size_t>(choices.below(static_cast<std::int64_t>(plan.ends.size())));
            constexpr std::int32_t bad[] = {-1, 1000000, std::numeric_limits<std::int32_t>::min(),
                                            std::numeric_limits<std::int32_t>::max()};
            plan.ends[g] = choices.of(bad);
            return plan.spoil("offset " + std::to_string(plan.ends[g]));
        }
        case 13:
            if (!plan.grouped) return;
            if (choices.one_in(2))
                plan.null_ends = true;
            else if (choices.one_in(2))
                plan.ends_shift = 1;
            else
                plan.groups_device = OCTET_DEVICE_CUDA;
            return plan.spoil("group offsets null, misaligned or elsewhere");
        case 14: {
            constexpr octet_backend bad[] = {-1, 5, 1000, OCTET_BACKEND_CUDA, OCTET_BACKEND_HIP};
            if (choices.one_in(3))
                plan.threads = choices.one_in(2) ? -1 : std::numeric_limits<std::int32_t>::min();
            else
                plan.backend = choices.of(bad);
            return plan.spoil("backend or threads");
        }
        case 15: {  // two tensors in one place, one of them an output; only contiguous ones are compared
            const auto other = static_cast<std::size_t>(choices.below(count));
            const TensorPlan& second = plan.tensors[other];
            const auto whole = [](const TensorPlan& t) {
                if (!t.given || t.absurd || t.null_data || t.shape.empty() || t.elements() == 0) return false;
                std::int64_t step = 1;
                for (std::size_t a = t.shape.size(); a-- > 0; step *= t.shape[a])
                    if (t.shape[a] != 1 && t.strides[a] != step) return false;
                return true;
            };
            const bool writes = tensor.role == Role::output || second.role == Role::output;
            if (other == which || !writes || !whole(tensor) || !whole(second) || second.overlaps >= 0 ||
                second.shift != 0)
                return;
            const auto unit = static_cast<std::size_t>(bytes_of(tensor.format));
            const std::size_t places = second.span() / unit;
            if (places == 0) return;
            tensor.overlaps = static_cast<int>(other);
            tensor.overlap_offset =
                unit *
                static_cast<std::size_t>(choices.below(static_cast<std::int64_t>(std::min<std::size_t>(places, 250))));
            tensor.shift = 0;
            return plan.spoil(what + " lies in tensor " + std::to_string(other));
        }
        default: return;
    }
}

}  // namespace octet::fuzz
