// A case of each quantizer by its kernels in the emulator, bit for bit against the scalar reference.
#pragma once

#include "gpu/quantize_case.hpp"

namespace octet::gpu {

// Outputs are poisoned beforehand; of a cast in two halves both are run.
void check_rows(Case& c);
void check_columns(Case& c);
void check_dual(Case& c);
void check_pair(Case& c);
void check_pair_of(Case& c, Strided& x);
void check_transposed(Case& c);
void check_weights(Case& c);
void check_two_visits(Case& c);  // weights both ways in two calls
void check_dequantize(Case& c);
void check_padding(Case& c);
void check_swizzle(Case& c);

// The calls of gpu/ops.hpp, of the format that the options name.
void call_rows(EmulatorRunner& runner, const ConstTensorView& x, const QuantizeOptions& options,
               const QuantizedView& out);
void call_columns(EmulatorRunner& runner, const ConstTensorView& x0, const ConstTensorView& x1, const Groups& groups,
                  std::int64_t alignment, const QuantizeOptions& options, const QuantizedView& out0,
                  const QuantizedView& out1);
void call_pair(EmulatorRunner& runner, const ConstTensorView& x, const Groups& groups, std::int64_t alignment,
               const QuantizeOptions& options, const QuantizedView& rows, const QuantizedView& columns);
void call_transposed(EmulatorRunner& runner, const ConstTensorView& x, const Groups& groups, std::int64_t alignment,
                     const QuantizeOptions& options, const QuantizedView& out);
void call_weights(EmulatorRunner& runner, const ConstTensorView& w, const QuantizeOptions& options,
                  const QuantizedView& along_k, const QuantizedView& along_n);

// Tiles for columns, whatever the sizes.
inline QuantizerTuning without_strips() {
    QuantizerTuning tuning;
    tuning.strip_rows = tuning.strip_tokens = 0;
    return tuning;
}

// Strips for columns of small tensors.
inline QuantizerTuning without_whole_columns() {
    QuantizerTuning tuning;
    tuning.whole_columns = 0;
    return tuning;
}

// Strips, and groups taken by their rows, whatever the sizes.
inline QuantizerTuning ranked() {
    QuantizerTuning tuning;
    tuning.strip_tokens = 100;
    tuning.ranked_rows = 0;
    return tuning;
}

}  // namespace octet::gpu
