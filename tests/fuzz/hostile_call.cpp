#include "fuzz/hostile_call.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <sstream>
#include <vector>

#include "fuzz/guarded.hpp"
#include "octet/octet.h"

namespace octet::fuzz {
namespace {

constexpr std::int64_t max64 = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t min64 = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t absurd[] = {-1, min64, max64, max64 / 2, std::int64_t{1} << 62, std::int64_t{1} << 60};

std::int64_t round_up(std::int64_t value, std::int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }
std::int64_t ceil_div(std::int64_t value, std::int64_t divisor) { return (value + divisor - 1) / divisor; }
std::int64_t bytes_of(octet_format format) { return format == OCTET_F32 ? 4 : format == OCTET_BF16 ? 2 : 1; }

enum class Role { input, output };
enum class Must { write, may_write, keep };  // what a successful call does to one element

using Index = std::array<std::int64_t, 4>;

// One tensor argument: what it will be created from.
struct TensorPlan {
    const char* what = "";
    Role role = Role::input;
    octet_format format = OCTET_F32;
    std::vector<std::int64_t> shape{};
    std::vector<std::int64_t> strides{};
    std::function<Must(const Index&)> must{};  // outputs; by default every element is written
    std::int32_t device_kind = OCTET_DEVICE_CPU, device_index = 0;
    bool given = true;       // false: a NULL handle
    bool null_data = false;
    std::size_t shift = 0;   // bytes off the natural alignment
    bool absurd = false;     // claims what no machine has; gets a small buffer
    int overlaps = -1;       // lies in the buffer of this other tensor
    std::size_t overlap_offset = 0;

    std::int64_t elements() const {
        std::int64_t count = 1;
        for (const std::int64_t size : shape) count *= size;
        return count;
    }
    // Bytes from the first element to the end of the last.
    std::size_t span() const {
        if (absurd) return 64;
        if (elements() == 0) return 0;
        std::int64_t last = 0;
        for (std::size_t axis = 0; axis < shape.size(); ++axis)
            if (shape[axis] > 1 && strides[axis] > 0) last += (shape[axis] - 1) * strides[axis];
        return static_cast<std::size_t>((last + 1) * bytes_of(format));
    }
};

// A whole call.
struct Plan {
    int operation = 0;
    std::vector<TensorPlan> tensors{};
    bool grouped = false;
    std::vector<std::int32_t> ends{};
    std::int64_t group_count = 0;
    std::int32_t groups_device = OCTET_DEVICE_CPU;
    std::size_t ends_shift = 0;
    std::int64_t alignment = 1;
    std::string scaling = "rowwise", format = "e4m3", rounding = "power_of_two", mode = "rceil";
    std::int32_t orientation = OCTET_ALONG_K;
    octet_backend backend = OCTET_BACKEND_CPU;
    std::int32_t threads = 0;
    int null_handle = -1;   // which handle argument, counted in the order of `call`, is NULL
    int wrong_handle = -1;  // ... is of another kind
    bool null_ends = false;
    bool padded_ends = false;
    std::uint32_t kinds = 0;  // of spoiling, that were tried
    std::string spoiled{};    // what was done to it; "" for a valid call

    void spoil(const std::string& how) { spoiled += (spoiled.empty() ? "" : "; ") + how; }
};

enum Operation {
    rows, columns, columns_dual, pair, transposed, weights,
    undo_rows, undo_columns, undo_transposed, undo_weights,
    pad, unpad, swizzle, unswizzle, swizzle_groups, unswizzle_groups
};
constexpr const char* names[operation_count] = {
    "octet_quantize_rows", "octet_quantize_columns", "octet_quantize_columns_dual", "octet_quantize_pair",
    "octet_quantize_transposed", "octet_quantize_weights", "octet_dequantize_rows", "octet_dequantize_columns",
    "octet_dequantize_transposed", "octet_dequantize_weights", "octet_pad_groups", "octet_unpad_groups",
    "octet_swizzle_scales", "octet_unswizzle_scales", "octet_swizzle_group_scales", "octet_unswizzle_group_scales"};

// ---- valid calls ----------------------------------------------------------------------------------------------------

class Planner {
public:
    Planner(int operation, Choices& choices) : choices_(choices) { plan_.operation = operation; }

    Plan make() {
        constexpr const char* scalings[] = {"rowwise", "blockwise", "mx"};
        constexpr const char* formats[] = {"e4m3", "e4m3fnuz", "e5m2"};
        constexpr const char* modes[] = {"rceil", "floor", "ceil", "even"};
        plan_.scaling = choices_.of(scalings);
        plan_.format = choices_.of(formats);
        plan_.rounding = choices_.one_in(2) ? "exact" : "power_of_two";
        plan_.mode = choices_.of(modes);
        plan_.backend = choices_.one_in(2) ? OCTET_BACKEND_REFERENCE : OCTET_BACKEND_CPU;
        plan_.threads = static_cast<std::int32_t>(choices_.below(3));
        plan_.orientation = static_cast<std::int32_t>(choices_.below(2));
        block_ = plan_.scaling == "blockwise" ? 128 : plan_.scaling == "mx" ? 32 : 0;
        high_ = choices_.one_in(2) ? OCTET_F32 : OCTET_BF16;
        tokens_ = choices_.one_in(8) ? 0 : choices_.between(1, 40);
        features_ = choices_.between(1, 70);
        experts_ = choices_.between(1, 3);
        switch (plan_.operation) {
            case rows: dense("x", Role::input, high_, {tokens_, features_}), add_rows("out", Role::output); break;
            case columns:
                add_groups(true), dense("x", Role::input, high_, {tokens_, features_});
                add_tokens("out", Role::output, features_);
                break;
            case columns_dual: {
                const std::int64_t other = choices_.between(1, 70);
                add_groups(true), dense("x0", Role::input, high_, {tokens_, features_});
                dense("x1", Role::input, high_, {tokens_, other});
                add_tokens("out0", Role::output, features_), add_tokens("out1", Role::output, other);
                break;
            }
            case pair:
                add_groups(true), dense("x", Role::input, high_, {tokens_, features_});
                add_rows("rows", Role::output), add_tokens("columns", Role::output, features_);
                break;
            case transposed:
                add_groups(true), dense("x", Role::input, high_, {features_, tokens_});
                add_tokens("out", Role::output, features_);
                break;
            case weights: {
                const std::int64_t n = choices_.between(1, 40);
                dense("w", Role::input, high_, {experts_, n, features_});
                add_weights("along_k", Role::output, n, features_), add_weights("along_n", Role::output, features_, n);
                break;
            }
            case undo_rows: add_rows("q", Role::input), dense("x", Role::output, high_, {tokens_, features_}); break;
            case undo_columns:
                add_groups(true), add_tokens("q", Role::input, features_);
                dense("x", Role::output, high_, {tokens_, features_}).must = owned(0);
                break;
            case undo_transposed:
                add_groups(true), add_tokens("q", Role::input, features_);
                dense("x", Role::output, high_, {features_, tokens_}).must = owned(1);
                break;
            case undo_weights: {
                const std::int64_t n = choices_.between(1, 40);
                if (plan_.orientation == OCTET_ALONG_K) add_weights("q", Role::input, n, features_);
                else add_weights("q", Role::input, features_, n);
                dense("w", Role::output, high_, {experts_, n, features_});
                break;
            }
            case pad:
            case unpad: {
                add_groups(false);
                const auto format = static_cast<octet_format>(choices_.below(6));
                const bool padding = plan_.operation == pad;
                auto& x = dense("x", padding ? Role::input : Role::output, format, {tokens_, features_});
                if (!padding) x.must = owned(0);
                auto& padded = dense("padded", padding ? Role::output : Role::input, format, {padded_, features_});
                if (padding) padded.must = up_to(0, used_);
                plan_.padded_ends = padding && choices_.one_in(2);
                break;
            }
            case swizzle:
            case unswizzle: {
                const Role in = plan_.operation == swizzle ? Role::input : Role::output;
                const Role out = plan_.operation == swizzle ? Role::output : Role::input;
                const std::int64_t r = choices_.between(1, 150), c = choices_.between(1, 9);
                const std::int64_t bytes = round_up(r, 128) * round_up(c, 4);
                if (choices_.one_in(2)) {
                    strided("scale", in, OCTET_E8M0, {r, c}), contiguous("blocked", out, OCTET_E8M0, {bytes});
                } else {
                    strided("scale", in, OCTET_E8M0, {experts_, r, c});
                    contiguous("blocked", out, OCTET_E8M0, {experts_, bytes});
                }
                break;
            }
            case swizzle_groups:
            case unswizzle_groups: {
                add_groups(false);
                const bool forth = plan_.operation == swizzle_groups;
                const std::int64_t c = choices_.between(1, 9);
                const std::int64_t count = std::min(tokens_, plan_.group_count);
                const std::int64_t padded_rows = (tokens_ + count * 127) / 128 * 128;
                auto& scale = strided("scale", forth ? Role::input : Role::output, OCTET_E8M0, {tokens_, c});
                if (!forth) scale.must = owned_or_free(0);
                contiguous("blocked", forth ? Role::output : Role::input, OCTET_E8M0, {padded_rows * round_up(c, 4)});
                break;
            }
        }
        return plan_;
    }

private:
    TensorPlan& add(const char* what, Role role, octet_format format, std::vector<std::int64_t> shape,
                    std::vector<std::int64_t> strides) {
        TensorPlan tensor;
        tensor.what = what;
        tensor.role = role;
        tensor.format = format;
        tensor.shape = std::move(shape);
        tensor.strides = std::move(strides);
        plan_.tensors.push_back(std::move(tensor));
        return plan_.tensors.back();
    }

    TensorPlan& contiguous(const char* what, Role role, octet_format format, std::vector<std::int64_t> shape) {
        std::vector<std::int64_t> strides(shape.size());
        std::int64_t step = 1;
        for (std::size_t axis = shape.size(); axis-- > 0;) {
            strides[axis] = step;
            step *= std::max<std::int64_t>(shape[axis], 1);
        }
        return add(what, role, format, std::move(shape), std::move(strides));
    }

    // The last axis by 1, the others perhaps further apart than they need be.
    TensorPlan& dense(const char* what, Role role, octet_format format, std::vector<std::int64_t> shape) {
        auto& tensor = contiguous(what, role, format, std::move(shape));
        std::int64_t step = 1;
        for (std::size_t axis = tensor.shape.size(); axis-- > 0;) {
            tensor.strides[axis] = step;
            step *= std::max<std::int64_t>(tensor.shape[axis], 1);
            if (choices_.one_in(3)) step += choices_.between(1, 5);
        }
        return tensor;
    }

    // Any order of the axes, with gaps.
    TensorPlan& strided(const char* what, Role role, octet_format format, std::vector<std::int64_t> shape) {
        auto& tensor = contiguous(what, role, format, std::move(shape));
        std::vector<std::size_t> order(tensor.shape.size());
        for (std::size_t axis = 0; axis < order.size(); ++axis) order[axis] = order.size() - 1 - axis;
        if (choices_.one_in(2)) std::reverse(order.begin(), order.end());
        std::int64_t step = choices_.one_in(3) ? 2 : 1;
        for (const std::size_t axis : order) {
            tensor.strides[axis] = step;
            step *= std::max<std::int64_t>(tensor.shape[axis], 1);
            if (choices_.one_in(3)) step += choices_.between(1, 3);
        }
        return tensor;
    }

    octet_format fp8() const {
        return plan_.format == "e4m3" ? OCTET_E4M3 : plan_.format == "e5m2" ? OCTET_E5M2 : OCTET_E4M3FNUZ;
    }

    void add_scales(const char* what, Role role, const std::vector<std::int64_t>& shape,
                    const std::function<Must(const Index&)>& must) {
        const octet_format format = plan_.scaling == "mx" ? OCTET_E8M0 : OCTET_F32;
        strided(what, role, format, shape).must = must;
        const bool both = plan_.scaling != "mx" && choices_.one_in(2);
        auto& inverse = strided(what, role, format, shape);
        inverse.must = must;
        inverse.given = both;
        if (!both || plan_.scaling == "mx" || !choices_.one_in(3)) return;
        plan_.tensors[plan_.tensors.size() - 2].given = false;  // the inverse alone
    }

    void add_rows(const char* what, Role role) {
        dense(what, role, fp8(), {tokens_, features_});
        if (block_ == 0) add_scales(what, role, {tokens_}, {});
        else add_scales(what, role, {tokens_, ceil_div(features_, block_)}, {});
    }

    void add_tokens(const char* what, Role role, std::int64_t features) {
        dense(what, role, fp8(), {features, padded_}).must = up_to(1, used_);
        if (block_ == 0) add_scales(what, role, {plan_.group_count, features}, {});
        else add_scales(what, role, {features, padded_ / block_}, up_to(1, used_ / block_));
    }

    void add_weights(const char* what, Role role, std::int64_t rows_, std::int64_t columns_) {
        dense(what, role, fp8(), {experts_, rows_, columns_});
        if (plan_.scaling == "rowwise") add_scales(what, role, {experts_, rows_}, {});
        else if (plan_.scaling == "mx") add_scales(what, role, {experts_, rows_, ceil_div(columns_, 32)}, {});
        else add_scales(what, role, {experts_, ceil_div(rows_, 128), ceil_div(columns_, 128)}, {});
    }

    void add_groups(bool quantizing) {
        plan_.grouped = true;
        plan_.group_count = choices_.between(1, 5);
        const std::int64_t unit = quantizing && block_ != 0 ? block_ : 1;
        plan_.alignment = unit * choices_.between(1, unit == 1 ? 20 : 2);
        std::int64_t end = 0;
        for (std::int64_t g = 0; g < plan_.group_count; ++g) {
            const std::int64_t begin = end;
            if (!choices_.one_in(3)) end += choices_.below(tokens_ - end + 1);
            plan_.ends.push_back(static_cast<std::int32_t>(end));
            used_ += round_up(end - begin, plan_.alignment);
        }
        const std::int64_t occupied = std::min(tokens_, plan_.group_count);
        padded_ = (tokens_ + occupied * (plan_.alignment - 1)) / plan_.alignment * plan_.alignment;
        if (choices_.one_in(3)) padded_ += unit * choices_.between(1, 2);
    }

    // Elements below `limit` along the axis are written; what lies past the last group is left to the implementation.
    static std::function<Must(const Index&)> up_to(std::size_t axis, std::int64_t limit) {
        return [=](const Index& at) { return at[axis] < limit ? Must::write : Must::may_write; };
    }
    // Tokens that no group owns are left as they are.
    std::function<Must(const Index&)> owned(std::size_t axis) const {
        const std::int64_t end = plan_.ends.back();
        return [=](const Index& at) { return at[axis] < end ? Must::write : Must::keep; };
    }
    std::function<Must(const Index&)> owned_or_free(std::size_t axis) const { return up_to(axis, plan_.ends.back()); }

    Choices& choices_;
    Plan plan_{};
    std::int64_t block_ = 0, tokens_ = 0, features_ = 0, experts_ = 0, padded_ = 0, used_ = 0;
    octet_format high_ = OCTET_F32;
};

// ---- spoiling -------------------------------------------------------------------------------------------------------

// Whether one more or one less along this axis must be noticed. Not so where any size that is large enough will do: a
// padded token axis, the tokens of a grouped tensor, and scales that fill up a tile.
bool pinned(const Plan& plan, std::size_t which, std::size_t axis) {
    const bool x = std::strchr("xw", plan.tensors[which].what[0]) != nullptr;
    switch (plan.operation) {
        case columns: case undo_columns: return x ? axis == 1 : axis == 0;
        case transposed: case undo_transposed: return axis == 0;
        case columns_dual: case pair: return x || axis == 0;
        case pad: case unpad: return axis == 1;
        case swizzle: case unswizzle: case swizzle_groups: case unswizzle_groups: return which == 1;
        default: return true;
    }
}

// Does one thing to the plan after which the call must fail. Where the thing chosen does not apply, does nothing.
void spoil_once(Plan& plan, Choices& choices) {
    const auto count = static_cast<std::int64_t>(plan.tensors.size());
    const auto which = static_cast<std::size_t>(choices.below(count));
    TensorPlan& tensor = plan.tensors[which];
    const std::string what = std::string(tensor.what) + " (tensor " + std::to_string(which) + ")";
    const bool filled = tensor.given && !tensor.absurd && !tensor.shape.empty() && tensor.elements() > 0;
    const auto axis = tensor.shape.empty() ? 0 : static_cast<std::size_t>(choices.below(static_cast<std::int64_t>(tensor.shape.size())));
    const bool quantized = plan.operation < pad;
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
            if (!quantized && plan.operation <= unpad && plan.tensors.size() == 2) {
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
        case 9:
            plan.wrong_handle = static_cast<int>(choices.below(8));
            return;
        case 10: {
            if (!plan.grouped) return;
            constexpr std::int64_t bad[] = {0, -1, min64, max64, std::int64_t{1} << 40};
            plan.alignment = choices.of(bad);
            const bool ignored = plan.operation == swizzle_groups || plan.operation == unswizzle_groups;
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
            if (choices.one_in(2)) plan.null_ends = true;
            else if (choices.one_in(2)) plan.ends_shift = 1;
            else plan.groups_device = OCTET_DEVICE_CUDA;
            return plan.spoil("group offsets null, misaligned or elsewhere");
        case 14: {
            constexpr octet_backend bad[] = {-1, 5, 1000, OCTET_BACKEND_CUDA, OCTET_BACKEND_HIP};
            if (choices.one_in(3)) plan.threads = choices.one_in(2) ? -1 : std::numeric_limits<std::int32_t>::min();
            else plan.backend = choices.of(bad);
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
            if (other == which || !writes || !whole(tensor) || !whole(second) || second.overlaps >= 0 || second.shift != 0) return;
            tensor.overlaps = static_cast<int>(other);
            const auto unit = static_cast<std::size_t>(bytes_of(tensor.format));
            const std::size_t places = second.span() / unit;
            if (places == 0) return;
            tensor.overlap_offset = unit * static_cast<std::size_t>(choices.below(static_cast<std::int64_t>(std::min<std::size_t>(places, 250))));
            tensor.shift = 0;
            return plan.spoil(what + " lies in tensor " + std::to_string(other));
        }
        default: return;
    }
}

// ---- the call -------------------------------------------------------------------------------------------------------

// Handles of one call; freed at its end, whatever happens.
class Handles {
public:
    Handles() = default;
    Handles(const Handles&) = delete;
    Handles& operator=(const Handles&) = delete;
    ~Handles() {
        for (auto* t : tensors) octet_tensor_destroy(t);
        for (auto* q : quantized) octet_quantized_destroy(q);
        octet_groups_destroy(groups);
        octet_quantize_options_destroy(options);
        octet_execution_destroy(execution);
    }
    std::vector<octet_tensor*> tensors{};
    std::vector<octet_quantized*> quantized{};
    octet_groups* groups = nullptr;
    octet_quantize_options* options = nullptr;
    octet_execution* execution = nullptr;
};

class Caller {
public:
    Caller(Plan& plan, Choices& choices) : plan_(plan), data_seed_(static_cast<std::uint64_t>(choices.below(251))) {}

    Outcome run() {
        const auto first = once(0xA5);
        if (first.outcome == Outcome::accepted && !plan_.spoiled.empty()) broken("was accepted");
        if (first.outcome == Outcome::refused && plan_.spoiled.empty()) broken("is valid and was refused");
        if (first.outcome == Outcome::refused) return first.outcome;
        // What must be written is the same whatever the memory held before.
        const auto second = once(0x5A);
        if (second.outcome != Outcome::accepted) broken("was accepted once and refused the next time");
        for (std::size_t t = 0; t < plan_.tensors.size(); ++t) {
            const TensorPlan& tensor = plan_.tensors[t];
            if (tensor.role == Role::input || !tensor.given) continue;
            const auto unit = static_cast<std::size_t>(bytes_of(tensor.format));
            each_element(tensor, [&](const Index& at, std::size_t byte) {
                const bool written = std::equal(&first.outputs[t][byte], &first.outputs[t][byte] + unit, &second.outputs[t][byte]);
                if (must(tensor, at) == Must::write && !written)
                    broken(std::string("left an element of ") + tensor.what + " unwritten");
            });
        }
        return first.outcome;
    }

private:
    struct Result {
        Outcome outcome;
        std::vector<std::vector<std::uint8_t>> outputs;
    };

    [[noreturn]] void broken(const std::string& how) const {
        std::ostringstream text;
        text << names[plan_.operation] << " " << how << ".\n  spoiled: " << (plan_.spoiled.empty() ? "nothing" : plan_.spoiled)
             << "\n  scaling " << plan_.scaling << ", " << plan_.format << ", alignment " << plan_.alignment << ", backend "
             << plan_.backend << ", groups";
        for (const std::int32_t end : plan_.ends) text << " " << end;
        for (const TensorPlan& t : plan_.tensors) {
            text << "\n  " << (t.given ? "" : "(not given) ") << t.what << ": format " << t.format << ", shape";
            for (const std::int64_t size : t.shape) text << " " << size;
            text << ", strides";
            for (const std::int64_t stride : t.strides) text << " " << stride;
        }
        text << "\n  last error: " << octet_last_error();
        throw Broken(text.str());
    }

    static Must must(const TensorPlan& tensor, const Index& at) { return tensor.must ? tensor.must(at) : Must::write; }

    template <class F>
    static void each_element(const TensorPlan& tensor, F f) {
        if (tensor.elements() == 0) return;
        Index at{};
        const std::size_t rank = tensor.shape.size();
        for (;;) {
            std::int64_t offset = 0;
            for (std::size_t axis = 0; axis < rank; ++axis) offset += at[axis] * tensor.strides[axis];
            f(at, static_cast<std::size_t>(offset * bytes_of(tensor.format)));
            std::size_t axis = rank;
            while (axis > 0 && ++at[axis - 1] == tensor.shape[axis - 1]) at[--axis] = 0;
            if (axis == 0) return;
        }
    }

    Result once(std::uint8_t poison) {
        std::vector<std::unique_ptr<Guarded>> buffers;
        Choices data(data_seed_);
        for (const TensorPlan& tensor : plan_.tensors) {
            auto buffer = std::make_unique<Guarded>(tensor.span(), tensor.shift, poison);
            if (tensor.role == Role::input)
                for (std::size_t i = 0; i < buffer->bytes(); ++i) buffer->data()[i] = static_cast<std::uint8_t>(data.below(256));
            buffers.push_back(std::move(buffer));
        }
        const std::size_t ends_bytes = plan_.ends.size() * sizeof(std::int32_t);
        Guarded ends(ends_bytes, plan_.ends_shift, 0);
        if (ends_bytes != 0) std::memcpy(ends.data(), plan_.ends.data(), ends_bytes);
        Guarded padded_ends(ends_bytes, 0, poison);
        for (auto& buffer : buffers) buffer->remember();
        ends.remember(), padded_ends.remember();

        const octet_status status = call(buffers, ends, padded_ends);

        const auto check = [&](bool kept, const char* what) {
            if (!kept) broken(std::string("changed memory that is not its own: ") + what);
        };
        check(ends.unchanged(), "the group offsets");
        check(padded_ends.canaries_alive(), "around padded_ends");
        Result result{status == OCTET_OK ? Outcome::accepted : Outcome::refused, {}};
        if (status != OCTET_OK) {
            for (std::size_t t = 0; t < buffers.size(); ++t)
                if (!buffers[t]->unchanged()) broken(std::string("failed and had written to ") + plan_.tensors[t].what);
            if (!padded_ends.unchanged()) broken("failed and had written padded_ends");
            if (std::strncmp(octet_last_error(), "octet_", 6) != 0 || std::strlen(octet_last_error()) < 20)
                broken("failed with a message that says nothing");
            if (status == OCTET_INTERNAL || status < 0 || status > OCTET_INTERNAL) broken("failed as a bug of Octet");
            return result;
        }
        for (std::size_t t = 0; t < buffers.size(); ++t) {
            const TensorPlan& tensor = plan_.tensors[t];
            Guarded& buffer = *buffers[t];
            if (tensor.role == Role::input || !tensor.given) {
                check(buffer.unchanged(), tensor.what);
            } else {
                check(buffer.canaries_alive(), tensor.what);
                std::vector<bool> may(buffer.bytes(), false);
                const auto unit = static_cast<std::size_t>(bytes_of(tensor.format));
                each_element(tensor, [&](const Index& at, std::size_t byte) {
                    for (std::size_t i = 0; i < unit; ++i) may[byte + i] = must(tensor, at) != Must::keep;
                });
                for (std::size_t i = 0; i < buffer.bytes(); ++i)
                    check(may[i] || !buffer.changed(i), "between the rows, or rows that no group owns");
            }
            result.outputs.emplace_back(buffer.data(), buffer.data() + buffer.bytes());
        }
        return result;
    }

    // The next handle argument, unless it is this one's turn to be NULL or of another kind.
    template <class T>
    T* pass(T* handle) {
        const int index = handle_index_++;
        if (index == plan_.null_handle) return nullptr;
        if (index == plan_.wrong_handle && handle != nullptr) {
            return std::is_same_v<T, octet_execution> ? reinterpret_cast<T*>(handles_->options)
                                                      : reinterpret_cast<T*>(handles_->execution);
        }
        return handle;
    }

    // Which handle arguments a call has, and whether NULL is an error there.
    void note_spoiled_handles() {
        const bool has_options = plan_.operation < pad;
        const int quantized = plan_.operation == columns_dual || plan_.operation == pair || plan_.operation == weights ? 2
                              : has_options                                                                        ? 1 : 0;
        const int plain = plan_.operation >= pad || plan_.operation == columns_dual ? 2 : 1;
        const int total = quantized + plain + (plan_.grouped ? 1 : 0) + (has_options ? 1 : 0) + 1;
        if (plan_.null_handle >= total - 1) plan_.null_handle = -1;  // the last is the execution, which may be NULL
        if (plan_.operation == weights && plan_.null_handle > 1) plan_.null_handle = -1;  // an orientation may be
        if (plan_.wrong_handle >= total) plan_.wrong_handle = -1;
        if (plan_.null_handle >= 0) plan_.spoil("handle " + std::to_string(plan_.null_handle) + " is NULL");
        if (plan_.wrong_handle >= 0) plan_.spoil("handle " + std::to_string(plan_.wrong_handle) + " is of another kind");
    }

    octet_status call(std::vector<std::unique_ptr<Guarded>>& buffers, Guarded& ends, Guarded& padded_ends) {
        if (!noted_) note_spoiled_handles();
        noted_ = true;
        Handles handles;
        handles_ = &handles;
        handle_index_ = 0;
        if (const auto status = octet_quantize_options_create(&handles.options)) return status;
        if (const auto status = octet_quantize_options_set(handles.options, "scaling", plan_.scaling.c_str())) return status;
        if (const auto status = octet_quantize_options_set(handles.options, "format", plan_.format.c_str())) return status;
        if (const auto status = octet_quantize_options_set(handles.options, "scale_rounding", plan_.rounding.c_str())) return status;
        if (const auto status = octet_quantize_options_set(handles.options, "mx_mode", plan_.mode.c_str())) return status;
        if (const auto status = octet_execution_create(&handles.execution)) return status;
        if (const auto status = octet_execution_set_backend(handles.execution, plan_.backend)) return status;
        if (const auto status = octet_execution_set_threads(handles.execution, plan_.threads)) return status;
        for (std::size_t t = 0; t < plan_.tensors.size(); ++t) {
            const TensorPlan& tensor = plan_.tensors[t];
            handles.tensors.push_back(nullptr);
            if (!tensor.given) continue;
            void* memory = buffers[t]->data();
            if (tensor.overlaps >= 0) memory = buffers[static_cast<std::size_t>(tensor.overlaps)]->data() + tensor.overlap_offset;
            if (tensor.null_data) memory = nullptr;
            const auto status = octet_tensor_create(memory, tensor.format, static_cast<std::int32_t>(tensor.shape.size()),
                                                    tensor.shape.data(), tensor.strides.data(), tensor.device_kind,
                                                    tensor.device_index, &handles.tensors.back());
            if (status != OCTET_OK) {
                if (handles.tensors.back() != nullptr) broken("failed to make a tensor and wrote its handle");
                return status;
            }
        }
        if (plan_.grouped) {
            const auto* offsets = plan_.null_ends ? nullptr : reinterpret_cast<const std::int32_t*>(ends.data());
            if (const auto status = octet_groups_create(offsets, plan_.group_count, plan_.groups_device, 0, &handles.groups))
                return status;
        }
        std::int32_t* wanted_ends = plan_.padded_ends ? reinterpret_cast<std::int32_t*>(padded_ends.data()) : nullptr;
        return dispatch(handles, wanted_ends);
    }

    // Three tensors, from the one at `first`, as data and scales.
    octet_quantized* quantize_into(Handles& handles, std::size_t first, octet_status& status) {
        octet_quantized* made = nullptr;
        if (status == OCTET_OK) {
            status = octet_quantized_create(handles.tensors[first], handles.tensors[first + 1], handles.tensors[first + 2], &made);
            if (made != nullptr) handles.quantized.push_back(made);
        }
        return made;
    }

    octet_status dispatch(Handles& h, std::int32_t* padded_ends) {
        octet_status status = OCTET_OK;
        const auto tensor = [&](std::size_t i) { return pass(h.tensors[i]); };
        const auto groups = [&] { return pass(h.groups); };
        const auto options = [&] { return pass(h.options); };
        const auto on = [&] { return pass(h.execution); };
        octet_quantized *q0 = nullptr, *q1 = nullptr;
        switch (plan_.operation) {
            case rows: case columns: case transposed: q0 = quantize_into(h, 1, status); break;
            case columns_dual: q0 = quantize_into(h, 2, status), q1 = quantize_into(h, 5, status); break;
            case pair: case weights: q0 = quantize_into(h, 1, status), q1 = quantize_into(h, 4, status); break;
            case undo_rows: case undo_columns: case undo_transposed: case undo_weights: q0 = quantize_into(h, 0, status); break;
            default: break;
        }
        if (status != OCTET_OK) return status;
        const std::int64_t alignment = plan_.alignment;
        // Arguments are taken into variables first: the order in which a call's own arguments are evaluated is free.
        octet_tensor *x = nullptr, *x1 = nullptr;
        octet_groups* g = nullptr;
        octet_quantize_options* o = nullptr;
        if (plan_.operation == columns_dual) x = tensor(0), x1 = tensor(1);
        else if (plan_.operation >= undo_rows && plan_.operation <= undo_weights) x = tensor(3);
        else if (plan_.operation >= pad) x = tensor(0), x1 = tensor(1);
        else x = tensor(0);
        if (plan_.operation == weights) o = options();
        if (plan_.grouped) g = groups();
        if (plan_.operation < pad && o == nullptr && plan_.operation != weights) o = options();
        if (plan_.operation < pad) q0 = pass(q0);
        if (q1 != nullptr) q1 = pass(q1);
        octet_execution* e = on();
        switch (plan_.operation) {
            case rows: return octet_quantize_rows(x, o, q0, e);
            case columns: return octet_quantize_columns(x, g, alignment, o, q0, e);
            case columns_dual: return octet_quantize_columns_dual(x, x1, g, alignment, o, q0, q1, e);
            case pair: return octet_quantize_pair(x, g, alignment, o, q0, q1, e);
            case transposed: return octet_quantize_transposed(x, g, alignment, o, q0, e);
            case weights: return octet_quantize_weights(x, o, q0, q1, e);
            case undo_rows: return octet_dequantize_rows(q0, o, x, e);
            case undo_columns: return octet_dequantize_columns(q0, g, alignment, o, x, e);
            case undo_transposed: return octet_dequantize_transposed(q0, g, alignment, o, x, e);
            case undo_weights: return octet_dequantize_weights(q0, plan_.orientation, o, x, e);
            case pad: return octet_pad_groups(x, g, alignment, x1, padded_ends, e);
            case unpad: return octet_unpad_groups(x1, g, alignment, x, e);
            case swizzle: return octet_swizzle_scales(x, x1, e);
            case unswizzle: return octet_unswizzle_scales(x1, x, e);
            case swizzle_groups: return octet_swizzle_group_scales(x, g, x1, e);
            default: return octet_unswizzle_group_scales(x1, g, x, e);
        }
    }

    Plan& plan_;
    std::uint64_t data_seed_;
    Handles* handles_ = nullptr;
    int handle_index_ = 0;
    bool noted_ = false;
};

// ---- calls without tensors ------------------------------------------------------------------------------------------

std::string hostile_text(Choices& choices) {
    constexpr const char* pieces[] = {"fp8_rowwise", "fp8_blockwise", "mxfp8", "bf16", ":", ",", "=", "scales", "exact",
                                      "gradient", "e5m2", "e4m3", "mx", "rceil", "even", "wgrad", "accumulation", "fast",
                                      "format", "scaling", "\xff", " ", "%s%n", "f32", "power_of_two", ""};
    std::string text;
    for (std::int64_t n = choices.below(7); n > 0; --n) text += choices.of(pieces);
    if (choices.one_in(20)) text += std::string(5000, 'x');
    return text;
}

void insist(bool condition, const char* what) {
    if (!condition) throw Broken(std::string(what) + "; last error: " + octet_last_error());
}

Outcome hostile_recipe(Choices& choices) {
    const std::string text = hostile_text(choices);
    octet_recipe* recipe = nullptr;
    const char* given = choices.one_in(15) ? nullptr : text.c_str();
    if (octet_recipe_parse(given, choices.one_in(15) ? nullptr : &recipe) != OCTET_OK) {
        insist(recipe == nullptr, "octet_recipe_parse failed and wrote its handle");
        return Outcome::refused;
    }
    // What it prints, it parses again to the same.
    std::size_t needed = 0;
    insist(octet_recipe_print(recipe, nullptr, 0, &needed) == OCTET_OK && needed > 1, "octet_recipe_print gave no size");
    Guarded buffer(needed, 0, 0xA5);
    buffer.remember();
    auto* out = reinterpret_cast<char*>(buffer.data());
    insist(octet_recipe_print(recipe, out, needed - 1, nullptr) == OCTET_INVALID_ARGUMENT && buffer.unchanged(),
           "octet_recipe_print wrote to a buffer that is too small");
    insist(octet_recipe_print(recipe, out, needed, nullptr) == OCTET_OK && buffer.canaries_alive(), "octet_recipe_print");
    octet_recipe* again = nullptr;
    insist(octet_recipe_parse(out, &again) == OCTET_OK, "a printed recipe did not parse");
    std::string second(needed, '\0');
    insist(octet_recipe_print(again, second.data(), needed, nullptr) == OCTET_OK && std::strcmp(second.c_str(), out) == 0,
           "a recipe changed when printed and parsed");
    octet_quantize_options* options = nullptr;
    const auto operand = static_cast<octet_operand>(choices.between(-1, 3));
    const octet_status status = octet_quantize_options_from_recipe(recipe, operand, &options);
    insist((status == OCTET_OK) == (options != nullptr), "octet_quantize_options_from_recipe");
    insist(status != OCTET_OK || (operand >= 0 && operand <= 2), "an unknown operand was accepted");
    octet_quantize_options_destroy(options);
    octet_recipe_destroy(again);
    octet_recipe_destroy(recipe);
    return Outcome::accepted;
}

Outcome hostile_array(Choices& choices) {
    const auto format = static_cast<octet_format>(choices.between(-1, 6));
    const bool known = format >= 0 && format <= 5;
    std::int64_t count = choices.between(0, 40);
    const auto unit = static_cast<std::size_t>(known ? bytes_of(format) : 1);
    const bool shifted = choices.one_in(5), null_in = choices.one_in(8), null_out = choices.one_in(8);
    const bool encoding = choices.one_in(2);
    const auto elements = static_cast<std::size_t>(count);
    Guarded values(elements * 4, shifted ? 1 : 0, 0x41), codes(elements * unit, 0, 0x5A);
    if (choices.one_in(6)) count = choices.of(absurd);
    values.remember(), codes.remember();
    auto* f32 = reinterpret_cast<float*>(values.data());
    const octet_status status =
        encoding ? octet_encode(format, null_in ? nullptr : f32, count, null_out ? nullptr : codes.data())
                 : octet_decode(format, null_in ? nullptr : codes.data(), count, null_out ? nullptr : f32);
    const bool valid = known && count >= 0 && count <= 40 && (count == 0 || !(shifted || null_in || null_out));
    insist((status == OCTET_OK) == valid, encoding ? "octet_encode" : "octet_decode");
    insist(values.canaries_alive() && codes.canaries_alive(), "octet_encode or octet_decode wrote past its array");
    const Guarded& kept = encoding ? values : codes;
    insist(kept.unchanged() && (valid || (values.unchanged() && codes.unchanged())), "octet_encode or octet_decode");
    return valid ? Outcome::accepted : Outcome::refused;
}

Outcome hostile_sizes(Choices& choices) {
    const auto size = [&] { return choices.one_in(3) ? choices.of(absurd) : choices.between(0, 200); };
    const std::int64_t a = size(), b = size(), c = size();
    const auto sane = [](std::int64_t value) { return value >= 0 && value <= 200; };
    std::int64_t out = -77;
    octet_status status = OCTET_OK;
    bool valid = sane(a) && sane(b);
    switch (choices.below(4)) {
        case 0:
            status = octet_padded_bound(a, b, c, &out);
            valid = valid && sane(c) && c > 0;
            break;
        case 1: status = octet_swizzled_bytes(a, b, &out); break;
        case 2:
            status = octet_swizzled_group_bytes(a, b, c, &out);
            valid = valid && sane(c);
            break;
        default:
            insist(octet_padded_bound(1, 1, 1, nullptr) == OCTET_INVALID_ARGUMENT, "a null result was accepted");
            insist(octet_swizzled_bytes(1, 1, nullptr) == OCTET_INVALID_ARGUMENT, "a null result was accepted");
            insist(octet_swizzled_group_bytes(1, 1, 1, nullptr) == OCTET_INVALID_ARGUMENT, "a null result was accepted");
            return Outcome::refused;
    }
    // Some absurd sizes still have an answer; none may be negative, and a refused call leaves the result alone.
    insist(!valid || status == OCTET_OK, "a sane size was refused");
    insist(status == OCTET_OK ? out >= 0 : out == -77, "a size is negative, or was written by a call that failed");
    return status == OCTET_OK ? Outcome::accepted : Outcome::refused;
}

Outcome hostile_names(Choices& choices) {
    const auto number = static_cast<std::int32_t>(choices.between(-3, 9));
    insist(octet_status_name(number) != nullptr, "octet_status_name");
    insist((octet_format_name(number) != nullptr) == (number >= 0 && number <= 5), "octet_format_name");
    std::int64_t bytes = -77;
    const bool known = octet_format_bytes(number, &bytes) == OCTET_OK;
    insist(known == (number >= 0 && number <= 5) && (known || bytes == -77), "octet_format_bytes");
    octet_quantize_options* options = nullptr;
    insist(octet_quantize_options_create(&options) == OCTET_OK, "octet_quantize_options_create");
    const std::string name = hostile_text(choices), value = hostile_text(choices);
    const octet_status status = octet_quantize_options_set(choices.one_in(10) ? nullptr : options, name.c_str(),
                                                           choices.one_in(10) ? nullptr : value.c_str());
    char text[64];
    std::memset(text, 0x7E, sizeof text);
    const octet_status got = octet_quantize_options_get(options, name.c_str(), text, static_cast<std::size_t>(choices.below(65)), nullptr);
    insist(got == OCTET_OK || text[0] == 0x7E, "octet_quantize_options_get failed and wrote");
    octet_format format = -77;
    insist(octet_format_parse(value.c_str(), &format) == OCTET_OK || format == -77, "octet_format_parse");
    octet_quantize_options_destroy(options);
    return status == OCTET_OK ? Outcome::accepted : Outcome::refused;
}

}  // namespace

const char* operation_name(int operation) { return names[operation] + std::strlen("octet_"); }

Outcome hostile_call(int operation, Choices& choices) {
    Plan plan = Planner(operation, choices).make();
    const std::int64_t spoils = choices.one_in(4) ? 0 : choices.between(1, 3);
    for (std::int64_t i = 0; i < spoils; ++i) spoil_once(plan, choices);
    return Caller(plan, choices).run();
}

Outcome hostile_small_call(Choices& choices) {
    switch (choices.below(4)) {
        case 0: return hostile_recipe(choices);
        case 1: return hostile_array(choices);
        case 2: return hostile_sizes(choices);
        default: return hostile_names(choices);
    }
}

}  // namespace octet::fuzz
