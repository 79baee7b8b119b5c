// Recipes, quantize options and execution at the C ABI.
#include <string>

#include "capi/guard.hpp"
#include "capi/handles.hpp"
#include "capi/text.hpp"

using namespace octet;
using namespace octet::capi;

static_assert(OCTET_BACKEND_AUTOMATIC == static_cast<int>(Backend::automatic) &&
              OCTET_BACKEND_REFERENCE == static_cast<int>(Backend::reference) &&
              OCTET_BACKEND_CPU == static_cast<int>(Backend::cpu) &&
              OCTET_BACKEND_CUDA == static_cast<int>(Backend::cuda) &&
              OCTET_BACKEND_HIP == static_cast<int>(Backend::hip));

namespace {

[[noreturn]] void unknown_option(std::string_view name) {
    fail(Status::invalid_argument, "unknown quantize option '", name,
         "'; known: scaling, format, scale_rounding, mx_mode");
}

void set_option(QuantizeOptions& options, std::string_view name, std::string_view value) {
    if (name == "scaling") {
        options.scaling = parse_scaling(value);
    } else if (name == "format") {
        const Format format = parse_format(value);
        require(is_fp8(format), "format is '", value, "', expected an 8-bit element format: e4m3, e4m3fnuz or e5m2");
        options.format = format;
    } else if (name == "scale_rounding") {
        options.scale_rounding = parse_scale_rounding(value);
    } else if (name == "mx_mode") {
        options.mx_mode = parse_mx_mode(value);
    } else {
        unknown_option(name);
    }
}

std::string_view get_option(const QuantizeOptions& options, std::string_view option) {
    if (option == "scaling") return name(options.scaling);
    if (option == "format") return name(options.format);
    if (option == "scale_rounding") return name(options.scale_rounding);
    if (option == "mx_mode") return name(options.mx_mode);
    unknown_option(option);
}

}  // namespace

extern "C" {

octet_status octet_recipe_parse(const char* text, octet_recipe** recipe) {
    return guarded(__func__, [&] {
        auto& out = checked_pointer(recipe, "recipe");
        out = new octet_recipe{{}, parse_recipe(checked_text(text, "text"))};
    });
}

void octet_recipe_destroy(octet_recipe* recipe) { destroy(__func__, recipe); }

octet_status octet_recipe_print(const octet_recipe* recipe, char* buffer, size_t capacity, size_t* needed) {
    return guarded(__func__, [&] { print(to_string(checked(recipe, "recipe").recipe), buffer, capacity, needed); });
}

octet_status octet_quantize_options_create(octet_quantize_options** options) {
    return guarded(__func__, [&] {
        auto& out = checked_pointer(options, "options");
        out = new octet_quantize_options{};
    });
}

octet_status octet_quantize_options_from_recipe(const octet_recipe* recipe, octet_role role,
                                                octet_quantize_options** options) {
    return guarded(__func__, [&] {
        auto& out = checked_pointer(options, "options");
        const Recipe& of = checked(recipe, "recipe").recipe;
        const bool gradient = checked_enum<octet_role>(role, 3, "role") == OCTET_ROLE_GRADIENT;
        const QuantizeOptions made{of.scaling(), gradient ? of.gradient_format : of.format, of.scale_rounding,
                                   of.mx_mode};
        out = new octet_quantize_options{{}, made};
    });
}

octet_status octet_quantize_options_set(octet_quantize_options* options, const char* name, const char* value) {
    return guarded(__func__, [&] {
        set_option(checked(options, "options").options, checked_text(name, "name"), checked_text(value, "value"));
    });
}

octet_status octet_quantize_options_get(const octet_quantize_options* options, const char* name, char* buffer,
                                        size_t capacity, size_t* needed) {
    return guarded(__func__, [&] {
        print(get_option(checked(options, "options").options, checked_text(name, "name")), buffer, capacity, needed);
    });
}

void octet_quantize_options_destroy(octet_quantize_options* options) { destroy(__func__, options); }

octet_status octet_execution_create(octet_execution** execution) {
    return guarded(__func__, [&] {
        auto& out = checked_pointer(execution, "execution");
        out = new octet_execution{};
    });
}

octet_status octet_execution_set_backend(octet_execution* execution, octet_backend backend) {
    return guarded(__func__, [&] {
        checked(execution, "execution").execution.backend = checked_enum<Backend>(backend, 5, "backend");
    });
}

octet_status octet_execution_set_threads(octet_execution* execution, int32_t threads) {
    return guarded(__func__, [&] {
        auto& on = checked(execution, "execution").execution;
        require(threads >= 0, "threads is ", threads, ", expected 0 (every core) or more");
        on.threads = threads;
    });
}

octet_status octet_execution_set_stream(octet_execution* execution, void* stream) {
    return guarded(__func__, [&] { checked(execution, "execution").execution.stream = stream; });
}

octet_status octet_execution_set_workspace(octet_execution* execution, void* memory, size_t bytes) {
    return guarded(__func__, [&] {
        auto& on = checked(execution, "execution").execution;
        require(memory != nullptr || bytes == 0, "memory is NULL with ", bytes, " bytes, expected memory or 0 bytes");
        on.workspace = memory;
        on.workspace_bytes = bytes;
    });
}

void octet_execution_destroy(octet_execution* execution) { destroy(__func__, execution); }

}  // extern "C"
