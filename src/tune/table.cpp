#include "tune/table.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "octet/error.hpp"

namespace octet::tune {
namespace {

constexpr std::int64_t group_classes[] = {1, 8, 32, 128};

struct Embedded {
    const char* architecture;
    const char* json;
};
constexpr Embedded embedded[] = {
#include "octet_tables.inc"
    {nullptr, nullptr}};

std::map<std::string, Table, std::less<>> load_embedded() {
    std::map<std::string, Table, std::less<>> tables;
    for (const Embedded* e = embedded; e->architecture != nullptr; ++e)
        tables[e->architecture] = Table::parse(e->json, std::string("the table of ") + e->architecture);
    return tables;
}

std::map<std::string, Table, std::less<>>& tables() {
    static std::map<std::string, Table, std::less<>> all = load_embedded();
    return all;
}

// The parser alone would keep the last of two values of one name.
nlohmann::json parse_json(std::string_view text, std::string_view where) {
    using Event = nlohmann::json::parse_event_t;
    std::vector<std::set<std::string>> names;  // of the objects that are open
    return nlohmann::json::parse(
        text,
        [&](int, Event event, const nlohmann::json& value) {
            if (event == Event::object_start) names.emplace_back();
            if (event == Event::object_end) names.pop_back();
            if (event == Event::key)
                require(names.back().insert(value.get<std::string>()).second, where, " has '", value.get<std::string>(),
                        "' twice in one object; expected each name once");
            return true;
        },
        false);
}

std::int64_t integer(const nlohmann::json& object, const char* name, std::string_view where, std::size_t index) {
    require(object.contains(name) && object[name].is_number_integer(), where, ", entry ", index, ": '", name,
            "' is missing or no integer");
    return object[name].get<std::int64_t>();
}

}  // namespace

std::string to_string(const Configuration& configuration) {
    std::string text;
    for (const Setting& setting : configuration)
        text += (text.empty() ? "" : ", ") + setting.name + "=" + std::to_string(setting.value);
    return text.empty() ? "defaults" : text;
}

std::int64_t size_class(std::int64_t size) {
    std::int64_t power = 256;
    while (power < size && power < std::int64_t{1} << 40) power *= 2;
    return power;
}

std::int64_t group_class(std::int64_t groups) {
    for (const std::int64_t limit : group_classes)
        if (groups <= limit) return limit;
    return 0;
}

Key key_of(std::string_view operation, std::int64_t tokens, std::int64_t features, std::int64_t groups) {
    return {std::string(operation), size_class(tokens), size_class(features), group_class(groups)};
}

std::string to_string(const Key& key) {
    return key.operation + ", up to " + std::to_string(key.tokens) + " x " + std::to_string(key.features) + ", " +
           (key.groups == 0 ? "more than 128 groups" : "up to " + std::to_string(key.groups) + " groups");
}

Table::Table(std::string architecture, std::vector<Entry> entries)
    : architecture_(std::move(architecture)), entries_(std::move(entries)) {
    std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.key < b.key; });
    for (std::size_t i = 1; i < entries_.size(); ++i)
        require(!(entries_[i - 1].key == entries_[i].key), "the table of ", architecture_, " has two entries for ",
                to_string(entries_[i].key));
    for (const Entry& entry : entries_) tunings_.push_back({entry.configuration});
}

Table Table::parse(std::string_view text, std::string_view where) {
    const nlohmann::json json = parse_json(text, where);
    require(!json.is_discarded() && json.is_object(), where, " is no JSON object; see docs/tuning.md");
    require(json.contains("architecture") && json["architecture"].is_string() && json.contains("entries") &&
                json["entries"].is_array(),
            where, " lacks 'architecture' or 'entries'; see docs/tuning.md");
    std::vector<Entry> entries;
    for (const nlohmann::json& item : json["entries"]) {
        const std::size_t index = entries.size();
        require(item.is_object() && item.contains("operation") && item["operation"].is_string(), where, ", entry ",
                index, ": 'operation' is missing");
        Entry entry;
        entry.key = {item["operation"].get<std::string>(), integer(item, "tokens", where, index),
                     integer(item, "features", where, index), integer(item, "groups", where, index)};
        require(entry.key.tokens == size_class(entry.key.tokens) &&
                    entry.key.features == size_class(entry.key.features) &&
                    (entry.key.groups == 0 || entry.key.groups == group_class(entry.key.groups)),
                where, ", entry ", index,
                ": tokens and features are powers of two from 256, groups is 1, 8, 32, 128 or 0 (more)");
        require(item.contains("configuration") && item["configuration"].is_object(), where, ", entry ", index,
                ": 'configuration' is missing");
        for (const auto& [name, value] : item["configuration"].items()) {
            require(value.is_number_integer(), where, ", entry ", index, ": '", name, "' is no integer");
            entry.configuration.push_back({name, value.get<std::int64_t>()});
        }
        entries.push_back(std::move(entry));
    }
    return {json["architecture"].get<std::string>(), std::move(entries)};
}

Table Table::read(const std::string& path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    if (!file) fail(Status::io_error, "could not read the tuning table '", path, "'");
    return parse(text.str(), path);
}

const KernelTuning* Table::find(std::string_view operation, std::int64_t tokens, std::int64_t features,
                                std::int64_t groups) const {
    if (entries_.empty()) return nullptr;
    const Key key = key_of(operation, tokens, features, groups);
    const auto at = std::lower_bound(entries_.begin(), entries_.end(), key,
                                     [](const Entry& entry, const Key& wanted) { return entry.key < wanted; });
    if (at == entries_.end() || !(at->key == key)) return nullptr;
    return &tunings_[static_cast<std::size_t>(at - entries_.begin())];
}

std::string Table::to_json() const {
    nlohmann::ordered_json json;
    json["architecture"] = architecture_;
    json["entries"] = nlohmann::ordered_json::array();
    for (const Entry& entry : entries_) {
        nlohmann::ordered_json item = {{"operation", entry.key.operation},
                                       {"tokens", entry.key.tokens},
                                       {"features", entry.key.features},
                                       {"groups", entry.key.groups}};
        item["configuration"] = nlohmann::ordered_json::object();
        for (const Setting& setting : entry.configuration) item["configuration"][setting.name] = setting.value;
        json["entries"].push_back(std::move(item));
    }
    return json.dump(1) + "\n";
}

const Table& table_for(std::string_view architecture) {
    static const Table none;
    const auto& all = tables();
    const auto at = all.find(architecture);
    return at == all.end() ? none : at->second;
}

void use_table(Table table) {
    const std::string architecture = table.architecture();
    tables()[architecture] = std::move(table);
}

}  // namespace octet::tune
