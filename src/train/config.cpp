#include "train/config.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <sstream>

#define TOML_EXCEPTIONS 1
#include <toml++/toml.h>

#include "octet/error.hpp"

namespace octet::train {
namespace {

enum class Presence { required, optional };

// Every field of a file, once: reading, writing and the list of known names all walk through here.
template <class Config, class Visit>
void visit_fields(Config& config, Visit&& visit) {
    auto& m = config.model;
    visit("model", "vocabulary", m.vocabulary, Presence::required);
    visit("model", "layers", m.layers, Presence::required);
    visit("model", "hidden", m.hidden, Presence::required);
    visit("model", "heads", m.heads, Presence::required);
    visit("model", "kv_heads", m.kv_heads, Presence::optional);
    visit("model", "head_dim", m.head_dim, Presence::optional);
    visit("model", "rope_theta", m.rope_theta, Presence::optional);
    visit("model", "norm_eps", m.norm_eps, Presence::optional);
    visit("model", "sequence_length", m.sequence_length, Presence::required);
    visit("model", "tied_head", m.tied_head, Presence::optional);
    visit("dense", "layers", m.dense_layers, Presence::optional);
    visit("dense", "intermediate", m.dense_intermediate, Presence::optional);
    visit("experts", "count", m.experts, Presence::optional);
    visit("experts", "per_token", m.experts_per_token, Presence::optional);
    visit("experts", "intermediate", m.expert_intermediate, Presence::optional);
    visit("experts", "shared", m.shared_experts, Presence::optional);
    visit("router", "score", m.router_score, Presence::optional);
    visit("router", "weights", m.router_weights, Presence::optional);
    visit("router", "balance", m.router_balance, Presence::optional);
    visit("router", "scaling", m.router_scaling, Presence::optional);
    visit("router", "balance_rate", m.router_balance_rate, Presence::optional);
    visit("router", "auxiliary_loss", m.router_auxiliary_loss, Presence::optional);
    auto& t = config.training;
    visit("training", "steps", t.steps, Presence::optional);
    visit("training", "batch", t.batch, Presence::optional);
    visit("training", "accumulate", t.accumulate, Presence::optional);
    visit("training", "warmup_steps", t.warmup_steps, Presence::optional);
    visit("training", "learning_rate", t.learning_rate, Presence::optional);
    visit("training", "final_learning_rate", t.final_learning_rate, Presence::optional);
    visit("training", "beta1", t.beta1, Presence::optional);
    visit("training", "beta2", t.beta2, Presence::optional);
    visit("training", "epsilon", t.epsilon, Presence::optional);
    visit("training", "weight_decay", t.weight_decay, Presence::optional);
    visit("training", "clip_norm", t.clip_norm, Presence::optional);
}

std::string shown(const toml::node& node) {
    std::ostringstream text;
    node.visit([&](const auto& value) { text << value; });
    return text.str();
}

class Reader {
public:
    Reader(const toml::table& table, const std::string& name) : table_(table), name_(name) {}

    void operator()(const char* section, const char* key, std::int64_t& out, Presence presence) {
        const toml::node* node = find(section, key, presence);
        if (node == nullptr) return;
        if (!node->is_integer()) refuse(section, key, *node, "a whole number");
        out = *node->value<std::int64_t>();
    }
    void operator()(const char* section, const char* key, double& out, Presence presence) {
        const toml::node* node = find(section, key, presence);
        if (node == nullptr) return;
        if (!node->is_number()) refuse(section, key, *node, "a number");
        out = *node->value<double>();
    }
    void operator()(const char* section, const char* key, bool& out, Presence presence) {
        const toml::node* node = find(section, key, presence);
        if (node == nullptr) return;
        if (!node->is_boolean()) refuse(section, key, *node, "true or false");
        out = *node->value<bool>();
    }
    void operator()(const char* section, const char* key, RouterScore& out, Presence presence) {
        read_name(section, key, out, presence, parse_router_score);
    }
    void operator()(const char* section, const char* key, RouterWeights& out, Presence presence) {
        read_name(section, key, out, presence, parse_router_weights);
    }
    void operator()(const char* section, const char* key, RouterBalance& out, Presence presence) {
        read_name(section, key, out, presence, parse_router_balance);
    }

    void refuse_unknown() const {
        for (const auto& [section, node] : table_) {
            const auto known = known_.find(std::string(section.str()));
            if (known == known_.end())
                fail(Status::invalid_argument, name_, ": there is no section [", section.str(),
                     "]; sections: ", list(known_, [](const auto& entry) { return entry.first; }));
            if (!node.is_table())
                fail(Status::invalid_argument, name_, ": ", section.str(), " is ", shown(node),
                     ", expected a section [", section.str(), "]");
            for (const auto& [key, value] : *node.as_table())
                if (!known->second.contains(std::string(key.str())))
                    fail(Status::invalid_argument, name_, ": there is no field ", section.str(), ".", key.str(),
                         " (= ", shown(value), "); fields of [", section.str(),
                         "]: ", list(known->second, [](const auto& entry) { return entry; }));
        }
    }

private:
    const toml::node* find(const char* section, const char* key, Presence presence) {
        known_[section].insert(key);
        const toml::node* node = table_[section][key].node();
        if (node == nullptr && presence == Presence::required)
            fail(Status::invalid_argument, name_, ": ", section, ".", key, " is missing; it has no default");
        return node;
    }

    [[noreturn]] void refuse(const char* section, const char* key, const toml::node& node, const char* wanted) const {
        fail(Status::invalid_argument, name_, ": ", section, ".", key, " is ", shown(node), ", expected ", wanted);
    }

    template <class Enum, class Parse>
    void read_name(const char* section, const char* key, Enum& out, Presence presence, Parse parse) {
        const toml::node* node = find(section, key, presence);
        if (node == nullptr) return;
        if (!node->is_string()) refuse(section, key, *node, "a name in quotes");
        try {
            out = parse(*node->value<std::string_view>());
        } catch (const Error& error) {
            fail(error.status(), name_, ": ", section, ".", key, ": ", error.what());
        }
    }

    template <class Container, class Name>
    static std::string list(const Container& container, Name name) {
        std::string text;
        for (const auto& entry : container) text += (text.empty() ? "" : ", ") + std::string(name(entry));
        return text;
    }

    const toml::table& table_;
    const std::string& name_;
    std::map<std::string, std::set<std::string>> known_{};
};

class Writer {
public:
    template <class Value>
    void operator()(const char* section, const char* key, const Value& value, Presence) {
        if (section_ != section) text_ << (section_.empty() ? "" : "\n") << "[" << section << "]\n";
        section_ = section;
        text_ << key << " = ";
        put(value);
        text_ << "\n";
    }
    std::string text() const { return text_.str(); }

private:
    void put(std::int64_t value) { text_ << value; }
    void put(bool value) { text_ << (value ? "true" : "false"); }
    void put(double value) {
        std::ostringstream digits;
        digits.precision(std::numeric_limits<double>::max_digits10);
        digits << value;
        const std::string shortest = digits.str();
        text_ << shortest << (shortest.find_first_of(".e") == std::string::npos ? ".0" : "");
    }
    template <class Enum>
    void put(Enum value) requires std::is_enum_v<Enum> {
        text_ << '"' << name(value) << '"';
    }
    std::ostringstream text_{};
    std::string section_{};
};

// The parser goes a level deeper into the stack for every dot of a name.
void refuse_endless_lines(std::string_view text, const std::string& name) {
    constexpr std::size_t longest = 4096;
    for (std::size_t line = 1, begin = 0; begin < text.size(); ++line) {
        const std::size_t end = std::min(text.find('\n', begin), text.size());
        require(end - begin <= longest, name, ", line ", line, " has ", end - begin, " characters, expected at most ",
                longest, "; is it TOML?");
        begin = end + 1;
    }
}

}  // namespace

Config parse_config(std::string_view text, const std::string& name) {
    Config config;
    config.name = name;
    refuse_endless_lines(text, name);
    try {
        const toml::table table = toml::parse(text, name);
        Reader reader(table, name);
        visit_fields(config, reader);
        reader.refuse_unknown();
    } catch (const toml::parse_error& error) {
        fail(Status::invalid_argument, name, ", line ", error.source().begin.line, ": ", error.description());
    }
    if (config.model.kv_heads == 0) config.model.kv_heads = config.model.heads;
    if (config.model.head_dim == 0 && config.model.heads > 0)
        config.model.head_dim = config.model.hidden / config.model.heads;
    try {
        check(config.model);
        check(config.training);
    } catch (const Error& error) {
        fail(error.status(), name, ": ", error.what());
    }
    return config;
}

Config load_config(const std::string& preset_or_path) {
    const std::vector<std::string> presets = preset_names();
    for (const std::string& preset : presets)
        if (preset == preset_or_path) return parse_config(preset_text(preset), preset);
    std::ifstream file(preset_or_path);
    if (!file || !std::filesystem::is_regular_file(preset_or_path)) {
        std::string known;
        for (const std::string& preset : presets) known += (known.empty() ? "" : ", ") + preset;
        fail(Status::invalid_argument, "'", preset_or_path, "' is neither a preset (", known,
             ") nor a file that can be read");
    }
    std::ostringstream text;
    text << file.rdbuf();
    Config config = parse_config(text.str(), preset_or_path);
    config.name = std::filesystem::path(preset_or_path).stem().string();
    return config;
}

std::string to_toml(const Config& config) {
    Writer writer;
    visit_fields(config, writer);
    return writer.text();
}

}  // namespace octet::train
