// Batches: windows of a corpus, shuffled by seed, with a position that one number says.
//
// Window w is tokens [w * S, w * S + S]; its targets are the same moved by one. The last windows are the evaluation
// split and are never trained on. Each epoch visits every training window once, in an order that is a permutation
// computed from the seed and the epoch: nothing is stored, and any position is reached at once.
#pragma once

#include <cstdint>
#include <vector>

#include "train/corpus.hpp"
#include "train/model.hpp"
#include "train/random.hpp"

namespace octet::train {

struct DataOptions {
    std::int64_t length = 0;  // S, tokens a window
    std::uint64_t seed = 1;
    double eval_share = 0.05;  // of the windows, at least one
};

// A batch that owns its tokens.
struct OwnedBatch {
    std::vector<std::int32_t> tokens{}, targets{};  // [B, S]
    std::int64_t sequences = 0, length = 0;
    Batch view() const { return {tokens, targets, sequences, length}; }
};

class Windows {
public:
    // Throws when the corpus is too short for one training and one evaluation window.
    Windows(const Corpus& corpus, const DataOptions& options);

    std::int64_t training_windows() const { return training_; }
    std::int64_t evaluation_windows() const { return evaluation_; }
    std::int64_t training_tokens() const { return training_ * options_.length; }

    // The next windows in the shuffled order.
    void next(std::int64_t sequences, OwnedBatch& batch);
    std::int64_t position() const { return position_; }
    void seek(std::int64_t position) { position_ = position; }

    // `sequences` windows of the evaluation split, in order, from the `first` of `count` that are spread over it.
    void evaluation(std::int64_t first, std::int64_t sequences, std::int64_t count, OwnedBatch& batch) const;

private:
    std::int64_t shuffled(std::int64_t position) const;
    void fill(std::int64_t window, std::int64_t row, OwnedBatch& batch) const;

    const Corpus& corpus_;
    DataOptions options_;
    std::int64_t training_ = 0, evaluation_ = 0, position_ = 0;
    mutable std::vector<std::int32_t> scratch_{};  // [S + 1]
};

}  // namespace octet::train
