// The tuning table's word on a call.
#pragma once

#include <string_view>

#include "octet/quantize.hpp"

namespace octet {

// `on` with the table's choice for this call, where the tensors are on a GPU, the table has one, and the caller has not
// given its own. operation and scaling together are the table's operation: "pair" and rowwise are "pair:rowwise".
Execution tuned(const Execution& on, Device device, std::string_view operation, Scaling scaling, std::int64_t tokens,
                std::int64_t features, std::int64_t groups);

}  // namespace octet
