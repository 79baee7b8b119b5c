#include <utility>

#include "octet/error.hpp"
#include "train/config.hpp"

namespace octet::train {
namespace {

constexpr std::pair<std::string_view, std::string_view> presets[] = {
#include "octet_presets.inc"  // made from configs/*.toml when the build is configured
};

}  // namespace

std::vector<std::string> preset_names() {
    std::vector<std::string> names;
    for (const auto& preset : presets) names.emplace_back(preset.first);
    return names;
}

std::string_view preset_text(std::string_view name) {
    std::string known;
    for (const auto& preset : presets) {
        if (preset.first == name) return preset.second;
        known += (known.empty() ? "" : ", ") + std::string(preset.first);
    }
    fail(Status::invalid_argument, "there is no preset '", name, "'; presets: ", known);
}

}  // namespace octet::train
