"""octet.grouped_mm against torch's products of the dequantized operands: values, gradients, layouts, what is kept, errors,
torch.compile and opcheck."""
import gc
import weakref

import pytest
import torch

import octet
from octet._registration import BLOCKS, SCALINGS, token_alignment

M, K, N, E = 150, 96, 80, 4
ENDS = [37, 37, 120, 141]  # an empty group, and nine rows that belong to nobody


def tensors(device, dtype=torch.float32, k_last=True, m=M, k=K, n=N, ends=ENDS):
    generator = torch.Generator().manual_seed(1)
    normal = lambda *shape: torch.randn(*shape, generator=generator).to(device, dtype)  # noqa: E731
    a = normal(m, k).requires_grad_()
    w = normal(len(ends), n, k) * k**-0.5 if k_last else (normal(len(ends), k, n) * k**-0.5)
    w.requires_grad_()
    return a, w, (w.transpose(-2, -1) if k_last else w), torch.tensor(ends, dtype=torch.int32, device=device), normal(m, n)


def dequantized(x, scaling, kind, ends=None):
    """x after its way through 8 bits, in f64."""
    options = dict(scaling=scaling, scale_rounding="exact" if scaling == "blockwise" else "power_of_two")
    if kind == "rows":
        return octet.dequantize_rows(octet.quantize_rows(x, **options), scaling, torch.float32).double()
    if kind == "columns":
        alignment = token_alignment(scaling, x.device)
        q = octet.quantize_columns(x, ends, alignment, **options)
        return octet.dequantize_columns(q, ends, x.shape[0], alignment, scaling, torch.float32).double()
    q = octet.quantize_weights(x, kind, **options)
    return octet.dequantize_weights(q, kind, scaling, torch.float32).double()


def expected(a, w, ends, dy, recipe):
    """Y, dA, dW [E, N, K] by f64 products of what the recipe quantizes."""
    a, w, dy = a.detach(), w.detach(), dy.detach()
    if recipe == "bf16":
        rows_a = columns_a = a.double()
        rows_dy = columns_dy = dy.double()
        along_k = along_n = w.double()
    else:
        scaling = SCALINGS[recipe]
        rows_a, columns_a = (dequantized(a, scaling, kind, ends) for kind in ("rows", "columns"))
        rows_dy, columns_dy = (dequantized(dy, scaling, kind, ends) for kind in ("rows", "columns"))
        along_k, along_n = (dequantized(w, scaling, kind) for kind in ("along_k", "along_n"))
    y = torch.zeros(a.shape[0], w.shape[1], dtype=torch.float64, device=a.device)
    da, dw = torch.zeros_like(rows_a), torch.zeros_like(along_k)
    begin = 0
    for g, end in enumerate(ends.tolist()):
        y[begin:end] = rows_a[begin:end] @ along_k[g].T
        da[begin:end] = rows_dy[begin:end] @ along_n[g]
        dw[g] = columns_dy[begin:end].T @ columns_a[begin:end]
        begin = end
    return y, da, dw


def assert_close(ours, theirs, reduction, what):
    """The bounds of docs/numerics.md: f32 accumulation, or that of Hopper's tensor cores, and one rounding (half of 2^-7) where
    the result is bf16."""
    bound = (2e-4 if ours.is_cuda else 1e-6 * reduction**0.5) + (2**-8 if ours.dtype == torch.bfloat16 else 0)
    error = (ours.detach().double() - theirs).norm() / theirs.norm()
    assert error <= bound, f"{what}: relative error {error:.2e}, expected at most {bound:.2e}"


def in_8_bits(recipe):
    """The recipe with no product left to a GPU's cost model."""
    return recipe if recipe == "bf16" else f"{recipe}:forward=fp8,dgrad=fp8"


def swapped(w, k_last):
    return w.detach() if k_last else w.detach().transpose(-2, -1).contiguous()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("k_last", [True, False], ids=["transposed parameter", "plain parameter"])
def test_values_and_gradients(device, recipe, dtype, k_last):
    a, w, b, ends, dy = tensors(device, dtype, k_last)
    y = octet.grouped_mm(a, b, ends, in_8_bits(recipe))
    assert y.dtype == dtype and y.shape == (M, N)
    y.backward(dy)
    owned = ENDS[-1]
    theirs = expected(a, swapped(w, k_last), ends, dy, recipe)
    assert_close(y[:owned], theirs[0][:owned], K, "y")
    assert_close(a.grad[:owned], theirs[1][:owned], N, "da")
    assert_close(swapped(w.grad, k_last), theirs[2], 83, "dw")
    assert w.grad.stride() == w.stride()
    assert not w.grad[1].any(), "the gradient of an empty group is not zero"


@pytest.mark.parametrize("m,k,n,ends", [(1, 1, 1, [1]), (40, 33, 17, [1, 2, 40]), (5, 16, 16, [0, 0, 5]), (64, 200, 130, [64]),
                                        (300, 144, 272, [0, 77, 300])])
def test_odd_sizes(device, recipe, m, k, n, ends):
    a, w, b, offs, dy = tensors(device, torch.bfloat16, True, m, k, n, ends)
    octet.grouped_mm(a, b, offs, in_8_bits(recipe)).backward(dy)
    y = octet.grouped_mm(a.detach(), b.detach(), offs, in_8_bits(recipe))
    cached = octet.grouped_mm(a, b, offs, in_8_bits(recipe), cache_weights=True)
    assert torch.equal(cached, y)
    assert torch.equal(torch.autograd.grad(cached, a, dy)[0], a.grad)
    theirs = expected(a, w, offs, dy, recipe)
    for ours, its, reduction, what in zip((y, a.grad, w.grad), theirs, (k, n, m), ("y", "da", "dw")):
        assert_close(ours, its, reduction, what)


@pytest.mark.parametrize("k_last", [True, False], ids=["transposed parameter", "plain parameter"])
@pytest.mark.parametrize("forward", ["fp8", "bf16"])
@pytest.mark.parametrize("dgrad", ["fp8", "bf16"])
def test_a_step_of_both(device, forward, dgrad, k_last):
    """Each product is that of the recipe which runs all of them so, bit for bit; what is kept is in 8 bits either way."""
    def step(recipe):
        a, w, b, ends, dy = tensors(device, torch.bfloat16, k_last)
        saved = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
            y = octet.grouped_mm(a, b, ends, recipe)
        y.backward(dy)
        return y.detach()[:ENDS[-1]], a.grad[:ENDS[-1]], w.grad, [t.dtype for t in saved if t.shape[-1:] != w.shape[-1:]]
    pure = {"fp8": step(in_8_bits("fp8_rowwise")), "bf16": step("bf16")}
    y, da, dw, saved = step(f"fp8_rowwise:forward={forward},dgrad={dgrad}")
    assert torch.equal(y, pure[forward][0]) and torch.equal(da, pure[dgrad][1]) and torch.equal(dw, pure["fp8"][2])
    assert saved == pure["fp8"][3]
    assert not torch.equal(pure["fp8"][0], pure["bf16"][0]), "the two recipes cannot be told apart"


def test_two_weights_in_bf16(device):
    a, w, b, ends, _ = tensors(device, torch.bfloat16)
    both = octet.grouped_mm_dual(a.detach(), b.detach(), b.detach(), ends, "fp8_rowwise:forward=bf16")
    one = octet.grouped_mm(a.detach(), b.detach(), ends, "bf16")
    assert all(torch.equal(y[:ENDS[-1]], one[:ENDS[-1]]) for y in both)


def test_no_tokens(device, recipe):
    a, w, b, offs, dy = tensors(device, torch.bfloat16, True, 0, K, N, [0, 0])
    for loss in (lambda y: y.backward(dy), lambda y: y.sum().backward()):  # the second sends back strides of 0
        y = octet.grouped_mm(a, b, offs, recipe)
        loss(y)
        assert y.shape == (0, N) and a.grad.shape == (0, K) and not w.grad.any()


def test_out_dtype_bias_and_int64_offsets(device):
    a, w, b, ends, _ = tensors(device, torch.bfloat16)
    y = octet.grouped_mm(a, b, ends, out_dtype=torch.float32)
    assert y.dtype == torch.float32
    owned = slice(0, ENDS[-1])
    assert torch.equal(octet.grouped_mm(a, b, ends.long())[owned], y[owned].to(torch.bfloat16))
    bias = torch.randn(N, device=device)
    assert torch.equal(octet.grouped_mm(a, b, ends, bias=bias, out_dtype=torch.float32)[owned], y[owned] + bias)


def test_gradients_of_one_side_alone(device):
    a, w, b, ends, dy = tensors(device, torch.bfloat16)
    octet.grouped_mm(a, b, ends).backward(dy)
    alone_a = a.detach().requires_grad_()
    octet.grouped_mm(alone_a, b.detach(), ends).backward(dy)
    alone_w = w.detach().requires_grad_()
    octet.grouped_mm(a.detach(), alone_w.transpose(-2, -1), ends).backward(dy)
    owned = slice(0, ENDS[-1])
    assert torch.equal(alone_a.grad[owned], a.grad[owned]) and torch.equal(alone_w.grad, w.grad)


def test_a_gradient_without_strides(device):
    """sum() sends back one number, seen through strides of 0."""
    a, w, b, ends, dy = tensors(device, torch.bfloat16)
    octet.grouped_mm(a, b, ends).sum().backward()
    spread = a.grad.clone()
    a.grad = None
    octet.grouped_mm(a, b, ends).backward(torch.ones_like(dy))
    assert torch.equal(a.grad[: ENDS[-1]], spread[: ENDS[-1]])


def test_what_cannot_be_is_said_in_backward(device):
    a, w, b, ends, dy = tensors(device, torch.bfloat16)
    y = octet.grouped_mm(a, b, ends)
    with torch.no_grad():
        w.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward(dy)
    for loss in (torch.Tensor.square, torch.Tensor.float):  # of the second, dy is a constant; dA is not
        (da,) = torch.autograd.grad(loss(octet.grouped_mm(a, b, ends)).sum(), a, create_graph=True)
        with pytest.raises(RuntimeError, match="differentiable once"):
            da.sum().backward()
    with pytest.raises(RuntimeError, match="differentiable once"):  # a forward derivative, made of two backward ones
        torch.autograd.functional.jvp(lambda t: octet.grouped_mm(t, b.detach(), ends), a.detach(), a.detach())


def test_tokens_of_a_wider_tensor(device):
    a, w, b, ends, dy = tensors(device, torch.bfloat16)
    wide = torch.cat([a.detach(), a.detach()], dim=1)
    expected_y = octet.grouped_mm(a, b, ends)[: ENDS[-1]]
    assert torch.equal(octet.grouped_mm(wide[:, :K], b, ends)[: ENDS[-1]], expected_y)
    assert torch.equal(octet.grouped_mm(a.detach().t().contiguous().t(), b, ends)[: ENDS[-1]], expected_y)


def test_only_8_bits_of_the_activation_are_kept(device, recipe):
    a, w, b, ends, dy = tensors(device, torch.bfloat16, m=4096, ends=[1000, 1000, 3000, 4096])
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        octet.grouped_mm(a, b, ends, recipe)
    kept = [x for x in kept if x.untyped_storage().data_ptr() not in (w.untyped_storage().data_ptr(), ends.untyped_storage().data_ptr())]
    total = sum(x.numel() * x.element_size() for x in kept)
    assert total <= (2 * a.numel() if recipe == "bf16" else 1.2 * a.numel())


def test_dual_is_two_products(device, recipe):
    a, w, b, ends, dy = tensors(device, torch.bfloat16)
    b0, b1 = b.detach().clone().requires_grad_(), (2 * b.detach()).requires_grad_()
    y0, y1 = octet.grouped_mm_dual(a, b0, b1, ends, recipe)
    (y0 * dy + y1 * (dy - 1)).sum().backward()
    ours = [t.grad for t in (a, b0, b1)]
    a.grad = b0.grad = b1.grad = None
    z0, z1 = (octet.grouped_mm(a, weight, ends, recipe) for weight in (b0, b1))
    (z0 * dy + z1 * (dy - 1)).sum().backward()
    owned = slice(0, ENDS[-1])
    assert torch.equal(y0[owned], z0[owned]) and torch.equal(y1[owned], z1[owned])
    assert torch.equal(ours[0][owned], a.grad[owned]) and torch.equal(ours[1], b0.grad) and torch.equal(ours[2], b1.grad)


def test_a_shared_activation_is_cast_once(device, recipe, monkeypatch):
    """Two products of one activation: the bits of two casts, from one; and a changed activation is cast anew."""
    casts = []
    real = octet.product._grouped_mm_share
    monkeypatch.setattr(octet.product, "_grouped_mm_share", lambda *args: casts.append(1) or real(*args))
    a, w, b, ends, dy = tensors(device, torch.bfloat16)
    owned = slice(0, ENDS[-1])

    def step(product):
        x = a * 2
        y0, y1 = product(x, b, 0), product(x, 3 * b, 1)
        return [y0.detach()[owned], y1.detach()[owned], *torch.autograd.grad(y0 * y1, (a, w), dy)]

    shared = step(lambda x, weight, _: octet.grouped_mm(x, weight, ends, recipe))
    assert len(casts) == (recipe != "bf16")
    apart = step(lambda x, weight, i: octet.grouped_mm(x.clone(), weight, ends, recipe))
    for ours, theirs in zip(shared, apart):
        assert torch.equal(ours[: ENDS[-1]], theirs[: ENDS[-1]])
    x = a * 2
    with torch.no_grad():
        first = octet.grouped_mm(x.detach(), b, ends, recipe)[owned]
    assert torch.equal(octet.grouped_mm(x, b, ends, recipe)[owned], first)
    x.mul_(-1)
    assert torch.equal(octet.grouped_mm(x, b, ends, recipe)[owned], -first)
    with torch.no_grad():
        x.mul_(-1)  # the same node of the graph, another version
    assert torch.equal(octet.grouped_mm(x, b, ends, recipe)[owned], first)
    del x
    assert octet.product._last is None


def test_an_activation_is_cast_anew_where_anything_is_not_the_same(device, monkeypatch):
    casts = []
    real = octet.product._grouped_mm_share
    monkeypatch.setattr(octet.product, "_grouped_mm_share", lambda *args: casts.append(1) or real(*args))
    a, _, b, ends, _ = tensors(device, torch.bfloat16)
    x = a * 2

    def casts_of(tokens, offs, recipe):
        before = len(casts)
        octet.grouped_mm(tokens, b, offs, recipe)
        return len(casts) - before

    assert casts_of(x, ends, "fp8_rowwise") == 1 and casts_of(x, ends, "fp8_rowwise") == 0
    others = ends.clone()
    assert casts_of(x, others, "fp8_rowwise") == 1 and casts_of(x, others, "fp8_rowwise") == 0
    others[0] -= 1
    assert casts_of(x, others, "fp8_rowwise") == 1
    assert casts_of(x, others, "fp8_rowwise:gradient=e5m2") == 1
    with torch.no_grad():
        x += 1
    assert casts_of(x, others, "fp8_rowwise:gradient=e5m2") == 1
    assert casts_of(x.clone(), others, "fp8_rowwise:gradient=e5m2") == 1
    one, other = torch.stack([x, -x]).unbind()  # of one node
    assert casts_of(one, others, "fp8_rowwise") == 1 and casts_of(other, others, "fp8_rowwise") == 1
    del one, other
    leaf = x.detach().requires_grad_()  # may be written behind torch's back: each product casts it for itself
    assert casts_of(leaf, others, "fp8_rowwise") == 0 and octet.product._last is None
    if device.type == "cuda":
        assert casts_of(x, others, "fp8_rowwise") == 1
        with torch.cuda.stream(torch.cuda.Stream()):
            assert casts_of(x, others, "fp8_rowwise") == 1
        torch.cuda.synchronize()


def test_gradients_of_a_shared_activation_are_added_as_they_are_computed(device, recipe, monkeypatch):
    """Of three products: the bits of separate ones, summed in backward's order. Whatever part of the graph backward runs through,
    and however often."""
    rests = []
    real = octet.product._grouped_mm_backward_onto

    def onto(*args):
        rest, dw = real(*args)
        rests.append(rest.numel())
        return rest, dw

    monkeypatch.setattr(octet.product, "_grouped_mm_backward_onto", onto)
    a, _, b, ends, dy = tensors(device, torch.bfloat16)
    weights = [(scale * b).detach().requires_grad_() for scale in (1.0, -3.0, 0.5)]
    owned = slice(0, ENDS[-1])
    recipe = in_8_bits(recipe)

    def outputs(x, share=True):
        return [octet.grouped_mm(x if share else x.clone(), w, ends, recipe) for w in weights]

    def same(ours, theirs):
        assert (ours is None) == (theirs is None)
        return ours is None or torch.equal(ours[owned] if ours.dim() == 2 else ours, theirs[owned] if theirs.dim() == 2 else theirs)

    for used in ([0, 1, 2], [0, 2], [1], [2], [0]):
        x, z = a * 2, a * 2
        ours, theirs = outputs(x), outputs(z, share=False)
        for repetition in range(2):
            gradients = [torch.autograd.grad([ys[i] for i in used], [a, root, *weights], [dy] * len(used), retain_graph=True, allow_unused=True)
                         for ys, root in ((ours, x), (theirs, z))]
            assert all(same(*pair) for pair in zip(*gradients))
        few = torch.autograd.grad([ours[i] for i in used], weights, [dy] * len(used), allow_unused=True)
        assert all(same(*pair) for pair in zip(few, gradients[1][2:]))
    assert len(rests) == (0 if recipe == "bf16" else 3 * (2 + 1))
    assert (max(rests, default=0) == 0) == (SCALINGS.get(recipe.partition(":")[0]) != "mx")

    # What backward freed of one product does not stand in the way of another: a sum keeps nothing itself.
    x = a + 1
    octet.grouped_mm(x, weights[0], ends, recipe).backward(dy)
    a.grad = None
    octet.grouped_mm(x, weights[1], ends, recipe).backward(dy)
    assert same(a.grad, torch.autograd.grad(octet.grouped_mm((a + 1).clone(), weights[1], ends, recipe), a, dy)[0])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="casts run beside products on a GPU")
@pytest.mark.parametrize("m,k,n,experts,two_visits", [(16640, 2048, 1408, 2, False), (33000, 4096, 3072, 4, False),
                                                      (32768, 4096, 2048, 8, True), (32768, 1024, 1408, 32, True),
                                                      (33000, 2064, 2832, 16, True)])
def test_casts_beside_products_have_the_bits_of_casts_alone(m, k, n, experts, two_visits):
    """Sizes at which the second half of a cast may be made beside a product: the weights' beside wgrad where there are two visits."""
    recipe = "fp8_rowwise:accumulation=fast,forward=fp8,dgrad=fp8"
    ops = torch.ops.octet
    a, dy, w = (torch.randn(*shape, device="cuda").bfloat16() for shape in ((m, k), (m, n), (experts, n, k)))
    step = m // experts
    ends = torch.tensor([step * (i + 1) - (77 * i) % 300 for i in range(experts - 1)] + [m], dtype=torch.int32, device="cuda")
    used = sum((end - begin + 127) // 128 * 128 for begin, end in zip([0, *ends.tolist()], ends.tolist()))
    b = w.transpose(-2, -1)
    for _ in range(3):
        y, rows, rows_scale, kept, kept_scale, visit = ops.grouped_mm_share(a, b, ends, recipe, "bf16")
        assert (visit is not None) == two_visits
        da, db = ops.grouped_mm_backward(dy, b, ends, recipe, kept, kept_scale, True, True, "bf16", None, None, visit)
        for wants in ((True, True), (True, False), (False, True)):
            for given in (None, visit):
                plain = ops.grouped_mm_backward(dy, b, ends, recipe, kept, kept_scale, *wants, "bf16", None, None, given)
                assert all(torch.equal(x, z) for x, z, want in zip(plain, (da, db), wants) if want)
        alone = ops.quantize_pair(a, ends, 128)
        assert torch.equal(rows, alone[0].view(torch.uint8)) and torch.equal(rows_scale, alone[2])
        assert torch.equal(kept[:, :used], alone[3].view(torch.uint8)[:, :used]) and torch.equal(kept_scale, alone[5])
        gradient, along_n, along_k = ops.quantize_pair(dy, ends, 128), ops.quantize_weights_along(w, "along_n"), ops.quantize_weights_along(w, "along_k")
        assert torch.equal(y, ops.grouped_forward(alone[0], alone[2], along_k[0], along_k[2], ends, "rowwise", "fast"))
        assert torch.equal(da, ops.grouped_dgrad(gradient[0], gradient[2], along_n[0], along_n[2], ends, "rowwise", "fast"))
        dw = ops.grouped_wgrad(gradient[3], gradient[5], alone[3], alone[5], ends, 128, "rowwise", "fast")
        assert torch.equal(db.transpose(-2, -1), dw)


def test_the_torchao_calls(device):
    from octet.torchao import (_to_fp8_blockwise_then_scaled_grouped_mm, _to_fp8_rowwise_then_scaled_grouped_mm,
                               _to_mxfp8_then_scaled_grouped_mm)

    a, w, b, ends, _ = tensors(device, torch.bfloat16)
    owned = slice(0, ENDS[-1])
    rowwise = _to_fp8_rowwise_then_scaled_grouped_mm(a, b, ends, torch.bfloat16, torch.float8_e4m3fn, False)
    assert torch.equal(rowwise[owned], octet.grouped_mm(a, b, ends)[owned])
    if device.type == "cpu":
        mx = _to_mxfp8_then_scaled_grouped_mm(a, b, offs=ends, out_dtype=torch.float32, wgrad_with_hp=True)
        assert torch.equal(mx[owned], octet.grouped_mm(a, b, ends, "mxfp8:wgrad=bf16", out_dtype=torch.float32)[owned])
        floor = _to_mxfp8_then_scaled_grouped_mm(a, b, offs=ends, out_dtype=torch.float32, scale_calculation_mode="floor")
        assert torch.equal(floor[owned], octet.grouped_mm(a, b, ends, "mxfp8:mx=floor", out_dtype=torch.float32)[owned])
        assert not torch.equal(floor[owned], mx[owned])
        wide = _to_fp8_rowwise_then_scaled_grouped_mm(a, b, ends, float8_dtype=torch.float8_e5m2)
        assert torch.equal(wide[owned], octet.grouped_mm(a, b, ends, "fp8_rowwise:format=e5m2,gradient=e5m2")[owned])
        assert not torch.equal(wide[owned], rowwise[owned])
        blocks = _to_fp8_blockwise_then_scaled_grouped_mm(a, b, ends)
        assert torch.equal(blocks[owned], octet.grouped_mm(a, b, ends, "fp8_blockwise")[owned])


# ---- the cache of cast weights ------------------------------------------------------------------------------------


def test_the_cache_ends_with_an_optimizer_step(device, monkeypatch):
    casts = []
    real = torch.ops.octet.cast_weights
    monkeypatch.setattr(octet.weights, "_cast", lambda b, recipe: casts.append(1) or real(b, recipe))
    a, w, _, ends, dy = tensors(device, torch.bfloat16)
    w = torch.nn.Parameter(w.detach())
    optimizer = torch.optim.SGD([w], lr=0.5)

    def step():
        y = octet.grouped_mm(a, w.transpose(-2, -1), ends, recipe, cache_weights=True)
        y.backward(dy)
        return y.detach()[: ENDS[-1]]

    recipe = in_8_bits("fp8_rowwise")
    first = step()
    assert torch.equal(step(), first) and len(casts) == 1
    without = octet.grouped_mm(a, w.transpose(-2, -1), ends, recipe)[: ENDS[-1]].detach()
    assert torch.equal(first, without)
    optimizer.step()
    changed = step()
    assert len(casts) == 2 and not torch.equal(changed, first)
    w.data = w.data * 2  # other memory
    assert torch.equal(step(), octet.grouped_mm(a, w.transpose(-2, -1), ends, recipe)[: ENDS[-1]]) and len(casts) == 3
    w.data.mul_(2)  # behind torch's back
    octet.weights_changed()
    assert torch.equal(step(), octet.grouped_mm(a, w.transpose(-2, -1), ends, recipe)[: ENDS[-1]]) and len(casts) == 4
    with torch.no_grad():
        w.mul_(2)  # seen by the version counter
    step()
    assert len(casts) == 5
    assert octet.weights.cached_bytes() > 0
    objects = []
    for _ in range(3):  # steps leave nothing behind
        for _ in range(20):
            step()
            optimizer.step()
        gc.collect()
        objects.append(len(weakref.finalize._registry))
    assert objects[2] == objects[1]
    del w, optimizer
    gc.collect()
    assert octet.weights.cached_bytes() == 0


# ---- errors -------------------------------------------------------------------------------------------------------


def test_errors_have_octets_text(device):
    a, w, b, ends, _ = tensors(device, torch.bfloat16)
    with pytest.raises(RuntimeError, match="A has 95 features and the weights are .4, 96, 80.; expected 96, their in-features"):
        octet.grouped_mm(a[:, :95], b, ends)
    with pytest.raises(RuntimeError, match="3 groups were given and the weights are of 4 experts; every group needs its expert"):
        octet.grouped_mm(a, b, ends[:3])
    with pytest.raises(ValueError, match="recipe 'fp9' was given, expected one of bf16, fp8_rowwise, fp8_blockwise, mxfp8"):
        octet.grouped_mm(a, b, ends, "fp9")
    with pytest.raises(RuntimeError, match="unknown recipe option 'sclaes'; known: format, gradient, scales, mx, forward, dgrad, wgrad, weight_uses, accumulation"):
        octet.grouped_mm(a, b, ends, "fp8_rowwise:sclaes=exact")
    with pytest.raises(ValueError, match=r"A of shape \(2, 150, 96\)"):
        octet.grouped_mm(torch.stack([a, a]), b, ends)
    with pytest.raises(RuntimeError, match="A has a dtype that Octet does not have"):
        octet.grouped_mm(a.half(), b, ends, out_dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="no offs were given"):
        octet.grouped_mm(a, b)
    for offs, given in ((ends.float(), "torch.float32"), (ends.bool(), "torch.bool"), (ENDS, "list")):
        with pytest.raises(ValueError, match=f"offs of {given} were given; expected the cumulative end"):
            octet.grouped_mm(a, b, offs)
    with pytest.raises(RuntimeError, match="start on multiples of 100, expected a positive multiple of 32"):
        octet.quantize_columns(a, ends, 100, scaling="mx")
    if device.type == "cpu":
        with pytest.raises(RuntimeError, match="151"):
            octet.grouped_mm(a, b, torch.tensor([1, 2, 3, 151], dtype=torch.int32))


# ---- torch.compile, opcheck and CUDA graphs -----------------------------------------------------------------------


def operator_samples(device, scaling):
    ends = torch.tensor([32, 32, 128], dtype=torch.int32, device=device)
    x, x1, w = (torch.randn(*shape, device=device).bfloat16() for shape in ((128, 64), (128, 32), (3, 32, 64)))
    ops = torch.ops.octet
    rows, columns = ops.quantize_rows(x, scaling), ops.quantize_columns(x, ends, 128, scaling)
    across = ops.quantize_transposed(x1.t().contiguous(), ends, 128, scaling)
    both = ops.quantize_weights(w, scaling)
    which = 1 if scaling == "mx" else 2
    columns1 = ops.quantize_columns(x1, ends, 128, scaling)
    rows1 = ops.quantize_rows(x1, scaling)
    yield ops.quantize_rows, (x, scaling)
    yield ops.quantize_columns, (x, ends, 128, scaling)
    yield ops.quantize_columns_dual, (x, x1, ends, 128, scaling)
    yield ops.quantize_pair, (x, ends, 128, scaling)
    yield ops.quantize_transposed, (x1.t().contiguous(), ends, 128, scaling)
    yield ops.quantize_weights, (w, scaling)
    yield ops.quantize_weights_along, (w, "along_n", scaling)
    yield ops.dequantize_rows, (rows[0], rows[1], scaling)
    yield ops.dequantize_columns, (columns[0], columns[1], ends, 128, 128, scaling)
    yield ops.dequantize_transposed, (across[0], across[1], ends, 128, 128, scaling)
    yield ops.dequantize_weights, (both[3], both[4], "along_n", scaling)
    yield ops.pad_groups, (x, ends, 32)
    yield ops.unpad_groups, (ops.pad_groups(x, ends, 32)[0], ends, 32, 128)
    yield ops.grouped_forward, (rows[0], rows[which], both[0], both[which], ends, scaling)
    yield ops.grouped_dgrad, (rows1[0], rows1[which], both[3], both[3 + which], ends, scaling)
    yield ops.grouped_wgrad, (columns1[0], columns1[which], columns[0], columns[which], ends, 128, scaling)
    weights = torch.rand(128, device=device)
    yield ops.swiglu_quantize, (x, weights, ends, 128, scaling)
    yield ops.swiglu_backward_quantize, (x, weights, x1, ends, 128, scaling)
    if scaling == "mx":
        yield ops.swizzle_scales, (rows[1],)
        yield ops.unswizzle_scales, (ops.swizzle_scales(rows[1]), *rows[1].shape)
        yield ops.swizzle_group_scales, (rows[1], ends)
        yield ops.unswizzle_group_scales, (ops.swizzle_group_scales(rows[1], ends), ends, *rows[1].shape)


CHECKS = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


@pytest.mark.parametrize("scaling", list(BLOCKS))
def test_opcheck(scaling):
    for op, args in operator_samples(torch.device("cpu"), scaling):
        float8 = any(isinstance(arg, torch.Tensor) and arg.dtype.itemsize == 1 for arg in args)
        before = [arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args]
        # torch's schema check compares arguments by an allclose that float8 does not have; that none is written is below.
        torch.library.opcheck(op, args, test_utils=CHECKS[1:] if float8 else CHECKS)
        for arg, copy in zip(args, before):
            assert not isinstance(arg, torch.Tensor) or torch.equal(arg.view(torch.uint8), copy.view(torch.uint8))


def test_opcheck_of_the_differentiable(recipe):
    a, w, b, ends, dy = tensors("cpu", torch.float32, m=141)
    b = b.detach().requires_grad_()
    torch.library.opcheck(torch.ops.octet.grouped_mm, (a, b, ends, recipe, "f32", True), test_utils=CHECKS)
    torch.library.opcheck(torch.ops.octet.grouped_mm_dual, (a, b, b.detach().clone().requires_grad_(), ends, recipe, "f32", True),
                          test_utils=CHECKS)
    kept = torch.ops.octet.grouped_mm(a, b, ends, recipe, "f32", True)[1:]
    if recipe == "bf16":
        kept = (a.detach(), None)
    else:
        torch.library.opcheck(torch.ops.octet.cast_weights, (b.detach(), recipe), test_utils=CHECKS)
        torch.library.opcheck(torch.ops.octet.cast_tokens_both, (a.detach(), ends, recipe), test_utils=CHECKS)
        for other in (recipe, f"{recipe}:forward=bf16"):
            torch.library.opcheck(torch.ops.octet.grouped_mm_share, (a.detach(), b.detach(), ends, other, "f32"), test_utils=CHECKS)
            torch.library.opcheck(torch.ops.octet.grouped_mm_no_grad, (a.detach(), b.detach(), ends, other, "f32", True), test_utils=CHECKS)
        casts = torch.ops.octet.cast_tokens_both(a.detach(), ends, recipe)
        assert all(torch.equal(cast, k) for cast, k in zip(casts[2:], kept))
        torch.library.opcheck(torch.ops.octet.grouped_mm, (a, b, ends, recipe, "f32", False, *[None] * 4, *casts), test_utils=CHECKS)
    torch.library.opcheck(torch.ops.octet.grouped_mm_backward,
                          (dy, b.detach(), ends, recipe, *(k if k is None else k.detach() for k in kept), True, True, "f32"),
                          test_utils=CHECKS)
    for dtype in (torch.float32, torch.bfloat16):
        torch.library.opcheck(torch.ops.octet.grouped_mm_backward_onto,
                              (dy, b.detach(), ends, recipe, *(k if k is None else k.detach() for k in kept), a.detach().to(dtype), True),
                              test_utils=CHECKS)


def test_steps_of_fake_tensors(recipe):
    """What estimates a model's memory runs it eagerly on tensors without elements."""
    with torch._subclasses.FakeTensorMode():
        a, w, b, ends, dy = (torch.empty(32, 64, requires_grad=True), *[torch.empty(4, 64, 48, requires_grad=True)] * 2,
                             torch.empty(4, dtype=torch.int32), torch.empty(32, 48))
        x = a * 2
        (octet.grouped_mm(x, w, ends, recipe) * octet.grouped_mm(x, b, ends, recipe)).backward(dy)
        assert a.grad.shape == a.shape and w.grad.shape == w.shape


def test_opcheck_of_experts(recipe):
    gate_up, down = torch.randn(4, 48, 32, requires_grad=True), torch.randn(4, 32, 24, requires_grad=True)
    x, weights = torch.randn(30, 32, requires_grad=True), torch.rand(30, requires_grad=True)
    ends = torch.tensor([7, 7, 20, 30], dtype=torch.int32)
    slots = torch.randperm(30, dtype=torch.int32)
    order = slots, slots.argsort().to(torch.int32), 2
    few, addend = x[:15].detach().requires_grad_(), torch.randn(15, 32, requires_grad=True)
    ops = torch.ops.octet
    for tokens, rest in ((x, ()), (few, (*order, addend))):
        torch.library.opcheck(ops.experts, (tokens, gate_up, down, ends, weights, recipe, True, *rest), test_utils=CHECKS)
        y, hidden, *kept = (t.detach() for t in ops.experts(tokens, gate_up, down, ends, weights, recipe, True, *rest))
        kept = (tokens.detach(), None, *kept[2:]) if recipe == "bf16" else kept
        torch.library.opcheck(ops.experts_backward, (torch.randn_like(y), gate_up.detach(), down.detach(), ends, weights.detach(), recipe,
                                                     hidden, *kept, True, True, *rest[:3]), test_utils=CHECKS)


def test_compiled_with_a_full_graph(device, recipe):
    a, w, b, ends, dy = tensors(device, torch.bfloat16)

    def experts(x, weight, offs):
        h = octet.grouped_mm(x, weight.transpose(-2, -1), offs, recipe)
        return torch.nn.functional.silu(h.float()).to(h.dtype)

    compiled = torch.compile(experts, fullgraph=True, backend="inductor" if device.type == "cuda" else "aot_eager")
    y = compiled(a, w, ends)
    y.backward(dy)
    ours = y.detach(), a.grad, w.grad
    a.grad = w.grad = None
    y = experts(a, w, ends)
    y.backward(dy)
    owned = slice(0, ENDS[-1])
    # inductor may keep silu's argument in f32 where eager rounded it; the operators themselves are the same calls.
    for mine, its in zip(ours, (y.detach(), a.grad, w.grad)):
        mine, its = (t[owned] if t.dim() == 2 else t for t in (mine, its))
        assert torch.equal(mine, its) or (device.type == "cuda" and (mine - its).norm() <= 0.02 * its.norm())


def test_a_compiled_graph_casts_a_shared_activation_once(device, recipe):
    from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
    from torch._dynamo.backends.common import aot_autograd

    a, w, b, ends, dy = tensors(device, torch.bfloat16)
    casts = {"forward": 0, "backward": 0}

    def counted(name):
        def compiler(graph, _):
            casts[name] += sum(node.target is torch.ops.octet.cast_tokens_both.default for node in graph.graph.nodes)
            return make_boxed_func(graph.forward)

        return compiler

    def step(x, weight):
        weight = weight.transpose(-2, -1)
        return octet.grouped_mm(x, weight, ends, recipe) * octet.grouped_mm(x, weight * 3, ends, recipe)

    backend = aot_autograd(fw_compiler=counted("forward"), bw_compiler=counted("backward"),
                           partition_fn=min_cut_rematerialization_partition)
    results = []
    for function in (torch.compile(step, fullgraph=True, backend=backend), step):
        y = function(a, w)
        results.append([y.detach()[: ENDS[-1]], *(g[: ENDS[-1]] for g in torch.autograd.grad(y, (a, w), dy))])
    assert casts == {"forward": recipe != "bf16", "backward": 0}
    for ours, eager in zip(*results):
        assert torch.equal(ours, eager)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")
def test_cuda_graph_with_other_groups():
    device = torch.device("cuda")
    a, w, b, ends, dy = tensors(device, torch.bfloat16, m=512, ends=[100, 100, 300, 512])
    a, w = a.detach(), w.detach()

    def step():
        x, weight = a.detach().requires_grad_(), w.detach().requires_grad_()
        y = octet.grouped_mm(x, weight.transpose(-2, -1), ends)
        return y, *torch.autograd.grad(y, (x, weight), dy)

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    for groups in ([100, 100, 300, 512], [0, 512, 512, 512], [1, 2, 3, 512]):
        ends.copy_(torch.tensor(groups, dtype=torch.int32))
        graph.replay()
        for ours, theirs in zip(captured, step()):
            assert torch.equal(ours, theirs)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="streams need a GPU")
def test_the_current_stream_is_used():
    device = torch.device("cuda")
    a, w, b, ends, dy = tensors(device, torch.bfloat16)
    expected_y = octet.grouped_mm(a, b, ends)[: ENDS[-1]].clone()
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        late = a.detach() * 1  # known to this stream alone until it is done
        y = octet.grouped_mm(late, b, ends)
    stream.synchronize()
    assert torch.equal(y[: ENDS[-1]], expected_y)
