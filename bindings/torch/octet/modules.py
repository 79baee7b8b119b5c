"""octet.GroupedExperts and octet.MoE: a Mixture-of-Experts layer whose products are Octet's, from the router to the sum."""
import torch
from torch import nn
from torch.nn import functional as F

from ._rows import Gather, Scatter, swiglu
from .product import check_recipe, grouped_mm, grouped_mm_dual


class GroupedExperts(nn.Module):
    """SwiGLU experts: w1 (gate) and w3 (up) [E, H, D], w2 (down) [E, D, H], ordinary parameters under torchtitan's names.

    forward takes rows that lie in the order of the experts and the cumulative end of each expert's rows. `weights` [M], where
    given, multiply each row's result; they are applied before the down projection, so that its result need not be kept."""

    def __init__(self, dim, hidden_dim, num_experts, recipe="fp8_rowwise", *, cache_weights=False, device=None, dtype=None):
        super().__init__()
        self.recipe, self.cache_weights = check_recipe(recipe), cache_weights
        self.num_experts = num_experts
        parameter = lambda *shape: nn.Parameter(torch.empty(*shape, device=device, dtype=dtype))  # noqa: E731
        self.w1 = parameter(num_experts, hidden_dim, dim)
        self.w2 = parameter(num_experts, dim, hidden_dim)
        self.w3 = parameter(num_experts, hidden_dim, dim)
        self.reset_parameters()

    def reset_parameters(self, std=0.02):
        for weight in self.parameters():
            nn.init.trunc_normal_(weight, std=std)

    def forward(self, x, offs, weights=None):
        w1, w2, w3 = (weight.transpose(-2, -1) for weight in (self.w1, self.w2, self.w3))
        if self.cache_weights:
            gate, up = (grouped_mm(x, weight, offs, self.recipe, cache_weights=True) for weight in (w1, w3))
        else:
            gate, up = grouped_mm_dual(x, w1, w3, offs, self.recipe)
        return grouped_mm(swiglu(gate, up, weights), w2, offs, self.recipe, cache_weights=self.cache_weights)

    def extra_repr(self):
        experts, hidden_dim, dim = self.w1.shape
        return f"dim={dim}, hidden_dim={hidden_dim}, num_experts={experts}, recipe={self.recipe!r}"


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
        linear = lambda n, k: nn.Linear(n, k, bias=False, device=device, dtype=dtype)  # noqa: E731
        self.shared = None
        if shared_dim:
            self.shared = nn.ModuleDict({"w1": linear(dim, shared_dim), "w2": linear(shared_dim, dim), "w3": linear(dim, shared_dim)})

    def route(self, x):
        """x [T, D] -> the chosen experts' weights (f32) and numbers, [T, top_k] each."""
        logits = F.linear(x, self.router.weight).float()
        scores = logits.softmax(-1) if self.score == "softmax" else logits.sigmoid()
        weights, chosen = scores.topk(self.top_k, dim=-1)
        return (weights / weights.sum(-1, keepdim=True) if self.normalize else weights), chosen

    def forward(self, x):
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        weights, chosen = self.route(x)
        rows, offs, tokens, places, row_weights = expert_order(x, chosen, weights, self.experts.num_experts)
        y = Gather.apply(self.experts(rows, offs, row_weights), tokens, places)
        if self.shared is not None:
            y = y + self.shared["w2"](swiglu(self.shared["w1"](x), self.shared["w3"](x)))
        return y.view(shape)


def expert_order(x, chosen, weights, experts):
    """x [T, D] and its chosen experts [T, k] -> the rows in the order of the experts, their cumulative ends, whose row each is,
    where each token's rows went, and each row's weight."""
    k = chosen.shape[1]
    flat = chosen.reshape(-1)
    order = flat.argsort(stable=True)
    counts = torch.zeros(experts, dtype=torch.int32, device=x.device).scatter_add_(0, flat, torch.ones_like(flat, dtype=torch.int32))
    offs = counts.cumsum(0, dtype=torch.int32)
    places = torch.empty_like(order).scatter_(0, order, torch.arange(order.numel(), device=x.device)).view_as(chosen)
    tokens = order // k
    return Scatter.apply(x, tokens, places), offs, tokens, places, weights.reshape(-1)[order]
