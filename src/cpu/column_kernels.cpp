#include "cpu/column_kernels.hpp"

#include "cpu/simd.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/column_kernels.cpp"
#include "hwy/foreach_target.h"
//
#include "cpu/simd-inl.hpp"
#include "hwy/cache_control.h"

HWY_BEFORE_NAMESPACE();
namespace octet::cpu::HWY_NAMESPACE {
namespace {

// A tile: four rows of x go into the four bytes of a lane, and a square of lanes is transposed into vectors of
// 4 * lanes bytes along the rows. On AVX-512 a tile reads 64 lines of 64 bytes and writes 32 lines of 64 bytes.
constexpr std::int64_t tile_columns = 2 * lanes;
constexpr std::int64_t tile_rows = 4 * lanes;
static_assert(TransposedCast::multiplier_slack % tile_columns == 0);
static_assert(TransposedCast::most_zero_rows >= tile_rows - 1);

constexpr std::int64_t rows_ahead = 12;  // how far ahead of the loads the software prefetch runs

template <class Element>
HWY_INLINE hn::Vec<hn::ScalableTag<Element>> magnitude_of(hn::Vec<hn::ScalableTag<Element>> x) {
    return hn::And(x,
                   hn::Set(hn::ScalableTag<Element>(), static_cast<Element>(static_cast<Element>(~Element{0}) >> 1)));
}

template <class Element, bool with_copy>
HWY_INLINE void column_amax_rows(const Element* x, std::int64_t pitch, std::int64_t rows, std::int64_t columns,
                                 Element* amax, Element* copy) {
    const hn::ScalableTag<Element> d;
    constexpr auto width = static_cast<std::int64_t>(hn::MaxLanes(d));
    std::int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
        const Element* x0 = x + r * pitch;
        const Element *x1 = x0 + pitch, *x2 = x1 + pitch, *x3 = x2 + pitch;
        const std::int64_t ahead = r + rows_ahead + 4 <= rows ? rows_ahead * pitch : 0;
        std::int64_t c = 0;
        for (; c + width <= columns; c += width) {
            const auto a = hn::LoadU(d, x0 + c), b = hn::LoadU(d, x1 + c);
            const auto e = hn::LoadU(d, x2 + c), f = hn::LoadU(d, x3 + c);
            if constexpr (with_copy) {
                hwy::Prefetch(x0 + c + ahead);
                hwy::Prefetch(x1 + c + ahead);
                hwy::Prefetch(x2 + c + ahead);
                hwy::Prefetch(x3 + c + ahead);
                Element* to = copy + r * columns + c;
                hn::StoreU(a, d, to);
                hn::StoreU(b, d, to + columns);
                hn::StoreU(e, d, to + 2 * columns);
                hn::StoreU(f, d, to + 3 * columns);
            }
            const auto ab = hn::Max(magnitude_of<Element>(a), magnitude_of<Element>(b));
            const auto ef = hn::Max(magnitude_of<Element>(e), magnitude_of<Element>(f));
            hn::StoreU(hn::Max(hn::LoadU(d, amax + c), hn::Max(ab, ef)), d, amax + c);
        }
        for (; c < columns; ++c) {
            for (std::int64_t i = 0; i < 4; ++i) {
                const Element value = x0[i * pitch + c];
                if constexpr (with_copy) copy[(r + i) * columns + c] = value;
                const auto magnitude = static_cast<Element>(value & (static_cast<Element>(~Element{0}) >> 1));
                if (magnitude > amax[c]) amax[c] = magnitude;
            }
        }
    }
    for (; r < rows; ++r) {
        const Element* x0 = x + r * pitch;
        for (std::int64_t c = 0; c < columns; ++c) {
            const Element value = x0[c];
            if constexpr (with_copy) copy[r * columns + c] = value;
            const auto magnitude = static_cast<Element>(value & (static_cast<Element>(~Element{0}) >> 1));
            if (magnitude > amax[c]) amax[c] = magnitude;
        }
    }
}

template <class Input>
void column_amax(const void* from, std::int64_t pitch, std::int64_t rows, std::int64_t columns, void* amax,
                 void* copy) {
    using Element = typename Input::Element;
    const auto* x = static_cast<const Element*>(from);
    if (copy) {
        column_amax_rows<Element, true>(x, pitch, rows, columns, static_cast<Element*>(amax),
                                        static_cast<Element*>(copy));
    } else {
        column_amax_rows<Element, false>(x, pitch, rows, columns, static_cast<Element*>(amax), nullptr);
    }
}

// Casts one whole tile that starts at row r0 and column c0 of the matrix; x and out are the tile's own. Rows past the
// last of the matrix may lie in a block that has no multipliers: those of `last_block` do for them.
template <class Input, class Codec, Values values>
HWY_NOINLINE void cast_tile(const TransposedCast& cast, bool stream, std::int64_t r0, std::int64_t c0,
                            std::int64_t last_block, const typename Input::Element* x, std::int64_t pitch,
                            std::uint8_t* out, std::int64_t out_pitch) {
    HWY_ALIGN std::uint32_t packed[2][lanes][lanes];  // [vector of the pair][four rows][column]
    VF32 m0 = hn::Zero(F32()), m1 = m0;
    std::int64_t block = -1;
    for (std::int64_t quad = 0; quad < lanes; ++quad) {
        const std::int64_t wanted = (r0 + 4 * quad) >> cast.block_shift;
        if (wanted != block && block < last_block) {
            block = wanted;
            Input::load_beside(cast.multiplier + block * cast.multiplier_pitch + c0, m0, m1);
        }
        VF32 a0, a1, b0, b1, e0, e1, f0, f1;
        Input::load(x, a0, a1);
        Input::load(x + pitch, b0, b1);
        Input::load(x + 2 * pitch, e0, e1);
        Input::load(x + 3 * pitch, f0, f1);
        x += 4 * pitch;
        hn::Store(pack_four(encode<Codec, values>(hn::Mul(a0, m0)), encode<Codec, values>(hn::Mul(b0, m0)),
                            encode<Codec, values>(hn::Mul(e0, m0)), encode<Codec, values>(hn::Mul(f0, m0))),
                  U32(), packed[0][quad]);
        hn::Store(pack_four(encode<Codec, values>(hn::Mul(a1, m1)), encode<Codec, values>(hn::Mul(b1, m1)),
                            encode<Codec, values>(hn::Mul(e1, m1)), encode<Codec, values>(hn::Mul(f1, m1))),
                  U32(), packed[1][quad]);
    }
    for (std::int64_t v = 0; v < 2; ++v) {
        VU32 square[lanes];
        for (std::int64_t i = 0; i < lanes; ++i) square[i] = hn::Load(U32(), packed[v][i]);
        transpose(square);
        for (std::int64_t i = 0; i < lanes; ++i) {
            std::uint8_t* to = out + Input::place(v, i) * out_pitch;
            const VU8 bytes = hn::BitCast(U8(), square[i]);
            if (stream) {
                hn::Stream(bytes, U8(), to);
            } else {
                hn::StoreU(bytes, U8(), to);
            }
        }
    }
}

// A tile that reaches past the rows or columns of x, or past the rows of the output: through buffers of whole tiles.
template <class Input, class Codec, Values values>
void cast_partial_tile(const TransposedCast& cast, std::int64_t r0, std::int64_t c0) {
    using Element = typename Input::Element;
    HWY_ALIGN Element in[tile_rows * tile_columns] = {};
    HWY_ALIGN std::uint8_t out[tile_columns * tile_rows];
    const std::int64_t rows = cast.rows - r0 < tile_rows ? cast.rows - r0 : tile_rows;
    const std::int64_t columns = cast.columns - c0 < tile_columns ? cast.columns - c0 : tile_columns;
    const std::int64_t out_rows = cast.out_rows - r0 < tile_rows ? cast.out_rows - r0 : tile_rows;
    for (std::int64_t r = 0; r < rows; ++r)
        std::memcpy(in + r * tile_columns, static_cast<const Element*>(cast.x) + (r0 + r) * cast.pitch + c0,
                    static_cast<std::size_t>(columns) * sizeof(Element));
    cast_tile<Input, Codec, values>(cast, false, r0, c0, (r0 + rows - 1) >> cast.block_shift, in, tile_columns, out,
                                    tile_rows);
    for (std::int64_t c = 0; c < columns; ++c) {
        std::uint8_t* to = cast.out + (c0 + c) * cast.out_pitch + r0;
        std::memcpy(to, out + c * tile_rows, static_cast<std::size_t>(rows));
        // Zero bytes, even where the multiplier is NaN and zero times it is not.
        std::memset(to + rows, 0, static_cast<std::size_t>(out_rows - rows));
    }
}

template <class Input, class Codec, Values values>
void cast_tiles(const TransposedCast& cast, bool stream) {
    const auto* x = static_cast<const typename Input::Element*>(cast.x);
    const std::int64_t last_block = (cast.rows - 1) >> cast.block_shift;
    // Zeros in range give zero bytes, which is what the output has there; zeros times NaN do not.
    const std::int64_t readable_rows = cast.rows + (values == Values::in_range ? cast.zero_rows : 0);
    const std::int64_t direct_rows = readable_rows < cast.out_rows ? readable_rows : cast.out_rows;
    for (std::int64_t c = 0; c < cast.columns; c += tile_columns) {
        std::int64_t r = 0;
        if (c + tile_columns <= cast.columns)
            for (; r < cast.rows && r + tile_rows <= direct_rows; r += tile_rows)
                cast_tile<Input, Codec, values>(cast, stream, r, c, last_block, x + r * cast.pitch + c, cast.pitch,
                                                cast.out + c * cast.out_pitch + r, cast.out_pitch);
        for (; r < cast.rows; r += tile_rows) cast_partial_tile<Input, Codec, values>(cast, r, c);
        for (std::int64_t i = c; r < cast.out_rows && i < c + tile_columns && i < cast.columns; ++i)
            std::memset(cast.out + i * cast.out_pitch + r, 0, static_cast<std::size_t>(cast.out_rows - r));
    }
}

template <class Input, class Codec>
void cast_transposed(const TransposedCast& cast) {
    // Past the caches only whole lines at a time: anything less would reach memory in pieces.
    constexpr std::uintptr_t line = 64;
    const bool whole_lines = sizeof(VU8) == line && reinterpret_cast<std::uintptr_t>(cast.out) % line == 0 &&
                             static_cast<std::uintptr_t>(cast.out_pitch) % line == 0;
    const bool stream = cast.stream && whole_lines;
    if (cast.in_range) return cast_tiles<Input, Codec, Values::in_range>(cast, stream);
    cast_tiles<Input, Codec, Values::any>(cast, stream);
}

template <class Input, class Codec>
constexpr ColumnKernels entry() {
    return {column_amax<Input>, cast_transposed<Input, Codec>};
}

}  // namespace

extern const KernelTable<ColumnKernels> column_table;
const KernelTable<ColumnKernels> column_table = {
    {{entry<Bf16Input, E4M3>(), entry<Bf16Input, E4M3Fnuz>(), entry<Bf16Input, E5M2>()},
     {entry<F32Input, E4M3>(), entry<F32Input, E4M3Fnuz>(), entry<F32Input, E5M2>()}}};

}  // namespace octet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "cpu/simd_targets.hpp"

namespace octet::cpu {

const ColumnKernels& column_kernels(Format input, Format data) { return OCTET_CHOOSE(column_table).of(input, data); }

}  // namespace octet::cpu
#endif
