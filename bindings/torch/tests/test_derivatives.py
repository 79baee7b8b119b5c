"""Forward-mode derivatives, of which Octet has none: every operator refuses tangents, in forward and in backward, and the check
changes nothing else."""
import pytest
import torch

import octet
from octet.experts import run_experts
from test_grouped_mm import E, K, M, N, operator_samples, tensors

REFUSED = "no forward-mode derivatives; .*; derive backward instead: torch.autograd.grad"


def test_tangents_of_products_are_refused(device):
    a, w, b, ends, dy = tensors(device)
    for product in (octet.grouped_mm, lambda *args: octet.grouped_mm_dual(args[0], args[1], *args[1:])):
        with pytest.raises(NotImplementedError, match=REFUSED):
            torch.func.jvp(lambda t: product(t, b.detach(), ends), (a.detach(),), (dy[:, :1].expand(M, K),))


def assert_backward_refuses_tangents(call, tensor):
    """A tangent that comes with the gradient, in both ways to make one."""
    leaf = tensor.detach().requires_grad_()
    y = call(leaf)
    dy = torch.ones_like(y)
    with torch.autograd.forward_ad.dual_level(), pytest.raises(NotImplementedError, match=REFUSED):
        torch.autograd.grad(y, leaf, torch.autograd.forward_ad.make_dual(dy, dy), retain_graph=True)
    with pytest.raises(NotImplementedError, match=REFUSED):
        torch.func.jvp(lambda t: torch.autograd.grad(y, leaf, t, retain_graph=True)[0], (dy,), (dy,))
    for gradient in torch.autograd.grad(y, leaf, dy):  # which is there without
        assert gradient.any()


def test_tangents_in_backward_are_refused(device, recipe):
    a, w, b, ends, dy = tensors(device, torch.bfloat16)
    b, rest, down = b.detach(), (ends, recipe), torch.randn(E, K, N // 2, device=device).bfloat16()
    for call in (lambda t: octet.grouped_mm(t, b, *rest),
                 lambda t: torch.ops.octet.grouped_mm(t, b, *rest, "bf16", True)[0],
                 lambda t: octet.grouped_mm_dual(t, b, b, *rest)[1],
                 lambda t: torch.ops.octet.grouped_mm_dual(t, b, b, *rest, "bf16", True)[1],
                 lambda t: sum(octet.grouped_mm(x, b, *rest) for x in [t * 2] * 2),  # one activation of two products
                 lambda t: run_experts(t, w.detach(), down, *rest),
                 lambda t: torch.ops.octet.experts(t, w.detach(), down, ends, None, recipe, True)[0]):
        assert_backward_refuses_tangents(call, a)


def test_tangents_of_an_outer_jvp_are_refused(device):
    a, w, b, ends, dy = tensors(device, torch.bfloat16)
    one = torch.ones((), device=device)

    def inner(t):
        return torch.func.jvp(lambda scale: octet.grouped_mm(t, b.detach(), ends) * scale, (one,), (one,))[1]

    with pytest.raises(NotImplementedError, match=REFUSED):
        torch.func.jvp(inner, (a.detach(),), (a.detach(),))


def test_every_operator_refuses_tangents(device):
    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("octet::")]
    assert len(names) > 30
    for name in names:
        assert any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in ("Autograd", "ADInplaceOrView")), name
    a, w, b, ends, dy = tensors(device, torch.bfloat16)
    a, b = a.detach(), b.detach()
    ops = torch.ops.octet
    recipe = "fp8_rowwise"
    samples = [*operator_samples(device, "rowwise"), (ops.cast_weights, (b, recipe)), (ops.cast_tokens_both, (a, ends, recipe)),
               (ops.grouped_mm_no_grad, (a, b, ends, recipe, "bf16", False)), (ops.grouped_mm_share, (a, b, ends, "bf16", "bf16")),
               (ops.grouped_mm_backward, (dy, b, ends, "bf16", a, None, True, True, "bf16")),
               (ops.grouped_mm_backward_onto, (dy, b, ends, "bf16", a, None, a.clone(), True))]
    for op, args in samples:
        i = next(i for i, arg in enumerate(args) if isinstance(arg, torch.Tensor) and arg.is_floating_point() and arg.dtype.itemsize > 1)
        call = lambda t: op(*args[:i], t, *args[i + 1:])[0]  # noqa: E731
        with pytest.raises(NotImplementedError, match=REFUSED):
            torch.func.jvp(call, (args[i],), (torch.ones_like(args[i]),))
        with torch.autograd.forward_ad.dual_level(), pytest.raises(NotImplementedError, match=REFUSED):
            call(torch.autograd.forward_ad.make_dual(args[i], torch.ones_like(args[i])))


def test_the_check_of_tangents_changes_nothing_else(device):
    """Inference, vmap, export, torch.compile, and torch's warning where a gradient is asked for."""
    x, ends = torch.randn(64, 32, device=device), torch.tensor([20, 64], dtype=torch.int32, device=device)
    rows = torch.ops.octet.quantize_rows(x)[1]
    with torch.inference_mode():
        assert torch.equal(torch.ops.octet.quantize_rows(x)[1], rows)
        assert torch.equal(torch.ops.octet.quantize_rows(torch.randn_like(x).copy_(x))[1], rows)
    assert torch.equal(torch.vmap(lambda t: torch.ops.octet.quantize_rows(t)[1])(torch.stack([x, x]))[1], rows)

    class Module(torch.nn.Module):
        def forward(self, x):
            return torch.ops.octet.pad_groups(x, ends, 16)[0] * 2

    padded = Module()(x)
    assert torch.equal(torch.export.export(Module(), (x,)).module()(x), padded)
    assert torch.equal(torch.compile(Module(), fullgraph=True, backend="aot_eager")(x), padded)
    leaf = x.clone().requires_grad_()
    with pytest.warns(UserWarning, match="an autograd kernel was not registered"):
        (Module()(leaf).sum() + leaf.sum()).backward()


def test_checks_are_registered_with_the_keyset():
    with pytest.raises(AssertionError, match="with_keyset=True"):
        octet._registration._refusing.impl("pad_groups", lambda *_: None, "AutogradXLA")
