// What may be chosen, operation by operation. The parameters are those of gpu/tuning.hpp; docs/tuning.md explains them.
#pragma once

#include "tune/sweep.hpp"

namespace octet::tune {

// The operations that have something to choose: "rows:rowwise", "pair:mx", ...
std::vector<Space> spaces();

// The space of an operation; one without parameters where it has nothing to choose.
Space space_of(const std::string& operation);

}  // namespace octet::tune
