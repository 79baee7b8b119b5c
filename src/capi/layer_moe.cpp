// The Mixture-of-Experts layer at the C ABI.
#include <algorithm>
#include <charconv>
#include <string>

#include "capi/layer_handles.hpp"

using namespace octet;
using namespace octet::capi;

namespace {

template <class T>
T number(std::string_view name, std::string_view text) {
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    require(error == std::errc{} && end == text.data() + text.size(), "option ", name, " is '", text,
            "', expected a number");
    return value;
}

void set_option(MoeOptions& options, std::string_view name, std::string_view value) {
    RouterOptions& router = options.router;
    if (name == "hidden") {
        options.hidden = number<std::int64_t>(name, value);
    } else if (name == "expert_hidden") {
        options.expert_hidden = number<std::int64_t>(name, value);
    } else if (name == "shared_hidden") {
        options.shared_hidden = number<std::int64_t>(name, value);
    } else if (name == "experts") {
        router.experts = number<std::int64_t>(name, value);
    } else if (name == "top_k") {
        router.top_k = number<std::int64_t>(name, value);
    } else if (name == "score") {
        router.score = parse_router_score(value);
    } else if (name == "weights") {
        router.weights = parse_router_weights(value);
    } else if (name == "scaling") {
        router.scaling = number<float>(name, value);
    } else if (name == "balance") {
        router.balance = parse_router_balance(value);
    } else if (name == "balance_rate") {
        router.balance_rate = number<float>(name, value);
    } else if (name == "auxiliary_loss") {
        router.auxiliary_loss = number<float>(name, value);
    } else if (name == "activations") {
        options.activations = parse_format(value);
    } else if (name == "recipe") {
        options.recipe = parse_recipe(value);
    } else {
        fail(Status::invalid_argument, "unknown option '", name,
             "'; known: hidden, expert_hidden, shared_hidden, experts, top_k, score, weights, scaling, balance, "
             "balance_rate, auxiliary_loss, activations, recipe");
    }
}

}  // namespace

extern "C" {

octet_status octet_moe_options_create(octet_moe_options** options) {
    return guarded(__func__, [&] { checked_pointer(options, "options") = new octet_moe_options{}; });
}

octet_status octet_moe_options_set(octet_moe_options* options, const char* name, const char* value) {
    return guarded(__func__, [&] {
        set_option(checked(options, "options").options, checked_text(name, "name"), checked_text(value, "value"));
    });
}

void octet_moe_options_destroy(octet_moe_options* options) { destroy(__func__, options); }

octet_status octet_moe_layer_create(const octet_moe_options* options, octet_moe_layer** layer) {
    return guarded(__func__, [&] {
        auto& out = checked_pointer(layer, "layer");
        out = new octet_moe_layer(checked(options, "options").options);
    });
}

void octet_moe_layer_destroy(octet_moe_layer* layer) { destroy(__func__, layer); }

octet_status octet_moe_layer_parameter(octet_moe_layer* layer, const char* name, float** value, float** gradient,
                                       int64_t* elements) {
    return guarded(__func__, [&] {
        const Parameter parameter = checked(layer, "layer").layer.parameter(checked_text(name, "name"));
        if (value != nullptr) *value = static_cast<float*>(parameter.value.data);
        if (gradient != nullptr) *gradient = static_cast<float*>(parameter.gradient.data);
        if (elements != nullptr) *elements = parameter.value.extents.elements();
    });
}

octet_status octet_moe_layer_weights_changed(octet_moe_layer* layer) {
    return guarded(__func__, [&] { checked(layer, "layer").layer.weights_changed(); });
}

octet_status octet_moe_layer_zero_gradients(octet_moe_layer* layer) {
    return guarded(__func__, [&] { checked(layer, "layer").layer.zero_gradients(); });
}

octet_status octet_moe_layer_forward(octet_moe_layer* layer, const octet_tensor* x, octet_tensor* y,
                                     const octet_execution* on) {
    return guarded(__func__, [&] {
        auto& self = checked(layer, "layer");
        self.layer.forward(checked(x, "x").view, checked(y, "y").view, &self.kept, self.workspace, execution_of(on));
    });
}

octet_status octet_moe_layer_backward(octet_moe_layer* layer, const octet_tensor* dy, octet_tensor* dx,
                                      float auxiliary_scale, const octet_execution* on) {
    return guarded(__func__, [&] {
        auto& self = checked(layer, "layer");
        self.layer.backward(checked(dy, "dy").view, self.kept, checked(dx, "dx").view, auxiliary_scale, self.workspace,
                            execution_of(on));
    });
}

octet_status octet_moe_layer_auxiliary_loss(const octet_moe_layer* layer, float* loss) {
    return guarded(__func__,
                   [&] { checked_pointer(loss, "loss") = checked(layer, "layer").kept.router.auxiliary_loss(); });
}

octet_status octet_moe_layer_chosen(const octet_moe_layer* layer, int32_t* chosen, int64_t capacity) {
    return guarded(__func__, [&] {
        const Routing& routing = checked(layer, "layer").kept.router.routing();
        require(chosen != nullptr && capacity >= routing.rows(), "chosen holds ", chosen == nullptr ? 0 : capacity,
                " numbers, the last forward made ", routing.rows(), " choices");
        std::copy_n(routing.chosen, routing.rows(), chosen);
    });
}

octet_status octet_moe_layer_balance_bias(octet_moe_layer* layer, float** bias) {
    return guarded(__func__,
                   [&] { checked_pointer(bias, "bias") = checked(layer, "layer").layer.balance_bias().data(); });
}

octet_status octet_moe_layer_update_balance(octet_moe_layer* layer) {
    return guarded(__func__, [&] { checked(layer, "layer").layer.update_balance(); });
}

}  // extern "C"
