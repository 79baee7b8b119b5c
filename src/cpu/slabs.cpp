#include "cpu/slabs.hpp"

#include <algorithm>
#include <cstring>

#include "core/parallel.hpp"
#include "cpu/column_kernels.hpp"
#include "cpu/rows.hpp"
#include "cpu/workspace.hpp"

namespace octet::cpu {
namespace {

// A column strip is at least a line wide, and as wide as lets its rows stay in a core's second-level cache until the
// second visit.
constexpr std::int64_t line_bytes = 64;
constexpr std::int64_t strip_bytes_most = 512;
constexpr std::int64_t cached_bytes = 512 << 10;

// A slab with more rows than this would need strips so narrow that reading them misses the pages' addresses at every
// row: it is read twice instead, by rows.
constexpr std::int64_t tall_rows = 4096;

// Where blocks of rows have their own scales a strip need not hold all rows, and wide ones save calls.
constexpr std::int64_t block_strip_bytes = 1024;

// Rows of a panel: a multiple of every block and of the transpose's tile.
constexpr std::int64_t panel_rows = 128;

struct Task {
    const Slab* slab;
    std::int64_t row, rows;
    std::int64_t column, columns;
};

class SlabQuantizer {
public:
    SlabQuantizer(const std::vector<Slab>& slabs, Format input, const QuantizeOptions& options, int threads)
        : slabs_(slabs),
          options_(options),
          kernels_(column_kernels(input, options.format)),
          bf16_(input == Format::bf16),
          element_(bytes_of(input)),
          block_shift_(block_shift_of(options.scaling)),
          threads_(threads),
          stream_(output_bytes(slabs) >= stream_from_bytes),
          quantize_row_(input, options, stream_) {}

    void run() {
        if (options_.scaling != Scaling::rowwise) return blocks();
        const bool two_visits = std::any_of(slabs_.begin(), slabs_.end(),
                                            [](const Slab& slab) { return slab.row_out || slab.rows > tall_rows; });
        if (two_visits) return in_two_visits();
        whole_columns();
    }

private:
    static std::int64_t output_bytes(const std::vector<Slab>& slabs) {
        std::int64_t bytes = 0;
        for (const Slab& slab : slabs) bytes += slab.columns * slab.rows;
        return bytes;
    }

    // One scale a column: a strip is read once from memory, where its maxima are taken and it is copied dense, and
    // cast from the copy.
    void whole_columns() {
        std::vector<Task> tasks;
        for (const Slab& slab : slabs_) add_strips(tasks, slab, 0, slab.rows, strip_columns(slab.rows));
        for_each_task(tasks, [&](const Task& task) {
            Workspace work;
            std::byte* copy = take_copy(work, task.rows, task.columns);
            auto* amax = work.take_zeroed<std::byte>(task.columns * element_);
            kernels_.column_amax(at(task), task.slab->pitch, task.rows, task.columns, amax, copy);
            const Scales scales = make(work, task.columns, 1);
            finish_block(task, scales, 0, amax);
            cast(task, scales, copy, 0, task.rows, task.slab->out_rows);
        });
    }

    // One scale a column, and perhaps one a row: rows are finished while columns' maxima are gathered; the second visit
    // casts the columns. Slabs are taken a few at a time, so that it finds them in the last-level cache where that is
    // large.
    void in_two_visits() {
        constexpr std::int64_t batch_bytes = 16 << 20;
        for (std::size_t first = 0; first < slabs_.size();) {
            std::size_t last = first;
            for (std::int64_t bytes = 0; last < slabs_.size() && (last == first || bytes < batch_bytes); ++last)
                bytes += slabs_[last].rows * slabs_[last].columns * element_;
            batch_in_two_visits(first, last);
            first = last;
        }
    }

    void batch_in_two_visits(std::size_t first, std::size_t last) {
        // Each chunk of rows has maxima of its own, joined later: no order of threads can show.
        constexpr std::int64_t chunk_rows = 64;
        std::vector<Task> chunks, strips;
        std::vector<std::int64_t> maxima_begin, chunks_begin;  // of each slab, in elements and in chunks
        std::int64_t maxima = 0;
        std::vector<std::int64_t> chunk_maxima;
        for (std::size_t s = first; s < last; ++s) {
            const Slab& slab = slabs_[s];
            maxima_begin.push_back(maxima);
            for (std::int64_t row = 0; row < slab.rows; row += chunk_rows) {
                chunks.push_back({&slab, row, std::min(chunk_rows, slab.rows - row), 0, slab.columns});
                chunk_maxima.push_back(maxima);
                maxima += slab.columns;
            }
            add_strips(strips, slab, 0, slab.rows, strip_bytes_most / element_);
        }
        std::vector<std::byte> amax(static_cast<std::size_t>(maxima * element_));
        parallel_for(threads_, static_cast<std::int64_t>(chunks.size()), 1, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t c = begin; c < end; ++c) {
                const Task& task = chunks[static_cast<std::size_t>(c)];
                std::byte* mine = amax.data() + chunk_maxima[static_cast<std::size_t>(c)] * element_;
                for (std::int64_t row = 0; row < task.rows; row += 4)
                    rows_and_maxima(task, row, std::min<std::int64_t>(4, task.rows - row), mine);
            }
        });
        for_each_task(strips, [&](const Task& task) {
            Workspace work;
            const std::size_t s = static_cast<std::size_t>(task.slab - slabs_.data()) - first;
            auto* joined = work.take_zeroed<std::byte>(task.columns * element_);
            for (std::int64_t chunk = 0; chunk * chunk_rows < task.rows; ++chunk)
                kernels_.column_amax(
                    amax.data() + (maxima_begin[s] + chunk * task.slab->columns + task.column) * element_,
                    task.slab->columns, 1, task.columns, joined, nullptr);
            const Scales scales = make(work, task.columns, 1);
            finish_block(task, scales, 0, joined);
            cast_through_copies(task, scales, work);
        });
    }

    // A few rows, while they are in the first-level cache.
    void rows_and_maxima(const Task& task, std::int64_t row, std::int64_t rows, std::byte* amax) {
        const Slab& slab = *task.slab;
        const std::int64_t first = task.row + row;
        const std::byte* x = slab.x + first * slab.pitch * element_;
        kernels_.column_amax(x, slab.pitch, rows, slab.columns, amax, nullptr);
        for (std::int64_t r = 0; slab.row_out && r < rows; ++r)
            quantize_row_(x + r * slab.pitch * element_, slab.columns, slab.row_out + (first + r) * slab.row_out_pitch,
                          slab.row_scales, first + r);
    }

    // A scale a block of rows (and of columns, for the row output): everything about a panel of a strip is in it.
    void blocks() {
        constexpr std::int64_t task_rows = 8 * panel_rows;
        std::vector<Task> tasks;
        for (const Slab& slab : slabs_)
            for (std::int64_t row = 0; row < slab.out_rows; row += task_rows)
                add_strips(tasks, slab, row, std::min(task_rows, slab.out_rows - row), block_strip_bytes / element_);
        for_each_task(tasks, [&](const Task& task) {
            for (std::int64_t row = task.row; row < task.row + task.rows; row += panel_rows)
                panel({task.slab, row, std::min(panel_rows, task.row + task.rows - row), task.column, task.columns});
        });
    }

    // task.rows counts padding: a block that is nothing else has the scale of zeros.
    void panel(const Task& task) {
        Workspace work;
        const Slab& slab = *task.slab;
        const std::int64_t block = std::int64_t{1} << block_shift_;
        const std::int64_t rows = std::clamp<std::int64_t>(slab.rows - task.row, 0, task.rows);
        const std::int64_t blocks = ceil_div(task.rows, block);
        const Scales scales = make(work, task.columns, blocks);
        std::byte* copy = take_copy(work, rows, task.columns);
        bool in_range = true;
        for (std::int64_t b = 0; b < blocks; ++b) {
            auto* amax = work.take_zeroed<std::byte>(task.columns * element_);
            const std::int64_t some = std::clamp<std::int64_t>(rows - b * block, 0, block);
            if (some > 0)
                kernels_.column_amax(at(task) + b * block * slab.pitch * element_, slab.pitch, some, task.columns, amax,
                                     copy + b * block * task.columns * element_);
            in_range &= finish_block(task, scales, b, amax);
        }
        *scales.in_range = in_range;
        cast(task, scales, copy, task.row, rows, task.rows);
        if (!slab.row_out) return;
        for (std::int64_t r = 0; r < rows; ++r)
            quantize_row_(copy + r * task.columns * element_, task.columns,
                          slab.row_out + (task.row + r) * slab.row_out_pitch + task.column, slab.row_scales,
                          task.row + r, task.column >> block_shift_);
    }

    // A dense copy of rows, and zeros after it.
    std::byte* take_copy(Workspace& work, std::int64_t rows, std::int64_t columns) const {
        auto* copy = work.take<std::byte>((rows + TransposedCast::most_zero_rows) * columns * element_);
        clear_after(copy, rows, columns);
        return copy;
    }

    void clear_after(std::byte* copy, std::int64_t rows, std::int64_t columns) const {
        std::memset(copy + rows * columns * element_, 0,
                    static_cast<std::size_t>(TransposedCast::most_zero_rows * columns * element_));
    }

    struct Scales {
        float* multiplier;  // [blocks][pitch]
        std::int64_t pitch;
        std::uint8_t* codes;  // [columns], of one block
        std::uint32_t* amax;  // [columns], of one block, as f32
        bool* in_range;
    };

    Scales make(Workspace& work, std::int64_t columns, std::int64_t blocks) const {
        const std::int64_t pitch = round_up(columns, TransposedCast::multiplier_slack);
        return {work.take_zeroed<float>(blocks * pitch), pitch, work.take<std::uint8_t>(columns),
                work.take<std::uint32_t>(columns), work.take<bool>(1)};
    }

    // Scales of one block of rows from its columns' maxima, made and written.
    bool finish_block(const Task& task, const Scales& scales, std::int64_t block, const std::byte* amax) const {
        for (std::int64_t c = 0; c < task.columns; ++c)
            scales.amax[c] = bf16_ ? static_cast<std::uint32_t>(reinterpret_cast<const std::uint16_t*>(amax)[c]) << 16
                                   : reinterpret_cast<const std::uint32_t*>(amax)[c];
        float* multiplier = scales.multiplier + block * scales.pitch;
        *scales.in_range = make_scales(options_, scales.amax, task.columns, multiplier, scales.codes);
        const std::int64_t first_block = block_shift_ == whole_row ? 0 : task.row >> block_shift_;
        task.slab->scales.write_along_i(task.column, first_block + block, task.columns, options_.scaling, multiplier,
                                        scales.codes);
        return *scales.in_range;
    }

    // The copy x[rows, task.columns], with zeros after it, to the rows `row` to `row + out_rows` of the output.
    void cast(const Task& task, const Scales& scales, const std::byte* copy, std::int64_t row, std::int64_t rows,
              std::int64_t out_rows) const {
        TransposedCast cast;
        cast.x = copy;
        cast.pitch = task.columns;
        cast.rows = rows;
        cast.columns = task.columns;
        cast.zero_rows = TransposedCast::most_zero_rows;
        cast.multiplier = scales.multiplier;
        cast.multiplier_pitch = scales.pitch;
        cast.block_shift = block_shift_;
        cast.out = task.slab->out + task.column * task.slab->out_pitch + row;
        cast.out_pitch = task.slab->out_pitch;
        cast.out_rows = out_rows;
        cast.in_range = *scales.in_range;
        cast.stream = stream_;
        kernels_.cast_transposed(cast);
    }

    // The second visit of a strip whose scales are known: its lines come row by row into a dense copy, because a
    // tall strip's own lines fall into few sets of the caches and push each other out.
    void cast_through_copies(const Task& task, const Scales& scales, Workspace& work) const {
        constexpr std::int64_t copy_rows = 256;
        const Slab& slab = *task.slab;
        std::byte* copy = take_copy(work, std::min(copy_rows, slab.rows), task.columns);
        const auto line = static_cast<std::size_t>(task.columns * element_);
        std::int64_t row = 0;
        do {  // once even without rows: padding is written too
            const std::int64_t rows = std::min(copy_rows, slab.rows - row);
            for (std::int64_t r = 0; r < rows; ++r)
                std::memcpy(copy + r * task.columns * element_, at(task) + (row + r) * slab.pitch * element_, line);
            const bool last = row + rows == slab.rows;
            if (last) clear_after(copy, rows, task.columns);
            cast(task, scales, copy, row, rows, last ? slab.out_rows - row : rows);
            row += rows;
        } while (row < slab.rows);
    }

    std::int64_t strip_columns(std::int64_t rows) const {
        const std::int64_t bytes = cached_bytes / std::max<std::int64_t>(rows, 1) / line_bytes * line_bytes;
        return std::clamp(bytes, line_bytes, strip_bytes_most) / element_;
    }

    static void add_strips(std::vector<Task>& tasks, const Slab& slab, std::int64_t row, std::int64_t rows,
                           std::int64_t width) {
        for (std::int64_t column = 0; column < slab.columns; column += width)
            tasks.push_back({&slab, row, rows, column, std::min(width, slab.columns - column)});
    }

    template <class F>
    void for_each_task(const std::vector<Task>& tasks, F&& f) const {
        parallel_for(threads_, static_cast<std::int64_t>(tasks.size()), 1, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t t = begin; t < end; ++t) f(tasks[static_cast<std::size_t>(t)]);
        });
    }

    const std::byte* at(const Task& task) const {
        return task.slab->x + (task.row * task.slab->pitch + task.column) * element_;
    }

    const std::vector<Slab>& slabs_;
    const QuantizeOptions& options_;
    const ColumnKernels& kernels_;
    const bool bf16_;
    const std::int64_t element_;
    const int block_shift_;
    const int threads_;
    const bool stream_;
    const RowQuantizer quantize_row_;
};

}  // namespace

void quantize_slabs(const std::vector<Slab>& slabs, Format input, const QuantizeOptions& options, int threads) {
    SlabQuantizer(slabs, input, options, threads).run();
}

}  // namespace octet::cpu
