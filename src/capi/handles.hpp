// What the opaque handles of octet.h hold, and how they are checked on the way in.
#pragma once

#include "capi/guard.hpp"
#include "octet/groups.hpp"
#include "octet/octet.h"
#include "octet/permute.hpp"
#include "octet/product.hpp"
#include "octet/quantize.hpp"
#include "octet/recipe.hpp"
#include "octet/tensor.hpp"

// Each handle starts with a tag, so that one kind handed in place of another is an error and not a misread.
namespace octet::capi {

enum class Tag : std::uint32_t {
    tensor = 0x54435401,
    groups,
    quantized,
    recipe,
    quantize_options,
    execution,
    operand,
    product_options,
    token_order,
};

template <Tag tag>
struct Handle {
    Tag kind = tag;
    static constexpr Tag expected = tag;
};

}  // namespace octet::capi

struct octet_tensor : octet::capi::Handle<octet::capi::Tag::tensor> {
    octet::TensorView view;
};
struct octet_groups : octet::capi::Handle<octet::capi::Tag::groups> {
    octet::Groups groups;
};
struct octet_quantized : octet::capi::Handle<octet::capi::Tag::quantized> {
    octet::QuantizedView view;
};
struct octet_recipe : octet::capi::Handle<octet::capi::Tag::recipe> {
    octet::Recipe recipe;
};
struct octet_quantize_options : octet::capi::Handle<octet::capi::Tag::quantize_options> {
    octet::QuantizeOptions options;
};
struct octet_execution : octet::capi::Handle<octet::capi::Tag::execution> {
    octet::Execution execution;
};
struct octet_operand : octet::capi::Handle<octet::capi::Tag::operand> {
    explicit octet_operand(const octet::Operand& from) : operand(from) {}
    octet::Operand operand;
};
struct octet_product_options : octet::capi::Handle<octet::capi::Tag::product_options> {
    octet::ProductOptions options;
};

struct octet_token_order : octet::capi::Handle<octet::capi::Tag::token_order> {
    octet::TokenOrder order;
};

namespace octet::capi {

// The handle itself, once it is known to be one of the right kind. `what` names the parameter.
template <class T>
T& checked(T* handle, const char* what) {
    require(handle != nullptr, what, " is NULL, expected a handle; make one with the matching octet_*_create");
    require(handle->kind == T::expected, what,
            " is not a handle of the kind this function takes; pass handles to the "
            "parameters that their types name, and none that was destroyed");
    return *handle;
}

// Frees a handle; one of another kind is left alone and reported, since deleting it would corrupt the heap.
template <class T>
void destroy(const char* function, T* handle) noexcept {
    if (handle == nullptr) return;
    if (guarded(function, [&] { checked(handle, "the handle"); }) == OCTET_OK) delete handle;
}

template <class T>
T& checked_pointer(T* pointer, const char* what) {
    require(pointer != nullptr, what, " is NULL, expected the address of a variable to write to");
    return *pointer;
}

// The enumerator of a number from outside; `count` is how many there are, numbered from 0.
template <class Enum>
Enum checked_enum(std::int32_t value, std::int32_t count, const char* what) {
    require(value >= 0 && value < count, what, " is ", value, ", expected 0 to ", count - 1, "; see octet.h");
    return static_cast<Enum>(value);
}

inline Format checked_format(octet_format format) { return checked_enum<Format>(format, 6, "format"); }

inline Device checked_device(octet_device_kind kind, std::int32_t index) {
    const Device device{checked_enum<DeviceKind>(kind, 3, "device_kind"), index};
    require(index >= 0, "device_index is ", index, ", expected 0 or more");
    require(device.kind != DeviceKind::cpu || index == 0, "device_index is ", index, " for the CPU, expected 0");
    return device;
}

inline std::string_view checked_text(const char* text, const char* what) {
    require(text != nullptr, what, " is NULL, expected a text that ends in a zero byte");
    return text;
}

inline Execution execution_of(const octet_execution* on) {
    return on == nullptr ? Execution{} : checked(on, "on").execution;
}

}  // namespace octet::capi
