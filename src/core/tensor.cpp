#include "octet/tensor.hpp"

#include <algorithm>

#include "octet/error.hpp"

namespace octet {

const char* name(Status status) {
    switch (status) {
        case Status::ok: return "ok";
        case Status::invalid_argument: return "invalid argument";
        case Status::unsupported: return "unsupported";
        case Status::out_of_memory: return "out of memory";
        case Status::io_error: return "input/output error";
        case Status::device_error: return "device error";
        case Status::internal: return "internal error";
    }
    return "?";
}

std::string to_string(Device device) {
    const char* kind = device.kind == DeviceKind::cpu ? "cpu" : device.kind == DeviceKind::cuda ? "cuda" : "hip";
    return device.kind == DeviceKind::cpu ? kind : kind + (":" + std::to_string(device.index));
}

namespace {

void check_rank(std::size_t rank) {
    require(rank <= static_cast<std::size_t>(Extents::max_rank), "a tensor of ", rank,
            " axes was given, expected at most ", Extents::max_rank);
}

}  // namespace

Extents::Extents(std::initializer_list<std::int64_t> sizes) : rank(static_cast<int>(sizes.size())) {
    check_rank(sizes.size());
    std::copy(sizes.begin(), sizes.end(), shape.begin());
    std::int64_t step = 1;
    for (std::size_t axis = sizes.size(); axis-- > 0;) {
        strides[axis] = step;
        if (__builtin_mul_overflow(step, std::max<std::int64_t>(shape[axis], 1), &step))
            fail(Status::invalid_argument, "shape ", to_string(*this), " has more elements than 64 bits can count");
    }
}

Extents::Extents(std::initializer_list<std::int64_t> sizes, std::initializer_list<std::int64_t> steps)
    : rank(static_cast<int>(sizes.size())) {
    check_rank(sizes.size());
    require(sizes.size() == steps.size(), "a shape of ", sizes.size(), " axes was given with ", steps.size(),
            " strides");
    std::copy(sizes.begin(), sizes.end(), shape.begin());
    std::copy(steps.begin(), steps.end(), strides.begin());
}

std::int64_t Extents::elements() const {
    std::int64_t count = 1;
    for (int axis = 0; axis < rank; ++axis) count *= shape[static_cast<std::size_t>(axis)];
    return count;
}

bool Extents::contiguous() const {
    std::int64_t step = 1;
    for (std::size_t axis = static_cast<std::size_t>(rank); axis-- > 0;) {
        if (shape[axis] > 1 && strides[axis] != step) return false;
        step *= std::max<std::int64_t>(shape[axis], 1);
    }
    return true;
}

std::string to_string(const Extents& extents) {
    std::string text = "[";
    for (int axis = 0; axis < extents.rank; ++axis)
        text += (axis ? ", " : "") + std::to_string(extents.shape[static_cast<std::size_t>(axis)]);
    return text + "]";
}

}  // namespace octet
