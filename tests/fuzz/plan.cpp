#include "fuzz/plan.hpp"

#include <algorithm>
#include <utility>

namespace octet::fuzz {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}
std::int64_t ceil_div(std::int64_t value, std::int64_t divisor) { return (value + divisor - 1) / divisor; }

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
                if (plan_.orientation == OCTET_ALONG_K)
                    add_weights("q", Role::input, n, features_);
                else
                    add_weights("q", Role::input, features_, n);
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
            case forward:
            case dgrad:
            case wgrad: add_product(); break;
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
    // Operands of the three products: each is three tensors (data, scale, inverse), then comes the output.
    void add_product() {
        plan_.plain = choices_.one_in(3);
        add_groups(plan_.operation == wgrad && !plan_.plain);
        experts_ = plan_.group_count;
        const std::int64_t n = choices_.between(1, 40), k = features_;
        const octet_format to = choices_.one_in(2) ? OCTET_F32 : OCTET_BF16;
        const bool rows_product = plan_.operation != wgrad;
        if (plan_.operation == dgrad) features_ = n;
        if (plan_.plain) {
            const std::int64_t left = plan_.operation == forward ? k : n;
            dense("a", Role::input, high_, {tokens_, left}), skip(2);
            if (rows_product)
                dense("w", Role::input, high_, {experts_, n, k}), skip(2);
            else
                dense("a", Role::input, high_, {tokens_, k}), skip(2);
        } else if (rows_product) {
            add_rows("a", Role::input);
            if (plan_.operation == forward)
                add_weights("w", Role::input, n, k);
            else
                add_weights("w", Role::input, k, n);
        } else {
            add_tokens("a", Role::input, n), add_tokens("a", Role::input, k);
        }
        if (plan_.operation == wgrad)
            dense("y", Role::output, to, {experts_, n, k});
        else
            dense("y", Role::output, to, {tokens_, plan_.operation == forward ? n : k}).must = owned(0);
    }

    // Tensors that are not given, to keep the count.
    void skip(int count) {
        for (int i = 0; i < count; ++i) contiguous("none", Role::input, OCTET_F32, {1}).given = false;
    }

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
        const bool read_alone =
            multiplies(plan_.operation);  // products read one of the two and do not look at the other
        const bool both = plan_.scaling != "mx" && (read_alone || choices_.one_in(2));
        auto& inverse = strided(what, role, format, shape);
        inverse.must = must;
        inverse.given = both;
        if (!both || !(read_alone || choices_.one_in(3))) return;
        plan_.tensors[plan_.tensors.size() - 2].given = false;  // the inverse alone
    }

    void add_rows(const char* what, Role role) {
        dense(what, role, fp8(), {tokens_, features_});
        if (block_ == 0)
            add_scales(what, role, {tokens_}, {});
        else
            add_scales(what, role, {tokens_, ceil_div(features_, block_)}, {});
    }

    void add_tokens(const char* what, Role role, std::int64_t features) {
        dense(what, role, fp8(), {features, padded_}).must = up_to(1, used_);
        if (block_ == 0)
            add_scales(what, role, {plan_.group_count, features}, {});
        else
            add_scales(what, role, {features, padded_ / block_}, up_to(1, used_ / block_));
    }

    void add_weights(const char* what, Role role, std::int64_t rows_, std::int64_t columns_) {
        dense(what, role, fp8(), {experts_, rows_, columns_});
        if (plan_.scaling == "rowwise")
            add_scales(what, role, {experts_, rows_}, {});
        else if (plan_.scaling == "mx")
            add_scales(what, role, {experts_, rows_, ceil_div(columns_, 32)}, {});
        else
            add_scales(what, role, {experts_, ceil_div(rows_, 128), ceil_div(columns_, 128)}, {});
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

}  // namespace

Plan valid_plan(int operation, Choices& choices) { return Planner(operation, choices).make(); }

}  // namespace octet::fuzz
