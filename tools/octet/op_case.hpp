// One call of one operation: its inputs, its outputs and how to make it on any backend. `octet verify` makes the call
// twice, by the oracle and by the backend under test, and compares every byte of the outputs.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "octet/memory.hpp"
#include "octet/quantize.hpp"
#include "random.hpp"

namespace octet::tool {

struct OpCase {
    std::string op;
    std::string text;  // the shapes and options, for the report of a failure
    std::vector<Tensor> inputs;
    std::vector<Tensor> outputs;
    std::vector<std::int32_t> ends;    // the groups, where the operation has them
    std::size_t halves_workspace = 0;  // not 0: the call is made in two halves (LaterCasts), in a workspace so large
    std::function<void(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs, Groups groups,
                       const Execution& on)>
        call;
};

// The operations there are, by name.
std::vector<std::string> op_names();

// A random case of an operation: odd shapes, empty and one-row groups, tokens nobody owns, every option, and values
// that include NaN, infinity, zeros, subnormals and ties.
OpCase random_case(const std::string& op, Random& random);

// Where two tensors of one format and shape first differ, or -1. NaNs are equal, whatever their sign or payload.
std::int64_t first_difference(const Tensor& a, const Tensor& b);

}  // namespace octet::tool
