"""octet.GroupedExperts and octet.MoE: a Mixture-of-Experts layer whose products are Octet's, from the router to the sum."""
import functools

import torch
from torch import nn
from torch.nn import functional as F

from .experts import expert_order, run_experts
from .product import check_recipe


def _stack_gate_and_up(axis, module, state, prefix, *_):
    """A hook for load_state_dict: gate and up under torchtitan's names (w1 and w3, and w2 for down) become one parameter."""
    for suffix in ("", ".weight"):
        names = [f"{prefix}{name}{suffix}" for name in ("w1", "w3", "w2")]
        if all(name in state for name in names):
            gate, up, down = (state.pop(name) for name in names)
            state[f"{prefix}gate_up{suffix}"], state[f"{prefix}down{suffix}"] = torch.cat([gate, up], dim=axis), down


class GroupedExperts(nn.Module):
    """SwiGLU experts, ordinary parameters: gate_up [E, 2H, D], whose first H rows are the gate's, and down [E, D, H]. State dicts
    with torchtitan's w1, w2 and w3 load too.

    forward takes rows that lie in the order of the experts and the cumulative end of each expert's rows. `weights` [M], where
    given, multiply each row's result."""

    def __init__(self, dim, hidden_dim, num_experts, recipe="fp8_rowwise", *, cache_weights=False, device=None, dtype=None):
        super().__init__()
        self.recipe, self.cache_weights = check_recipe(recipe), cache_weights
        self.num_experts = num_experts
        parameter = lambda *shape: nn.Parameter(torch.empty(*shape, device=device, dtype=dtype))  # noqa: E731
        self.gate_up = parameter(num_experts, 2 * hidden_dim, dim)
        self.down = parameter(num_experts, dim, hidden_dim)
        self.register_load_state_dict_pre_hook(functools.partial(_stack_gate_and_up, 1))  # not a lambda: modules are pickled
        self.reset_parameters()

    def reset_parameters(self, std=0.02):
        for weight in self.parameters():
            nn.init.trunc_normal_(weight, std=std)

    def forward(self, x, offs, weights=None, order=None, addend=None):
        return run_experts(x, self.gate_up, self.down, offs, self.recipe, weights, order, addend, self.cache_weights)

    def extra_repr(self):
        experts, dim, hidden_dim = self.down.shape
        return f"dim={dim}, hidden_dim={hidden_dim}, num_experts={experts}, recipe={self.recipe!r}"


class SharedExperts(nn.Module):
    """Experts that all tokens go through: a SwiGLU of plain Linear layers."""

    def __init__(self, dim, hidden_dim, *, device=None, dtype=None):
        super().__init__()
        self.gate_up = nn.Linear(dim, 2 * hidden_dim, bias=False, device=device, dtype=dtype)
        self.down = nn.Linear(hidden_dim, dim, bias=False, device=device, dtype=dtype)
        self.register_load_state_dict_pre_hook(functools.partial(_stack_gate_and_up, 0))

    def forward(self, x):
        return self.down(torch.ops.octet.swiglu(self.gate_up(x)))


class MoE(nn.Module):
    """The whole layer: router, rows to their experts, experts, weighted sum, and experts that all tokens share.

    score       softmax | sigmoid of the router's logits, in f32
    normalize   make the chosen experts' weights add to 1
    shared_dim  hidden size of the shared experts; 0: none

    No group is padded, nothing is read back to the host, and every sum has a fixed order."""

    def __init__(self, dim, hidden_dim, num_experts, top_k, recipe="fp8_rowwise", *, shared_dim=0, score="softmax",
                 normalize=False, cache_weights=False, device=None, dtype=None):
        super().__init__()
        if not 1 <= top_k <= num_experts:
            raise ValueError(f"top_k is {top_k} and there are {num_experts} experts; expected 1 to {num_experts}")
        if score not in ("softmax", "sigmoid"):
            raise ValueError(f"score {score!r} was given, expected 'softmax' or 'sigmoid'")
        self.top_k, self.score, self.normalize = top_k, score, normalize
        self.router = nn.Linear(dim, num_experts, bias=False, device=device, dtype=dtype)
        self.experts = GroupedExperts(dim, hidden_dim, num_experts, recipe, cache_weights=cache_weights, device=device, dtype=dtype)
        self.shared = SharedExperts(dim, shared_dim, device=device, dtype=dtype) if shared_dim else None

    def route(self, x):
        """x [T, D] -> the chosen experts' weights (f32) and numbers, [T, top_k] each."""
        logits = F.linear(x, self.router.weight).float()
        scores = logits.softmax(-1) if self.score == "softmax" else logits.sigmoid()
        weights, chosen = scores.topk(self.top_k, dim=-1)
        return (weights / weights.sum(-1, keepdim=True) if self.normalize else weights), chosen

    def forward(self, x):
        tokens = x.reshape(-1, x.shape[-1])
        weights, chosen = self.route(tokens)
        slot_of_row, row_of_slot, offs = expert_order(chosen, self.experts.num_experts)
        shared = None if self.shared is None else self.shared(tokens)
        return self.experts(tokens, offs, weights, (slot_of_row, row_of_slot, self.top_k), shared).view(x.shape)
