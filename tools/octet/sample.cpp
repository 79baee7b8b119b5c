// octet sample: text from a checkpoint.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "checks.hpp"
#include "commands.hpp"
#include "octet/error.hpp"
#include "train/checkpoint.hpp"
#include "train/model.hpp"
#include "train/random.hpp"
#include "train/tokenizer.hpp"

namespace octet::tool {
namespace {

struct SampleArguments {
    std::string checkpoint, prompt = "The ", recipe;
    std::int64_t tokens = 400;
    double temperature = 0.8;
    std::int64_t top_k = 40;
    std::uint64_t seed = 1;
    int threads = 0;
};

// One token of the distribution softmax(logits / temperature), cut to the top_k likeliest.
std::int32_t draw(std::span<const float> logits, const SampleArguments& arguments, train::Random& random) {
    std::vector<std::int32_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    const std::size_t kept = arguments.top_k <= 0 || arguments.temperature <= 0
                                 ? (arguments.temperature <= 0 ? 1 : order.size())
                                 : std::min(order.size(), static_cast<std::size_t>(arguments.top_k));
    // Equal logits: the lower token first, so that the text depends on the seed alone.
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(),
                      [&](std::int32_t a, std::int32_t b) {
                          const float x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
                          return x != y ? x > y : a < b;
                      });
    if (kept == 1) return order[0];
    std::vector<double> weights(kept);
    const double largest = logits[static_cast<std::size_t>(order[0])];
    for (std::size_t i = 0; i < kept; ++i)
        weights[i] = std::exp((logits[static_cast<std::size_t>(order[i])] - largest) / arguments.temperature);
    double left = random.uniform() * std::accumulate(weights.begin(), weights.end(), 0.0);
    for (std::size_t i = 0; i < kept; ++i)
        if ((left -= weights[i]) < 0) return order[i];
    return order[kept - 1];
}

int sample(const SampleArguments& arguments) {
    const train::Checkpoint checkpoint(train::find_checkpoint(arguments.checkpoint));
    const train::CheckpointState& state = checkpoint.state();
    const train::Config config = train::parse_config(state.config, checkpoint.folder().string());
    train::ModelOptions options;
    options.recipe = parse_recipe(arguments.recipe.empty() ? state.recipe : arguments.recipe);
    options.dense = parse_recipe(state.dense_recipe);
    options.activations = parse_format(state.activations);
    options.threads = arguments.threads;
    train::Model model(config.model, options);
    std::vector<train::StoredTensor> tensors;
    for (const train::Parameter& p : model.parameters()) tensors.push_back(train::stored(p.name, p.value));
    for (const train::NamedTensor& b : model.buffers()) tensors.push_back(train::stored(b.name, b.value));
    checkpoint.load_model(tensors);
    model.weights_changed();

    const std::unique_ptr<train::Tokenizer> tokenizer = train::make_tokenizer(state.data.tokenizer);
    std::vector<std::int32_t> text = tokenizer->encode(arguments.prompt);
    require(!text.empty(), "an empty --prompt was given; the model needs at least one token to go on from");
    for (const std::int32_t token : text)
        require(token >= 0 && token < config.model.vocabulary, "the prompt has token ", token,
                " and the model's vocabulary is ", config.model.vocabulary);
    std::fprintf(stderr, "%s, step %lld, %s\n", checkpoint.folder().c_str(), static_cast<long long>(state.step),
                 to_string(options.recipe).c_str());
    train::Random random(arguments.seed);
    std::vector<float> logits(static_cast<std::size_t>(config.model.vocabulary));
    std::string said = tokenizer->decode(text);
    fmt::print("{}", said);
    for (std::int64_t i = 0; i < arguments.tokens; ++i) {
        const std::size_t length = std::min(text.size(), static_cast<std::size_t>(config.model.sequence_length));
        const std::span<const std::int32_t> window = std::span(text).last(length);
        model.next_logits({window, window, 1, static_cast<std::int64_t>(length)}, logits);
        require(std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); }),
                "the model's scores for the next token are not all finite: its weights are damaged, or too large for ",
                to_string(options.recipe), "; use an older checkpoint or another --recipe");
        text.push_back(draw(logits, arguments, random));
        // Pieces join differently than they stand alone, so what is new is what the whole now decodes to.
        const std::string whole = tokenizer->decode(text);
        if (whole.size() > said.size()) fmt::print("{}", whole.substr(said.size()));
        said = whole;
        std::fflush(stdout);
    }
    fmt::print("\n");
    return 0;
}

}  // namespace

void add_sample(CLI::App& program, Chosen& chosen) {
    CLI::App* command = program.add_subcommand("sample", "Write text with a trained model");
    auto a = std::make_shared<SampleArguments>();
    command->add_option("checkpoint", a->checkpoint, "A run's folder (its newest checkpoint), or a checkpoint's")
        ->required();
    command->add_option("--prompt", a->prompt, "What the text begins with")->capture_default_str();
    command->add_option("--tokens", a->tokens, "Tokens to write")
        ->capture_default_str()
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30));
    command->add_option("--temperature", a->temperature, "1: as the model says; lower: safer; 0: always the likeliest")
        ->capture_default_str()
        ->check(not_negative());
    command->add_option("--top-k", a->top_k, "Only the likeliest so many tokens; 0: all")
        ->capture_default_str()
        ->check(not_negative());
    command->add_option("--seed", a->seed, "Of the choice; the same seed writes the same text")->capture_default_str();
    command->add_option("--recipe", a->recipe, "How expert products are made [as it was trained]");
    command->add_option("--threads", a->threads, "CPU threads, 0 is one a core")
        ->capture_default_str()
        ->check(CLI::Range(0, 1024));
    command->footer(
        "Examples:\n"
        "  octet sample out/tiny-fp8_rowwise --prompt \"To install a package\"\n"
        "  octet sample out/tiny-compare/mxfp8 --tokens 1000 --temperature 0.5");
    command->callback([=, &chosen] { chosen.run = [=] { return sample(*a); }; });
}

}  // namespace octet::tool
