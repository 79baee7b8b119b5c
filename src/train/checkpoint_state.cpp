#include "train/checkpoint_state.hpp"

#include "octet/error.hpp"
#include "train/json_text.hpp"

namespace octet::train {
namespace {

using Json = nlohmann::json;
constexpr int format_version = 1;

std::uint64_t checksum_of_text(const std::string& text) {
    return checksum_of(std::as_bytes(std::span(text.data(), text.size())));
}

}  // namespace

std::string to_json(const CheckpointState& state) {
    Json files = Json::object();
    for (const auto& [name, file] : state.files) files[name] = {{"bytes", file.bytes}, {"xxh64", hex(file.checksum)}};
    Json out = {{"format", format_version},
                {"step", state.step},
                {"optimizer_steps", state.optimizer_steps},
                {"tokens_seen", state.tokens_seen},
                {"config", state.config},
                {"recipe", state.recipe},
                {"dense_recipe", state.dense_recipe},
                {"activations", state.activations},
                {"seed", state.seed},
                {"random", state.random},
                {"data",
                 {{"path", state.data.path},
                  {"tokenizer", state.data.tokenizer},
                  {"fingerprint", state.data.fingerprint},
                  {"tokens", state.data.tokens},
                  {"seed", state.data.seed},
                  {"position", state.data.position}}},
                {"files", files}};
    out["checksum"] = hex(checksum_of_text(json_text(out, one_line)));  // of all the rest
    return json_text(out, 2) + "\n";
}

CheckpointState read_state(const std::filesystem::path& file) {
    const std::string where = file.string();
    const MappedFile mapped(file);
    const std::string_view text(reinterpret_cast<const char*>(mapped.bytes().data()), mapped.bytes().size());
    try {
        Json in = Json::parse(text, [&](int depth, Json::parse_event_t, const Json&) {
            constexpr int deepest =
                16;  // to write it again, for its checksum, goes a level deeper into the stack for each
            if (depth > deepest) fail(Status::io_error, "'", where, "' is nested too deeply for a checkpoint's state");
            return true;
        });
        const int version = in.at("format").get<int>();
        if (version > format_version)
            fail(Status::unsupported, "'", where, "' has format ", version, " and this program reads up to ",
                 format_version, "; use a newer octet");
        const std::string expected = in.at("checksum").get<std::string>();
        in.erase("checksum");
        if (hex(checksum_of_text(in.dump())) != expected)
            fail(Status::io_error, "'", where, "' was altered: its checksum is not the one it was written with");
        CheckpointState state;
        state.step = in.at("step").get<std::int64_t>();
        state.optimizer_steps = in.at("optimizer_steps").get<std::int64_t>();
        state.tokens_seen = in.at("tokens_seen").get<std::int64_t>();
        state.config = in.at("config").get<std::string>();
        state.recipe = in.at("recipe").get<std::string>();
        state.dense_recipe = in.at("dense_recipe").get<std::string>();
        state.activations = in.at("activations").get<std::string>();
        state.seed = in.at("seed").get<std::uint64_t>();
        state.random = in.at("random").get<std::uint64_t>();
        const Json& data = in.at("data");
        state.data.path = data.at("path").get<std::string>();
        state.data.tokenizer = data.at("tokenizer").get<std::string>();
        state.data.fingerprint = data.at("fingerprint").get<std::string>();
        state.data.tokens = data.at("tokens").get<std::int64_t>();
        state.data.seed = data.at("seed").get<std::uint64_t>();
        state.data.position = data.at("position").get<std::int64_t>();
        for (const auto& [name, entry] : in.at("files").items())
            state.files[name] = {entry.at("bytes").get<std::uint64_t>(),
                                 std::stoull(entry.at("xxh64").get<std::string>(), nullptr, 16)};
        return state;
    } catch (const Json::exception& error) {
        fail(Status::io_error, "'", where, "' is truncated or is not a checkpoint's state: ", error.what());
    }
}

}  // namespace octet::train
