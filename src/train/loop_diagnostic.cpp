#include "train/loop_diagnostic.hpp"

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "octet/error.hpp"

namespace octet::train {

std::string save_diagnostic(const RunFolder& folder, const Diagnostic& diagnostic, CheckpointState state,
                            const CheckpointTensors& tensors, OwnedBatch& batch) {
    std::ostringstream text;
    const std::string value = std::isnan(diagnostic.value) ? "nan" : diagnostic.value > 0 ? "inf" : "-inf";
    text << "the " << diagnostic.what << " is " << value << " at step " << diagnostic.step << "; ";
    std::string tensor = "unknown";
    if (diagnostic.origin) {
        tensor = diagnostic.origin->tensor;
        text << "the first tensor that is not finite is '" << tensor << "'";
        if (diagnostic.origin->layer >= 0) text << " in layer " << diagnostic.origin->layer;
    } else {
        text << "every tensor of its last batch is finite when computed again, so it overflowed in the sum";
    }
    const std::filesystem::path place = folder.diagnostic(diagnostic.step);
    try {
        state.data.position = diagnostic.position;
        const std::filesystem::path saved = save_checkpoint(place, std::move(state), tensors, 1);
        std::vector<StoredTensor> stored_batch{stored("tokens", std::span(batch.tokens)),
                                               stored("targets", std::span(batch.targets))};
        write_safetensors(place / "batch.safetensors", stored_batch, {});
        nlohmann::json out = {{"step", diagnostic.step},
                              {"what", diagnostic.what},
                              {"value", value},
                              {"tensor", tensor},
                              {"layer", diagnostic.origin ? diagnostic.origin->layer : -1},
                              {"checkpoint", saved.filename().string()},
                              {"sequences", batch.sequences},
                              {"length", batch.length}};
        write_in_place(place / "diagnostic.json", out.dump(2) + "\n");
        text << "; the weights that it was computed with and the batch are in '" << place.string() << "'";
    } catch (const Error& error) {
        text << "; the diagnostic could not be saved: " << error.what();
    }
    if (const auto newest = newest_checkpoint(folder.checkpoints()))
        text << "; the last checkpoint is '" << newest->string() << "': a lower --learning-rate may get past this step";
    return text.str();
}

}  // namespace octet::train
