"""The three products of a training step, from Octet's operands: the layouts must fit together, not only each alone.

Operands are dequantized by Octet, brought to [rows, reduction] by what octet.h says of their layout, and multiplied by
torch in f64. Octet's own products of the same operands agree with that within f32 accumulation; against the products of
the unquantized tensors the signal-to-noise ratio has a floor.
"""

import pytest
import torch

import references as ref
from compare import assert_same
from tensors import group_ranges, random_ends
from test_rowwise import columns_reference, rows_reference

E4M3 = torch.float8_e4m3fn
M, N, K, E = 300, 96, 160, 4
FLOORS = {"forward": 27.0, "dgrad": 25.0, "wgrad": 24.0}  # dB


def sqnr(signal, product):
    noise = ((signal - product) ** 2).sum()
    return float(10 * torch.log10((signal**2).sum() / noise))


@pytest.fixture(params=[("rowwise", "power_of_two"), ("blockwise", "exact"), ("mx", "exact")], ids=["rowwise", "blockwise", "mx"])
def recipe(request):
    return request.param


def test_three_products(octet, recipe):
    scaling, rounding = recipe
    alignment = 128
    g = torch.Generator().manual_seed(3)
    a, dy = (torch.randn(M, width, generator=g).to(torch.bfloat16) for width in (K, N))
    w = torch.randn(E, N, K, generator=g).to(torch.bfloat16)
    ends = random_ends(M, E, 5, empty=True)

    def same(q):
        return {"q": q, "scaling": scaling}

    a_rows, a_columns = octet.pair(a, ends, alignment, E4M3, scaling, rounding)
    dy_rows, dy_columns = octet.pair(dy, ends, alignment, E4M3, scaling, rounding)
    w_k, w_n = octet.weights(w, E4M3, scaling, rounding)
    a_k, dy_n = (octet.dequantize_rows(**same(q)).double() for q in (a_rows, dy_rows))
    a_m, dy_m = (octet.dequantize_columns(q, ends, alignment, M, scaling).double() for q in (a_columns, dy_columns))
    w_forward = octet.dequantize_weights(w_k, "along_k", scaling).double()
    w_dgrad = octet.dequantize_weights(w_n, "along_n", scaling).double()

    got = {name: [] for name in FLOORS}
    want = {name: [] for name in FLOORS}
    for e, (begin, end, _, _) in enumerate(group_ranges(ends, alignment)):
        rows = slice(begin, end)
        for name, product, exact in (
            ("forward", a_k[rows] @ w_forward[e].t(), a[rows].double() @ w[e].double().t()),
            ("dgrad", dy_n[rows] @ w_dgrad[e], dy[rows].double() @ w[e].double()),
            ("wgrad", dy_m[rows].t() @ a_m[rows], dy[rows].double().t() @ a[rows].double()),
        ):
            got[name].append(product)
            want[name].append(exact)
    owned = int(ends[-1])
    ours = {
        "forward": octet.forward(a_rows, w_k, ends, scaling)[:owned],
        "dgrad": octet.dgrad(dy_rows, w_n, ends, scaling)[:owned],
        "wgrad": octet.wgrad(dy_columns, a_columns, ends, alignment, scaling).flatten(0, 1),
    }
    reduction = {"forward": K, "dgrad": N, "wgrad": M}
    for name, floor in FLOORS.items():
        product = torch.cat(got[name])
        ratio = sqnr(torch.cat(want[name]), product)
        assert ratio >= floor, f"{name}: {ratio:.1f} dB, expected at least {floor}"
        error = float((ours[name].double() - product).norm() / product.norm())
        bound = 1e-6 * reduction[name] ** 0.5
        assert error <= bound, f"{name}: Octet's product is off by {error:.2e}, expected at most {bound:.2e}"


def test_rowwise_operands_are_torchaos(octet):
    """The dequantized operands of the rowwise recipe against torchao's data times torchao's reciprocal scale."""
    g = torch.Generator().manual_seed(4)
    x = torch.randn(M, K, generator=g).to(torch.bfloat16)
    ends = random_ends(M, E, 6)
    data, scale = rows_reference(x, E4M3, "power_of_two")
    rows, columns = octet.pair(x, ends, 16, E4M3)
    assert_same(octet.dequantize_rows(rows), data.float() * (1.0 / scale)[:, None], "along K")
    data, scale = columns_reference(x, ends, E4M3, "power_of_two")
    expected = torch.cat([data[begin:end].float() * (1.0 / scale[i])
                          for i, (begin, end, _, _) in enumerate(group_ranges(ends, 16))])
    assert_same(octet.dequantize_columns(columns, ends, 16, M), expected, "along tokens")


def test_mx_operands_are_torchaos(octet):
    x = torch.randn(M, K, generator=torch.Generator().manual_seed(5)).to(torch.bfloat16)
    scale, data = ref.to_mx(x, E4M3, 32, ref.MX_MODES["rceil"])
    expected = ref.to_dtype(data, scale, E4M3, 32, torch.float32)
    assert_same(octet.dequantize_rows(octet.rows(x, E4M3, scaling="mx"), scaling="mx"), expected, "along K")
