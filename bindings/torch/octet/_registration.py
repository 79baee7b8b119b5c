"""What torch.compile and autograd need to know of the operators: the shapes of their outputs, and their gradients."""
import torch
from torch.autograd import forward_ad

from . import _library  # noqa: F401  (the operators must be there)

FORMATS = {
    "f32": torch.float32,
    "bf16": torch.bfloat16,
    "e4m3": torch.float8_e4m3fn,
    "e4m3fnuz": torch.float8_e4m3fnuz,
    "e5m2": torch.float8_e5m2,
    "e8m0": torch.float8_e8m0fnu,
}
FORMAT_NAMES = {dtype: name for name, dtype in FORMATS.items()}
BLOCKS = {"rowwise": 0, "blockwise": 128, "mx": 32}
SCALINGS = {"fp8_rowwise": "rowwise", "fp8_blockwise": "blockwise", "mxfp8": "mx"}


def format_name(dtype):
    """Octet's name of a torch dtype, or of a format that is named already."""
    if isinstance(dtype, str):
        return dtype
    if dtype not in FORMAT_NAMES:
        known = ", ".join(str(known) for known in FORMAT_NAMES)
        raise ValueError(f"{dtype} was given, which Octet does not have; expected one of {known}")
    return FORMAT_NAMES[dtype]


def parse_recipe(text):
    """The name of a recipe and the options that follow it: 'fp8_rowwise:wgrad=bf16' -> ('fp8_rowwise', {'wgrad': 'bf16'})."""
    name, _, options = text.partition(":")
    return name, dict(option.split("=", 1) for option in options.split(",") if "=" in option)


def wgrad_in_8_bits(recipe):
    name, options = parse_recipe(recipe)
    return name != "bf16" and options.get("wgrad", "fp8") == "fp8"


def token_alignment(scaling, device):
    """Where each group of an operand along tokens starts."""
    return 128 if device.type != "cpu" else max(BLOCKS[scaling], 16)


def row_pitch(features, device):
    """Elements from row to row of an operand along features that products read."""
    aligned = ceil_div(features, 128) * 128
    return aligned if device.type != "cpu" and aligned - features <= features // 8 else features


def ceil_div(value, divisor):
    return (value + divisor - 1) // divisor


def padded_bound(tokens, groups, alignment):
    """The most columns that `groups` groups of `tokens` rows together take, each padded to `alignment`."""
    occupied = torch.sym_min(tokens, groups)
    return (tokens + occupied * (alignment - 1)) // alignment * alignment


_operators = []  # every one has a fake kernel


def _fake(name):
    _operators.append(name)
    return torch.library.register_fake(f"octet::{name}")


def _quantized(like, data, scales, scaling, format, tokens=True):
    """Empty data, scale and inverse, as the quantizers return them. A GPU's products read blockwise scales of tokens with those
    of one block beside each other."""
    mx = scaling == "mx"
    beside = tokens and scaling == "blockwise" and like.device.type != "cpu"

    def scale(dtype):
        return like.new_empty(scales[::-1], dtype=dtype).t() if beside else like.new_empty(scales, dtype=dtype)

    inverse = like.new_empty((0,), dtype=torch.float32) if mx else scale(torch.float32)
    return like.new_empty(data, dtype=FORMATS[format]), scale(torch.float8_e8m0fnu if mx else torch.float32), inverse


def _rows(x, scaling, format):
    tokens, features = x.shape
    block = BLOCKS[scaling]
    return _quantized(x, (tokens, features), (tokens, ceil_div(features, block)) if block else (tokens,), scaling, format)


def _columns(x, tokens, features, ends, alignment, scaling, format):
    padded = padded_bound(tokens, ends.shape[0], alignment)
    block = BLOCKS[scaling]
    scales = (features, padded // block) if block else (ends.shape[0], features)
    return _quantized(x, (features, padded), scales, scaling, format)


def _weights(w, rows, reduction, scaling, format):
    experts = w.shape[0]
    scales = {"rowwise": (experts, rows),
              "blockwise": (experts, ceil_div(rows, 128), ceil_div(reduction, 128)),
              "mx": (experts, rows, ceil_div(reduction, 32))}[scaling]
    return _quantized(w, (experts, rows, reduction), scales, scaling, format, tokens=False)


@_fake("quantize_rows")
def _(x, scaling="rowwise", format="e4m3", scale_rounding="power_of_two", mx_mode="rceil"):
    return _rows(x, scaling, format)


@_fake("quantize_columns")
def _(x, ends, alignment, scaling="rowwise", format="e4m3", scale_rounding="power_of_two", mx_mode="rceil"):
    return _columns(x, x.shape[0], x.shape[1], ends, alignment, scaling, format)


@_fake("quantize_columns_dual")
def _(x0, x1, ends, alignment, scaling="rowwise", format="e4m3", scale_rounding="power_of_two", mx_mode="rceil"):
    return (*_columns(x0, x0.shape[0], x0.shape[1], ends, alignment, scaling, format),
            *_columns(x1, x1.shape[0], x1.shape[1], ends, alignment, scaling, format))


@_fake("quantize_pair")
def _(x, ends, alignment, scaling="rowwise", format="e4m3", scale_rounding="power_of_two", mx_mode="rceil"):
    return (*_rows(x, scaling, format), *_columns(x, x.shape[0], x.shape[1], ends, alignment, scaling, format))


@_fake("quantize_transposed")
def _(x, ends, alignment, scaling="rowwise", format="e4m3", scale_rounding="power_of_two", mx_mode="rceil"):
    return _columns(x, x.shape[1], x.shape[0], ends, alignment, scaling, format)


@_fake("quantize_weights")
def _(w, scaling="rowwise", format="e4m3", scale_rounding="power_of_two", mx_mode="rceil"):
    return (*_weights(w, w.shape[1], w.shape[2], scaling, format), *_weights(w, w.shape[2], w.shape[1], scaling, format))


@_fake("quantize_weights_along")
def _(w, orientation, scaling="rowwise", format="e4m3", scale_rounding="power_of_two", mx_mode="rceil"):
    n, k = w.shape[1:]
    return _weights(w, *((n, k) if orientation == "along_k" else (k, n)), scaling, format)


@_fake("dequantize_rows")
def _(data, scale, scaling="rowwise", out="bf16"):
    return data.new_empty(data.shape, dtype=FORMATS[out])


@_fake("dequantize_columns")
def _(data, scale, ends, alignment, tokens, scaling="rowwise", out="bf16"):
    return data.new_empty((tokens, data.shape[0]), dtype=FORMATS[out])


@_fake("dequantize_transposed")
def _(data, scale, ends, alignment, tokens, scaling="rowwise", out="bf16"):
    return data.new_empty((data.shape[0], tokens), dtype=FORMATS[out])


@_fake("dequantize_weights")
def _(data, scale, orientation, scaling="rowwise", out="bf16"):
    experts, rows, reduction = data.shape
    shape = (experts, rows, reduction) if orientation == "along_k" else (experts, reduction, rows)
    return data.new_empty(shape, dtype=FORMATS[out])


@_fake("pad_groups")
def _(x, ends, alignment):
    return x.new_empty((padded_bound(x.shape[0], ends.shape[0], alignment), x.shape[1])), torch.empty_like(ends)


@_fake("unpad_groups")
def _(padded, ends, alignment, tokens):
    return padded.new_empty((tokens, padded.shape[1]))


def _swizzled(rows, columns):
    return ceil_div(rows, 128) * 128 * (ceil_div(columns, 4) * 4)


@_fake("swizzle_scales")
def _(scale):
    return scale.new_empty((*scale.shape[:-2], _swizzled(*scale.shape[-2:])))


@_fake("unswizzle_scales")
def _(blocked, rows, columns):
    return blocked.new_empty((*blocked.shape[:-1], rows, columns))


@_fake("swizzle_group_scales")
def _(scale, ends):
    rows = padded_bound(scale.shape[0], ends.shape[0], 128)
    return scale.new_empty((rows * (ceil_div(scale.shape[1], 4) * 4),))


@_fake("unswizzle_group_scales")
def _(blocked, ends, rows, columns):
    return blocked.new_empty((rows, columns))


@_fake("grouped_forward")
def _(a, a_scale, w, w_scale, ends, scaling="rowwise", accumulation="promoted", out="bf16"):
    return a.new_empty((a.shape[0], w.shape[1]), dtype=FORMATS[out])


@_fake("grouped_dgrad")
def _(dy, dy_scale, w, w_scale, ends, scaling="rowwise", accumulation="promoted", out="bf16"):
    return dy.new_empty((dy.shape[0], w.shape[2 if w_scale is None else 1]), dtype=FORMATS[out])


@_fake("grouped_wgrad")
def _(dy, dy_scale, a, a_scale, ends, alignment, scaling="rowwise", accumulation="promoted", out="bf16"):
    n = dy.shape[1 if dy_scale is None else 0]
    k = a.shape[1 if a_scale is None else 0]
    return dy.new_empty((ends.shape[0], n, k), dtype=FORMATS[out])


@_fake("swiglu")
def _(gate_up, weights=None):
    return gate_up.new_empty((gate_up.shape[0], gate_up.shape[1] // 2))


def _weight_gradients(weights, like):
    return like.new_empty((0 if weights is None else weights.numel(),), dtype=torch.float32)


@_fake("swiglu_backward")
def _(gate_up, weights, ds):
    return gate_up.new_empty(gate_up.shape), _weight_gradients(weights, gate_up)


@_fake("swiglu_quantize")
def _(gate_up, weights, ends, alignment, scaling="rowwise", format="e4m3", scale_rounding="power_of_two", mx_mode="rceil"):
    s = gate_up.new_empty((gate_up.shape[0], gate_up.shape[1] // 2))
    return (*_rows(s, scaling, format), *_columns(s, s.shape[0], s.shape[1], ends, alignment, scaling, format))


@_fake("swiglu_backward_quantize")
def _(gate_up, weights, ds, ends, alignment, scaling="rowwise", format="e4m3", scale_rounding="power_of_two", mx_mode="rceil"):
    columns = _columns(gate_up, gate_up.shape[0], gate_up.shape[1], ends, alignment, scaling, format)
    return (*_rows(gate_up, scaling, format), *columns, _weight_gradients(weights, gate_up))


@_fake("permute_tokens")
def _(tokens, slot_of_row, row_of_slot, top_k):
    return tokens.new_empty((slot_of_row.shape[0], tokens.shape[1]))


@_fake("combine_tokens")
def _(rows, weights, slot_of_row, row_of_slot, top_k, addend=None):
    return rows.new_empty((row_of_slot.shape[0] // top_k, rows.shape[1]))


@_fake("combine_tokens_backward")
def _(dy, rows, weights, slot_of_row, row_of_slot, top_k):
    return dy.new_empty((slot_of_row.shape[0], dy.shape[1])), _weight_gradients(weights, dy)


def _as_bytes(data, scale, inverse, scaling):
    """The data and the scale that products read, as what is kept of a product has them."""
    scale = scale.new_empty(scale.shape, dtype=torch.uint8) if scaling == "mx" else inverse
    return data.new_empty(data.shape, dtype=torch.uint8), scale


def _kept(a, rows, features, ends, recipe, keep):
    if not (keep and wgrad_in_8_bits(recipe)):
        return a.new_empty((0,), dtype=torch.float32), a.new_empty((0,), dtype=torch.float32)
    name, options = parse_recipe(recipe)
    scaling = SCALINGS[name]
    return _as_bytes(*_columns(a, rows, features, ends, token_alignment(scaling, a.device), scaling, options.get("format", "e4m3")),
                     scaling)


@_fake("grouped_mm")
def _(a, b, ends, recipe, out, keep, cast=None, cast_scale=None, dgrad_cast=None, dgrad_cast_scale=None, rows=None, rows_scale=None,
      columns=None, columns_scale=None):
    return (a.new_empty((a.shape[0], b.shape[2]), dtype=FORMATS[out]), *_kept(a, *a.shape, ends, recipe, keep))


@_fake("grouped_mm_dual")
def _(a, b0, b1, ends, recipe, out, keep):
    y0, y1 = (a.new_empty((a.shape[0], b.shape[2]), dtype=FORMATS[out]) for b in (b0, b1))
    return (y0, y1, *_kept(a, *a.shape, ends, recipe, keep))


def _like_weights(b):
    """The gradient of b lies as b does: K last where b's K is, else N last."""
    if b.stride(1) == 1 and not (b.stride(2) == 1 and b.shape[1] == 1):
        return b.new_empty((b.shape[0], b.shape[2], b.shape[1])).transpose(1, 2)
    return b.new_empty(b.shape)


@_fake("grouped_mm_backward")
def _(dy, b, ends, recipe, kept, kept_scale, wants_a, wants_b, a_format, cast=None, cast_scale=None, visit=None):
    da = dy.new_empty((dy.shape[0], b.shape[1]) if wants_a else (0,), dtype=FORMATS[a_format])
    return da, _like_weights(b) if wants_b else dy.new_empty((0,), dtype=torch.float32)


# What the next three make depends on a GPU's cost model: whether a product is in 8 bits, and the weights are cast in two visits. They
# are not for torch.compile, which would take these shapes at their word.


def _chooses_8_bits(recipe, product):
    name, options = parse_recipe(recipe)
    return name != "bf16" and options.get(product, "fp8") != "bf16"


@_fake("grouped_mm_backward_onto")
def _(dy, b, ends, recipe, kept, kept_scale, da, wants_b, cast=None, cast_scale=None, visit=None):
    adds = _chooses_8_bits(recipe, "dgrad") and parse_recipe(recipe)[0] != "mxfp8" and da.dtype == torch.bfloat16
    rest = dy.new_empty((0,) if adds else da.shape, dtype=da.dtype)
    return rest, _like_weights(b) if wants_b else dy.new_empty((0,), dtype=torch.float32)


@_fake("grouped_mm_share")
def _(a, b, ends, recipe, out, cast=None, cast_scale=None):
    rows = _cast_rows(a, recipe) if _chooses_8_bits(recipe, "forward") else [a.new_empty((0,), dtype=torch.float32) for _ in range(2)]
    kept = _kept(a, *a.shape, ends, recipe, True)
    return a.new_empty((a.shape[0], b.shape[2]), dtype=FORMATS[out]), *rows, *kept, None


@_fake("grouped_mm_no_grad")
def _(a, b, ends, recipe, out, keep, cast=None, cast_scale=None, rows=None, rows_scale=None):
    kept = _kept(a, *a.shape, ends, recipe, keep)
    return a.new_empty((a.shape[0], b.shape[2]), dtype=FORMATS[out]), *kept, None


@_fake("cast_tokens_both")
def _(a, ends, recipe):
    return *_cast_rows(a, recipe), *_kept(a, *a.shape, ends, recipe, True)


def _cast_rows(a, recipe):
    name, options = parse_recipe(recipe)
    data, scale = _as_bytes(*_rows(a, SCALINGS[name], options.get("format", "e4m3")), SCALINGS[name])
    return data.new_empty_strided(data.shape, (row_pitch(a.shape[1], a.device), 1)), scale


@_fake("cast_weights")
def _(b, recipe):
    name, options = parse_recipe(recipe)
    scaling, format = SCALINGS[name], options.get("format", "e4m3")
    which = 1 if scaling == "mx" else 2
    casts = []
    for rows, reduction in ((b.shape[2], b.shape[1]), (b.shape[1], b.shape[2])):
        cast, pitch = _weights(b, rows, reduction, scaling, format), row_pitch(reduction, b.device)
        casts += [cast[0].new_empty_strided(cast[0].shape, (rows * pitch, pitch, 1)), cast[which]]
    return tuple(casts)


@_fake("experts")
def _(x, gate_up, down, ends, weights, recipe, keep, slot_of_row=None, row_of_slot=None, top_k=1, addend=None):
    rows = x.shape[0] if slot_of_row is None else slot_of_row.shape[0]
    tokens = x.shape[0] if row_of_slot is None else row_of_slot.shape[0] // top_k
    return (x.new_empty((tokens, x.shape[1])), x.new_empty((rows, gate_up.shape[1]) if keep else (0,)),
            *_kept(x, rows, x.shape[1], ends, recipe, keep), *_kept(x, rows, down.shape[2], ends, recipe, keep))


@_fake("experts_backward")
def _(dy, gate_up, down, ends, weights, recipe, hidden, kept_x, kept_x_scale, kept_s, kept_s_scale, wants_x, wants_weights,
      slot_of_row=None, row_of_slot=None, top_k=1):
    dweights = dy.new_empty((0 if weights is None else weights.numel(),), dtype=torch.float32)
    gradient = lambda w: w.new_empty(w.shape) if wants_weights else dy.new_empty((0,))  # noqa: E731
    return dy.new_empty(dy.shape if wants_x else (0,)), gradient(gate_up), gradient(down), dweights


# ---- gradients ----------------------------------------------------------------------------------------------------


def _setup(ctx, inputs, output):
    a, b, ends, recipe, _, keep, _, _, dgrad_cast, dgrad_cast_scale, _, _, *columns = inputs
    given = columns[0] is not None
    _need_kept(recipe, keep or given)
    ctx.mark_non_differentiable(*output[1:])
    ctx.recipe, ctx.a_format = recipe, FORMAT_NAMES[a.dtype]
    kept = columns if given else output[1:] if wgrad_in_8_bits(recipe) else (a, None)
    ctx.save_for_backward(b, ends, *kept, dgrad_cast, dgrad_cast_scale)


def _backward(ctx, dy, *_):
    b, ends, kept, kept_scale, *casts = ctx.saved_tensors
    wants_a, wants_b = ctx.needs_input_grad[:2]
    da, db = torch.ops.octet.grouped_mm_backward(dy, b, ends, ctx.recipe, kept, kept_scale, wants_a, wants_b, ctx.a_format, *casts)
    return da if wants_a else None, db if wants_b else None, *[None] * 12


def dual_gradients(weights, dys, ends, recipe, kept, kept_scale, wants_a, wants_b, a_format):
    """Of a, and of each weight."""
    da, dbs = None, [None] * len(weights)
    for i, dy in enumerate(dys):
        if dy is None or not (wants_a or wants_b[i]):
            continue
        part, db = torch.ops.octet.grouped_mm_backward(dy, weights[i], ends, recipe, kept, kept_scale, wants_a, wants_b[i], a_format)
        if wants_a:
            da = part if da is None else da.add_(part)
        if wants_b[i]:
            dbs[i] = db
    return da, *dbs


def _setup_dual(ctx, inputs, output):
    a, b0, b1, ends, recipe, _, keep = inputs
    _need_kept(recipe, keep)
    ctx.mark_non_differentiable(*output[2:])
    ctx.set_materialize_grads(False)
    ctx.recipe, ctx.a_format = recipe, FORMAT_NAMES[a.dtype]
    ctx.save_for_backward(b0, b1, ends, *(output[2:] if wgrad_in_8_bits(recipe) else (a, None)))


def _backward_dual(ctx, dy0, dy1, *_):
    b0, b1, ends, kept, kept_scale = ctx.saved_tensors
    wants_a, *wants_b = ctx.needs_input_grad[:3]
    return *dual_gradients((b0, b1), (dy0, dy1), ends, ctx.recipe, kept, kept_scale, wants_a, wants_b, ctx.a_format), *[None] * 4


def _need_kept(recipe, keep):
    if not keep and wgrad_in_8_bits(recipe):
        raise ValueError("keep=False was given with a tensor that requires a gradient; give keep=True")


def save_experts(ctx, x, gate_up, down, ends, weights, recipe, order, output):
    """What the gradients of octet::experts need; x itself only where its 8-bit copy is not kept."""
    _, hidden, *kept = output
    ctx.recipe, ctx.top_k = recipe, order[2]
    ctx.save_for_backward(gate_up, down, ends, weights, hidden, *(kept if wgrad_in_8_bits(recipe) else (x, None, *kept[2:])), *order[:2])


def experts_gradients(ctx, dy):
    """Of x, gate_up, down and the weights."""
    gate_up, down, ends, weights, hidden, *kept, slot_of_row, row_of_slot = ctx.saved_tensors
    wants_x, wants_gate_up, wants_down = ctx.needs_input_grad[:3]
    dx, dgate_up, ddown, dweights = torch.ops.octet.experts_backward(dy, gate_up, down, ends, weights, ctx.recipe, hidden, *kept, wants_x,
                                                                     wants_gate_up or wants_down, slot_of_row, row_of_slot, ctx.top_k)
    return (dx if wants_x else None, dgate_up if wants_gate_up else None, ddown if wants_down else None,
            None if weights is None else dweights)


def _setup_experts(ctx, inputs, output):
    x, gate_up, down, ends, weights, recipe, keep, *order, addend = inputs
    if not keep:
        raise ValueError("keep=False was given with a tensor that requires a gradient; give keep=True")
    ctx.mark_non_differentiable(*output[1:])
    ctx.addend_dtype = None if addend is None else addend.dtype
    save_experts(ctx, x, gate_up, down, ends, weights, recipe, order, output)


def _backward_experts(ctx, dy, *_):
    dx, dgate_up, ddown, dweights = experts_gradients(ctx, dy)
    return dx, dgate_up, ddown, None, dweights, *[None] * 5, None if ctx.addend_dtype is None else dy.to(ctx.addend_dtype, copy=True)


def _setup_swiglu(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _backward_swiglu(ctx, ds):
    gate_up, weights = ctx.saved_tensors
    dgate_up, dweights = torch.ops.octet.swiglu_backward(gate_up, weights, ds)
    return dgate_up, None if weights is None else dweights


def _setup_permute(ctx, inputs, output):
    _, slot_of_row, row_of_slot, ctx.top_k = inputs
    ctx.save_for_backward(slot_of_row, row_of_slot)


def _backward_permute(ctx, drows):
    return torch.ops.octet.combine_tokens(drows, None, *ctx.saved_tensors, ctx.top_k), None, None, None


def _setup_combine(ctx, inputs, output):
    *tensors, ctx.top_k, addend = inputs
    ctx.save_for_backward(*tensors)
    ctx.addend_dtype = None if addend is None else addend.dtype


def _backward_combine(ctx, dy):
    rows, weights, *order = ctx.saved_tensors
    drows, dweights = torch.ops.octet.combine_tokens_backward(dy, rows, weights, *order, ctx.top_k)
    addend = dy.to(ctx.addend_dtype, copy=True) if ctx.addend_dtype is not None else None
    return drows, None if weights is None else dweights, None, None, None, addend


def refuse_tangents(*arguments):
    """Forward-mode derivatives: the operators have none, and torch would take theirs for zero."""
    if forward_ad._current_level >= 0 and any(isinstance(t, torch.Tensor) and forward_ad.unpack_dual(t).tangent is not None
                                              for t in arguments):
        raise NotImplementedError("octet's operators have no forward-mode derivatives; a tensor with a tangent was given (torch.func.jvp, "
                                  "torch.autograd.forward_ad); derive backward instead: torch.autograd.grad")


class _RefusingTangents(torch.library.Library):
    def impl(self, name, function, *key, with_keyset=False, **options):
        assert with_keyset, f"a kernel of {name} was given without with_keyset=True; the check expects the keyset before the arguments"

        def checked(keyset, *arguments, **named):
            refuse_tangents(*arguments, *named.values())
            return function(keyset, *arguments, **named)

        super().impl(name, checked, *key, with_keyset=True, **options)


_refusing = _RefusingTangents("octet", "FRAGMENT")
_gradients = {"grouped_mm": (_backward, _setup), "grouped_mm_dual": (_backward_dual, _setup_dual),
              "experts": (_backward_experts, _setup_experts), "swiglu": (_backward_swiglu, _setup_swiglu),
              "permute_tokens": (_backward_permute, _setup_permute), "combine_tokens": (_backward_combine, _setup_combine)}
for _name, (_backward_of, _setup_of) in _gradients.items():
    torch.library.register_autograd(f"octet::{_name}", _backward_of, setup_context=_setup_of, lib=_refusing)


def _pass_on(name):
    operator, after = getattr(torch.ops.octet, name).default, torch._C._after_ADInplaceOrView_keyset
    return lambda keyset, *arguments, **named: operator.redispatch(keyset & after, *arguments, **named)


# The others, those that backward calls among them, are checked one key below autograd: there torch's own kernel, which warns where
# a gradient is asked for, stays.
for _name in _operators:
    if _name not in _gradients:
        _refusing.impl(_name, _pass_on(_name), "ADInplaceOrView", with_keyset=True)
