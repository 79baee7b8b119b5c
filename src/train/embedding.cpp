#include "train/embedding.hpp"

#include <cstring>

#include "core/parallel.hpp"
#include "octet/error.hpp"
#include "train/vectorized.hpp"

namespace octet::train {

void embed(std::span<const std::int32_t> tokens, ConstTensorView table, TensorView h, const Execution& on) {
    const std::int64_t vocabulary = table.size(0), d = table.size(1);
    for (std::size_t t = 0; t < tokens.size(); ++t)
        require(tokens[t] >= 0 && tokens[t] < vocabulary, "token ", t, " of the batch is ", tokens[t],
                "; the vocabulary has 0 to ", vocabulary - 1);
    const auto* rows = static_cast<const float*>(table.data);
    auto* out = static_cast<float*>(h.data);
    parallel_for(on.threads, static_cast<std::int64_t>(tokens.size()), 64, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t t = begin; t < end; ++t)
            std::memcpy(out + t * d, rows + tokens[static_cast<std::size_t>(t)] * d,
                        static_cast<std::size_t>(d) * sizeof(float));
    });
}

void embed_backward(std::span<const std::int32_t> tokens, ConstTensorView dh, TensorView table_gradient,
                    const Execution& on) {
    const std::int64_t d = table_gradient.size(1);
    const auto* slopes = static_cast<const float*>(dh.data);
    auto* out = static_cast<float*>(table_gradient.data);
    parallel_for(on.threads, d, 4 * lanes, [&](std::int64_t begin, std::int64_t end) {
        vectorized([&] [[gnu::always_inline]] {
            for (std::size_t t = 0; t < tokens.size(); ++t) {
                const float* from = slopes + static_cast<std::int64_t>(t) * d + begin;
                float* to = out + tokens[t] * d + begin;
                each16(end - begin,
                       [&] [[gnu::always_inline]] (std::int64_t, auto get, auto put) { put(to, get(to) + get(from)); });
            }
        });
    });
}

}  // namespace octet::train
