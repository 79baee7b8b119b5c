// Tensor views: where the elements are, how they are stored, and how to step from one to the next. A view owns nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>

#include "octet/format.hpp"

namespace octet {

enum class DeviceKind : std::uint8_t { cpu, cuda, hip };

struct Device {
    DeviceKind kind = DeviceKind::cpu;
    int index = 0;
    friend bool operator==(const Device&, const Device&) = default;
};

std::string to_string(Device device);

// Shape and strides of up to four axes, in elements.
struct Extents {
    static constexpr int max_rank = 4;
    int rank = 0;
    std::array<std::int64_t, max_rank> shape{};
    std::array<std::int64_t, max_rank> strides{};

    Extents() = default;
    Extents(std::initializer_list<std::int64_t> shape);  // contiguous: the last axis steps by 1
    Extents(std::initializer_list<std::int64_t> shape, std::initializer_list<std::int64_t> strides);
    std::int64_t elements() const;
    bool contiguous() const;
};

std::string to_string(const Extents& extents);  // "[3, 4]"

// Pointer is void* or const void*.
template <class Pointer>
struct BasicTensorView {
    Pointer data = nullptr;
    Format format = Format::f32;
    Device device{};
    Extents extents{};

    BasicTensorView() = default;
    BasicTensorView(Pointer elements, Format stored_as, Extents shape, Device where = {})
        : data(elements), format(stored_as), device(where), extents(shape) {}
    template <class Other>  // a writable view is also a readable one
    requires(!std::is_same_v<Other, Pointer> && std::is_convertible_v<Other, Pointer>)
        BasicTensorView(const BasicTensorView<Other>& other)
        : data(other.data), format(other.format), device(other.device), extents(other.extents) {}

    bool null() const { return data == nullptr; }
    int rank() const { return extents.rank; }
    std::int64_t size(int axis) const { return extents.shape[static_cast<std::size_t>(axis)]; }
    std::int64_t stride(int axis) const { return extents.strides[static_cast<std::size_t>(axis)]; }
};

using TensorView = BasicTensorView<void*>;
using ConstTensorView = BasicTensorView<const void*>;

}  // namespace octet
