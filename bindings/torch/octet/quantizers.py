"""The quantizers and layouts as functions: torch.ops.octet with defaults, dtypes by their torch names, and named results."""
from typing import NamedTuple, Optional

import torch

from ._registration import FORMATS, format_name

_ops = torch.ops.octet


class Quantized(NamedTuple):
    """8-bit data and its scales. `scale` is the multiplier that was applied (e8m0 for mx); `inverse` its reciprocal, which
    rowwise and blockwise products read (None for mx)."""
    data: torch.Tensor
    scale: torch.Tensor
    inverse: Optional[torch.Tensor]

    @property
    def product_scale(self):
        return self.scale if self.inverse is None else self.inverse


def _quantized(data, scale, inverse, scaling):
    return Quantized(data, scale, None if scaling == "mx" else inverse)


def _two(six, scaling):
    return _quantized(*six[:3], scaling), _quantized(*six[3:], scaling)


def quantize_rows(x, scaling="rowwise", dtype=torch.float8_e4m3fn, scale_rounding="power_of_two", mx_mode="rceil"):
    """x [M, K] along K: every row has its own scale or scales."""
    return _quantized(*_ops.quantize_rows(x, scaling, format_name(dtype), scale_rounding, mx_mode), scaling)


def quantize_columns(x, offs, alignment=128, scaling="rowwise", dtype=torch.float8_e4m3fn,
                     scale_rounding="power_of_two", mx_mode="rceil"):
    """x [M, K] along tokens, transposed to [K, P]: every column of every group has its own scale or scales."""
    return _quantized(*_ops.quantize_columns(x, offs, alignment, scaling, format_name(dtype), scale_rounding, mx_mode),
                      scaling)


def quantize_columns_dual(x0, x1, offs, alignment=128, scaling="rowwise", dtype=torch.float8_e4m3fn,
                          scale_rounding="power_of_two", mx_mode="rceil"):
    """quantize_columns of two tensors that share rows and groups."""
    return _two(_ops.quantize_columns_dual(x0, x1, offs, alignment, scaling, format_name(dtype), scale_rounding, mx_mode),
                scaling)


def quantize_pair(x, offs, alignment=128, scaling="rowwise", dtype=torch.float8_e4m3fn, scale_rounding="power_of_two",
                  mx_mode="rceil"):
    """quantize_rows and quantize_columns of x from one visit."""
    return _two(_ops.quantize_pair(x, offs, alignment, scaling, format_name(dtype), scale_rounding, mx_mode), scaling)


def quantize_transposed(x, offs, alignment=128, scaling="rowwise", dtype=torch.float8_e4m3fn,
                        scale_rounding="power_of_two", mx_mode="rceil"):
    """x [N, M], whose tokens are contiguous, along tokens: every row of every group has its own scale or scales."""
    return _quantized(*_ops.quantize_transposed(x, offs, alignment, scaling, format_name(dtype), scale_rounding, mx_mode),
                      scaling)


def quantize_weights(w, orientation="both", scaling="rowwise", dtype=torch.float8_e4m3fn,
                     scale_rounding="power_of_two", mx_mode="rceil"):
    """w [E, N, K] 'along_k' for the forward product, 'along_n' ([E, K, N]) for the input gradient, or 'both'."""
    options = (scaling, format_name(dtype), scale_rounding, mx_mode)
    if orientation == "both":
        return _two(_ops.quantize_weights(w, *options), scaling)
    return _quantized(*_ops.quantize_weights_along(w, orientation, *options), scaling)


def dequantize_rows(q, scaling="rowwise", dtype=torch.bfloat16):
    return _ops.dequantize_rows(q.data, q.scale, scaling, format_name(dtype))


def dequantize_columns(q, offs, tokens, alignment=128, scaling="rowwise", dtype=torch.bfloat16):
    """Back to [tokens, K]."""
    return _ops.dequantize_columns(q.data, q.scale, offs, alignment, tokens, scaling, format_name(dtype))


def dequantize_transposed(q, offs, tokens, alignment=128, scaling="rowwise", dtype=torch.bfloat16):
    """Back to [N, tokens]."""
    return _ops.dequantize_transposed(q.data, q.scale, offs, alignment, tokens, scaling, format_name(dtype))


def dequantize_weights(q, orientation, scaling="rowwise", dtype=torch.bfloat16):
    """Back to [E, N, K]."""
    return _ops.dequantize_weights(q.data, q.scale, orientation, scaling, format_name(dtype))


def pad_groups(x, offs, alignment):
    """Token groups to aligned starts with zero rows between: (padded [P, K], the padded groups' ends)."""
    return _ops.pad_groups(x, offs, alignment)


def unpad_groups(padded, offs, alignment, tokens):
    return _ops.unpad_groups(padded, offs, alignment, tokens)


def swizzle_scales(scale, offs=None):
    """MX scales [R, C] or [E, R, C] to the blocked layout of 128 x 4 tiles; with `offs`, each group of rows on a new tile."""
    return _ops.swizzle_scales(scale) if offs is None else _ops.swizzle_group_scales(scale, offs)


def unswizzle_scales(blocked, rows, columns, offs=None):
    if offs is None:
        return _ops.unswizzle_scales(blocked, rows, columns)
    return _ops.unswizzle_group_scales(blocked, offs, rows, columns)


__all__ = [name for name in dict(globals()) if name.startswith(("quantize_", "dequantize_", "swizzle_", "unswizzle_", "pad_",
                                                                "unpad_"))] + ["Quantized", "FORMATS"]
