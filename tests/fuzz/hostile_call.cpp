#include "fuzz/hostile_call.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <sstream>
#include <type_traits>

#include "fuzz/guarded.hpp"
#include "fuzz/plan.hpp"

namespace octet::fuzz {
namespace {

constexpr const char* names[operation_count] = {
    "octet_quantize_rows",          "octet_quantize_columns",    "octet_quantize_columns_dual",
    "octet_quantize_pair",          "octet_quantize_transposed", "octet_quantize_weights",
    "octet_dequantize_rows",        "octet_dequantize_columns",  "octet_dequantize_transposed",
    "octet_dequantize_weights",     "octet_pad_groups",          "octet_unpad_groups",
    "octet_swizzle_scales",         "octet_unswizzle_scales",    "octet_swizzle_group_scales",
    "octet_unswizzle_group_scales", "octet_grouped_forward",     "octet_grouped_dgrad",
    "octet_grouped_wgrad"};

// Handles of one call; freed at its end, whatever happens.
class Handles {
public:
    Handles() = default;
    Handles(const Handles&) = delete;
    Handles& operator=(const Handles&) = delete;
    ~Handles() {
        for (auto* t : tensors) octet_tensor_destroy(t);
        for (auto* q : quantized) octet_quantized_destroy(q);
        for (auto* o : operands) octet_operand_destroy(o);
        octet_groups_destroy(groups);
        octet_quantize_options_destroy(options);
        octet_execution_destroy(execution);
    }
    std::vector<octet_tensor*> tensors{};
    std::vector<octet_quantized*> quantized{};
    std::vector<octet_operand*> operands{};
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
                const bool written =
                    std::equal(&first.outputs[t][byte], &first.outputs[t][byte] + unit, &second.outputs[t][byte]);
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
        text << names[plan_.operation] << " " << how
             << ".\n  spoiled: " << (plan_.spoiled.empty() ? "nothing" : plan_.spoiled) << "\n  scaling "
             << plan_.scaling << ", " << plan_.format << ", alignment " << plan_.alignment << ", backend "
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
                for (std::size_t i = 0; i < buffer->bytes(); ++i)
                    buffer->data()[i] = static_cast<std::uint8_t>(data.below(256));
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
        const bool has_options = quantizes(plan_.operation);
        const int quantized = plan_.operation == columns_dual || plan_.operation == pair || plan_.operation == weights
                                  ? 2
                              : has_options ? 1
                                            : 0;
        const int plain = plan_.operation >= pad || plan_.operation == columns_dual ? 2 : 1;
        const int total = multiplies(plan_.operation)  // operands, groups, output, execution; the options may be NULL
                              ? 5
                              : quantized + plain + (plan_.grouped ? 1 : 0) + (has_options ? 1 : 0) + 1;
        if (plan_.null_handle >= total - 1) plan_.null_handle = -1;  // the last is the execution, which may be NULL
        if (plan_.operation == weights && plan_.null_handle > 1) plan_.null_handle = -1;  // an orientation may be
        if (plan_.wrong_handle >= total) plan_.wrong_handle = -1;
        if (plan_.null_handle >= 0) plan_.spoil("handle " + std::to_string(plan_.null_handle) + " is NULL");
        if (plan_.wrong_handle >= 0)
            plan_.spoil("handle " + std::to_string(plan_.wrong_handle) + " is of another kind");
    }

    octet_status call(std::vector<std::unique_ptr<Guarded>>& buffers, Guarded& ends, Guarded& padded_ends) {
        if (!noted_) note_spoiled_handles();
        noted_ = true;
        Handles handles;
        handles_ = &handles;
        handle_index_ = 0;
        if (const auto status = octet_quantize_options_create(&handles.options)) return status;
        if (const auto status = octet_quantize_options_set(handles.options, "scaling", plan_.scaling.c_str()))
            return status;
        if (const auto status = octet_quantize_options_set(handles.options, "format", plan_.format.c_str()))
            return status;
        if (const auto status = octet_quantize_options_set(handles.options, "scale_rounding", plan_.rounding.c_str()))
            return status;
        if (const auto status = octet_quantize_options_set(handles.options, "mx_mode", plan_.mode.c_str()))
            return status;
        if (const auto status = octet_execution_create(&handles.execution)) return status;
        if (const auto status = octet_execution_set_backend(handles.execution, plan_.backend)) return status;
        if (const auto status = octet_execution_set_threads(handles.execution, plan_.threads)) return status;
        for (std::size_t t = 0; t < plan_.tensors.size(); ++t) {
            const TensorPlan& tensor = plan_.tensors[t];
            handles.tensors.push_back(nullptr);
            if (!tensor.given) continue;
            void* memory = buffers[t]->data();
            if (tensor.overlaps >= 0)
                memory = buffers[static_cast<std::size_t>(tensor.overlaps)]->data() + tensor.overlap_offset;
            if (tensor.null_data) memory = nullptr;
            const auto status = octet_tensor_create(
                memory, tensor.format, static_cast<std::int32_t>(tensor.shape.size()), tensor.shape.data(),
                tensor.strides.data(), tensor.device_kind, tensor.device_index, &handles.tensors.back());
            if (status != OCTET_OK) {
                if (handles.tensors.back() != nullptr) broken("failed to make a tensor and wrote its handle");
                return status;
            }
        }
        if (plan_.grouped) {
            const auto* offsets = plan_.null_ends ? nullptr : reinterpret_cast<const std::int32_t*>(ends.data());
            if (const auto status =
                    octet_groups_create(offsets, plan_.group_count, plan_.groups_device, 0, &handles.groups))
                return status;
        }
        std::int32_t* wanted_ends = plan_.padded_ends ? reinterpret_cast<std::int32_t*>(padded_ends.data()) : nullptr;
        return dispatch(handles, wanted_ends);
    }

    // Three tensors, from the one at `first`, as data and scales.
    octet_quantized* quantize_into(Handles& handles, std::size_t first, octet_status& status) {
        octet_quantized* made = nullptr;
        if (status == OCTET_OK) {
            status = octet_quantized_create(handles.tensors[first], handles.tensors[first + 1],
                                            handles.tensors[first + 2], &made);
            if (made != nullptr) handles.quantized.push_back(made);
        }
        return made;
    }

    octet_operand* operand_from(Handles& handles, std::size_t first, octet_status& status) {
        octet_operand* made = nullptr;
        if (plan_.plain) {
            if (status == OCTET_OK) status = octet_operand_create_plain(handles.tensors[first], &made);
        } else {
            octet_quantized* values = quantize_into(handles, first, status);
            if (status == OCTET_OK) status = octet_operand_create_quantized(values, plan_.scaling.c_str(), &made);
        }
        if (made != nullptr) handles.operands.push_back(made);
        return made;
    }

    octet_status multiply(Handles& h) {
        octet_status status = OCTET_OK;
        octet_operand* a = operand_from(h, 0, status);
        octet_operand* w = operand_from(h, 3, status);
        if (status != OCTET_OK) return status;
        a = pass(a), w = pass(w);
        octet_groups* g = pass(h.groups);
        octet_tensor* y = pass(h.tensors[6]);
        octet_execution* e = pass(h.execution);
        if (plan_.operation == forward) return octet_grouped_forward(a, w, g, y, nullptr, e);
        if (plan_.operation == dgrad) return octet_grouped_dgrad(a, w, g, y, nullptr, e);
        return octet_grouped_wgrad(a, w, g, plan_.alignment, y, nullptr, e);
    }

    octet_status dispatch(Handles& h, std::int32_t* padded_ends) {
        if (multiplies(plan_.operation)) return multiply(h);
        octet_status status = OCTET_OK;
        const auto tensor = [&](std::size_t i) { return pass(h.tensors[i]); };
        const auto groups = [&] { return pass(h.groups); };
        const auto options = [&] { return pass(h.options); };
        const auto on = [&] { return pass(h.execution); };
        octet_quantized *q0 = nullptr, *q1 = nullptr;
        switch (plan_.operation) {
            case rows:
            case columns:
            case transposed: q0 = quantize_into(h, 1, status); break;
            case columns_dual: q0 = quantize_into(h, 2, status), q1 = quantize_into(h, 5, status); break;
            case pair:
            case weights: q0 = quantize_into(h, 1, status), q1 = quantize_into(h, 4, status); break;
            case undo_rows:
            case undo_columns:
            case undo_transposed:
            case undo_weights: q0 = quantize_into(h, 0, status); break;
            default: break;
        }
        if (status != OCTET_OK) return status;
        const std::int64_t alignment = plan_.alignment;
        // Arguments are taken into variables first: the order in which a call's own arguments are evaluated is free.
        octet_tensor *x = nullptr, *x1 = nullptr;
        octet_groups* g = nullptr;
        octet_quantize_options* o = nullptr;
        if (plan_.operation == columns_dual)
            x = tensor(0), x1 = tensor(1);
        else if (plan_.operation >= undo_rows && plan_.operation <= undo_weights)
            x = tensor(3);
        else if (plan_.operation >= pad)
            x = tensor(0), x1 = tensor(1);
        else
            x = tensor(0);
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

}  // namespace

const char* operation_name(int operation) { return names[operation] + std::strlen("octet_"); }

Outcome hostile_call(int operation, Choices& choices) {
    Plan plan = valid_plan(operation, choices);
    const std::int64_t spoils = choices.one_in(4) ? 0 : choices.between(1, 3);
    for (std::int64_t i = 0; i < spoils; ++i) spoil_once(plan, choices);
    return Caller(plan, choices).run();
}

}  // namespace octet::fuzz
