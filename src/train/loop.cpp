#include "train/loop.hpp"

#include <chrono>
#include <cmath>

#include "octet/error.hpp"
#include "train/checkpoint.hpp"
#include "train/loop_diagnostic.hpp"
#include "train/optimizer.hpp"
#include "train/schedule.hpp"

namespace octet::train {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

bool due(std::int64_t step, std::int64_t every) { return every > 0 && step % every == 0; }

class Run {
public:
    Run(const RunOptions& options, RunObserver& observer)
        : options_(options),
          observer_(observer),
          corpus_(options.corpus),
          windows_(corpus_, {options.config.model.sequence_length, options.data_seed, options.eval_share}),
          folder_(options.folder, options.start),
          model_(options.config.model, options.model),
          optimizer_(model_.parameters(), adamw_options(options.config.training, options.model.threads)) {
        describe();
        folder_.clear();
        resume();
        write_in_place(folder_.config(), to_toml(options.config));
        metrics_.emplace(folder_.metrics(), step_);
        note_unless(metrics_->add(description_));
    }

    RunResult train(const std::function<bool()>& stop) {
        observer_.started(description_, step_);
        const std::int64_t steps = options_.config.training.steps;
        bool stopped = stop();
        while (step_ < steps && !stopped) {
            take_step();
            stopped = stop();
            const bool last = step_ == steps;
            if (last || due(step_, options_.eval_every)) evaluate();
            if (last || stopped || due(step_, options_.checkpoint_every)) save();
        }
        if (saved_step_ != step_ && failed_step_ != step_) save();
        return {step_ >= steps ? RunEnd::finished : RunEnd::interrupted, step_,
                newest_checkpoint(folder_.checkpoints()), saved_step_ == step_};
    }

private:
    void resume() {
        if (options_.start != Start::resume && options_.start != Start::resume_or_fresh) return;
        const std::optional<std::filesystem::path> newest = newest_checkpoint(folder_.checkpoints());
        if (!newest) return;
        const Checkpoint checkpoint(*newest);
        const CheckpointState& state = checkpoint.state();
        const std::string difference = first_model_difference(state.config, to_toml(options_.config));
        require(difference.empty(), "'", newest->string(), "' is a checkpoint of another model: ", difference);
        const DataState here = data_state();
        require(state.data.fingerprint == here.fingerprint && state.data.tokenizer == here.tokenizer &&
                    state.data.seed == here.seed,
                "'", newest->string(), "' was trained on '", state.data.path, "' (", state.data.tokens, " tokens as ",
                state.data.tokenizer, ", fingerprint ", state.data.fingerprint, ", seed ", state.data.seed,
                ") and this run has '", here.path, "' (", here.tokens, " tokens as ", here.tokenizer, ", fingerprint ",
                here.fingerprint, ", seed ", here.seed, "): its position means nothing there");
        checkpoint.load(tensors());
        model_.weights_changed();
        optimizer_.set_steps(state.optimizer_steps);
        windows_.seek(state.data.position);
        step_ = saved_step_ = state.step;
        tokens_seen_ = state.tokens_seen;
        random_ = Random(state.random);
        observer_.noted("resumed from " + newest->string());
        if (state.config != to_toml(options_.config))
            observer_.noted(
                "note: the numbers of training differ from the checkpoint's; the run goes on with the new ones");
        if (state.recipe != to_string(options_.model.recipe))
            observer_.noted("note: the checkpoint was trained with " + state.recipe + ", and goes on with " +
                            to_string(options_.model.recipe));
    }

    CheckpointTensors tensors() {
        CheckpointTensors all;
        for (const Parameter& parameter : model_.parameters())
            all.model.push_back(stored(parameter.name, parameter.value));
        for (const NamedTensor& buffer : model_.buffers()) all.model.push_back(stored(buffer.name, buffer.value));
        for (std::size_t i = 0; i < optimizer_.size(); ++i) {
            all.optimizer.push_back(stored("first_moment." + optimizer_.parameter(i).name, optimizer_.first_moment(i)));
            all.optimizer.push_back(
                stored("second_moment." + optimizer_.parameter(i).name, optimizer_.second_moment(i)));
        }
        return all;
    }

    DataState data_state() const {
        return {corpus_.path(),   corpus_.tokenizer(), corpus_.fingerprint(),
                corpus_.tokens(), options_.data_seed,  windows_.position()};
    }

    CheckpointState state() const {
        CheckpointState state;
        state.step = step_;
        state.optimizer_steps = optimizer_.steps();
        state.tokens_seen = tokens_seen_;
        state.config = to_toml(options_.config);
        state.recipe = to_string(options_.model.recipe);
        state.dense_recipe = to_string(options_.model.dense);
        state.activations = name(options_.model.activations);
        state.seed = options_.model.seed;
        state.random = random_.state();
        state.data = data_state();
        return state;
    }

    void describe() {
        RunDescription& d = description_;
        const TrainingConfig& training = options_.config.training;
        d.name = options_.config.name;
        d.config = to_toml(options_.config);
        d.recipe = to_string(options_.model.recipe);
        d.dense_recipe = to_string(options_.model.dense);
        d.seed = options_.model.seed;
        d.data_seed = options_.data_seed;
        d.threads = options_.model.threads;
        d.data = corpus_.path();
        d.tokenizer = corpus_.tokenizer();
        d.training_tokens = windows_.training_tokens();
        d.evaluation_windows = windows_.evaluation_windows();
        d.parameters = count(options_.config.model).parameters;
        d.steps = training.steps;
        d.tokens_per_step = training.batch * training.accumulate * options_.config.model.sequence_length;
        d.unigram_entropy = corpus_.unigram_entropy(0, windows_.training_tokens());
    }

    void take_step() {
        const auto begin = Clock::now();
        const TrainingConfig& training = options_.config.training;
        const bool observed = step_ == 0 || due(step_ + 1, options_.observe_every);
        model_.reset_statistics();
        StepMetrics metrics;
        metrics.step = step_ + 1;
        metrics.learning_rate = learning_rate(training, step_);
        const double share = 1.0 / static_cast<double>(training.accumulate);
        const std::int64_t position_before = windows_.position();
        for (std::int64_t i = 0; i < training.accumulate; ++i) {
            windows_.next(training.batch, batch_);
            const bool look = observed && options_.observe_every > 0 && i + 1 == training.accumulate;
            const StepResult result =
                model_.forward_backward(batch_.view(), share, look ? Observe::scales : Observe::nothing);
            metrics.loss += share * result.loss;
            metrics.auxiliary_loss += share * result.auxiliary_loss;
            metrics.tokens += batch_.sequences * batch_.length;
            if (!std::isfinite(result.loss)) stop_non_finite(metrics.step, "loss", result.loss, position_before);
        }
        metrics.gradient_norm = optimizer_.step(metrics.learning_rate);
        if (!std::isfinite(metrics.gradient_norm))
            stop_non_finite(metrics.step, "gradient norm", metrics.gradient_norm, position_before);
        model_.step_taken();
        ++step_;
        tokens_seen_ += metrics.tokens;

        ModelStatistics statistics = model_.statistics();
        metrics.cast_seconds = statistics.cast_seconds;
        metrics.product_seconds = statistics.product_seconds;
        metrics.kept_bytes = statistics.kept_bytes;
        metrics.moe_layers = std::move(statistics.moe_layers);
        metrics.tokens_per_expert = std::move(statistics.tokens_per_expert);
        if (observed) metrics.scales = std::move(statistics.scales);
        metrics.seconds = seconds_since(begin);
        note_unless(metrics_->add(metrics));
        observer_.stepped(metrics);
    }

    void evaluate() {
        const std::int64_t count = std::min(options_.eval_windows, windows_.evaluation_windows());
        if (count <= 0) return;
        const std::int64_t batch = options_.config.training.batch;
        EvalMetrics metrics;
        metrics.step = step_;
        double sum = 0;
        for (std::int64_t first = 0; first < count; first += batch) {
            windows_.evaluation(first, std::min(batch, count - first), count, batch_);
            const StepResult result = model_.loss(batch_.view());
            sum += result.loss * static_cast<double>(result.counted);
            metrics.tokens += result.counted;
            if (!std::isfinite(sum)) break;
        }
        metrics.loss = sum / static_cast<double>(metrics.tokens);
        note_unless(metrics_->add(metrics));
        observer_.evaluated(metrics);
        if (!std::isfinite(metrics.loss)) stop_non_finite(step_, "evaluation loss", metrics.loss, windows_.position());
    }

    void save() {
        try {
            const std::filesystem::path path =
                save_checkpoint(folder_.checkpoints(), state(), tensors(), options_.checkpoints_kept);
            saved_step_ = step_;
            metrics_->note(step_, "checkpoint " + path.string());
        } catch (const Error& error) {
            if (error.status() != Status::io_error) throw;
            failed_step_ = step_;
            const std::optional<std::filesystem::path> before = newest_checkpoint(folder_.checkpoints());
            const std::string text =
                "the checkpoint of step " + std::to_string(step_) + " was not written: " + error.what() + "; " +
                (before ? "'" + before->string() + "' is kept" : "there is none before it") + ", and training goes on";
            metrics_->note(step_, text);
            observer_.noted(text);
        }
    }

    [[noreturn]] void stop_non_finite(std::int64_t step, const std::string& what, double value, std::int64_t position) {
        Diagnostic diagnostic;
        diagnostic.step = step;
        diagnostic.what = what;
        diagnostic.value = value;
        diagnostic.position = position;
        diagnostic.origin = model_.find_non_finite(batch_.view());
        const std::string text = save_diagnostic(folder_, diagnostic, state(), tensors(), batch_);
        metrics_->note(step, text);
        fail(Status::invalid_argument, text);
    }

    // A full disk must not end a run; saying so once is enough.
    void note_unless(bool written) {
        if (written || metrics_failed_) return;
        metrics_failed_ = true;
        observer_.noted("could not write to '" + folder_.metrics().string() +
                        "' (is the disk full?); training goes on without it");
    }

    RunOptions options_;
    RunObserver& observer_;
    Corpus corpus_;
    Windows windows_;
    RunFolder folder_;
    Model model_;
    AdamW optimizer_;
    std::optional<MetricsFile> metrics_{};
    RunDescription description_{};
    OwnedBatch batch_{};
    Random random_{0};
    std::int64_t step_ = 0, tokens_seen_ = 0, saved_step_ = -1, failed_step_ = -1;
    bool metrics_failed_ = false;
};

}  // namespace

RunResult run(const RunOptions& options, RunObserver& observer, const std::function<bool()>& stop) {
    check(options.config.model);
    check(options.config.training);
    const std::int64_t batch = options.config.training.batch, length = options.config.model.sequence_length;
    constexpr std::int64_t most_tokens = std::int64_t{1} << 31;
    require(batch * length < most_tokens, "a batch of ", batch, " sequences of ", length, " tokens was asked for, ",
            batch * length, " tokens together, expected less than ", most_tokens,
            "; give a smaller --batch, and --accumulate the rest");
    return Run(options, observer).train(stop);
}

}  // namespace octet::train
