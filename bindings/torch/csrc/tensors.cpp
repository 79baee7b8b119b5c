#include "tensors.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "octet/error.hpp"

// Weak: a torch without CUDA does not have it, and then no tensor is on a GPU.
extern "C" __attribute__((weak)) AOTITorchError aoti_torch_get_current_cuda_stream(std::int32_t device, void** stream);

namespace octet::torch_binding {
namespace {

// Stored in torch's own numbers, which are part of its stable interface. e8m0 has had its number since torch 2.7, and a
// function that tells it only since 2.11.
constexpr std::int32_t e8m0_dtype = 44;

std::int32_t dtype_number(const Tensor& tensor) {
    std::int32_t dtype = 0;
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(tensor.get(), &dtype));
    return dtype;
}

std::int32_t dtype_number(Format format) {
    switch (format) {
        case Format::f32: return aoti_torch_dtype_float32();
        case Format::bf16: return aoti_torch_dtype_bfloat16();
        case Format::e4m3: return aoti_torch_dtype_float8_e4m3fn();
        case Format::e4m3fnuz: return aoti_torch_dtype_float8_e4m3fnuz();
        case Format::e5m2: return aoti_torch_dtype_float8_e5m2();
        case Format::e8m0: return e8m0_dtype;
    }
    fail(Status::internal, "a tensor of an unknown format was asked for");
}

Extents extents_of(const char* what, const Tensor& tensor) {
    Extents extents;
    extents.rank = static_cast<int>(tensor.dim());
    require(extents.rank >= 1 && extents.rank <= Extents::max_rank, what, " has ", extents.rank,
            " axes, expected 1 to ", Extents::max_rank);
    const auto shape = tensor.sizes(), strides = tensor.strides();
    std::copy(shape.begin(), shape.end(), extents.shape.begin());
    std::copy(strides.begin(), strides.end(), extents.strides.begin());
    return extents;
}

Shape contiguous_strides(const Shape& shape) {
    Shape strides(shape.size(), 1);
    for (std::size_t axis = shape.size(); axis-- > 1;)
        strides[axis - 1] = strides[axis] * std::max<std::int64_t>(shape[axis], 1);
    return strides;
}

// Data and scales of the given shapes; `contents` is for operands along tokens, whose end no group may reach.
QuantizedTensors quantized_like(const Tensor& like, const QuantizeOptions& options, const Shape& data,
                                const Shape& scales, Scales wanted, Contents contents) {
    QuantizedTensors out;
    out.scaling = options.scaling;
    const bool mx = options.scaling == Scaling::mx;
    out.has_scale = mx || wanted == Scales::both;
    out.has_inverse = !mx;
    const auto scales_or_none = [&](bool made, Format format) {
        if (made) return allocate(like, format, scales, contents);
        return wanted == Scales::both ? allocate(like, format, {0}) : Tensor();
    };
    out.data = allocate(like, options.format, data, contents);
    out.scale = scales_or_none(out.has_scale, mx ? Format::e8m0 : Format::f32);
    out.inverse = scales_or_none(out.has_inverse, Format::f32);
    return out;
}

}  // namespace

Device device_of(const Tensor& tensor) {
    if (tensor.is_cpu()) return {};
    if (tensor.is_cuda()) return {DeviceKind::cuda, tensor.get_device_index()};
    fail(Status::unsupported, "a tensor is on a device that Octet does not know; expected the CPU or CUDA");
}

Format format_of(const char* what, const Tensor& tensor) {
    const std::int32_t dtype = dtype_number(tensor);
    for (const Format format : {Format::bf16, Format::f32, Format::e4m3, Format::e4m3fnuz, Format::e5m2, Format::e8m0})
        if (dtype == dtype_number(format)) return format;
    fail(Status::invalid_argument, what, " has a dtype that Octet does not have; expected bfloat16, float32, ",
         "float8_e4m3fn, float8_e4m3fnuz, float8_e5m2 or, for mx scales, float8_e8m0fnu");
}

TensorView view_of(const char* what, const Tensor& tensor) {
    void* data = tensor.data_ptr();
    // torch gives a tensor of no elements no memory; Octet's checks read a null pointer as a tensor that is missing.
    static std::max_align_t nothing;
    if (data == nullptr && tensor.numel() == 0) data = &nothing;
    return {data, format_of(what, tensor), extents_of(what, tensor), device_of(tensor)};
}

Groups groups_of(const Tensor& ends) {
    require(dtype_number(ends) == aoti_torch_dtype_int32(), "the offsets are not int32; give offs.to(torch.int32)");
    require(ends.dim() == 1, "the offsets have ", ends.dim(), " axes, expected 1: the end of every group");
    require(ends.is_contiguous(), "the offsets are not contiguous; give offs.contiguous()");
    return {static_cast<const std::int32_t*>(ends.data_ptr()), ends.size(0), device_of(ends)};
}

Tensor allocate_strided(const Tensor& like, Format format, const Shape& shape, const Shape& strides,
                        Contents contents) {
    std::int32_t device_type = 0;
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(like.get(), &device_type));
    AtenTensorHandle handle = nullptr;
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(static_cast<std::int64_t>(shape.size()), shape.data(),
                                                           strides.data(), dtype_number(format), device_type,
                                                           like.get_device_index(), &handle));
    Tensor tensor(handle);
    if (contents == Contents::zeroed && tensor.is_cpu() && tensor.numel() != 0)
        std::memset(tensor.data_ptr(), 0, static_cast<std::size_t>(tensor.numel() * bytes_of(format)));
    return tensor;
}

Tensor allocate(const Tensor& like, Format format, const Shape& shape, Contents contents) {
    return allocate_strided(like, format, shape, contiguous_strides(shape), contents);
}

Tensor with_dense_rows(const Tensor& tensor) {
    const std::int64_t rank = tensor.dim();
    if (rank < 2 || tensor.numel() == 0) return ::torch::stable::contiguous(tensor);
    bool dense = tensor.size(rank - 1) == 1 || tensor.stride(rank - 1) == 1;
    std::int64_t least = tensor.size(rank - 1);
    for (std::int64_t axis = rank - 2; axis >= 0; --axis) {
        dense = dense && (tensor.size(axis) == 1 || tensor.stride(axis) >= least);
        least = std::max(least, tensor.stride(axis) * tensor.size(axis));
    }
    return dense ? tensor : ::torch::stable::contiguous(tensor);
}

QuantizeOptions options_of(const std::string& scaling, const std::string& format, const std::string& scale_rounding,
                           const std::string& mx_mode) {
    return {parse_scaling(scaling), parse_format(format), parse_scale_rounding(scale_rounding), parse_mx_mode(mx_mode)};
}

QuantizedView QuantizedTensors::view() const {
    return {view_of("data", data), has_scale ? view_of("scale", scale) : TensorView{},
            has_inverse ? view_of("inverse", inverse) : TensorView{}};
}

QuantizedTensors rows_like(const Tensor& x, const QuantizeOptions& options, Scales scales) {
    require(x.dim() == 2, "x has ", x.dim(), " axes, expected 2: [tokens, features]");
    const std::int64_t tokens = x.size(0), features = x.size(1), block = block_of(options.scaling);
    const Shape scale_shape = block == 0 ? Shape{tokens} : Shape{tokens, ceil_div(features, block)};
    return quantized_like(x, options, {tokens, features}, scale_shape, scales, Contents::unset);
}

QuantizedTensors columns_like(const Tensor& x, std::int64_t tokens, std::int64_t features, std::int64_t groups,
                              std::int64_t alignment, const QuantizeOptions& options, Scales scales) {
    const std::int64_t block = block_of(options.scaling);
    require(alignment >= 1 && (block == 0 || alignment % block == 0), "groups were asked to start on multiples of ",
            alignment, ", expected a positive multiple of ", std::max<std::int64_t>(block, 1));
    const std::int64_t padded = padded_bound(tokens, groups, alignment);
    const Shape scale_shape = block == 0 ? Shape{groups, features} : Shape{features, padded / block};
    return quantized_like(x, options, {features, padded}, scale_shape, scales, Contents::zeroed);
}

QuantizedTensors weights_like(const Tensor& w, std::int64_t rows, std::int64_t reduction,
                              const QuantizeOptions& options, Scales scales) {
    const std::int64_t experts = w.size(0), block = block_of(options.scaling);
    Shape scale_shape = {experts, rows};
    if (options.scaling == Scaling::blockwise)
        scale_shape = {experts, ceil_div(rows, block), ceil_div(reduction, block)};
    if (options.scaling == Scaling::mx) scale_shape = {experts, rows, ceil_div(reduction, block)};
    return quantized_like(w, options, {experts, rows, reduction}, scale_shape, scales, Contents::unset);
}

Tensor as_bytes(const Tensor& tensor) {
    std::array<StableIValue, 2> stack{::torch::stable::detail::from(tensor),
                                      ::torch::stable::detail::from(::torch::headeronly::ScalarType::Byte)};
    STABLE_TORCH_ERROR_CODE_CHECK(torch_call_dispatcher("aten::view", "dtype", stack.data(), TORCH_ABI_VERSION));
    return ::torch::stable::detail::to<Tensor>(stack[0]);
}

TensorView view_of_bytes(const Tensor& tensor, Format format) {
    require(dtype_number(tensor) == aoti_torch_dtype_uint8(), "what was kept of a product is not bytes");
    return {tensor.data_ptr(), format, extents_of("what was kept", tensor), device_of(tensor)};
}

Operand operand_of(const char* what, const Tensor& data, const std::optional<Tensor>& scale, Scaling scaling) {
    const TensorView elements = view_of(what, data);
    if (!scale.has_value()) return Operand(elements);
    const TensorView scales = view_of(what, *scale);
    if (scaling == Scaling::mx) return {ConstQuantizedView(elements, scales, {}), scaling};
    return {ConstQuantizedView(elements, {}, scales), scaling};
}

Call::Call(const Tensor& tensor, std::size_t workspace_bytes) {
    if (!tensor.is_cuda()) {
        on_.threads = static_cast<int>(::torch::stable::get_num_threads());  // as torch.set_num_threads says
        return;
    }
    const std::int32_t device = tensor.get_device_index();
    guard_.emplace(device);
    require(aoti_torch_get_current_cuda_stream != nullptr, "this torch has no CUDA streams");
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &on_.stream));
    if (workspace_bytes == 0) return;
    workspace_ = allocate(tensor, Format::e8m0, {static_cast<std::int64_t>(workspace_bytes)});
    on_.workspace = workspace_->data_ptr();
    on_.workspace_bytes = workspace_bytes;
}

}  // namespace octet::torch_binding
