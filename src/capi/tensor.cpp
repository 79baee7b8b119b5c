// Tensor, group and quantized handles at the C ABI.
#include <algorithm>

#include "capi/guard.hpp"
#include "capi/handles.hpp"

using namespace octet;
using namespace octet::capi;

namespace {

Extents checked_extents(std::int32_t rank, const std::int64_t* shape, const std::int64_t* strides) {
    require(rank >= 0 && rank <= Extents::max_rank, "rank is ", rank, ", expected 0 to ", Extents::max_rank);
    require(rank == 0 || shape != nullptr, "shape is NULL, expected ", rank, " sizes");
    Extents extents;
    extents.rank = rank;
    std::copy_n(shape, rank, extents.shape.begin());
    // The product of the sizes stays within 64 bits even where one of them is 0, so that no later step overflows.
    std::int64_t step = 1;
    for (int axis = rank; axis-- > 0;) {
        const auto at = static_cast<std::size_t>(axis);
        require(extents.shape[at] >= 0, "shape ", to_string(extents), " has a negative size at axis ", axis,
                ", expected 0 or more");
        extents.strides[at] = strides == nullptr ? step : strides[at];
        require(!__builtin_mul_overflow(step, std::max<std::int64_t>(extents.shape[at], 1), &step), "shape ",
                to_string(extents), " has more elements than 64 bits can count");
    }
    return extents;
}

}  // namespace

extern "C" {

octet_status octet_tensor_create(void* data, octet_format format, int32_t rank, const int64_t* shape,
                                 const int64_t* strides, octet_device_kind device_kind, int32_t device_index,
                                 octet_tensor** tensor) {
    return guarded(__func__, [&] {
        auto& out = checked_pointer(tensor, "tensor");
        const TensorView view(data, checked_format(format), checked_extents(rank, shape, strides),
                              checked_device(device_kind, device_index));
        out = new octet_tensor{{}, view};
    });
}

octet_status octet_tensor_set_data(octet_tensor* tensor, void* data) {
    return guarded(__func__, [&] { checked(tensor, "tensor").view.data = data; });
}

void octet_tensor_destroy(octet_tensor* tensor) { destroy(__func__, tensor); }

octet_status octet_groups_create(const int32_t* ends, int64_t count, octet_device_kind device_kind,
                                 int32_t device_index, octet_groups** groups) {
    return guarded(__func__, [&] {
        auto& out = checked_pointer(groups, "groups");
        require(count >= 0, "count is ", count, ", expected 0 or more groups");
        out = new octet_groups{{}, Groups{ends, count, checked_device(device_kind, device_index)}};
    });
}

void octet_groups_destroy(octet_groups* groups) { destroy(__func__, groups); }

octet_status octet_quantized_create(const octet_tensor* data, const octet_tensor* scale, const octet_tensor* inverse,
                                    octet_quantized** quantized) {
    return guarded(__func__, [&] {
        auto& out = checked_pointer(quantized, "quantized");
        const auto optional = [](const octet_tensor* tensor, const char* what) {
            return tensor == nullptr ? TensorView{} : checked(tensor, what).view;
        };
        const QuantizedView view{checked(data, "data").view, optional(scale, "scale"), optional(inverse, "inverse")};
        out = new octet_quantized{{}, view};
    });
}

void octet_quantized_destroy(octet_quantized* quantized) { destroy(__func__, quantized); }

}  // extern "C"
