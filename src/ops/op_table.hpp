// The op table: one row per operation, one column per backend.
#pragma once

#include "core/operations.hpp"

namespace octet {

struct OpTable {
#define OCTET_ENTRY(name) decltype(&octet::name) name;  // NOLINT(bugprone-macro-parentheses): a declaration
    OCTET_QUANTIZE_OPERATIONS(OCTET_ENTRY)
    OCTET_TOKEN_OPERATIONS(OCTET_ENTRY)
#undef OCTET_ENTRY
};

// The column for tensors on `device` under `on`. Throws where the backend is not in this build or cannot reach the
// device.
const OpTable& op_table(const Execution& on, Device device);

}  // namespace octet
