"""Octet's model as a PyTorch user would write it: plain operations and autograd, parameters under Octet's names.

`dtype` is the format of what enters a product (bf16 or f32). As in Octet the residual stream, norms, rotary, softmax,
router and loss are f32 either way.
"""

import math

import torch
import torch.nn.functional as F


def read_safetensors(path):
    """The file format in ten lines, for where the safetensors package is not there."""
    import json
    import struct

    raw = open(path, "rb").read()
    (length,) = struct.unpack("<Q", raw[:8])
    tensors = {}
    for name, entry in json.loads(raw[8 : 8 + length]).items():
        if name == "__metadata__":
            continue
        assert entry["dtype"] == "F32"
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        tensors[name] = torch.frombuffer(bytearray(raw[begin:end]), dtype=torch.float32).reshape(entry["shape"])
    return tensors


def load_checkpoint(path):
    try:
        from safetensors.torch import load_file
    except ImportError:
        return read_safetensors(path)
    return load_file(path)


def rotary(x, theta):
    """x [B, heads, S, head_dim]: features i and i + head_dim / 2 turn together."""
    length, pairs = x.shape[2], x.shape[3] // 2
    turns = theta ** (-torch.arange(pairs, dtype=torch.float64) / pairs)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * turns
    cosine, sine = angles.cos().float().to(x.dtype), angles.sin().float().to(x.dtype)
    a, b = x[..., :pairs], x[..., pairs:]
    return torch.cat([a * cosine - b * sine, b * cosine + a * sine], -1)


def rms_norm(x, weight, eps):
    return weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps))


class Twin:
    def __init__(self, config, tensors, dtype=torch.float32, wide=torch.float32, fused_attention=False):
        """wide: the format of everything else; f64 makes a reference that is exact for our purposes."""
        self.config, self.dtype, self.wide, self.fused_attention = config, dtype, wide, fused_attention
        self.bias = {n: t.to(wide) for n, t in tensors.items() if n.endswith("e_score_correction_bias")}
        self.parameters = {n: t.detach().to(wide).clone().requires_grad_() for n, t in tensors.items()
                           if n not in self.bias}
        self.chosen = []  # by each MoE layer of the last forward

    def product(self, x, weight, to=None):
        """x @ weight.t() of operands in the activation format, accumulated and left in f32 (or rounded to `to`).
        With f32 copies of bf16 operands: torch's own bf16 product may use instructions that a virtual machine lacks."""
        if self.dtype == torch.float32:
            return x @ weight.t()
        y = x.to(self.dtype).to(self.wide) @ weight.to(self.dtype).to(self.wide).t()
        return y if to is None else y.to(to).to(self.wide)

    def attention(self, x, prefix):
        c, (b, s, _) = self.config["model"], x.shape
        heads, kv_heads, d = c["heads"], c["kv_heads"], c["head_dim"]
        q, k, v = (self.product(x, self.parameters[f"{prefix}{part}_proj.weight"]).view(b, s, -1, d).transpose(1, 2)
                   for part in "qkv")
        q, k = rotary(q, c["rope_theta"]), rotary(k, c["rope_theta"])
        if self.fused_attention:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=heads != kv_heads)
        else:
            k, v = (x.repeat_interleave(heads // kv_heads, 1) for x in (k, v))
            mask = torch.full((s, s), -math.inf).triu(1)
            mixed = ((q @ k.transpose(-1, -2)) / math.sqrt(d) + mask).softmax(-1) @ v
        return self.product(mixed.transpose(1, 2).reshape(b, s, heads * d), self.parameters[prefix + "o_proj.weight"])

    def round(self, x):
        return x if self.dtype == torch.float32 else x.to(self.dtype).to(self.wide)

    def mlp(self, x, gate_up, down, weights=None):
        gate, up = self.product(x, gate_up, self.dtype).chunk(2, -1)
        activated = F.silu(gate) * up
        return self.product(activated if weights is None else activated * weights, down, self.dtype)

    def moe(self, x, prefix):
        """-> y [B, S, D] and the auxiliary loss."""
        experts, router = self.config["experts"], self.config["router"]
        shape, x = x.shape, self.round(x).reshape(-1, x.shape[-1])
        logits = x @ self.parameters[prefix + "gate.weight"].t()
        scores = logits.softmax(-1) if router["score"] == "softmax" else logits.sigmoid()
        bias = self.bias.get(prefix + "gate.e_score_correction_bias")
        chosen = (scores if bias is None else scores + bias).topk(experts["per_token"], -1).indices
        self.chosen.append(chosen)
        weights = scores.gather(1, chosen)
        if router["weights"] == "normalized":
            weights = weights / weights.sum(-1, keepdim=True)
        weights = weights * router["scaling"]
        share = torch.bincount(chosen.flatten(), minlength=experts["count"]).to(self.wide) / chosen.numel()
        mean = (scores / scores.sum(-1, keepdim=True)).mean(0)
        auxiliary = router["auxiliary_loss"] * experts["count"] * (share * mean).sum()

        order = chosen.flatten().argsort(stable=True)
        counts = torch.bincount(chosen.flatten(), minlength=experts["count"]).tolist()
        token = order // experts["per_token"]
        rows, row_weights = x[token], weights.flatten()[order][:, None]
        gate_up, down = self.parameters[prefix + "experts.gate_up_proj"], self.parameters[prefix + "experts.down_proj"]
        outputs = [self.mlp(r, gate_up[e], down[e], w)
                   for e, (r, w) in enumerate(zip(rows.split(counts), row_weights.split(counts)))]
        y = torch.zeros_like(x).index_add(0, token, torch.cat(outputs).to(x.dtype))
        if experts["shared"]:
            y = y + self.mlp(x, self.parameters[prefix + "shared_experts.gate_up_proj.weight"],
                             self.parameters[prefix + "shared_experts.down_proj.weight"])
        return self.round(y).view(shape), auxiliary

    def forward(self, tokens):
        """tokens [B, S] -> logits [B, S, V], auxiliary loss."""
        c, p, auxiliary = self.config, self.parameters, 0.0
        eps = c["model"]["norm_eps"]
        self.chosen = []
        h = p["model.embed_tokens.weight"][tokens]
        for layer in range(c["model"]["layers"]):
            prefix = f"model.layers.{layer}."
            h = h + self.attention(rms_norm(h, p[prefix + "input_layernorm.weight"], eps), prefix + "self_attn.")
            x = rms_norm(h, p[prefix + "post_attention_layernorm.weight"], eps)
            if layer < c["dense"]["layers"]:
                h = h + self.mlp(self.round(x), p[prefix + "mlp.gate_up_proj.weight"],
                                 p[prefix + "mlp.down_proj.weight"])
            else:
                y, extra = self.moe(x, prefix + "mlp.")
                h, auxiliary = h + y, auxiliary + extra
        head = p["model.embed_tokens.weight" if c["model"]["tied_head"] else "lm_head.weight"]
        return self.product(rms_norm(h, p["model.norm.weight"], eps), head), auxiliary

    def loss(self, tokens, targets):
        logits, auxiliary = self.forward(tokens)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1), auxiliary

    def optimizer(self):
        """torch's AdamW with the configuration's options: no decay for norms and the embedding."""
        t = self.config["training"]
        plain = [v for n, v in self.parameters.items() if "norm" in n or "embed_tokens" in n]
        decaying = [v for n, v in self.parameters.items() if not ("norm" in n or "embed_tokens" in n)]
        groups = [{"params": decaying, "weight_decay": t["weight_decay"]}, {"params": plain, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, betas=(t["beta1"], t["beta2"]), eps=t["epsilon"])
