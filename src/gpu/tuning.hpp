// The constants a launch chooses by, in one place. The measurements behind them are in docs/kernels-quantizers-log.md.
#pragma once

#include <cstdint>

namespace octet::gpu {

struct QuantizerTuning {
    int rows_vectors = 8;      // 8-element loads a thread of the rows kernel may hold, before a team widens
    int fused_tiles = 4;       // tiles a block that share maxima and are read once, at most (columns alone: 3); 0: none
    int tile_blocks = 4;       // resident blocks of a kernel a multiprocessor, where more fit
    int tall_tiles = 6144;     // tokens a group on average, from which columns alone are taken in tall tiles; 0: never
    int short_groups = 512;    // tokens a group that are few, for the transposed kernel
    int strip_rows = 384;      // tokens a group on average, up to which its columns are taken in strips; 0: never
    int strip_tokens = 1024;   // tokens in all, up to which a call is one launch, without plan or exchange; 0: never
    int ranked_rows = 192;     // tokens a group on average, from which the last ones' strips are taken by their rows
    int whole_rows = 8192;     // tokens of a row from which rows of short groups are taken whole; 0: never
    int whole_columns = 1024;  // tokens in all, up to which such a call's columns are taken whole, rowwise; 0: never
    int from_rows = 47104;     // KiB of a group on average, from which a cast both ways reads its rows again; 0: never
    int noted_rows = 1152;     // tokens a group on average, up to which narrow casts both ways leave notes; 0: never
    int swiglu_vectors = 8;    // as rows_vectors, of SwiGLU with rowwise scales; 6 at most backward
};

}  // namespace octet::gpu
