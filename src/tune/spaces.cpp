#include "tune/spaces.hpp"

namespace octet::tune {

std::vector<Space> spaces() {
    const Parameter rows_vectors{"rows_vectors", {8, 2, 4, 5, 6}};
    const Parameter fused_tiles{"fused_tiles", {4, 3, 2, 1, 0}}, fused_columns{"fused_tiles", {4, 2, 1, 0}};  // 3 fit
    const Parameter tile_blocks{"tile_blocks", {4, 1}};
    const Parameter tall_tiles{"tall_tiles", {6144, 1, 0}};
    const Parameter swiglu_vectors{"swiglu_vectors", {8, 2, 4, 6}};
    std::vector<Space> all;
    for (const char* operation : {"rows", "weights_along_k"})
        for (const char* scaling : {":rowwise", ":blockwise", ":mx"}) {
            if (std::string(operation) + scaling == "weights_along_k:blockwise") continue;  // squares are tiles
            all.push_back({std::string(operation) + scaling, {rows_vectors}});
        }
    for (const char* operation : {"columns", "columns_dual", "weights_along_n"})
        all.push_back({std::string(operation) + ":rowwise", {fused_columns, tile_blocks, tall_tiles}});
    for (const char* operation : {"pair", "weights_both"})
        all.push_back({std::string(operation) + ":rowwise", {fused_tiles, tile_blocks}});
    for (const char* operation : {"columns", "columns_dual", "pair", "weights_along_n", "weights_both"})
        for (const char* scaling : {":blockwise", ":mx"})
            all.push_back({std::string(operation) + scaling, {tile_blocks}});
    all.push_back({"weights_along_k:blockwise", {tile_blocks}});
    for (const char* operation : {"swiglu_quantize:rowwise", "swiglu_backward_quantize:rowwise"})
        all.push_back({operation, {swiglu_vectors}});
    return all;
}

Space space_of(const std::string& operation) {
    for (Space& space : spaces())
        if (space.operation == operation) return space;
    return {operation, {}};
}

}  // namespace octet::tune
