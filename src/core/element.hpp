// Reading and writing single elements of a view: for scalar code, where clarity counts and speed does not.
#pragma once

#include <type_traits>

#include "octet/groups.hpp"
#include "octet/scale.hpp"
#include "octet/tensor.hpp"

namespace octet {

template <class View, class... Index>
std::int64_t element_offset(const View& view, Index... index) {
    std::int64_t offset = 0;
    int axis = 0;
    ((offset += static_cast<std::int64_t>(index) * view.stride(axis++)), ...);
    return offset;
}

template <class T, class... Index>
T& at(const TensorView& view, Index... index) {
    return static_cast<T*>(view.data)[element_offset(view, index...)];
}

template <class T, class... Index>
const T& at(const ConstTensorView& view, Index... index) {
    return static_cast<const T*>(view.data)[element_offset(view, index...)];
}

// Any format as the f32 it stands for; e8m0 as its power of two.
template <class... Index>
float load(const ConstTensorView& view, Index... index) {
    switch (view.format) {
        case Format::f32: return at<float>(view, index...);
        case Format::bf16: return BF16::decode(at<std::uint16_t>(view, index...));
        case Format::e4m3: return E4M3::decode(at<std::uint8_t>(view, index...));
        case Format::e4m3fnuz: return E4M3Fnuz::decode(at<std::uint8_t>(view, index...));
        case Format::e5m2: return E5M2::decode(at<std::uint8_t>(view, index...));
        case Format::e8m0: return E8M0::decode(at<std::uint8_t>(view, index...));
    }
    return 0.0f;
}

// An f32 rounded to the view's format; not for e8m0, whose rounding the scale rules own.
template <class... Index>
void store(const TensorView& view, float value, Index... index) {
    switch (view.format) {
        case Format::f32: at<float>(view, index...) = value; break;
        case Format::bf16: at<std::uint16_t>(view, index...) = BF16::encode(value); break;
        case Format::e4m3: at<std::uint8_t>(view, index...) = E4M3::encode(value); break;
        case Format::e4m3fnuz: at<std::uint8_t>(view, index...) = E4M3Fnuz::encode(value); break;
        case Format::e5m2: at<std::uint8_t>(view, index...) = E5M2::encode(value); break;
        case Format::e8m0: break;
    }
}

// The groups' row ranges, and where each starts once padded, in order: for_each_group(groups, a, [](const GroupRange&)
// {})
struct GroupRange {
    std::int64_t index;         // g
    std::int64_t begin, end;    // rows of the unpadded tensor
    std::int64_t padded_begin;  // multiple of the alignment
    std::int64_t padded_end;
    std::int64_t rows() const { return end - begin; }
};

template <class F>
void for_each_group(const Groups& groups, std::int64_t alignment, F&& f) {
    std::int64_t begin = 0, padded = 0;
    for (std::int64_t g = 0; g < groups.count; ++g) {
        const std::int64_t end = groups.ends[g];
        const std::int64_t padded_end = padded + round_up(end - begin, alignment);
        f(GroupRange{g, begin, end, padded, padded_end});
        begin = end;
        padded = padded_end;
    }
}

}  // namespace octet
