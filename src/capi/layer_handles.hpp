// What the opaque handles of octet_layer.h hold.
#pragma once

#include <memory>

#include "capi/handles.hpp"
#include "octet/moe.hpp"
#include "octet/octet_layer.h"

namespace octet::capi {

inline constexpr Tag linear_tag = static_cast<Tag>(0x54435441);
inline constexpr Tag moe_options_tag = static_cast<Tag>(0x54435442);
inline constexpr Tag moe_layer_tag = static_cast<Tag>(0x54435443);

}  // namespace octet::capi

struct octet_grouped_linear : octet::capi::Handle<octet::capi::linear_tag> {
    octet::GroupedLinear linear;
    octet::LinearKept kept;
    octet::LinearWorkspace workspace;
};
struct octet_moe_options : octet::capi::Handle<octet::capi::moe_options_tag> {
    octet::MoeOptions options;
};
struct octet_moe_layer : octet::capi::Handle<octet::capi::moe_layer_tag> {
    explicit octet_moe_layer(const octet::MoeOptions& options) : layer(options), kept(options) {}
    octet::MoeLayer layer;
    octet::MoeKept kept;
    octet::MoeWorkspace workspace{};
};
