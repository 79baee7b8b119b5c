#include "tensors.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
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
    // Strides of no elements mean nothing, and torch leaves them as they come: the gradient of a sum has zeros.
    if (tensor.numel() == 0) {
        std::int64_t step = 1;
        for (std::size_t axis = shape.size(); axis-- > 0; step *= std::max<std::int64_t>(extents.shape[axis], 1))
            extents.strides[axis] = step;
    }
    return extents;
}

Shape contiguous_strides(const Shape& shape) {
    Shape strides = shape;
    std::int64_t step = 1;
    for (std::size_t axis = shape.size(); axis-- > 0;) {
        strides[axis] = step;
        step *= std::max<std::int64_t>(shape[axis], 1);
    }
    return strides;
}

std::int64_t elements_of(const Shape& shape) {
    return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

Tensor allocate_number(const Tensor& like, std::int32_t dtype, std::int64_t element_bytes, const Shape& shape,
                       const Shape& strides, Contents contents) {
    std::int32_t device_type = 0;
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(like.get(), &device_type));
    AtenTensorHandle handle = nullptr;
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(static_cast<std::int64_t>(shape.size()), shape.data(),
                                                           strides.data(), dtype, device_type, like.get_device_index(),
                                                           &handle));
    Tensor tensor(handle);
    const std::int64_t bytes = elements_of(shape) * element_bytes;
    if (contents == Contents::zeroed && bytes != 0 && tensor.is_cpu())
        std::memset(tensor.data_ptr(), 0, static_cast<std::size_t>(bytes));
    return tensor;
}

Extents extents_of(const Shape& shape, const Shape& strides) {
    Extents extents;
    extents.rank = static_cast<int>(shape.size());
    std::copy(shape.begin(), shape.end(), extents.shape.begin());
    std::copy(strides.begin(), strides.end(), extents.strides.begin());
    return extents;
}

}  // namespace

void* address_of(const Tensor& tensor) {
    static std::max_align_t nothing;
    void* const data = tensor.data_ptr();
    return data == nullptr && tensor.numel() == 0 ? &nothing : data;
}

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
    return {address_of(tensor), format_of(what, tensor), extents_of(what, tensor), device_of(tensor)};
}

Groups groups_of(const Tensor& ends) {
    require(dtype_number(ends) == aoti_torch_dtype_int32(), "the offsets are not int32; give offs.to(torch.int32)");
    require(ends.dim() == 1, "the offsets have ", ends.dim(), " axes, expected 1: the end of every group");
    require(ends.is_contiguous(), "the offsets are not contiguous; give offs.contiguous()");
    return {static_cast<const std::int32_t*>(ends.data_ptr()), ends.size(0), device_of(ends)};
}

Tensor allocate_strided(const Tensor& like, Format format, const Shape& shape, const Shape& strides,
                        Contents contents) {
    return allocate_number(like, dtype_number(format), bytes_of(format), shape, strides, contents);
}

Tensor allocate_bytes(const Tensor& like, const Shape& shape, const Shape& strides, Contents contents) {
    return allocate_number(like, aoti_torch_dtype_uint8(), 1, shape, strides, contents);
}

Tensor allocate_bytes(const Tensor& like, std::int64_t count) {
    return allocate_bytes(like, {count}, {1}, Contents::unset);
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

namespace {

QuantizedShape with_block_scales(const QuantizeOptions& options, const Shape& data, std::int64_t blocks,
                                 Device device) {
    const bool beside = options.scaling == Scaling::blockwise && device.kind != DeviceKind::cpu;
    const std::int64_t step = std::max<std::int64_t>(beside ? data[0] : blocks, 1);
    return {options, data, {data[0], blocks}, beside ? Shape{1, step} : Shape{step, 1}};
}

}  // namespace

QuantizedShape rows_shape(const QuantizeOptions& options, std::int64_t tokens, std::int64_t features, Device device) {
    const std::int64_t block = block_of(options.scaling);
    if (block == 0) return {options, {tokens, features}, {tokens}, {1}};
    return with_block_scales(options, {tokens, features}, ceil_div(features, block), device);
}

QuantizedShape columns_shape(const QuantizeOptions& options, std::int64_t tokens, std::int64_t features,
                             std::int64_t groups, std::int64_t alignment, Device device) {
    const std::int64_t block = block_of(options.scaling);
    require(alignment >= 1 && (block == 0 || alignment % block == 0), "groups were asked to start on multiples of ",
            alignment, ", expected a positive multiple of ", std::max<std::int64_t>(block, 1));
    const std::int64_t padded = padded_bound(tokens, groups, alignment);
    if (block == 0) return {options, {features, padded}, {groups, features}, {features, 1}};
    return with_block_scales(options, {features, padded}, padded / block, device);
}

QuantizedShape weights_shape(const QuantizeOptions& options, std::int64_t experts, std::int64_t rows,
                             std::int64_t reduction) {
    const std::int64_t block = block_of(options.scaling);
    Shape scale = {experts, rows};
    if (options.scaling == Scaling::blockwise) scale = {experts, ceil_div(rows, block), ceil_div(reduction, block)};
    if (options.scaling == Scaling::mx) scale = {experts, rows, ceil_div(reduction, block)};
    return {options, {experts, rows, reduction}, scale, contiguous_strides(scale)};
}

namespace {

Shape with_gaps(const QuantizedShape& shape) {
    Shape whole = shape.data;
    if (shape.pitch != 0) whole[whole.size() - 1] = shape.pitch;
    return whole;
}

}  // namespace

Shape QuantizedShape::data_strides() const { return contiguous_strides(with_gaps(*this)); }
std::size_t QuantizedShape::data_bytes() const { return static_cast<std::size_t>(elements_of(with_gaps(*this))); }

QuantizedTensors::QuantizedTensors(const Tensor& like, const QuantizedShape& shape, Contents contents)
    : data(allocate(like, shape.options.format, shape.data, contents)),
      scale(allocate_strided(like, shape.scale_format(), shape.scale, shape.scale_strides, contents)),
      inverse(shape.options.scaling == Scaling::mx
                  ? allocate(like, Format::f32, {0})
                  : allocate_strided(like, Format::f32, shape.scale, shape.scale_strides, contents)),
      has_inverse(shape.options.scaling != Scaling::mx) {}

QuantizedView QuantizedTensors::view() const {
    return {view_of("data", data), view_of("scale", scale), has_inverse ? view_of("inverse", inverse) : TensorView{}};
}

QuantizedView view_at(const QuantizedShape& shape, void* data, void* scale, Device device) {
    const TensorView elements(data, shape.options.format, extents_of(shape.data, shape.data_strides()), device);
    const TensorView scales(scale, shape.scale_format(), extents_of(shape.scale, shape.scale_strides), device);
    if (shape.options.scaling == Scaling::mx) return {elements, scales, {}};
    return {elements, {}, scales};
}

TensorView view_of_bytes(const Tensor& tensor, Format format) {
    require(dtype_number(tensor) == aoti_torch_dtype_uint8(), "what was kept of a product is not bytes");
    return {address_of(tensor), format, extents_of("what was kept", tensor), device_of(tensor)};
}

Operand operand_of(const char* what, const Tensor& data, const std::optional<Tensor>& scale, Scaling scaling) {
    const TensorView elements = view_of(what, data);
    if (!scale.has_value()) return Operand(elements);
    const TensorView scales = view_of(what, *scale);
    if (scaling == Scaling::mx) return {ConstQuantizedView(elements, scales, {}), scaling};
    return {ConstQuantizedView(elements, {}, scales), scaling};
}

Call::Call(const Tensor& tensor, std::size_t memory_bytes) {
    if (tensor.is_cuda()) {
        const std::int32_t device = tensor.get_device_index();
        guard_.emplace(device);
        require(aoti_torch_get_current_cuda_stream != nullptr, "this torch has no CUDA streams");
        STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &on_.stream));
    } else {
        on_.threads = static_cast<int>(::torch::stable::get_num_threads());  // as torch.set_num_threads says
    }
    if (memory_bytes == 0) return;
    const bool gpu = tensor.is_cuda();  // whose allocator aligns by itself
    memory_ = allocate_bytes(tensor, static_cast<std::int64_t>(memory_bytes + (gpu ? 0 : memory_alignment)));
    next_ = static_cast<std::byte*>(memory_->data_ptr());
    next_ += aligned(reinterpret_cast<std::uintptr_t>(next_)) - reinterpret_cast<std::uintptr_t>(next_);
}

void* Call::take(std::size_t bytes) {
    void* const here = next_;
    next_ += aligned(bytes);
    return here;
}

void Call::take_workspace(std::size_t bytes) {
    if (bytes == 0) return;
    on_.workspace = take(bytes);
    on_.workspace_bytes = bytes;
}

std::size_t bytes_of(const QuantizedShape& shape) {
    // At least one byte each: a tensor of no elements has an address too.
    const auto scale = static_cast<std::size_t>(elements_of(shape.scale) * bytes_of(shape.scale_format()));
    return aligned(std::max<std::size_t>(shape.data_bytes(), 1)) + aligned(std::max<std::size_t>(scale, 1));
}

QuantizedView take(Call& call, const QuantizedShape& shape, Device device) {
    void* const data = call.take(std::max<std::size_t>(shape.data_bytes(), 1));
    const std::int64_t scale = elements_of(shape.scale) * bytes_of(shape.scale_format());
    return view_at(shape, data, call.take(std::max<std::size_t>(static_cast<std::size_t>(scale), 1)), device);
}

}  // namespace octet::torch_binding
