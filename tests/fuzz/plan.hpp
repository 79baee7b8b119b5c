// What one call of the C interface will be made from.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "fuzz/choices.hpp"
#include "octet/octet.h"

namespace octet::fuzz {

inline constexpr std::int64_t max64 = std::numeric_limits<std::int64_t>::max();
inline constexpr std::int64_t min64 = std::numeric_limits<std::int64_t>::min();
inline constexpr std::int64_t absurd[] = {-1, min64, max64, max64 / 2, std::int64_t{1} << 62, std::int64_t{1} << 60};

inline std::int64_t bytes_of(octet_format format) { return format == OCTET_F32 ? 4 : format == OCTET_BF16 ? 2 : 1; }

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
    bool given = true;  // false: a NULL handle
    bool null_data = false;
    std::size_t shift = 0;  // bytes off the natural alignment
    bool absurd = false;    // claims what no machine has; gets a small buffer
    int overlaps = -1;      // lies in the buffer of this other tensor
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
    bool plain = false;       // operands of a product in bf16 or f32
    std::uint32_t kinds = 0;  // of spoiling, that were tried
    std::string spoiled{};    // what was done to it; "" for a valid call

    void spoil(const std::string& how) { spoiled += (spoiled.empty() ? "" : "; ") + how; }
};

enum Operation {
    rows,
    columns,
    columns_dual,
    pair,
    transposed,
    weights,
    undo_rows,
    undo_columns,
    undo_transposed,
    undo_weights,
    pad,
    unpad,
    swizzle,
    unswizzle,
    swizzle_groups,
    unswizzle_groups,
    forward,
    dgrad,
    wgrad
};
constexpr bool quantizes(int operation) { return operation < pad; }
constexpr bool multiplies(int operation) { return operation >= forward; }

// A valid call: random sizes, formats, strides and groups.
Plan valid_plan(int operation, Choices& choices);

// Does one thing to the plan after which the call must fail. Where the thing chosen does not apply, does nothing.
void spoil_once(Plan& plan, Choices& choices);

}  // namespace octet::fuzz
