"""The whole model against its PyTorch twin, from one safetensors file: logits, loss, the gradient of every parameter,
and ten optimizer steps.

Bounds are relative Frobenius errors. The f32 model is held to a twin in f64. The bf16 model is held to a twin that
rounds where Octet's forward pass rounds; autograd then rounds gradients where the forward pass did and Octet where its
backward products need it, so the gradients' bound is wider.
"""

import pytest
import torch

from model_c import Model
from model_twin import Twin, load_checkpoint

BASE = {
    "model": dict(vocabulary=61, layers=2, hidden=48, heads=4, kv_heads=2, head_dim=10, sequence_length=37,
                  rope_theta=1000.0, norm_eps=1e-5, tied_head=True),
    "dense": {},
    "experts": dict(count=6, per_token=2, shared=1, intermediate=40),
    "router": dict(score="softmax", weights="normalized", auxiliary_loss=0.02),
    "training": dict(learning_rate=2e-3, weight_decay=0.1, clip_norm=0.5),
}
CASES = {
    "grouped-query, tied": {},
    "multi-head, untied": {"model": dict(kv_heads=4, head_dim=12, tied_head=False)},
    "one key-value head, dense first layer": {"model": dict(kv_heads=1), "dense": dict(layers=1, intermediate=56)},
    "sigmoid, biased, as scored, no shared expert": {
        "experts": dict(shared=0),
        "router": dict(score="sigmoid", weights="as_scored", scaling=1.5, balance="bias", balance_rate=0.01)},
    "dense throughout": {"dense": dict(layers=2, intermediate=64), "experts": dict(shared=0)},
    "three layers, two shared experts": {"model": dict(layers=3), "experts": dict(shared=2, per_token=1)},
}


def toml(case):
    def text(value):
        return f'"{value}"' if isinstance(value, str) else str(value).lower()

    sections = {name: fields | CASES[case].get(name, {}) for name, fields in BASE.items()}
    return "".join(f"[{name}]\n" + "".join(f"{k} = {text(v)}\n" for k, v in fields.items())
                   for name, fields in sections.items())


def batch(seed, vocabulary, shape=(3, 37)):
    g = torch.Generator().manual_seed(seed)
    tokens = torch.randint(vocabulary, shape, generator=g)
    targets = torch.randint(vocabulary, shape, generator=g)
    targets[0, :5] = -1  # not counted
    return tokens, targets


def relative(ours, theirs):
    return float((ours.double() - theirs.double()).norm() / theirs.double().norm())


def pair(case, activations, tmp_path, **options):
    """Octet's model, with weights that are not those of a fresh one, and the twin of its checkpoint."""
    model = Model(toml(case), activations=activations, seed=3, **options)
    g = torch.Generator().manual_seed(4)
    for value in model.values.values():
        value += 0.05 * torch.randn(value.shape, generator=g)
    model.weights_changed()
    model.save(tmp_path / "model.safetensors")
    tensors = load_checkpoint(tmp_path / "model.safetensors")
    if activations == "f32":
        return model, Twin(model.config, tensors, torch.float32, torch.float64)
    return model, Twin(model.config, tensors, torch.bfloat16, torch.float32)


# logits, gradients
BOUNDS = {"f32": (1e-6, 3e-6), "bf16": (1e-3, 1.5e-2)}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("activations", ["f32", "bf16"])
def test_logits_loss_and_gradients(case, activations, tmp_path):
    model, twin = pair(case, activations, tmp_path)
    assert set(model.values) == set(twin.parameters)
    logits_bound, gradient_bound = BOUNDS[activations]
    with model:
        tokens, targets = batch(5, 61)
        theirs, auxiliary = twin.forward(tokens)
        error = relative(model.logits(tokens), theirs.detach())
        assert error <= logits_bound, f"logits: {error:.2e}"

        loss, extra = twin.loss(tokens, targets)
        (loss + extra).backward()
        ours, our_extra = model.forward_backward(tokens, targets)
        assert abs(ours - float(loss)) <= logits_bound * float(loss)
        assert abs(model.loss(tokens, targets) - ours) <= 1e-6
        assert abs(our_extra - float(extra)) <= logits_bound * max(float(extra), 1e-3)
        errors = {name: relative(model.gradients[name], p.grad) for name, p in twin.parameters.items()}
        worst = max(errors, key=errors.get)
        assert errors[worst] <= gradient_bound, f"{worst}: {errors[worst]:.2e}"


def test_scaled_gradients_accumulate(tmp_path):
    model, twin = pair("grouped-query, tied", "f32", tmp_path)
    with model:
        for seed in (5, 6, 7):
            tokens, targets = batch(seed, 61)
            model.forward_backward(tokens, targets, 1 / 3)
            loss, extra = twin.loss(tokens, targets)
            ((loss + extra) / 3).backward()
        for name, p in twin.parameters.items():
            error = relative(model.gradients[name], p.grad)
            assert error <= 3e-6, f"{name}: {error:.2e}"


@pytest.mark.parametrize("case", ["grouped-query, tied", "multi-head, untied"])
@pytest.mark.parametrize("activations,bound,loss_bound", [("f32", 2e-4, 1e-5), ("bf16", 0.25, 2e-3)],
                         ids=["f32", "bf16"])
def test_ten_optimizer_steps(case, activations, bound, loss_bound, tmp_path):
    """What is compared is how far each parameter has moved. AdamW divides by the gradient's own size, so an element
    whose gradient is near zero moves by the sign of its rounding error: hence the bf16 bound on movement, and the
    tight one on the losses."""
    model, twin = pair(case, activations, tmp_path)
    with model:
        before = {name: value.clone() for name, value in model.values.items()}
        optimizer = twin.optimizer()
        clip = model.config["training"]["clip_norm"]
        for step in range(10):
            rate = 2e-3 * (step + 1) / 10
            tokens, targets = batch(20 + step, 61)
            ours, _ = model.forward_backward(tokens, targets)
            norm = model.step(rate)
            optimizer.zero_grad()
            loss, extra = twin.loss(tokens, targets)
            (loss + extra).backward()
            their_norm = torch.nn.utils.clip_grad_norm_(twin.parameters.values(), clip)
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            assert abs(ours - float(loss)) <= loss_bound * float(loss), f"step {step}: {ours} and {float(loss)}"
            assert abs(norm - float(their_norm)) <= max(10 * loss_bound, 1e-5) * float(their_norm)
            assert norm > clip  # so that clipping is tested
        for name, p in twin.parameters.items():
            moved = p.detach().double() - before[name].double()
            error = relative(model.values[name].double() - before[name].double(), moved)
            assert error <= bound, f"{name}: {error:.2e}"


@pytest.mark.parametrize("recipe", ["fp8_rowwise", "fp8_blockwise", "mxfp8"])
def test_recipes_stay_close_to_the_f32_twin(recipe, tmp_path):
    """Experts alone and then the other products too in 8 bits: the error of all gradients together."""
    for dense in ("bf16", recipe):
        model, _ = pair("grouped-query, tied", "bf16", tmp_path, recipe=recipe, dense=dense)
        with model:
            twin = Twin(model.config, load_checkpoint(tmp_path / "model.safetensors"), torch.float32, torch.float32)
            tokens, targets = batch(5, 61)
            loss, extra = twin.loss(tokens, targets)
            (loss + extra).backward()
            ours, _ = model.forward_backward(tokens, targets)
            assert abs(ours - float(loss)) <= 5e-3 * float(loss)
            all_ours = torch.cat([model.gradients[n].flatten() for n in twin.parameters])
            all_theirs = torch.cat([p.grad.flatten() for p in twin.parameters.values()])
            assert relative(all_ours, all_theirs) <= 0.2


def test_any_number_of_threads_gives_the_same_bits(tmp_path):
    results = []
    for threads in (1, 2, 5):
        with Model(toml("grouped-query, tied"), recipe="fp8_rowwise", activations="bf16", threads=threads) as model:
            losses = []
            for step in range(3):
                losses.append(model.forward_backward(*batch(step, 61)))
                losses.append(model.step(1e-3))
            results.append((losses, {name: value.clone() for name, value in model.values.items()}))
    for losses, values in results[1:]:
        assert losses == results[0][0]
        assert all(torch.equal(values[name], results[0][1][name]) for name in values)
