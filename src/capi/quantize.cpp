// The operations at the C ABI: handles are checked and the C++ function of the same name is called. What the tensors
// must be like is checked there, once for both languages.
#include "octet/quantize.hpp"

#include <algorithm>
#include <limits>

#include "capi/guard.hpp"
#include "capi/handles.hpp"

using namespace octet;
using namespace octet::capi;

namespace {

TensorView view_of(const octet_tensor* tensor, const char* what) { return checked(tensor, what).view; }
Groups groups_of(const octet_groups* groups) { return checked(groups, "groups").groups; }
QuantizedView quantized_of(const octet_quantized* quantized, const char* what) { return checked(quantized, what).view; }
const QuantizeOptions& options_of(const octet_quantize_options* options) { return checked(options, "options").options; }

std::int64_t checked_product(std::int64_t a, std::int64_t b, const char* what) {
    std::int64_t product = 0;
    require(!__builtin_mul_overflow(a, b, &product), what, " is more than 64 bits can count: ", a, " x ", b);
    return product;
}

void require_count(std::int64_t value, const char* what) {
    // Half of what 64 bits hold, so that rounding up cannot overflow.
    require(value >= 0 && value <= std::numeric_limits<std::int64_t>::max() / 2, what, " is ", value,
            ", expected 0 or more, and less than 2^62");
}

std::int64_t checked_padded_bound(std::int64_t tokens, std::int64_t count, std::int64_t alignment) {
    require_count(tokens, "tokens");
    require_count(count, "count");
    require(alignment >= 1, "alignment is ", alignment, ", expected 1 or more");
    const std::int64_t padding = checked_product(std::min(tokens, count), alignment - 1, "the padding");
    std::int64_t sum = 0;
    require(!__builtin_add_overflow(tokens, padding, &sum), "the bound of ", tokens, " tokens in ", count,
            " groups aligned to ", alignment, " is more than 64 bits can count");
    return padded_bound(tokens, count, alignment);
}

}  // namespace

extern "C" {

octet_status octet_padded_bound(int64_t tokens, int64_t count, int64_t alignment, int64_t* bound) {
    return guarded(__func__, [&] {
        auto& out = checked_pointer(bound, "bound");
        out = checked_padded_bound(tokens, count, alignment);
    });
}

octet_status octet_swizzled_bytes(int64_t rows, int64_t columns, int64_t* bytes) {
    return guarded(__func__, [&] {
        auto& out = checked_pointer(bytes, "bytes");
        require_count(rows, "rows");
        require_count(columns, "columns");
        out = checked_product(swizzled_rows(rows), swizzled_columns(columns), "the blocked layout");
    });
}

octet_status octet_swizzled_group_bytes(int64_t rows, int64_t columns, int64_t count, int64_t* bytes) {
    return guarded(__func__, [&] {
        auto& out = checked_pointer(bytes, "bytes");
        require_count(columns, "columns");
        const std::int64_t padded = checked_padded_bound(rows, count, 128);
        out = checked_product(padded, swizzled_columns(columns), "the blocked layout");
    });
}

octet_status octet_quantize_rows(const octet_tensor* x, const octet_quantize_options* options, octet_quantized* out,
                                 const octet_execution* on) {
    return guarded(__func__, [&] {
        quantize_rows(view_of(x, "x"), options_of(options), quantized_of(out, "out"), execution_of(on));
    });
}

octet_status octet_quantize_columns(const octet_tensor* x, const octet_groups* groups, int64_t alignment,
                                    const octet_quantize_options* options, octet_quantized* out,
                                    const octet_execution* on) {
    return guarded(__func__, [&] {
        quantize_columns(view_of(x, "x"), groups_of(groups), alignment, options_of(options), quantized_of(out, "out"),
                         execution_of(on));
    });
}

octet_status octet_quantize_columns_dual(const octet_tensor* x0, const octet_tensor* x1, const octet_groups* groups,
                                         int64_t alignment, const octet_quantize_options* options,
                                         octet_quantized* out0, octet_quantized* out1, const octet_execution* on) {
    return guarded(__func__, [&] {
        quantize_columns_dual(view_of(x0, "x0"), view_of(x1, "x1"), groups_of(groups), alignment, options_of(options),
                              quantized_of(out0, "out0"), quantized_of(out1, "out1"), execution_of(on));
    });
}

octet_status octet_quantize_pair(const octet_tensor* x, const octet_groups* groups, int64_t alignment,
                                 const octet_quantize_options* options, octet_quantized* rows, octet_quantized* columns,
                                 const octet_execution* on) {
    return guarded(__func__, [&] {
        quantize_pair(view_of(x, "x"), groups_of(groups), alignment, options_of(options), quantized_of(rows, "rows"),
                      quantized_of(columns, "columns"), execution_of(on));
    });
}

octet_status octet_quantize_transposed(const octet_tensor* x, const octet_groups* groups, int64_t alignment,
                                       const octet_quantize_options* options, octet_quantized* out,
                                       const octet_execution* on) {
    return guarded(__func__, [&] {
        quantize_transposed(view_of(x, "x"), groups_of(groups), alignment, options_of(options),
                            quantized_of(out, "out"), execution_of(on));
    });
}

octet_status octet_quantize_weights(const octet_tensor* w, const octet_quantize_options* options,
                                    octet_quantized* along_k, octet_quantized* along_n, const octet_execution* on) {
    return guarded(__func__, [&] {
        require(along_k != nullptr || along_n != nullptr,
                "along_k and along_n are both NULL, expected at least one orientation to make");
        const auto optional = [](octet_quantized* quantized, const char* what) {
            return quantized == nullptr ? QuantizedView{} : checked(quantized, what).view;
        };
        quantize_weights(view_of(w, "w"), options_of(options), optional(along_k, "along_k"),
                         optional(along_n, "along_n"), execution_of(on));
    });
}

octet_status octet_dequantize_rows(const octet_quantized* q, const octet_quantize_options* options, octet_tensor* x,
                                   const octet_execution* on) {
    return guarded(__func__, [&] {
        dequantize_rows(quantized_of(q, "q"), options_of(options), view_of(x, "x"), execution_of(on));
    });
}

octet_status octet_dequantize_columns(const octet_quantized* q, const octet_groups* groups, int64_t alignment,
                                      const octet_quantize_options* options, octet_tensor* x,
                                      const octet_execution* on) {
    return guarded(__func__, [&] {
        dequantize_columns(quantized_of(q, "q"), groups_of(groups), alignment, options_of(options), view_of(x, "x"),
                           execution_of(on));
    });
}

octet_status octet_dequantize_transposed(const octet_quantized* q, const octet_groups* groups, int64_t alignment,
                                         const octet_quantize_options* options, octet_tensor* x,
                                         const octet_execution* on) {
    return guarded(__func__, [&] {
        dequantize_transposed(quantized_of(q, "q"), groups_of(groups), alignment, options_of(options), view_of(x, "x"),
                              execution_of(on));
    });
}

octet_status octet_dequantize_weights(const octet_quantized* q, octet_weight_orientation orientation,
                                      const octet_quantize_options* options, octet_tensor* w,
                                      const octet_execution* on) {
    return guarded(__func__, [&] {
        dequantize_weights(quantized_of(q, "q"), checked_enum<WeightOrientation>(orientation, 2, "orientation"),
                           options_of(options), view_of(w, "w"), execution_of(on));
    });
}

octet_status octet_pad_groups(const octet_tensor* x, const octet_groups* groups, int64_t alignment,
                              octet_tensor* padded, int32_t* padded_ends, const octet_execution* on) {
    return guarded(__func__, [&] {
        pad_groups(view_of(x, "x"), groups_of(groups), alignment, view_of(padded, "padded"), padded_ends,
                   execution_of(on));
    });
}

octet_status octet_unpad_groups(const octet_tensor* padded, const octet_groups* groups, int64_t alignment,
                                octet_tensor* x, const octet_execution* on) {
    return guarded(__func__, [&] {
        unpad_groups(view_of(padded, "padded"), groups_of(groups), alignment, view_of(x, "x"), execution_of(on));
    });
}

octet_status octet_swizzle_scales(const octet_tensor* scale, octet_tensor* blocked, const octet_execution* on) {
    return guarded(__func__,
                   [&] { swizzle_scales(view_of(scale, "scale"), view_of(blocked, "blocked"), execution_of(on)); });
}

octet_status octet_unswizzle_scales(const octet_tensor* blocked, octet_tensor* scale, const octet_execution* on) {
    return guarded(__func__,
                   [&] { unswizzle_scales(view_of(blocked, "blocked"), view_of(scale, "scale"), execution_of(on)); });
}

octet_status octet_swizzle_group_scales(const octet_tensor* scale, const octet_groups* groups, octet_tensor* blocked,
                                        const octet_execution* on) {
    return guarded(__func__, [&] {
        swizzle_group_scales(view_of(scale, "scale"), groups_of(groups), view_of(blocked, "blocked"), execution_of(on));
    });
}

octet_status octet_unswizzle_group_scales(const octet_tensor* blocked, const octet_groups* groups, octet_tensor* scale,
                                          const octet_execution* on) {
    return guarded(__func__, [&] {
        unswizzle_group_scales(view_of(blocked, "blocked"), groups_of(groups), view_of(scale, "scale"),
                               execution_of(on));
    });
}

}  // extern "C"
