"""GroupedLinear, forward and backward, against torchao's arithmetic.

fp8_rowwise and fp8_blockwise: torchao's references quantize each operand, torch multiplies the dequantized operands in
f64. mxfp8: torchao's own emulated training function, autograd included, which multiplies in bf16.
"""

import pytest
import torch

import references as ref
from layer_c import GroupedLinear
from tensors import group_ranges, random_ends
from test_blockwise import pad_to_blocks
from test_rowwise import rows_reference

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
M, N, K, E = 320, 130, 200, 4


def relative(ours, theirs):
    return float((ours.double() - theirs.double()).norm() / theirs.double().norm())


def tensors(seed, n=N, k=K, multiple=1):
    g = torch.Generator().manual_seed(seed)
    a, dy = (torch.randn(M, width, generator=g).to(torch.bfloat16) for width in (k, n))
    w = (torch.randn(E, n, k, generator=g) * 0.1).to(torch.bfloat16)
    return a, dy, w, random_ends(M, E, seed, multiple)


def dequantized(data, scale):
    return data.double() * (1.0 / scale).double()[..., None]


def by_rows(x, dtype, rounding):
    return dequantized(*rows_reference(x, dtype, rounding))


def in_blocks(x, dtype):
    """1 x 128 along the last axis; torchao takes whole blocks only."""
    data, inverse = ref.torch_blockwise_scale_act_quant_lhs(pad_to_blocks(x, 1, 128), 128, dtype)
    return (data.double() * inverse.double().repeat_interleave(128, -1))[:, : x.shape[1]]


def weight_blocks(w, dtype):
    data, inverse = ref.torch_blockwise_scale_weight_quant(pad_to_blocks(w, 128, 128), 128, dtype)
    wide = inverse.double().repeat_interleave(128, 0).repeat_interleave(128, 1)
    return (data.double() * wide)[: w.shape[0], : w.shape[1]]


def expect_products(recipe, a, dy, w, ends, activation, gradient, weight):
    """activation, gradient: quantize and dequantize the last axis; weight: (w, the axis to reduce) -> the same."""
    layer = GroupedLinear(w, recipe)
    y = layer.forward(a, ends)
    da, dw = layer.backward(dy, ends)
    a_rows, dy_rows = activation(a), gradient(dy)
    for e, (begin, end, _, _) in enumerate(group_ranges(ends, 1)):
        rows = slice(begin, end)
        along_k, along_n = weight(w[e])
        columns = gradient(dy[rows].t().contiguous()) @ activation(a[rows].t().contiguous()).t()
        for name, ours, theirs, length in (
            ("forward", y[rows], a_rows[rows] @ along_k.t(), K),
            ("dgrad", da[rows], dy_rows[rows] @ along_n, N),
            ("wgrad", dw[e], columns, end - begin),
        ):
            error = relative(ours, theirs)
            assert error <= 1e-6 * length**0.5, f"{name} of group {e}: {error:.2e}"


@pytest.mark.parametrize("rounding", ["power_of_two", "exact"])
@pytest.mark.parametrize("gradient", [E4M3, E5M2], ids=["e4m3", "e5m2"])
def test_rowwise(rounding, gradient):
    for seed in range(3):
        a, dy, w, ends = tensors(seed)
        recipe = f"fp8_rowwise:scales={rounding},gradient={'e5m2' if gradient is E5M2 else 'e4m3'}"
        expect_products(recipe, a, dy, w, ends, lambda x: by_rows(x, E4M3, rounding),
                        lambda x: by_rows(x, gradient, rounding),
                        lambda x: (by_rows(x, E4M3, rounding), by_rows(x.t().contiguous(), E4M3, rounding).t()))


def test_blockwise():
    for seed in range(3):
        a, dy, w, ends = tensors(seed)
        expect_products("fp8_blockwise", a, dy, w, ends, lambda x: in_blocks(x, E4M3), lambda x: in_blocks(x, E4M3),
                        lambda x: (weight_blocks(x, E4M3),) * 2)


def test_mxfp8_against_the_emulated_training_function():
    """Group sizes and widths are multiples of 32, as the emulation wants them; it returns bf16."""
    from torchao.prototype.moe_training import mxfp8_grouped_mm
    from torchao.quantization.quantize_.common import KernelPreference

    for seed, mode in enumerate(["rceil", "floor"]):
        a, dy, w, ends = tensors(seed, n=128, k=192, multiple=32)
        layer = GroupedLinear(w, f"mxfp8:mx={mode}")
        y = layer.forward(a, ends)
        da, dw = layer.backward(dy, ends)
        twin_a, twin_w = a.clone().requires_grad_(), w.clone().requires_grad_()
        with torch.backends.mkldnn.flags(enabled=False):  # see layer_twin.matmul
            twin_y = mxfp8_grouped_mm._to_mxfp8_then_scaled_grouped_mm(
                twin_a, twin_w.transpose(-2, -1), offs=ends, out_dtype=torch.bfloat16,
                kernel_preference=KernelPreference.EMULATED, scale_calculation_mode=ref.MX_MODES[mode])
            twin_y.backward(dy)
        for name, ours, theirs in (("y", y, twin_y.detach()), ("da", da, twin_a.grad), ("dw", dw, twin_w.grad)):
            error = relative(ours, theirs)
            assert error <= 2**-8, f"{mode} {name}: {error:.2e}"
