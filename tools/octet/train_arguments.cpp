#include "train_arguments.hpp"

#include <fmt/core.h>

#include "checks.hpp"
#include "machine.hpp"
#include "octet/error.hpp"

namespace octet::tool {
namespace {

namespace fs = std::filesystem;
constexpr const char* corpus_name = "corpus/debian-handbook.txt";

std::string joined(const std::vector<std::string>& words) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
    return text;
}

}  // namespace

void add_train_options(CLI::App& command, TrainArguments& a) {
    // An argument given again replaces the first, so that a script's choices can be overridden at its end.
    command.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    const std::string presets = joined(train::preset_names());
    command.add_option("model", a.model, "A preset (" + presets + ") or a TOML file")->capture_default_str();
    command
        .add_option("--recipe", a.recipe,
                    "How expert products are made: bf16, fp8_rowwise, fp8_blockwise, mxfp8; options follow a colon, "
                    "fp8_rowwise:gradient=e5m2,scales=exact")
        ->capture_default_str();
    command.add_option("--compare", a.compare,
                       "Several recipes, separated by commas: each is trained from the same seed on the same batches, "
                       "and one report shows them all; bf16 among them is what the others are measured against");
    command
        .add_option("--dense-recipe", a.dense_recipe,
                    "The same for attention's projections and dense MLPs; the head is in bf16")
        ->capture_default_str();
    command.add_option("--activations", a.activations, "What enters products that are not in 8 bits: bf16 or f32")
        ->capture_default_str()
        ->check(CLI::IsMember({"bf16", "f32"}));
    command.add_option("--device", a.device, "Where to train: cpu")->capture_default_str();

    const std::string data = "Data";
    command
        .add_option("--data", a.data,
                    "A text file, or a .bin of tokens; without it The Debian Administrator's Handbook, which "
                    "scripts/corpus fetches")
        ->group(data);
    command
        .add_option("--tokens", a.tokens,
                    "How it is tokenized: bytes, u16 or u32 (a file of tokens), sentencepiece:<model file>; auto is "
                    "bytes, or u16 or u32 (by the vocabulary) for .bin")
        ->capture_default_str()
        ->group(data);
    command.add_option("--eval-share", a.eval_share, "Share of the data, at its end, kept for evaluation")
        ->capture_default_str()
        ->check(CLI::Range(0.0, 0.9))
        ->group(data);

    const std::string training = "Training (defaults are in the model's file)";
    command.add_option("--steps", a.steps, "Optimizer steps")->check(positive())->group(training);
    command.add_option("--batch", a.batch, "Sequences a forward pass")->check(positive())->group(training);
    command.add_option("--accumulate", a.accumulate, "Forward passes a step")->check(positive())->group(training);
    command.add_option("--sequence-length", a.sequence_length, "Tokens a sequence")->check(positive())->group(training);
    command.add_option("--layers", a.layers, "Only so many layers of the model")->check(positive())->group(training);
    command.add_option("--learning-rate", a.learning_rate, "The highest; it ends at a tenth")
        ->check(positive())
        ->group(training);
    command.add_option("--warmup", a.warmup, "Steps until it is reached")->check(not_negative())->group(training);
    command.add_option("--seed", a.seed, "Of the weights and of the order of the data")
        ->capture_default_str()
        ->group(training);
    command.add_option("--threads", a.threads, "CPU threads, 0 is one a core; the result does not depend on it")
        ->capture_default_str()
        ->check(CLI::Range(0, 1024))
        ->group(training);

    const std::string files = "Files and what is shown";
    command.add_option("--out", a.out, "Folder of the run [out/<model>-<recipe>, out/<model>-compare]")->group(files);
    command.add_flag("--resume", a.resume, "Go on from the newest checkpoint of the run in --out")->group(files);
    command.add_flag("--overwrite", a.overwrite, "Begin anew where the folder has a run already")->group(files);
    command.add_option("--eval-every", a.eval_every, "Steps between evaluations; the last step is evaluated always")
        ->capture_default_str()
        ->check(not_negative())
        ->group(files);
    command.add_option("--eval-windows", a.eval_windows, "Sequences an evaluation, at most")
        ->capture_default_str()
        ->check(positive())
        ->group(files);
    command.add_option("--checkpoint-every", a.checkpoint_every, "Steps between checkpoints; 0: only the last")
        ->capture_default_str()
        ->check(not_negative())
        ->group(files);
    command.add_option("--keep", a.keep, "Checkpoints kept")
        ->capture_default_str()
        ->check(CLI::Range(1, 1000000))
        ->group(files);
    command
        .add_option("--observe-every", a.observe_every,
                    "Steps between looks at scales, saturation and underflow; 0: never")
        ->capture_default_str()
        ->check(not_negative())
        ->group(files);
    command.add_option("--log-every", a.log_every, "Steps between lines where the output is not a terminal")
        ->capture_default_str()
        ->check(positive())
        ->group(files);
}

std::vector<Recipe> recipes_of(const TrainArguments& a) {
    if (a.compare.empty()) return {parse_recipe(a.recipe)};
    std::vector<std::string> texts;
    for (std::size_t at = 0; at <= a.compare.size();) {
        const std::size_t end = std::min(a.compare.find(',', at), a.compare.size());
        const std::string piece = a.compare.substr(at, end - at);
        // A comma also separates a recipe's options: "mxfp8:mx=floor,wgrad=bf16".
        const bool option = piece.find('=') != std::string::npos && piece.find(':') == std::string::npos;
        if (option && !texts.empty()) {
            texts.back() += "," + piece;
        } else {
            texts.push_back(piece);
        }
        at = end + 1;
    }
    std::vector<Recipe> recipes;
    for (const std::string& text : texts) {
        const Recipe recipe = parse_recipe(text);
        require(std::find(recipes.begin(), recipes.end(), recipe) == recipes.end(), "--compare names ", text, " twice");
        recipes.push_back(recipe);
    }
    return recipes;
}

fs::path folder_of(const TrainArguments& a) {
    if (!a.out.empty()) return a.out;
    const std::string model = fs::path(a.model).stem().string();
    return fs::path("out") / (model + "-" + (a.compare.empty() ? to_string(parse_recipe(a.recipe)) : "compare"));
}

fs::path default_corpus() {
    std::error_code ignored;
    const fs::path program = fs::read_symlink("/proc/self/exe", ignored).parent_path();
    // In the working folder's build tree, or in the one this program was built in (build/<preset>/tools/octet).
    for (const fs::path& folder : {fs::path("build"), program / "../../.."})
        if (fs::exists(folder / corpus_name, ignored)) return (folder / corpus_name).lexically_normal();
    fail(Status::invalid_argument, "no --data was given and the default corpus is not at build/", corpus_name,
         "; make it with scripts/corpus, or give --data any text file");
}

train::RunOptions run_options(const TrainArguments& a, const Recipe& recipe, const fs::path& folder) {
    if (a.device != "cpu")
        fail(Status::unsupported, "device '", a.device, "' was asked for; this program trains on cpu");
    require(!(a.resume && a.overwrite), "--resume goes on with a run and --overwrite removes it; give one of them");
    train::RunOptions options;
    options.config = train::load_config(a.model);
    train::ModelConfig& model = options.config.model;
    train::TrainingConfig& training = options.config.training;
    if (a.layers) model = train::with_layers(model, *a.layers);
    if (a.sequence_length) model.sequence_length = *a.sequence_length;
    if (a.steps) {
        training.steps = *a.steps;
        if (!a.warmup) training.warmup_steps = std::min(training.warmup_steps, training.steps / 10);
    }
    if (a.warmup) training.warmup_steps = *a.warmup;
    if (a.batch) training.batch = *a.batch;
    if (a.accumulate) training.accumulate = *a.accumulate;
    if (a.learning_rate) {
        training.learning_rate = *a.learning_rate;
        training.final_learning_rate = *a.learning_rate / 10;
    }
    train::check(model);
    train::check(training);
    const double needed = static_cast<double>(train::count(model).training_bytes()) / (1 << 30);
    require(needed <= host_memory_gib(), "the model needs ", fmt::format("{:.1f}", needed),
            " GiB for weights, gradients and moments, and this machine has ", fmt::format("{:.1f}", host_memory_gib()),
            "; train fewer --layers, or a smaller model (octet info --model says what one needs)");

    options.model.recipe = recipe;
    options.model.dense = parse_recipe(a.dense_recipe);
    options.model.activations = parse_format(a.activations);
    options.model.seed = a.seed;
    options.model.threads = a.threads;
    options.corpus.path = a.data.empty() ? default_corpus() : fs::path(a.data);
    options.corpus.tokens = a.tokens;
    options.corpus.vocabulary = model.vocabulary;
    options.corpus.cache = folder_of(a) / "tokens";
    options.data_seed = a.seed;
    options.eval_share = a.eval_share;
    options.folder = folder;
    // Of several runs that were interrupted some have a checkpoint and some have not begun.
    options.start = a.overwrite         ? train::Start::overwrite
                    : !a.resume         ? train::Start::fresh
                    : a.compare.empty() ? train::Start::resume
                                        : train::Start::resume_or_fresh;
    options.eval_every = a.eval_every;
    options.eval_windows = a.eval_windows;
    options.checkpoint_every = a.checkpoint_every;
    options.checkpoints_kept = a.keep;
    options.observe_every = a.observe_every;
    return options;
}

}  // namespace octet::tool
