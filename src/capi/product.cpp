// Grouped products at the C ABI.
#include "octet/product.hpp"

#include "capi/guard.hpp"
#include "capi/handles.hpp"
#include "capi/text.hpp"

using namespace octet;
using namespace octet::capi;

namespace {

[[noreturn]] void unknown_option(std::string_view name) {
    fail(Status::invalid_argument, "unknown product option '", name, "'; known: update, accumulation");
}

[[noreturn]] void unknown_value(std::string_view name, std::string_view value, const char* known) {
    fail(Status::invalid_argument, name, " is '", value, "', expected ", known);
}

void set_option(ProductOptions& options, std::string_view name, std::string_view value) {
    if (name == "update") {
        if (value == "overwrite")
            options.update = Update::overwrite;
        else if (value == "add")
            options.update = Update::add;
        else
            unknown_value(name, value, "overwrite or add");
    } else if (name == "accumulation") {
        if (value == "promoted")
            options.accumulation = Accumulation::promoted;
        else if (value == "fast")
            options.accumulation = Accumulation::fast;
        else
            unknown_value(name, value, "promoted or fast");
    } else {
        unknown_option(name);
    }
}

std::string_view get_option(const ProductOptions& options, std::string_view option) {
    if (option == "update") return options.update == Update::add ? "add" : "overwrite";
    if (option == "accumulation") return name(options.accumulation);
    unknown_option(option);
}

const Operand& operand_of(const octet_operand* operand, const char* what) { return checked(operand, what).operand; }
Groups groups_of(const octet_groups* groups) { return checked(groups, "groups").groups; }
TensorView output_of(octet_tensor* tensor, const char* what) { return checked(tensor, what).view; }
ProductOptions options_of(const octet_product_options* options) {
    return options == nullptr ? ProductOptions{} : checked(options, "options").options;
}

}  // namespace

extern "C" {

octet_status octet_operand_create_plain(const octet_tensor* values, octet_operand** operand) {
    return guarded(__func__, [&] {
        auto& out = checked_pointer(operand, "operand");
        const TensorView& view = checked(values, "values").view;
        require(view.format == Format::f32 || view.format == Format::bf16, "values has format ", name(view.format),
                ", expected f32 or bf16; make an operand of 8-bit elements with octet_operand_create_quantized");
        out = new octet_operand(Operand(view));
    });
}

octet_status octet_operand_create_quantized(const octet_quantized* values, const char* scaling,
                                            octet_operand** operand) {
    return guarded(__func__, [&] {
        auto& out = checked_pointer(operand, "operand");
        const QuantizedView& view = checked(values, "values").view;
        require(is_fp8(view.data.format), "values has data of format ", name(view.data.format),
                ", expected e4m3, e4m3fnuz or e5m2");
        out = new octet_operand(Operand(view, parse_scaling(checked_text(scaling, "scaling"))));
    });
}

void octet_operand_destroy(octet_operand* operand) { destroy(__func__, operand); }

octet_status octet_product_options_create(octet_product_options** options) {
    return guarded(__func__, [&] {
        auto& out = checked_pointer(options, "options");
        out = new octet_product_options{};
    });
}

octet_status octet_product_options_set(octet_product_options* options, const char* name, const char* value) {
    return guarded(__func__, [&] {
        set_option(checked(options, "options").options, checked_text(name, "name"), checked_text(value, "value"));
    });
}

octet_status octet_product_options_get(const octet_product_options* options, const char* name, char* buffer,
                                       size_t capacity, size_t* needed) {
    return guarded(__func__, [&] {
        print(get_option(checked(options, "options").options, checked_text(name, "name")), buffer, capacity, needed);
    });
}

void octet_product_options_destroy(octet_product_options* options) { destroy(__func__, options); }

octet_status octet_grouped_forward(const octet_operand* a, const octet_operand* w, const octet_groups* groups,
                                   octet_tensor* y, const octet_product_options* options, const octet_execution* on) {
    return guarded(__func__, [&] {
        grouped_forward(operand_of(a, "a"), operand_of(w, "w"), groups_of(groups), output_of(y, "y"),
                        options_of(options), execution_of(on));
    });
}

octet_status octet_grouped_dgrad(const octet_operand* dy, const octet_operand* w, const octet_groups* groups,
                                 octet_tensor* da, const octet_product_options* options, const octet_execution* on) {
    return guarded(__func__, [&] {
        grouped_dgrad(operand_of(dy, "dy"), operand_of(w, "w"), groups_of(groups), output_of(da, "da"),
                      options_of(options), execution_of(on));
    });
}

octet_status octet_grouped_wgrad(const octet_operand* dy, const octet_operand* a, const octet_groups* groups,
                                 int64_t alignment, octet_tensor* dw, const octet_product_options* options,
                                 const octet_execution* on) {
    return guarded(__func__, [&] {
        grouped_wgrad(operand_of(dy, "dy"), operand_of(a, "a"), groups_of(groups), alignment, output_of(dw, "dw"),
                      options_of(options), execution_of(on));
    });
}

}  // extern "C"
