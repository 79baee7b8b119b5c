"""octet.GroupedExperts, octet.MoE and octet.convert: against plain torch, in training, compiled, and sharded."""
import copy
import io

import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import families
import octet

RECIPES = ("fp8_rowwise", "fp8_blockwise", "mxfp8")


@pytest.fixture(params=RECIPES)
def recipe_8(request):
    return request.param


def moe_by_torch(moe, x):
    """What octet.MoE computes, expert by expert."""
    weights, chosen = moe.route(x)
    y = torch.zeros_like(x)
    w = moe.experts
    for e in range(w.num_experts):
        token, slot = (chosen == e).nonzero(as_tuple=True)
        gate, up = (x[token] @ w.gate_up[e].T).chunk(2, dim=1)
        y = y.index_add(0, token, (F.silu(gate) * up @ w.down[e].T) * weights[token, slot, None].to(x.dtype))
    gate, up = moe.shared.gate_up(x).chunk(2, dim=1)
    return y + F.linear(F.silu(gate) * up, moe.shared.down.weight)


@pytest.mark.parametrize("score,normalize", [("softmax", False), ("sigmoid", True)])
def test_moe_is_its_experts(device, score, normalize):
    """In f32 with plain products: the layer's own sums and gradients, with nothing of 8 bits in them."""
    moe = octet.MoE(32, 48, 5, 3, "bf16", shared_dim=24, score=score, normalize=normalize)
    moe.to(device)
    x = torch.randn(70, 32, device=device, requires_grad=True)
    dy = torch.randn(70, 32, device=device)
    results = []
    for forward in (moe, lambda t: moe_by_torch(moe, t)):
        y = forward(x)
        results.append([y.detach(), *torch.autograd.grad(y, [x, *moe.parameters()], dy)])
    for ours, theirs in zip(*results):
        torch.testing.assert_close(ours, theirs, rtol=2e-5, atol=2e-5)


def test_moe_in_8_bits_is_near(device, recipe_8):
    moe = octet.MoE(128, 256, 8, 2, recipe_8, dtype=torch.bfloat16, device=device)
    plain = copy.deepcopy(moe)
    plain.experts.recipe = "bf16"
    x = torch.randn(4, 64, 128, device=device, dtype=torch.bfloat16)
    for a, b in ((x.clone().requires_grad_(), x.clone().requires_grad_()),):
        y, z = moe(a), plain(b)
        y.sum().backward(), z.sum().backward()
        for ours, theirs in ((y, z), (a.grad, b.grad), (moe.experts.down.grad, plain.experts.down.grad)):
            assert (ours - theirs).float().norm() <= 0.08 * theirs.float().norm()


def test_moe_repeats_its_bits(device):
    moe = octet.MoE(64, 96, 4, 2, dtype=torch.bfloat16, device=device)
    x = torch.randn(300, 64, device=device, dtype=torch.bfloat16, requires_grad=True)
    runs = []
    for _ in range(2):
        y = moe(x)
        runs.append([y.detach(), *torch.autograd.grad(y.float().square().sum(), [x, *moe.parameters()])])
    assert all(torch.equal(a, b) for a, b in zip(*runs))


@pytest.mark.parametrize("options", ["", ":forward=fp8,dgrad=fp8", ":forward=bf16,dgrad=fp8", ":forward=fp8,dgrad=bf16", ":wgrad=bf16"])
def test_experts_are_their_products(device, recipe_8, options):
    """The whole layer in one call, bit for bit what permutation, products, SwiGLU and sum give one after the other."""
    moe = octet.MoE(64, 96, 5, 3, recipe_8 + options, shared_dim=32, device=device, dtype=torch.bfloat16)
    x = torch.randn(90, 64, device=device, dtype=torch.bfloat16, requires_grad=True)
    dy = torch.randn_like(x)
    results = []
    for cache_weights in (False, True):  # cached casts go through the products one by one
        moe.experts.cache_weights = cache_weights
        y = moe(x)
        results.append([y.detach(), *torch.autograd.grad(y, [x, *moe.parameters()], dy)])
    for ours, theirs in zip(*results):
        assert torch.equal(ours, theirs) or (options == "" and device.type == "cuda")  # there the choice may differ
    with torch.no_grad():
        moe.experts.cache_weights = False
        assert torch.equal(moe(x), results[0][0])


def test_experts_of_rows_in_order(device, recipe_8):
    experts = octet.GroupedExperts(64, 96, 4, recipe_8, device=device, dtype=torch.bfloat16)
    x = torch.randn(80, 64, device=device, dtype=torch.bfloat16, requires_grad=True)
    weights = torch.rand(80, device=device, requires_grad=True)
    offs = torch.tensor([30, 30, 61, 80], dtype=torch.int32, device=device)
    for inputs in ((x, weights, *experts.parameters()), (weights,), (x,), tuple(experts.parameters())):
        y = experts(x, offs, weights)
        gradients = torch.autograd.grad(y, inputs, torch.ones_like(y))
        full = dict(zip(map(id, (x, weights, *experts.parameters())), gradients)) if len(inputs) == 4 else full
        assert all(torch.equal(g, full[id(t)]) for g, t in zip(gradients, inputs))
    frozen = octet.GroupedExperts(64, 96, 4, recipe_8, device=device, dtype=torch.bfloat16).requires_grad_(False)
    frozen.load_state_dict(experts.state_dict())
    (dx,) = torch.autograd.grad(frozen(x, offs, weights), x, torch.ones_like(x))
    assert torch.equal(dx, full[id(x)])


def test_a_converted_model_casts_its_tokens_once(device, recipe_8, monkeypatch):
    """torchtitan's experts give the same rows to gate and up."""
    casts = []
    real = octet.product._grouped_mm_share
    monkeypatch.setattr(octet.product, "_grouped_mm_share", lambda *args: casts.append(args[0].shape[1]) or real(*args))
    model = octet.convert(families.BLOCKS["torchtitan"]().bfloat16().to(device), recipe_8)
    model(torch.randn(20, families.D, device=device, dtype=torch.bfloat16, requires_grad=True)).sum().backward()
    assert casts == [families.D, families.H]


def test_torchtitan_names_load():
    experts, shared = octet.GroupedExperts(16, 24, 3), octet.MoE(16, 24, 3, 2, shared_dim=8).shared
    w1, w3, w2 = torch.randn(3, 24, 16), torch.randn(3, 24, 16), torch.randn(3, 16, 24)
    experts.load_state_dict({"w1": w1, "w2": w2, "w3": w3})
    assert torch.equal(experts.gate_up, torch.cat([w1, w3], 1)) and torch.equal(experts.down, w2)
    shared.load_state_dict({"w1.weight": w1[0, :8], "w3.weight": w3[0, :8], "w2.weight": w2[0, :, :8]})
    assert torch.equal(shared.gate_up.weight, torch.cat([w1[0, :8], w3[0, :8]]))
    with pytest.raises(RuntimeError, match="down"):
        experts.load_state_dict({"w1": w1, "w3": w3})


def test_moe_compiles_with_a_full_graph(device):
    moe = octet.MoE(64, 96, 4, 2, dtype=torch.bfloat16, device=device, shared_dim=64)
    x = torch.randn(100, 64, device=device, dtype=torch.bfloat16, requires_grad=True)
    compiled = torch.compile(moe, fullgraph=True, backend="inductor" if device.type == "cuda" else "aot_eager")
    results = []
    for forward in (compiled, moe):
        y = forward(x)
        results.append([y.detach(), *torch.autograd.grad(y.sum(), [x, *moe.parameters()])])
    for ours, theirs in zip(*results):
        assert (ours - theirs).float().norm() <= (0.02 if device.type == "cuda" else 0) * theirs.float().norm()


def test_wrong_choices_are_said():
    with pytest.raises(ValueError, match="top_k is 5 and there are 4 experts; expected 1 to 4"):
        octet.MoE(8, 8, 4, 5)
    with pytest.raises(ValueError, match="score 'relu' was given, expected 'softmax' or 'sigmoid'"):
        octet.MoE(8, 8, 4, 2, score="relu")


# ---- convert ------------------------------------------------------------------------------------------------------

STEPS = 50


@pytest.fixture(scope="module")
def plain_losses():
    return {}


@pytest.mark.parametrize("family", list(families.BLOCKS))
def test_training_follows_bf16(family, recipe_8, plain_losses, device):
    """Fifty steps from the same weights over the same batches: every loss within 3% (of the loss and one) of the unconverted
    model's, and within 1% on average."""
    torch.manual_seed(0)
    model = families.Model(families.BLOCKS[family]()).to(device)
    if device.type == "cuda":
        model.bfloat16()
    key = family, device.type
    if key not in plain_losses:
        plain_losses[key] = families.train(copy.deepcopy(model), STEPS, device)
    names = list(model.state_dict())
    losses = families.train(octet.convert(model, recipe_8), STEPS, device)
    assert list(model.state_dict()) == names
    assert losses != plain_losses[key], "the products did not go through Octet"
    assert losses[-1] < 0.35 * losses[0]
    away = [abs(ours - theirs) / (theirs + 1) for ours, theirs in zip(losses, plain_losses[key])]
    assert max(away) <= 0.03 and sum(away) / STEPS <= 0.01, f"the losses are {away} away from bf16's"


def test_convert_takes_what_the_filter_lets_through():
    model = torch.nn.ModuleList(families.BLOCKS["torchtitan"]() for _ in range(2))
    octet.convert(model, filter=lambda module, name: name.startswith("1."))
    assert not hasattr(model[0].experts, "_octet_forward") and hasattr(model[1].experts, "_octet_forward")
    with pytest.raises(ValueError, match="no experts were found to convert.*`filter`"):
        octet.convert(model, filter=lambda module, name: False)
    with pytest.raises(ValueError, match="no experts were found to convert"):
        octet.convert(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Conv1d(2, 2, 3)))


def test_convert_again_changes_the_recipe():
    model = families.Model(families.BLOCKS["plain"]())
    x, _ = families.batch(0)
    plain = model(x)
    first = octet.convert(model, "fp8_rowwise")(x)
    assert not torch.equal(first, plain) and not torch.equal(octet.convert(model, "fp8_blockwise")(x), first)
    assert torch.equal(octet.convert(model, "fp8_rowwise")(x), first)


@pytest.mark.parametrize("family", list(families.BLOCKS))
def test_a_converted_model_is_copied_and_saved_as_it_is(family):
    model = octet.convert(families.Model(families.BLOCKS[family]()))
    x, _ = families.batch(0)
    expected = model(x)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for other in (copy.deepcopy(model), torch.load(file, weights_only=False)):
        assert torch.equal(other(x), expected)
        with torch.no_grad():
            for parameter in other.block.parameters():
                parameter.zero_()
        assert not torch.equal(other(x), expected) and torch.equal(model(x), expected)


def test_a_layer_is_copied_and_saved_as_it_is():
    moe, x = octet.MoE(64, 96, 4, 2, shared_dim=32), torch.randn(50, 64)
    file = io.BytesIO()
    torch.save(moe, file)
    file.seek(0)
    for other in (copy.deepcopy(moe), torch.load(file, weights_only=False)):
        assert torch.equal(other(x), moe(x))
        titan = {k.replace("gate_up", "w1"): v[..., : v.shape[-2] // 2, :] for k, v in moe.state_dict().items() if "gate_up" in k}
        titan |= {k.replace("gate_up", "w3"): v[..., v.shape[-2] // 2 :, :] for k, v in moe.state_dict().items() if "gate_up" in k}
        titan |= {k.replace("down", "w2"): v for k, v in moe.state_dict().items() if "gate_up" not in k}
        other.load_state_dict(titan)
        assert torch.equal(other(x), moe(x))


@pytest.mark.parametrize("cache_weights", [False, True])
def test_checkpointing_gives_the_same_gradients(cache_weights):
    moe = octet.MoE(64, 96, 4, 2, cache_weights=cache_weights)
    x = torch.randn(50, 64, requires_grad=True)
    results = []
    for forward in (moe, lambda t: checkpoint(moe, t, use_reentrant=False)):
        results.append(torch.autograd.grad(forward(x).square().sum(), [x, *moe.parameters()]))
    assert all(torch.equal(a, b) for a, b in zip(*results))


@pytest.mark.parametrize("family", ["torchtitan", "plain", "stacked"])
def test_a_converted_model_compiles_with_a_full_graph(family):
    model = octet.convert(families.Model(families.BLOCKS[family]()))
    x, _ = families.batch(0)
    expected = model(x)
    expected.sum().backward()
    gradients = [p.grad for p in model.parameters()]
    model.zero_grad()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")(x)
    compiled.sum().backward()
    torch.testing.assert_close(compiled, expected)
    for parameter, gradient in zip(model.parameters(), gradients):
        torch.testing.assert_close(parameter.grad, gradient)
