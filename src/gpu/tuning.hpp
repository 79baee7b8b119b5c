// The constants a launch chooses by, in one place. The measurements behind them are in docs/kernels-quantizers.md.
#pragma once

#include <cstdint>

namespace octet::gpu {

struct QuantizerTuning {
    int rows_vectors = 8;              // 8-element loads a thread of the rows kernel may hold, before a team widens
    int fused_share = 2;               // a fused column slab has at most 1/this of the resident blocks
    int fused_pair_share = 3;          // a fused pair group likewise; 0: never fused
    std::int64_t lag_bytes = 8 << 20;  // of x that first visits are ahead of second ones
    std::int64_t alternate_bytes = 16 << 20;  // of x in one group, above which its two visits alternate by column tiles
    int tile_blocks = 4;                      // resident blocks of the tile kernel a multiprocessor
    int swiglu_vectors = 8;                   // as rows_vectors, of SwiGLU with rowwise scales; 6 at most backward
};

}  // namespace octet::gpu
