// The permutation by a router's choice: octet/permute.hpp with a Routing's lists.
#include "octet/moe.hpp"

namespace octet {

void gather_rows(const Routing& routing, ConstTensorView tokens, TensorView rows, const Execution& on) {
    permute_tokens(routing.order(), tokens, rows, on);
}

void sum_rows(const Routing& routing, ConstTensorView rows, std::span<const ConstTensorView> addends, TensorView y,
              const Execution& on) {
    combine_tokens(routing.order(), rows, nullptr, addends, y, on);
}

}  // namespace octet
