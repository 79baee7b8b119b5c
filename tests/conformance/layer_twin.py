"""The MoE layer as a PyTorch user would write it: plain operations, autograd, one expert after the other."""

import torch
import torch.nn.functional as F


def matmul(x, w):
    """x @ w.t() in the format of x, accumulated in f32: what a bf16 product is. Not left to torch's own bf16 product,
    which on some virtual machines uses matrix instructions that their host does not allow."""
    return (x.float() @ w.float().t()).to(x.dtype)


def mlp(x, gate_up, down):
    gate, up = matmul(x, gate_up).chunk(2, dim=-1)
    return matmul(F.silu(gate) * up, down)


def route(x, router, options, bias=None):
    """-> weights [T, k], chosen [T, k], auxiliary loss. In f32, whatever x is."""
    logits = x.float() @ router.t()
    scores = logits.softmax(-1) if options["score"] == "softmax" else logits.sigmoid()
    ranked = scores if bias is None else scores + bias
    chosen = torch.sort(ranked, dim=-1, descending=True, stable=True).indices[:, : options["top_k"]]
    weights = scores.gather(1, chosen)
    if options["weights"] == "normalized":
        weights = weights / weights.sum(-1, keepdim=True)
    share = torch.bincount(chosen.flatten(), minlength=scores.shape[1]) / chosen.numel()
    mean = (scores / scores.sum(-1, keepdim=True)).mean(0)
    auxiliary = options["auxiliary_loss"] * scores.shape[1] * (share * mean).sum()
    return weights * options["scaling"], chosen, auxiliary


def forward(x, parameters, options, bias=None):
    """-> y, chosen, auxiliary loss. The experts compute in the format of x."""
    weights, chosen, auxiliary = route(x, parameters["router"], options, bias)
    y = torch.zeros(x.shape, dtype=torch.float32)
    for e in range(options["experts"]):
        token, slot = (chosen == e).nonzero(as_tuple=True)
        out = mlp(x[token], parameters["experts.gate_up"][e].to(x.dtype), parameters["experts.down"][e].to(x.dtype))
        y = y.index_add(0, token, out.float() * weights[token, slot, None])
    if options["shared_hidden"]:
        y = y + mlp(x, parameters["shared.gate_up"].to(x.dtype), parameters["shared.down"].to(x.dtype)).float()
    return y.to(x.dtype), chosen, auxiliary


def make_parameters(options, seed, sigma=0.1):
    g = torch.Generator().manual_seed(seed)
    d, h, s, e = (options[name] for name in ("hidden", "expert_hidden", "shared_hidden", "experts"))
    shapes = {"router": (e, d), "experts.gate_up": (e, 2 * h, d), "experts.down": (e, d, h)}
    if s:
        shapes |= {"shared.gate_up": (2 * s, d), "shared.down": (d, s)}
    return {name: (torch.randn(shape, generator=g) * sigma).requires_grad_() for name, shape in shapes.items()}
