#include "train/config.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "octet/error.hpp"

namespace octet::train {
namespace {

constexpr const char* good = R"(
[model]
vocabulary = 100
layers = 3
hidden = 32
heads = 4
sequence_length = 16
[experts]
count = 4
per_token = 2
intermediate = 24
)";

std::string error_of(const std::string& text) {
    try {
        parse_config(text, "model.toml");
    } catch (const Error& error) {
        EXPECT_EQ(error.status(), Status::invalid_argument);
        return error.what();
    }
    return "accepted";
}

// The text with one line replaced.
std::string with(const std::string& from, const std::string& to) {
    std::string text = good;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
}

void expect_error(const std::string& text, std::initializer_list<const char*> parts) {
    const std::string error = error_of(text);
    for (const char* part : parts) EXPECT_NE(error.find(part), std::string::npos) << error << "\nlacks: " << part;
}

TEST(Config, FillsInDefaults) {
    const Config config = parse_config(good, "model.toml");
    EXPECT_EQ(config.model.kv_heads, 4);
    EXPECT_EQ(config.model.head_dim, 8);
    EXPECT_FALSE(config.model.tied_head);
    EXPECT_EQ(config.model.router_score, RouterScore::softmax);
}

TEST(Config, ErrorsNameTheFieldTheValueAndWhatIsAllowed) {
    expect_error(with("layers = 3", "layers = 0"), {"model.toml", "model.layers", "is 0", "expected 1"});
    expect_error(with("layers = 3", "layers = \"three\""), {"model.layers", "three", "whole number"});
    expect_error(with("layers = 3", "layers = 2.5"), {"model.layers", "2.5", "whole number"});
    expect_error(with("layers = 3", ""), {"model.layers", "missing"});
    expect_error(with("layers = 3", "layers = 3\ndepth = 4"), {"model.depth", "= 4", "vocabulary", "layers"});
    expect_error(with("[experts]", "[expert]"), {"[expert]", "experts", "router", "training"});
    expect_error(with("heads = 4", "heads = 4\nkv_heads = 3"), {"model.kv_heads", "is 3", "divisor", "4"});
    expect_error(with("heads = 4", "heads = 4\nhead_dim = 7"), {"model.head_dim", "is 7", "even"});
    expect_error(with("per_token = 2", "per_token = 5"), {"experts.per_token", "is 5", "at most", "4"});
    expect_error(with("count = 4", ""), {"experts.count", "is 0"});
    expect_error(std::string(good) + "[router]\nscore = \"softmin\"\n",
                 {"router.score", "softmin", "softmax, sigmoid"});
    expect_error(std::string(good) + "[training]\nbeta2 = 1.0\n", {"training.beta2", "is 1", "below 1"});
    expect_error(std::string(good) + "[dense]\nlayers = 1\n", {"dense.intermediate", "is 0"});
    expect_error(std::string(good) + "[dense]\nlayers = 4\nintermediate = 8\n",
                 {"dense.layers", "is 4", "at most", "3"});
    expect_error("[model\n", {"model.toml", "line 1"});
    expect_error("model = 3\n", {"model"});
    EXPECT_THROW(load_config("no-such-model"), Error);
}

TEST(Config, SurvivesBeingWritten) {
    for (const std::string& name : preset_names()) {
        const Config config = load_config(name);
        const Config again = parse_config(to_toml(config), name);
        EXPECT_EQ(config.model, again.model) << name;
        EXPECT_EQ(config.training, again.training) << name;
    }
}

TEST(Config, PresetsAreThere) {
    const std::vector<std::string> names = preset_names();
    for (const char* name : {"tiny", "small", "deepseek-moe-16b", "llama4-scout-like"})
        EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
}

TEST(Config, CountsDeepSeekMoe16b) {
    const ModelConfig model = load_config("deepseek-moe-16b").model;
    const ModelCounts n = count(model);
    EXPECT_EQ(n.parameters, 16375728128);  // the published model's
    EXPECT_NEAR(static_cast<double>(n.active_parameters), 2.8e9, 0.25e9);
    EXPECT_EQ(n.training_bytes(), 16 * n.parameters);
    const ModelConfig cut = with_layers(model, 2);
    EXPECT_EQ(cut.layers, 2);
    EXPECT_EQ(cut.dense_layers, 1);
    EXPECT_LT(count(cut).parameters, n.parameters);
    EXPECT_THROW(with_layers(model, 0), Error);
    EXPECT_THROW(with_layers(model, 29), Error);
}

// Whose names would take more levels than the stack has.
TEST(Config, RefusesEndlessLines) {
    std::string name;
    for (int i = 0; i < 1000000; ++i) name += "a.";
    expect_error(good + name + "b = 1\n", {"line 12 has 2000005 characters, expected at most 4096"});
    expect_error(good + ("[" + name) + "b]\n", {"line 12 has"});
}

TEST(Config, RefusesMoreThan64BitsCanCount) {
    std::string text = with("layers = 3", "layers = 2147483647");
    expect_error(text.replace(text.find("hidden = 32"), 11, "hidden = 2147483640\nhead_dim = 8"),
                 {"parameters, expected at most"});
    text = with("heads = 4", "heads = 2147483647\nhead_dim = 2147483646");
    expect_error(text, {"model.heads * head_dim is 4611686011984936962"});
    expect_error(with("intermediate = 24", "intermediate = 2147483647\nshared = 2147483647"),
                 {"experts.shared * intermediate"});
}

}  // namespace
}  // namespace octet::train
