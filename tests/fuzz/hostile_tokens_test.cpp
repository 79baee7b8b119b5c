// The permutation and SwiGLU at the C ABI with arguments chosen to hurt: a valid call is accepted; with any one thing
// spoiled it is refused with a message, and no byte of any buffer has changed.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include "fuzz/guarded.hpp"
#include "octet/octet.h"

namespace octet::fuzz {
namespace {

constexpr std::int64_t tokens = 5, top_k = 2, rows = tokens * top_k, features = 24, half = 32;

struct Argument {
    const char* what;
    octet_format format;
    std::vector<std::int64_t> shape;
    bool output;
};

// How one tensor is spoiled.
enum class Spoil {
    none,
    null_handle,
    null_data,
    format,
    one_more_row,
    one_more_column,
    rank,
    stride,
    shift,
    device,
    count
};

std::int64_t bytes_of(octet_format format) { return format == OCTET_F32 ? 4 : format == OCTET_BF16 ? 2 : 1; }

struct Call {
    std::vector<Argument> arguments;
    std::function<octet_status(const std::vector<octet_tensor*>&, const octet_token_order*, const octet_groups*,
                               const octet_quantize_options*)>
        make;
};

class Attempt {
public:
    Attempt(const Call& call, std::size_t victim, Spoil spoil) {
        for (std::size_t i = 0; i < call.arguments.size(); ++i) {
            const Argument& a = call.arguments[i];
            const Spoil now = i == victim ? spoil : Spoil::none;
            std::vector<std::int64_t> shape = a.shape;
            std::int64_t elements = 1;
            for (const std::int64_t size : shape) elements *= size;
            const auto bytes = static_cast<std::size_t>((elements + 200) * bytes_of(a.format));
            buffers_.push_back(std::make_unique<Guarded>(bytes, now == Spoil::shift ? 1 : 0, a.output ? 0xA5 : 0x3F));
            if (now == Spoil::one_more_row) ++shape[0];
            if (now == Spoil::one_more_column) ++shape.back();
            if (now == Spoil::rank) shape.push_back(1);
            std::vector<std::int64_t> strides(shape.size(), 1);
            for (std::size_t axis = shape.size() - 1; axis-- > 0;) strides[axis] = strides[axis + 1] * shape[axis + 1];
            if (now == Spoil::stride) strides[0] = shape.size() > 1 ? strides[0] / 2 : -1;
            octet_format format = a.format;
            if (now == Spoil::format) format = a.format == OCTET_E8M0 ? OCTET_E5M2 : OCTET_E8M0;
            octet_tensor* tensor = nullptr;
            EXPECT_EQ(octet_tensor_create(now == Spoil::null_data ? nullptr : buffers_.back()->data(), format,
                                          static_cast<std::int32_t>(shape.size()), shape.data(), strides.data(),
                                          now == Spoil::device ? OCTET_DEVICE_CUDA : OCTET_DEVICE_CPU, 0, &tensor),
                      OCTET_OK);
            made_.push_back(tensor);
            given_.push_back(now == Spoil::null_handle ? nullptr : tensor);
        }
        for (auto& buffer : buffers_) buffer->remember();
    }
    ~Attempt() {
        for (octet_tensor* tensor : made_) octet_tensor_destroy(tensor);
    }
    Attempt(const Attempt&) = delete;
    Attempt& operator=(const Attempt&) = delete;

    const std::vector<octet_tensor*>& tensors() const { return given_; }
    octet_tensor* tensor(std::size_t i) const { return made_[i]; }
    bool unchanged() const {
        for (const auto& buffer : buffers_)
            if (!buffer->unchanged()) return false;
        return true;
    }
    bool canaries_alive() const {
        for (const auto& buffer : buffers_)
            if (!buffer->canaries_alive()) return false;
        return true;
    }
    std::uint8_t* data(std::size_t i) { return buffers_[i]->data(); }

private:
    std::vector<std::unique_ptr<Guarded>> buffers_;
    std::vector<octet_tensor*> made_, given_;
};

// A quantized operand of three of the tensors; freed at the end.
struct Quantized {
    octet_quantized* handle = nullptr;
    Quantized(const octet_tensor* data, const octet_tensor* scale, const octet_tensor* inverse) {
        octet_quantized_create(data, scale, inverse, &handle);
    }
    ~Quantized() { octet_quantized_destroy(handle); }
    Quantized(const Quantized&) = delete;
    Quantized& operator=(const Quantized&) = delete;
};

std::vector<Call> calls() {
    const std::int64_t padded = 16;  // rows in one group, alignment 16
    const auto quantized = [&](std::int64_t width) {
        return std::vector<Argument>{
            {"data", OCTET_E4M3, {rows, width}, true},     {"scale", OCTET_F32, {rows}, true},
            {"inverse", OCTET_F32, {rows}, true},          {"column data", OCTET_E4M3, {width, padded}, true},
            {"column scale", OCTET_F32, {1, width}, true}, {"column inverse", OCTET_F32, {1, width}, true}};
    };
    const auto with = [](std::vector<Argument> list, const std::vector<Argument>& more) {
        list.insert(list.end(), more.begin(), more.end());
        return list;
    };
    using Tensors = const std::vector<octet_tensor*>&;
    return {
        {{{"tokens", OCTET_BF16, {tokens, features}, false}, {"rows", OCTET_BF16, {rows, features}, true}},
         [](Tensors t, const octet_token_order* order, const octet_groups*, const octet_quantize_options*) {
             return octet_permute_tokens(order, t[0], t[1], nullptr);
         }},
        {{{"rows", OCTET_BF16, {rows, features}, false},
          {"addend", OCTET_F32, {tokens, features}, false},
          {"y", OCTET_F32, {tokens, features}, true}},
         [](Tensors t, const octet_token_order* order, const octet_groups*, const octet_quantize_options*) {
             const octet_tensor* addends[] = {t[1]};
             return octet_combine_tokens(order, t[0], nullptr, addends, 1, t[2], nullptr);
         }},
        {{{"dy", OCTET_BF16, {tokens, features}, false},
          {"rows", OCTET_BF16, {rows, features}, false},
          {"drows", OCTET_BF16, {rows, features}, true}},
         [](Tensors t, const octet_token_order* order, const octet_groups*, const octet_quantize_options*) {
             float gradients[rows];
             return octet_combine_tokens_backward(order, t[0], t[1], nullptr, t[2], gradients, nullptr);
         }},
        {{{"gate_up", OCTET_BF16, {rows, 2 * half}, false}, {"s", OCTET_BF16, {rows, half}, true}},
         [](Tensors t, const octet_token_order*, const octet_groups*, const octet_quantize_options*) {
             return octet_swiglu(t[0], nullptr, t[1], nullptr);
         }},
        {{{"gate_up", OCTET_F32, {rows, 2 * half}, false},
          {"ds", OCTET_F32, {rows, half}, false},
          {"dgate_up", OCTET_F32, {rows, 2 * half}, true}},
         [](Tensors t, const octet_token_order*, const octet_groups*, const octet_quantize_options*) {
             return octet_swiglu_backward(t[0], nullptr, t[1], t[2], nullptr, nullptr);
         }},
        {with({{"gate_up", OCTET_BF16, {rows, 2 * half}, false}}, quantized(half)),
         [](Tensors t, const octet_token_order*, const octet_groups* groups, const octet_quantize_options* options) {
             const Quantized made(t[1], t[2], t[3]), columns(t[4], t[5], t[6]);
             return octet_swiglu_quantize(t[0], nullptr, groups, 16, options, made.handle, columns.handle, nullptr);
         }},
        {with({{"gate_up", OCTET_BF16, {rows, 2 * half}, false}, {"ds", OCTET_BF16, {rows, half}, false}},
              quantized(2 * half)),
         [](Tensors t, const octet_token_order*, const octet_groups* groups, const octet_quantize_options* options) {
             const Quantized made(t[2], t[3], t[4]), columns(t[5], t[6], t[7]);
             return octet_swiglu_backward_quantize(t[0], nullptr, t[1], groups, 16, options, made.handle,
                                                   columns.handle, nullptr, nullptr);
         }},
    };
}

// Handles that every call may use.
struct Common {
    std::int32_t row_of_slot[rows], slot_of_row[rows], end = rows;
    octet_token_order* order = nullptr;
    octet_groups* groups = nullptr;
    octet_quantize_options* options = nullptr;
    Common() {
        for (std::int32_t i = 0; i < rows; ++i) row_of_slot[i] = slot_of_row[i] = i;
        octet_token_order_create(tokens, top_k, rows, row_of_slot, slot_of_row, OCTET_DEVICE_CPU, 0, &order);
        octet_groups_create(&end, 1, OCTET_DEVICE_CPU, 0, &groups);
        octet_quantize_options_create(&options);
    }
    ~Common() {
        octet_token_order_destroy(order);
        octet_groups_destroy(groups);
        octet_quantize_options_destroy(options);
    }
    Common(const Common&) = delete;
    Common& operator=(const Common&) = delete;
};

TEST(HostileTokens, OneThingSpoiledIsRefusedAndNothingIsWritten) {
    const Common common;
    int refused = 0;
    for (const Call& call : calls()) {
        for (std::size_t victim = 0; victim < call.arguments.size(); ++victim) {
            for (int kind = 0; kind < static_cast<int>(Spoil::count); ++kind) {
                const auto spoil = static_cast<Spoil>(kind);
                const Argument& a = call.arguments[victim];
                if (spoil == Spoil::shift && bytes_of(a.format) == 1) continue;
                // A missing scale or inverse is allowed, and so is a token axis that is longer than it must be.
                const std::string what = a.what;
                const bool scale = what.find("scale") != std::string::npos || what.find("inverse") != std::string::npos;
                if (scale && (spoil == Spoil::null_handle || spoil == Spoil::null_data)) continue;
                if (scale && spoil == Spoil::stride && a.shape[0] == 1) continue;
                if (what == "column data" && spoil == Spoil::one_more_column) continue;
                if (what == "column data" && (spoil == Spoil::null_handle || spoil == Spoil::null_data)) continue;
                if (what == "addend" && spoil == Spoil::none) continue;
                SCOPED_TRACE(testing::Message() << "argument " << what << ", spoiled " << kind);
                Attempt attempt(call, victim, spoil);
                const octet_status status = call.make(attempt.tensors(), common.order, common.groups, common.options);
                ASSERT_TRUE(attempt.canaries_alive());
                if (spoil == Spoil::none) {
                    ASSERT_EQ(status, OCTET_OK) << octet_last_error();
                    continue;
                }
                ASSERT_NE(status, OCTET_OK);
                ASSERT_TRUE(attempt.unchanged());
                ASSERT_GT(std::string(octet_last_error()).size(), 20u);
                ++refused;
            }
        }
    }
    EXPECT_GT(refused, 150);
}

TEST(HostileTokens, OrdersThatCannotBeAreRefused) {
    Common common;
    const Call call = calls()[0];
    const auto tries = [&](std::int64_t t, std::int64_t k, std::int64_t r, const std::int32_t* a, const std::int32_t* b,
                           std::int32_t device) {
        octet_token_order* order = nullptr;
        EXPECT_EQ(octet_token_order_create(t, k, r, a, b, device, 0, &order), OCTET_OK);
        Attempt attempt(call, 0, Spoil::none);
        const octet_status status = call.make(attempt.tensors(), order, nullptr, nullptr);
        if (status != OCTET_OK) {
            EXPECT_TRUE(attempt.unchanged());
        }
        octet_token_order_destroy(order);
        return status;
    };
    const std::int32_t *a = common.row_of_slot, *b = common.slot_of_row;
    EXPECT_EQ(tries(tokens, top_k, rows, a, b, 0), OCTET_OK);
    EXPECT_NE(tries(-1, top_k, rows, a, b, 0), OCTET_OK);
    EXPECT_NE(tries(tokens, 0, rows, a, b, 0), OCTET_OK);
    EXPECT_NE(tries(tokens, std::int64_t{1} << 40, rows, a, b, 0), OCTET_OK);
    EXPECT_NE(tries(std::int64_t{1} << 62, 8, rows, a, b, 0), OCTET_OK);
    EXPECT_NE(tries(tokens, top_k, -3, a, b, 0), OCTET_OK);
    EXPECT_NE(tries(tokens, top_k, rows, nullptr, b, 0), OCTET_OK);
    EXPECT_NE(tries(tokens, top_k, rows, a, nullptr, 0), OCTET_OK);
    EXPECT_NE(tries(tokens, top_k, rows, a, b, OCTET_DEVICE_CUDA), OCTET_OK);
    const auto* odd = reinterpret_cast<const std::int32_t*>(reinterpret_cast<const char*>(a) + 1);
    EXPECT_NE(tries(tokens, top_k, rows, odd, b, 0), OCTET_OK);
    EXPECT_EQ(octet_token_order_create(1, 1, 1, a, b, 0, 0, nullptr), OCTET_INVALID_ARGUMENT);
    octet_token_order* order = nullptr;
    EXPECT_EQ(octet_token_order_create(1, 1, 1, a, b, 17, 0, &order), OCTET_INVALID_ARGUMENT);
    EXPECT_EQ(order, nullptr);
}

TEST(HostileTokens, SharedMemoryAndWrongHandlesAreRefused) {
    const Common common;
    const Call call = calls()[3];  // swiglu
    Attempt attempt(call, 0, Spoil::none);
    octet_tensor_set_data(attempt.tensor(1), attempt.data(0) + 64);
    EXPECT_EQ(call.make(attempt.tensors(), nullptr, nullptr, nullptr), OCTET_INVALID_ARGUMENT);
    EXPECT_TRUE(attempt.unchanged());
    auto* wrong = reinterpret_cast<octet_tensor*>(common.groups);
    EXPECT_EQ(octet_swiglu(wrong, nullptr, attempt.tensor(1), nullptr), OCTET_INVALID_ARGUMENT);
    EXPECT_EQ(octet_permute_tokens(reinterpret_cast<const octet_token_order*>(common.options), attempt.tensor(0),
                                   attempt.tensor(1), nullptr),
              OCTET_INVALID_ARGUMENT);
    EXPECT_TRUE(attempt.unchanged());
}

}  // namespace
}  // namespace octet::fuzz
