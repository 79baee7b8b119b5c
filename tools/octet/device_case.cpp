#include "device_case.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "bench_shapes.hpp"
#include "octet/activation.hpp"
#include "octet/permute.hpp"

namespace octet::tool {
namespace {

constexpr std::int64_t alignment = 128, top_k = 8;

double bytes_of_elements(std::int64_t elements, double bytes_each) {
    return static_cast<double>(elements) * bytes_each;
}

std::string recipe_of(Scaling scaling) {
    return scaling == Scaling::mx ? "mxfp8" : "fp8_" + std::string(name(scaling));
}

}  // namespace

DeviceMemory& DeviceShape::take(std::size_t bytes) {
    memory_.push_back(std::make_unique<DeviceMemory>(device_, std::max<std::size_t>(bytes, 16)));
    return *memory_.back();
}

std::vector<std::string> device_op_names() {
    return {"rows",
            "columns",
            "columns_dual",
            "transposed",
            "pair",
            "weights_along_k",
            "weights_along_n",
            "weights_both",
            "permute",
            "combine",
            "combine_backward",
            "swiglu",
            "swiglu_backward",
            "swiglu_quantize",
            "swiglu_quantize_pair",
            "swiglu_backward_quantize",
            "swiglu_backward_quantize_pair"};
}

DeviceShape::DeviceShape(DeviceStopwatch& stopwatch, Device device, const bench_cases::ProductShape& shape)
    : device_(device), shape_(shape), stopwatch_(stopwatch) {
    const auto [name, what, m, n, k, e] = shape;
    const auto fill = [&](std::int64_t elements, std::uint32_t seed) {
        DeviceMemory& memory = take(static_cast<std::size_t>(elements) * 2);
        stopwatch.fill_normal(memory.data(), elements, seed);
        return &memory;
    };
    a_ = fill(m * k, 1);
    dy_ = fill(m * n, 2);
    w_ = fill(e * n * k, 3);
    std::vector<std::int32_t> ends = split_ends("uneven", m, e);
    for (auto& end : ends) end = end / 16 * 16;
    ends.back() = static_cast<std::int32_t>(m);
    ends_ = &take(ends.size() * 4);
    ends_->upload(ends.data(), ends.size() * 4);

    std::vector<std::int32_t> lists(static_cast<std::size_t>(2 * m));  // row_of_slot, then slot_of_row
    std::iota(lists.begin(), lists.begin() + m, 0);
    std::shuffle(lists.begin(), lists.begin() + m, std::mt19937_64(1));
    for (std::int64_t slot = 0; slot < m; ++slot)
        lists[static_cast<std::size_t>(m + lists[static_cast<std::size_t>(slot)])] = static_cast<std::int32_t>(slot);
    lists_ = &take(lists.size() * 4);
    lists_->upload(lists.data(), lists.size() * 4);
    std::vector<float> floats(static_cast<std::size_t>(2 * m), 0.75f);  // weights, then their gradients
    floats_ = &take(floats.size() * 4);
    floats_->upload(floats.data(), floats.size() * 4);

    const std::int64_t padded = padded_bound(m, e, alignment), widest = std::max(n, k);
    const std::int64_t data = std::max({padded * widest, e * n * k, m * widest * 2});
    const std::int64_t scales = std::max({ceil_div(padded, 32) * widest, e * std::max(n, k) * ceil_div(widest, 32),
                                          e * widest, m * ceil_div(widest, 32)});
    for (int i = 0; i < 2; ++i) {
        data_[i] = &take(static_cast<std::size_t>(data));
        scale_[i] = &take(static_cast<std::size_t>(scales) * 4);
        inverse_[i] = &take(static_cast<std::size_t>(scales) * 4);
    }
    workspace_ = &take(std::max({token_workspace_bytes(device, m, n + k, e), weight_workspace_bytes(device, e, n, k),
                                 swiglu_workspace_bytes(device, Format::bf16, m, n, e)}));
    QuantizeOptions options;
    add_quantizers(options);
    options.scaling = Scaling::mx;
    add_quantizers(options);
    options.scaling = Scaling::blockwise;
    options.scale_rounding = ScaleRounding::exact;
    add_quantizers(options);
    add_tokens();
}

Execution DeviceShape::execution() const {
    Execution on;
    on.stream = stopwatch_.stream();
    on.workspace = workspace_->data();
    on.workspace_bytes = workspace_->bytes();
    return on;
}

TensorView DeviceShape::bf16(DeviceMemory& memory, Extents extents) const {
    return {memory.data(), Format::bf16, extents, device_};
}

QuantizedView DeviceShape::quantized(int which, const QuantizeOptions& options, Extents data, Extents scale) const {
    const bool mx = options.scaling == Scaling::mx, blockwise = options.scaling == Scaling::blockwise;
    QuantizedView view;
    view.data = {data_[which]->data(), options.format, data, device_};
    if (!blockwise) view.scale = {scale_[which]->data(), mx ? Format::e8m0 : Format::f32, scale, device_};
    if (!mx) view.inverse = {inverse_[which]->data(), Format::f32, scale, device_};
    return view;  // blockwise products read the inverse alone
}

void DeviceShape::add_quantizers(const QuantizeOptions& options) {
    const std::int64_t m = shape_.m, n = shape_.n, k = shape_.k, e = shape_.e;
    const std::int64_t block = block_of(options.scaling), padded = padded_bound(m, e, alignment);
    const bool rowwise = options.scaling == Scaling::rowwise;
    const std::string recipe = recipe_of(options.scaling), scaling = ":" + std::string(name(options.scaling));
    // Bytes of a scale for each element: rowwise ones are too few to count.
    const double scale_bytes = rowwise ? 0.0 : options.scaling == Scaling::mx ? 1.0 / 32 : 4.0 / 128;
    const double square_bytes = options.scaling == Scaling::blockwise ? 0.0 : scale_bytes;
    const Groups groups{static_cast<const std::int32_t*>(ends_->data()), e, device_};
    const ConstTensorView a = bf16(*a_, {m, k}), dy = bf16(*dy_, {m, n}), dyt = bf16(*dy_, {n, m}),
                          w = bf16(*w_, {e, n, k});
    const auto rows = quantized(0, options, {m, k}, rowwise ? Extents{m} : Extents{m, ceil_div(k, block)});
    const auto tokens = [&](int which, std::int64_t features) {
        return quantized(which, options, {features, padded},
                         rowwise ? Extents{e, features} : Extents{features, padded / block});
    };
    const auto weights = [&](int which, std::int64_t r, std::int64_t c) {
        return quantized(which, options, {e, r, c},
                         rowwise                          ? Extents{e, r}
                         : options.scaling == Scaling::mx ? Extents{e, r, ceil_div(c, block)}
                                                          : Extents{e, ceil_div(r, block), ceil_div(c, block)});
    };
    const QuantizedView columns = tokens(1, k), dy_columns = tokens(0, n), along_k = weights(0, n, k),
                        along_n = weights(1, k, n);
    const auto add = [&](const char* op, std::int64_t features, double bytes, std::function<void(const Execution&)> f) {
        const bool grouped = op != std::string("rows");
        cases_.push_back({op, recipe, op + scaling, m, features, grouped ? e : 1, bytes, std::move(f)});
    };
    add("rows", k, bytes_of_elements(m * k, 3 + scale_bytes),
        [=](const Execution& on) { quantize_rows(a, options, rows, on); });
    add("columns", k, bytes_of_elements(m * k, 3 + scale_bytes),
        [=](const Execution& on) { quantize_columns(a, groups, alignment, options, columns, on); });
    if (rowwise) {
        add("columns_dual", n + k, bytes_of_elements(m * (n + k), 3), [=](const Execution& on) {
            quantize_columns_dual(dy, a, groups, alignment, options, dy_columns, columns, on);
        });
        add("transposed", n, bytes_of_elements(m * n, 3),
            [=](const Execution& on) { quantize_transposed(dyt, groups, alignment, options, dy_columns, on); });
    }
    add("pair", k, bytes_of_elements(m * k, 4 + 2 * scale_bytes),
        [=](const Execution& on) { quantize_pair(a, groups, alignment, options, rows, columns, on); });
    if (rowwise) {
        add("weights_along_k", k, bytes_of_elements(e * n * k, 3),
            [=](const Execution& on) { quantize_weights(w, options, along_k, {}, on); });
        add("weights_along_n", k, bytes_of_elements(e * n * k, 3),
            [=](const Execution& on) { quantize_weights(w, options, {}, along_n, on); });
    }
    add("weights_both", k, bytes_of_elements(e * n * k, 4 + 2 * square_bytes),
        [=](const Execution& on) { quantize_weights(w, options, along_k, along_n, on); });
    for (DeviceCase& c : cases_)
        if (c.op.rfind("weights", 0) == 0) c.tokens = n;
}

// gate_up is [M, N], so H = N / 2; tokens are M / 8 with K features.
void DeviceShape::add_tokens() {
    const std::int64_t m = shape_.m, n = shape_.n, k = shape_.k, e = shape_.e, h = n / 2, t = m / top_k;
    const std::int64_t padded = padded_bound(m, e, alignment);
    const Groups groups{static_cast<const std::int32_t*>(ends_->data()), e, device_};
    const TokenOrder order{t,
                           top_k,
                           t * top_k,
                           static_cast<const std::int32_t*>(lists_->data()),
                           static_cast<const std::int32_t*>(lists_->data()) + m,
                           device_};
    const float* weights = static_cast<const float*>(floats_->data());
    float* gradients = static_cast<float*>(floats_->data()) + m;
    const auto plain = [&](int which, Extents extents) {
        return TensorView(data_[which]->data(), Format::bf16, extents, device_);
    };
    const auto add = [&](const char* op, const char* recipe, const char* tuned_as, std::int64_t features, double bytes,
                         std::function<void(const Execution&)> f) {
        cases_.push_back({op, recipe, tuned_as, m, features, 1, bytes, std::move(f)});
    };
    const ConstTensorView rows = bf16(*a_, {t * top_k, k}), tokens = bf16(*a_, {t, k}), dy = bf16(*dy_, {t, k});
    const ConstTensorView gate_up = bf16(*dy_, {m, n}), ds = bf16(*a_, {m, h});
    const TensorView out_rows = plain(0, {t * top_k, k}), out_tokens = plain(0, {t, k});
    add("permute", "bf16", "", k, bytes_of_elements(t * k, 2) + bytes_of_elements(m * k, 2),
        [=](const Execution& on) { permute_tokens(order, tokens, out_rows, on); });
    add("combine", "bf16", "", k, bytes_of_elements(t * k, 2) + bytes_of_elements(m * k, 2),
        [=](const Execution& on) { combine_tokens(order, rows, weights, {}, out_tokens, on); });
    add("combine_backward", "bf16", "", k, bytes_of_elements(t * k, 2) + bytes_of_elements(m * k, 4),
        [=](const Execution& on) { combine_tokens_backward(order, dy, rows, weights, out_rows, gradients, on); });
    const TensorView s = plain(0, {m, h}), dgate_up = plain(0, {m, n});
    add("swiglu", "bf16", "", h, bytes_of_elements(m * h, 6),
        [=](const Execution& on) { swiglu(gate_up, weights, s, on); });
    add("swiglu_backward", "bf16", "", n, bytes_of_elements(m * h, 10),
        [=](const Execution& on) { swiglu_backward(gate_up, weights, ds, dgate_up, gradients, on); });
    const QuantizeOptions options;
    const QuantizedView s_rows = quantized(0, options, {m, h}, {m}),
                        s_columns = quantized(1, options, {h, padded}, {e, h});
    const QuantizedView d_rows = quantized(0, options, {m, n}, {m}),
                        d_columns = quantized(1, options, {n, padded}, {e, n});
    add("swiglu_quantize", "fp8_rowwise", "swiglu_quantize:rowwise", h, bytes_of_elements(m * h, 5),
        [=](const Execution& on) { swiglu_quantize(gate_up, weights, groups, alignment, options, s_rows, {}, on); });
    add("swiglu_quantize_pair", "fp8_rowwise", "", h, bytes_of_elements(m * h, 6), [=](const Execution& on) {
        swiglu_quantize(gate_up, weights, groups, alignment, options, s_rows, s_columns, on);
    });
    add("swiglu_backward_quantize", "fp8_rowwise", "swiglu_backward_quantize:rowwise", n, bytes_of_elements(m * h, 8),
        [=](const Execution& on) {
            swiglu_backward_quantize(gate_up, weights, ds, groups, alignment, options, d_rows, {}, gradients, on);
        });
    add("swiglu_backward_quantize_pair", "fp8_rowwise", "", n, bytes_of_elements(m * h, 10), [=](const Execution& on) {
        swiglu_backward_quantize(gate_up, weights, ds, groups, alignment, options, d_rows, d_columns, gradients, on);
    });
}

}  // namespace octet::tool
