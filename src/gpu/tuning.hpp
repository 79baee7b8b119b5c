// The constants a launch chooses by, in one place. The measurements behind them are in docs/kernels-quantizers.md.
#pragma once

#include <cstdint>

namespace octet::gpu {

struct QuantizerTuning {
    int rows_vectors = 8;              // 8-element loads a thread of the rows kernel may hold, before a team widens
    int fused_share = 2;               // a fused column slab has at most 1/this of the resident blocks; 0: none is
    int tall_rows = 1024;              // rows a group from which a pair's second kernel takes tiles of 256 x 64
    int neighbours = 32;               // tiles of a slab that exchange maxima directly, 32 at most
    std::int64_t lag_bytes = 8 << 20;  // of x that first visits of split slabs are ahead of second ones
    int tile_blocks = 4;               // resident blocks of the tile kernel a multiprocessor
    int short_groups = 512;            // tokens a group that are few, for the transposed kernel
    int pair_rows = 32;                // rows that a block of a pair's first kernel takes at least
    int swiglu_vectors = 8;            // as rows_vectors, of SwiGLU with rowwise scales; 6 at most backward
};

}  // namespace octet::gpu
