// Random calls of the permutation and of SwiGLU for `octet verify`: byte for byte, like the quantizers.
#pragma once

#include "op_case.hpp"

namespace octet::tool {

std::vector<std::string> token_op_names();
OpCase random_token_case(const std::string& op, Random& random);

}  // namespace octet::tool
