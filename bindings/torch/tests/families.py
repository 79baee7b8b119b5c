"""Small models with the three kinds of expert modules that octet.convert knows, written as their origins write them."""
import torch
from torch import nn
from torch.nn import functional as F

D, H, E, K, VOCAB = 64, 96, 4, 2, 61


def _weight(*shape):
    return nn.Parameter(torch.randn(*shape) * shape[-1] ** -0.5)


def _route(logits, k):
    weights, chosen = logits.float().softmax(-1).topk(k, dim=-1)
    return weights / weights.sum(-1, keepdim=True), chosen


class GroupedExperts(nn.Module):
    """As torchtitan has it: rows in the order of the experts and a count for each."""

    def __init__(self):
        super().__init__()
        self.w1, self.w2, self.w3 = _weight(E, H, D), _weight(E, D, H), _weight(E, H, D)
        self.use_grouped_mm = True

    def forward(self, x, num_tokens_per_expert):
        w1, w2, w3 = (w.to_local() if hasattr(w, "to_local") else w for w in (self.w1, self.w2, self.w3))
        offs = torch.cumsum(num_tokens_per_expert, dim=0, dtype=torch.int32)
        h = F.silu(torch._grouped_mm(x.bfloat16(), w1.bfloat16().transpose(-2, -1), offs=offs))
        h = h * torch._grouped_mm(x.bfloat16(), w3.bfloat16().transpose(-2, -1), offs=offs)
        return torch._grouped_mm(h, w2.bfloat16().transpose(-2, -1), offs=offs).type_as(x)


class PlainExperts(nn.Module):
    """3D parameters [E, K, N], used as they lie, and products by torch._grouped_mm with positional arguments."""

    def __init__(self):
        super().__init__()
        self.up, self.down = _weight(E, D, 2 * H), _weight(E, H, D)

    def forward(self, x, num_tokens_per_expert):
        offs = num_tokens_per_expert.cumsum(0).to(torch.int32)
        gate, up = torch._grouped_mm(x.bfloat16(), self.up.bfloat16(), offs).chunk(2, dim=-1)
        return torch._grouped_mm(F.silu(gate) * up, self.down.bfloat16(), offs).type_as(x)


class Routed(nn.Module):
    """A router in front of experts that want sorted rows."""

    def __init__(self, experts):
        super().__init__()
        self.gate, self.experts = nn.Linear(D, E, bias=False), experts

    def forward(self, x):
        weights, chosen = _route(self.gate(x), K)
        flat = chosen.reshape(-1)
        order = flat.argsort(stable=True)
        counts = torch.zeros(E, dtype=torch.int64, device=x.device).scatter_add_(0, flat, torch.ones_like(flat))
        y = self.experts(x[order // K], counts) * weights.reshape(-1)[order, None].to(x.dtype)
        return torch.zeros_like(x).index_add(0, order // K, y)


class MixtralMLP(nn.Module):
    def __init__(self, names=("w1", "w3", "w2")):
        super().__init__()
        for name, (n, k) in zip(names, ((H, D), (H, D), (D, H))):
            setattr(self, name, nn.Linear(k, n, bias=False))
        self.names, self.act_fn = names, nn.SiLU()

    def forward(self, x):
        gate, up, down = (getattr(self, name) for name in self.names)
        return down(self.act_fn(gate(x)) * up(x))


class MixtralBlock(nn.Module):
    """As Hugging Face's Mixtral and Qwen3-MoE had it: a list of experts, visited one by one."""

    def __init__(self, names=("w1", "w3", "w2")):
        super().__init__()
        self.gate, self.top_k, self.num_experts = nn.Linear(D, E, bias=False), K, E
        self.experts = nn.ModuleList(MixtralMLP(names) for _ in range(E))
        if names[0] != "w1":
            self.norm_topk_prob = True

    def forward(self, hidden_states):
        x = hidden_states.reshape(-1, hidden_states.shape[-1])
        logits = self.gate(x)
        weights, chosen = _route(logits, self.top_k)
        out = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            token, slot = (chosen == e).nonzero(as_tuple=True)
            out = out.index_add(0, token, expert(x[token]) * weights[token, slot, None].to(x.dtype))
        return out.view(hidden_states.shape), logits


class StackedExperts(nn.Module):
    """As Hugging Face has them now: two 3D parameters and the router's choice."""

    def __init__(self):
        super().__init__()
        self.gate_up_proj, self.down_proj, self.act_fn = _weight(E, 2 * H, D), _weight(E, D, H), nn.SiLU()

    def forward(self, hidden_states, top_k_index, top_k_weights):
        out = torch.zeros_like(hidden_states)
        for e in range(E):
            token, slot = (top_k_index == e).nonzero(as_tuple=True)
            gate, up = F.linear(hidden_states[token], self.gate_up_proj[e]).chunk(2, dim=-1)
            y = F.linear(self.act_fn(gate) * up, self.down_proj[e])
            out = out.index_add(0, token, y * top_k_weights[token, slot, None].to(y.dtype))
        return out


class StackedBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.experts = nn.Linear(D, E, bias=False), StackedExperts()

    def forward(self, x):
        weights, chosen = _route(self.gate(x), K)
        return self.experts(x, chosen, weights)


class Model(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.embedding, self.norm, self.block, self.head = nn.Embedding(VOCAB, D), nn.RMSNorm(D), block, nn.Linear(D, VOCAB, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        y = self.block(self.norm(x))
        return self.head(x + (y[0] if isinstance(y, tuple) else y))


BLOCKS = {
    "torchtitan": lambda: Routed(GroupedExperts()),
    "plain": lambda: Routed(PlainExperts()),
    "mixtral": MixtralBlock,
    "qwen3": lambda: MixtralBlock(("gate_proj", "up_proj", "down_proj")),
    "stacked": StackedBlock,
}


def batch(step, tokens=256, device="cpu"):
    """A rule to learn, different for every residue of the token: what the experts are for."""
    generator = torch.Generator().manual_seed(step)
    x = torch.randint(0, VOCAB, (tokens,), generator=generator)
    return x.to(device), ((x * x + 7 * (x % E)) % VOCAB).to(device)


def train(model, steps, device="cpu"):
    """The loss of every step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for step in range(steps):
        x, y = batch(step, device=device)
        loss = F.cross_entropy(model(x).float(), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses
