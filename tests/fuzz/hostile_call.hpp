// One call of the C interface with arguments chosen to hurt.
//
// A call starts as a valid one: random sizes, formats, strides and groups. Then nothing, or one to three things, are
// spoiled: a null, a wrong kind of handle, an absurd size, a stride, an offset, an enumerator, an alignment,
// overlapping memory. Every buffer lies between canaries. After the call:
//   status ok   only bytes of the outputs' elements have changed, and every element that must be written was;
//   an error    no byte of anything has changed, and the message names the function;
//   and a valid call is ok, a spoiled one is not.
// A call that breaks this throws Broken with the whole story.
//
// Not tried, because nobody could tell: a shape or stride that claims more memory than there is, within what a machine
// can address and consistent with all other arguments.
#pragma once

#include <stdexcept>
#include <string>

#include "fuzz/choices.hpp"

namespace octet::fuzz {

struct Broken : std::runtime_error {
    using std::runtime_error::runtime_error;
};

enum class Outcome { accepted, refused };

inline constexpr int operation_count = 19;
const char* operation_name(int operation);

// One call of a quantizer or layout operation.
Outcome hostile_call(int operation, Choices& choices);

// One call of a function that takes no tensor: names, recipes, options, sizes, encode and decode.
Outcome hostile_small_call(Choices& choices);

}  // namespace octet::fuzz
