"""The operators between the products: permutation, sum and SwiGLU, against plain torch, and their fused quantizers."""
import pytest
import torch
from torch.nn import functional as F

from octet._registration import BLOCKS
from test_derivatives import REFUSED, assert_backward_refuses_tangents
from test_grouped_mm import CHECKS

T, TOP_K, D, H = 23, 3, 40, 24
ops = torch.ops.octet


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def dtype(request):
    return request.param


def order(device):
    """slot_of_row and row_of_slot of a random choice of 5 experts."""
    chosen = torch.rand(T, 5).argsort(1)[:, :TOP_K].reshape(-1)
    slot_of_row = chosen.argsort(stable=True)
    return slot_of_row.to(device, torch.int32), slot_of_row.argsort().to(device, torch.int32)


def assert_near(ours, theirs):
    """f32 sums in another order, and one rounding where the result is bf16."""
    bound = 2e-6 + (2**-8 if ours.dtype == torch.bfloat16 else 0)
    assert (ours.double() - theirs.double()).norm() <= bound * theirs.double().norm()


def test_permute_and_combine(device, dtype):
    slot_of_row, row_of_slot = order(device)
    x = torch.randn(T, D, device=device).to(dtype).requires_grad_()
    rows = ops.permute_tokens(x, slot_of_row, row_of_slot, TOP_K)
    assert torch.equal(rows, x[slot_of_row // TOP_K])
    drows = torch.randn(T * TOP_K, D, device=device).to(dtype)
    rows.backward(drows)
    assert_near(x.grad, drows[row_of_slot].view(T, TOP_K, D).double().sum(1))

    rows = torch.randn(T * TOP_K, D, device=device).to(dtype).requires_grad_()
    weights = torch.rand(T * TOP_K, device=device, requires_grad=True)
    addend = torch.randn(T, D, device=device).to(dtype).requires_grad_()
    y = ops.combine_tokens(rows, weights, slot_of_row, row_of_slot, TOP_K, addend)
    plain = [t.detach().double().requires_grad_() for t in (rows, weights, addend)]
    expected = (plain[0][row_of_slot] * plain[1][:, None]).view(T, TOP_K, D).sum(1) + plain[2]
    dy = torch.randn(T, D, device=device).to(dtype)
    ours = torch.autograd.grad(y, (rows, weights, addend), dy)
    for mine, its in zip((y, *ours), (expected, *torch.autograd.grad(expected, plain, dy.double()))):
        assert_near(mine, its)


@pytest.mark.parametrize("weighted", [True, False])
def test_swiglu(device, dtype, weighted):
    gate_up = torch.randn(T, 2 * H, device=device).to(dtype).requires_grad_()
    weights = torch.rand(T, device=device, requires_grad=True) if weighted else None
    s = ops.swiglu(gate_up, weights)
    plain = [t.detach().double().requires_grad_() for t in (gate_up, weights) if t is not None]
    gate, up = plain[0].chunk(2, dim=1)
    expected = F.silu(gate) * up * (plain[1][:, None] if weighted else 1)
    ds = torch.randn(T, H, device=device).to(dtype)
    ours = torch.autograd.grad(s, [t for t in (gate_up, weights) if t is not None], ds)
    for mine, its in zip((s, *ours), (expected, *torch.autograd.grad(expected, plain, ds.double()))):
        assert_near(mine, its)


@pytest.mark.parametrize("scaling", ["rowwise", "blockwise", "mx"])
def test_fused_quantizers_are_the_quantizers_of_the_result(device, dtype, scaling):
    gate_up, ds = torch.randn(T, 2 * H, device=device).to(dtype), torch.randn(T, H, device=device).to(dtype)
    weights = torch.rand(T, device=device)
    ends = torch.tensor([7, 7, T], dtype=torch.int32, device=device)
    fused = ops.swiglu_quantize(gate_up, weights, ends, 128, scaling)
    dgate_up, dweights = ops.swiglu_backward(gate_up, weights, ds)
    *fused_backward, gradient = ops.swiglu_backward_quantize(gate_up, weights, ds, ends, 128, scaling)
    assert torch.equal(gradient, dweights)
    for ours, theirs in ((fused, ops.quantize_pair(ops.swiglu(gate_up, weights), ends, 128, scaling)),
                         (fused_backward, ops.quantize_pair(dgate_up, ends, 128, scaling))):
        for i, (mine, its) in enumerate(zip(ours, theirs)):
            block = 1 if i == 3 else BLOCKS[scaling]
            if i >= 3 and block and device.type == "cuda" and mine.dim() == 2:  # past the last group nothing is written
                mine, its = mine[:, : 256 // block], its[:, : 256 // block]
            if mine.dtype.itemsize == 1:
                mine, its = mine.view(torch.uint8), its.view(torch.uint8)
            assert torch.equal(mine, its)


def test_opcheck():
    slot_of_row, row_of_slot = order("cpu")
    x, addend = torch.randn(T, D, requires_grad=True), torch.randn(T, D, requires_grad=True)
    rows, weights = torch.randn(T * TOP_K, D, requires_grad=True), torch.rand(T * TOP_K, requires_grad=True)
    gate_up = torch.randn(T, 2 * H, requires_grad=True)
    for op, args in ((ops.permute_tokens, (x, slot_of_row, row_of_slot, TOP_K)),
                     (ops.combine_tokens, (rows, weights, slot_of_row, row_of_slot, TOP_K, addend)),
                     (ops.combine_tokens, (rows, None, slot_of_row, row_of_slot, TOP_K)),
                     (ops.combine_tokens_backward, (x.detach(), rows.detach(), weights.detach(), slot_of_row, row_of_slot, TOP_K)),
                     (ops.swiglu, (gate_up, torch.rand(T, requires_grad=True))), (ops.swiglu, (gate_up,)),
                     (ops.swiglu_backward, (gate_up.detach(), None, torch.randn(T, H)))):
        torch.library.opcheck(op, args, test_utils=CHECKS)


def test_forward_mode_is_refused(device):
    slot_of_row, row_of_slot = order(device)
    x, rows, gate_up = (torch.randn(n, width, device=device) for n, width in ((T, D), (T * TOP_K, D), (T, 2 * H)))
    for call, tensor in ((lambda t: ops.permute_tokens(t, slot_of_row, row_of_slot, TOP_K), x),
                         (lambda t: ops.combine_tokens(t, None, slot_of_row, row_of_slot, TOP_K), rows),
                         (lambda t: ops.combine_tokens(rows, None, slot_of_row, row_of_slot, TOP_K, t), x),
                         (ops.swiglu, gate_up), (lambda t: ops.swiglu(gate_up, t), torch.rand(T, device=device))):
        with pytest.raises(NotImplementedError, match=REFUSED):
            torch.func.jvp(call, (tensor,), (torch.ones_like(tensor),))
        with torch.autograd.forward_ad.dual_level(), pytest.raises(NotImplementedError, match=REFUSED):
            call(torch.autograd.forward_ad.make_dual(tensor, torch.ones_like(tensor)))
        assert_backward_refuses_tangents(call, tensor)
    dy = torch.randn(T, H, device=device)
    for op, (tensor, *rest) in ((ops.swiglu_backward, (gate_up, None, dy)),
                                (ops.combine_tokens_backward, (x, rows, None, slot_of_row, row_of_slot, TOP_K))):
        with pytest.raises(NotImplementedError, match=REFUSED):
            torch.func.jvp(lambda t: op(t, *rest)[0], (tensor,), (torch.ones_like(tensor),))


def test_errors_have_octets_text(device):
    slot_of_row, row_of_slot = order(device)
    x = torch.randn(T, D, device=device)
    with pytest.raises(RuntimeError, match="there are 69 slots and top_k is 2; expected top_k slots a token"):
        ops.permute_tokens(x, slot_of_row, row_of_slot, 2)
    with pytest.raises(RuntimeError, match="the weights are 5 of f32, expected 23 of f32, contiguous"):
        ops.swiglu(x, torch.rand(5, device=device))
