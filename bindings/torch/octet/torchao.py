"""torchao's differentiable grouped products, by their names and arguments, made by Octet: to swap, change the import.

    from octet.torchao import _to_fp8_rowwise_then_scaled_grouped_mm

Arguments that choose among torchao's kernels, or that pad for them, are taken and make no difference."""
import torch

from ._registration import format_name
from .product import grouped_mm


def _to_fp8_rowwise_then_scaled_grouped_mm(A, B_t, offs, out_dtype=torch.bfloat16, float8_dtype=torch.float8_e4m3fn,
                                           pad_token_groups_for_grouped_mm=True):
    name = format_name(float8_dtype)
    recipe = "fp8_rowwise" if name == "e4m3" else f"fp8_rowwise:format={name},gradient={name}"
    return grouped_mm(A, B_t, offs, recipe, out_dtype=out_dtype)


def _to_mxfp8_then_scaled_grouped_mm(A, B_t, offs=None, bias=None, out_dtype=torch.bfloat16, kernel_preference=None,
                                     wgrad_with_hp=False, scale_calculation_mode=None,
                                     pad_token_groups_for_grouped_mm=False):
    if hasattr(A, "qdata"):  # torchao's MXTensor: cast before. What it stands for is cast to the same bits again
        assert wgrad_with_hp, "tokens that are in mxfp8 already cannot be cast along tokens; give wgrad_with_hp=True"
        A = A.dequantize(A.orig_dtype)
    mode = "rceil" if scale_calculation_mode is None else getattr(scale_calculation_mode, "value", scale_calculation_mode)
    options = [] if mode == "rceil" else [f"mx={mode}"]
    if wgrad_with_hp:
        options.append("wgrad=bf16")
    return grouped_mm(A, B_t, offs, ":".join(["mxfp8", ",".join(options)]) if options else "mxfp8", bias=bias,
                      out_dtype=out_dtype)


def _to_fp8_blockwise_then_scaled_grouped_mm(A, B_t, offs=None, out_dtype=torch.bfloat16, float8_dtype=torch.float8_e4m3fn,
                                             block_size=128, pad_token_groups_for_grouped_mm=True,
                                             kernel_preference=None):
    if block_size != 128:
        raise ValueError(f"blocks of {block_size} were asked for; fp8_blockwise has blocks of 128")
    name = format_name(float8_dtype)
    recipe = "fp8_blockwise" if name == "e4m3" else f"fp8_blockwise:format={name},gradient={name}"
    return grouped_mm(A, B_t, offs, recipe, out_dtype=out_dtype)
