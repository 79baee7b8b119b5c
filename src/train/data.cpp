#include "train/data.hpp"

#include <algorithm>

#include "octet/error.hpp"

namespace octet::train {
namespace {

void reshape(OwnedBatch& batch, std::int64_t sequences, std::int64_t length) {
    batch.sequences = sequences;
    batch.length = length;
    batch.tokens.resize(static_cast<std::size_t>(sequences * length));
    batch.targets.resize(batch.tokens.size());
}

}  // namespace

Windows::Windows(const Corpus& corpus, const DataOptions& options) : corpus_(corpus), options_(options) {
    require(options.length >= 1, "windows of ", options.length, " tokens were asked for, expected at least 1");
    require(options.eval_share >= 0 && options.eval_share < 1, "an evaluation share of ", options.eval_share,
            " was asked for, expected at least 0 and below 1");
    const std::int64_t windows = (corpus.tokens() - 1) / options.length;
    require(windows >= 2, "'", corpus.path(), "' has ", corpus.tokens(),
            " tokens and the model is trained on windows of ", options.length, ": expected at least ",
            2 * options.length + 1,
            " tokens, one window to train on and one to evaluate; give --data a longer text or a shorter "
            "--sequence-length");
    const auto share = static_cast<std::int64_t>(static_cast<double>(windows) * options.eval_share);
    evaluation_ = std::clamp<std::int64_t>(share, 1, windows - 1);
    training_ = windows - evaluation_;
    scratch_.resize(static_cast<std::size_t>(options.length) + 1);
}

std::int64_t Windows::shuffled(std::int64_t position) const {
    const auto epoch = static_cast<std::uint64_t>(position / training_);
    return Permutation(training_, mix(options_.seed) + mix(epoch + 1))(position % training_);
}

void Windows::fill(std::int64_t window, std::int64_t row, OwnedBatch& batch) const {
    corpus_.copy(window * options_.length, scratch_);
    std::copy(scratch_.begin(), scratch_.end() - 1, batch.tokens.begin() + row * options_.length);
    std::copy(scratch_.begin() + 1, scratch_.end(), batch.targets.begin() + row * options_.length);
}

void Windows::next(std::int64_t sequences, OwnedBatch& batch) {
    reshape(batch, sequences, options_.length);
    for (std::int64_t row = 0; row < sequences; ++row) fill(shuffled(position_ + row), row, batch);
    position_ += sequences;
}

void Windows::evaluation(std::int64_t first, std::int64_t sequences, std::int64_t count, OwnedBatch& batch) const {
    require(count <= evaluation_ && first >= 0 && first + sequences <= count, "evaluation windows ", first, " to ",
            first + sequences, " of ", count, " were asked for and there are ", evaluation_);
    reshape(batch, sequences, options_.length);
    for (std::int64_t row = 0; row < sequences; ++row)
        fill(training_ + (first + row) * evaluation_ / count, row, batch);
}

}  // namespace octet::train
