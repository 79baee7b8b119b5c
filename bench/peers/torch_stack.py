"""A DeepSeek-MoE-16B stack (true layer sizes) in PyTorch on an NVIDIA GPU: a training step in tokens a second and its peak
memory, with the experts' products by torch (bf16), by torchao (fp8 rowwise), by Octet, and with octet.MoE owning the layer.

    OCTET_TORCH_LIBRARY=liboctet_torch.so [PEERS_TORCHAO=folder] PYTHONPATH=bindings/torch \\
        python3 bench/peers/torch_stack.py [--layers 4] [--batch 4] [--modes bf16,octet,bf16@compiled] [--losses 200]

Writes torch_stack.json into $OUT, or the current folder, anew after every mode."""
import argparse
import ctypes
import gc
import json
import math
import os
import re
import statistics
import subprocess
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import octet
import stamps
import torchao_peer

dev, bf16 = torch.device("cuda:0"), torch.bfloat16
D, HEADS, HEAD, E, TOP_K, I, V, S = 2048, 16, 128, 64, 6, 1408, 102400, 4096
FAST = "accumulation=fast"


PRODUCTS = {
    "bf16": torch._grouped_mm,
    "torchao": None,  # found where it is asked for
    "octet": lambda x, w, offs: octet.grouped_mm(x, w, offs, f"fp8_rowwise:{FAST}"),
    "octet_blockwise": lambda x, w, offs: octet.grouped_mm(x, w, offs, "fp8_blockwise"),
}
LAYERS = {"octet_moe": f"fp8_rowwise:{FAST}", "octet_moe_blockwise": "fp8_blockwise"}


class PeerMoE(nn.Module):
    """The layer as the peers' own measurement has it: groups padded to 16 rows, products by the mode's function."""

    def __init__(self, mode):
        super().__init__()
        self.product = PRODUCTS[mode]
        parameter = lambda *shape: nn.Parameter(torch.randn(*shape) * 0.02)  # noqa: E731
        self.gate = nn.Linear(D, E, bias=False)
        self.w1, self.w3, self.w2 = parameter(E, I, D), parameter(E, I, D), parameter(E, D, I)
        self.s1, self.s3, self.s2 = (nn.Linear(k, n, bias=False) for k, n in ((D, 2 * I), (D, 2 * I), (2 * I, D)))

    def forward(self, x):
        tokens = x.shape[0]
        weights, chosen = F.softmax(self.gate(x).float(), -1).topk(TOP_K, -1)
        flat = chosen.reshape(-1)
        order = flat.argsort(stable=True)
        counts = torch.zeros(E, dtype=torch.int64, device=x.device).scatter_add_(0, flat, torch.ones_like(flat))
        padded = (counts + 15) // 16 * 16
        offs = padded.cumsum(0)
        starts, first = offs - padded, counts.cumsum(0) - counts
        expert = flat[order]
        to = starts[expert] + torch.arange(tokens * TOP_K, device=x.device) - first[expert]
        rows = torch.zeros(tokens * TOP_K + E * 16, D, dtype=bf16, device=x.device).index_copy(0, to, x[order // TOP_K])
        ends = offs.to(torch.int32)
        w1, w3, w2 = (w.transpose(-2, -1) for w in (self.w1, self.w3, self.w2))
        h = F.silu(self.product(rows, w1, ends)) * self.product(rows, w3, ends)
        y = self.product(h, w2, ends)[to] * weights.reshape(-1)[order].to(bf16)[:, None]
        return torch.zeros_like(x).index_add(0, order // TOP_K, y) + self.s2(F.silu(self.s1(x)) * self.s3(x))


def moe(mode):
    if mode in LAYERS:
        return octet.MoE(D, I, E, TOP_K, LAYERS[mode], shared_dim=2 * I)
    return PeerMoE(mode)


class Block(nn.Module):
    def __init__(self, mode):
        super().__init__()
        self.n1, self.n2, self.moe = nn.RMSNorm(D), nn.RMSNorm(D), moe(mode)
        self.qkv, self.o = nn.Linear(D, 3 * HEADS * HEAD, bias=False), nn.Linear(HEADS * HEAD, D, bias=False)

    def forward(self, x):
        b, s, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, s, 3, HEADS, HEAD).permute(2, 0, 3, 1, 4)
        attention = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, s, HEADS * HEAD)
        x = x + self.o(attention)
        return x + self.moe(self.n2(x).view(-1, D)).view(b, s, D)


class Stack(nn.Module):
    def __init__(self, mode, layers):
        super().__init__()
        self.embedding, self.norm, self.head = nn.Embedding(V, D), nn.RMSNorm(D), nn.Linear(D, V, bias=False)
        self.blocks = nn.ModuleList(Block(mode) for _ in range(layers))

    def logits(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)).view(-1, V)

    def forward(self, tokens, labels):
        return F.cross_entropy(self.logits(tokens), labels.reshape(-1))


def same_weights(model):
    """From one seed, whatever the mode calls its parameters."""
    generator = torch.Generator(device=dev).manual_seed(0)
    normal = lambda shape: torch.empty(shape, device=dev, dtype=bf16).normal_(0.0, 0.02, generator=generator)  # noqa: E731
    with torch.no_grad():
        for module in (model.embedding, model.head):
            module.weight.copy_(normal(module.weight.shape))
        for block in model.blocks:
            for module in (block.qkv, block.o):
                module.weight.copy_(normal(module.weight.shape))
            gate, (w1, w3, w2) = normal((E, D)), (normal(shape) for shape in ((E, I, D), (E, I, D), (E, D, I)))
            s1, s3, s2 = (normal(shape) for shape in ((2 * I, D), (2 * I, D), (D, 2 * I)))
            if isinstance(block.moe, PeerMoE):
                state = {"gate.weight": gate, "w1": w1, "w3": w3, "w2": w2, "s1.weight": s1, "s3.weight": s3, "s2.weight": s2}
            else:
                state = {"router.weight": gate, "experts.w1": w1, "experts.w3": w3, "experts.w2": w2, "shared.w1.weight": s1,
                         "shared.w3.weight": s3, "shared.w2.weight": s2}
            block.moe.load_state_dict(state)


RULE, WORDS, ANEW = 37, 1024, 0.2
FLOOR = -(1 - ANEW) * math.log(1 - ANEW) - ANEW * math.log(ANEW / WORDS)  # but for the one time in 1024 that both are the same
TITLES = {"octet": "octet.grouped_mm", "octet_moe": "octet.MoE"}


def corpus(step, batch, sequence):
    """Text with something to learn: of 1024 words each is the one before it moved on by 37, or, one time in five, drawn anew. Who
    knows the rule has a loss of 1.89, who knows only the words one of 6.93."""
    generator = torch.Generator(device=dev).manual_seed(step)
    shape, at = (batch, sequence + 1), torch.arange(sequence + 1, device=dev)
    drawn = torch.randint(0, WORDS, shape, device=dev, generator=generator)
    anew = torch.rand(shape, device=dev, generator=generator) < ANEW
    last = torch.where(anew, at, 0).cummax(1).values  # where the run began that a word belongs to
    tokens = (drawn.gather(1, last) + RULE * (at - last)) % WORDS
    return tokens[:, :-1], tokens[:, 1:]


def build(mode, layers, lr=1e-4, betas=(0.9, 0.999)):
    torch.manual_seed(0)
    torch.set_default_dtype(bf16)
    with torch.device(dev):
        model = Stack(mode, layers)
    torch.set_default_dtype(torch.float32)
    return model, torch.optim.AdamW(model.parameters(), lr=lr, betas=betas, fused=True)


def run_step(model, optimizer, batch):
    loss = model(*batch)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.detach()


def clock_mhz():
    """Of the multiprocessors, now; None where the driver's library does not say."""
    try:
        nvml, device, mhz = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p(), ctypes.c_uint()
        nvml.nvmlInit_v2()
        nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
        return mhz.value if nvml.nvmlDeviceGetClockInfo(device, 1, ctypes.byref(mhz)) == 0 else None
    except OSError:
        return None


def speed(mode, compiled, layers, batch, steps, profile):
    torch._dynamo.reset()
    model, optimizer = build(mode, layers)
    if compiled:
        for block in model.blocks:
            block.compile()
    data = tuple(torch.randint(0, V, (batch, S), device=dev) for _ in range(2))
    for _ in range(4):
        loss = run_step(model, optimizer, data)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    clocks = []
    for i in range(steps):
        events[i].record()
        loss = run_step(model, optimizer, data)
        clocks.append(clock_mhz())  # the device is steps behind, and busy
    events[-1].record()
    torch.cuda.synchronize()
    each = [a.elapsed_time(b) for a, b in zip(events, events[1:])]
    ms = statistics.median(each)
    row = dict(op="torch_stack_step", mode=mode, compiled=compiled, layers=layers, batch=batch, ms=round(ms, 1), ms_each=[round(x, 1) for x in each], sm_mhz=clocks, tokens_per_s=round(batch * S / ms * 1e3),
               peak_gb=round(torch.cuda.max_memory_allocated() / 1e9, 2), loss=round(loss.item(), 3))
    if profile:
        row["parts_ms"], row["kernels_ms"], row["gaps_ms"] = where_time_goes(lambda: run_step(model, optimizer, data))
    return row


PARTS = (("optimizer", "multi_tensor_apply"), ("expert products", r"sm90_grouped_product|GroupedGemm|GroupProblem|grouped_mm|prepare_grouped"),
         ("moves and SwiGLU", r"octet::gpu::(Permute|Combine|Swiglu|Pad)"), ("casts", r"octet::gpu::|float8|fp8|abs\w*amax|amax\w*abs"),
         ("moves and SwiGLU", r"index|gather|scatter|silu|BinaryFunctor|Index|radix|Sort|sort|cub::"),
         ("attention", r"sdpa|flash|fmha"), ("loss", r"SoftMax|softmax|nll"), ("dense products", r"nvjet|gemm|cutlass|gemv|splitK"))


PROFILED = 3  # steps one after another, as those that are timed


def where_time_goes(step):
    """Milliseconds of a step on the device: by part, of the kernels that take the most, and of the idle stretches that add up to the
    most, by the kernels before and after."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(PROFILED):
            step()
        torch.cuda.synchronize()
    events = sorted((event.time_range.start, event.time_range.end, event.name) for event in profiler.events()
                    if event.device_type == DeviceType.CUDA)
    short = lambda name: re.sub(r"^void |at::native::|\(anonymous namespace\)::|octet::|c10::", "", name)  # noqa: E731
    parts, names, gaps = {}, {}, {}
    busy_until, before = events[0][0], ""
    for start, end, name in events:
        part = next((part for part, pattern in PARTS if re.search(pattern, name)), "other")
        for sums, key, us in ((parts, part, end - start), (names, short(name)[:90], end - start),
                              (parts, "idle", max(start - busy_until, 0)), (gaps, f"{short(before)[:60]} -> {short(name)[:60]}", max(start - busy_until, 0))):
            sums[key] = sums.get(key, 0.0) + us / 1e3 / PROFILED
        if end > busy_until:
            busy_until, before = end, name
    most = lambda sums, count: {key: round(ms, 2) for key, ms in sorted(sums.items(), key=lambda item: -item[1])[:count] if ms > 0.01}  # noqa: E731
    return {part: round(ms, 2) for part, ms in sorted(parts.items())}, most(names, 45), most(gaps, 12)


def with_more_steps(row, again):
    """A row, with the steps of a second time."""
    each = row["ms_each"] + again["ms_each"]
    ms = statistics.median(each)
    return {**row, "ms": round(ms, 1), "ms_each": each, "sm_mhz": row["sm_mhz"] + again["sm_mhz"],
            "tokens_per_s": round(row["batch"] * S / ms * 1e3)}


LOSSES_LR, LOSSES_BETAS, WARM_UP, CLIP = 3e-4, (0.9, 0.95), 20, 1.0


def losses(mode, layers, steps):
    """Of steps of one sequence each, from the same weights; the rate rises over the first steps, gradients are clipped."""
    model, optimizer = build(mode, layers, LOSSES_LR, LOSSES_BETAS)
    same_weights(model)
    values = []
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = LOSSES_LR * min(1.0, (step + 1) / WARM_UP)
        tokens, labels = corpus(step, 1, S)
        loss = F.cross_entropy(model.logits(tokens).float(), labels.reshape(-1))  # in f32: bf16 would show steps of 0.03
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        values.append(loss.detach())
    return [round(x, 4) for x in torch.stack(values).tolist()]


def plot(path):
    """The losses of a file of results, one curve a mode, as an SVG beside it."""
    with open(path) as file:
        curves = json.load(file)["losses"]
    data = "\n".join(f"${mode} << EOD\n" + "\n".join(map(str, values)) + "\nEOD" for mode, values in curves.items())
    lines = ", ".join(f"${mode} using 0:1 with lines lw 1.2 title '{TITLES.get(mode, mode)}'" for mode in curves)
    lines += f", {FLOOR} with lines dashtype 2 lc rgb 'gray' title 'who knows the rule'"
    image = os.path.splitext(path)[0] + ".svg"
    script = f"set terminal svg noenhanced size 720,360 background 'white'\nset output '{image}'\nset xlabel 'step'\nset ylabel 'loss'\nset logscale y\nset yrange [1.8:12.5]\nset ytics (2, 2.5, 3, 4, 6, 8, 12)\n{data}\nplot {lines}\n"
    subprocess.run(["gnuplot"], input=script, text=True, check=True)
    print("picture:", image)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--modes", default="bf16,octet,octet_moe", help="with @compiled after it, a mode's blocks are compiled; a mode with an @ is gone through once, whatever the rounds")
    parser.add_argument("--rounds", type=int, default=1, help="go through the modes without an @ so often: what slows the device down then slows all of them")
    parser.add_argument("--profile", action="store_true", help="also the kernels that take the most time")
    parser.add_argument("--losses", type=int, default=0, help="losses of so many steps of each mode instead, of a small batch")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--out", default="torch_stack.json")
    parser.add_argument("--plot", help="draw the losses in this file of results, and do nothing else")
    arguments = parser.parse_args()
    if arguments.plot:
        return plot(arguments.plot)
    if "torchao" in arguments.modes:
        PRODUCTS["torchao"] = torchao_peer.product()
    stamp = stamps.stamp("torch_stack.py", arguments.commit)
    path = os.path.join(os.environ.get("OUT", "."), arguments.out)
    result = {"stamp": stamp, "rows": [], "losses": {}}
    modes, failed = arguments.modes.split(","), []
    for mode in [mode for mode in modes if "@" not in mode] * (arguments.rounds - 1) + modes:
        begin = time.time()
        try:
            if arguments.losses:
                result["losses"][mode] = losses(mode, arguments.layers, arguments.losses)
                print(mode, result["losses"][mode][:: max(1, arguments.losses // 10)], flush=True)
            else:
                name, _, compiled = mode.partition("@")
                seen = next((i for i, row in enumerate(result["rows"]) if (row["mode"], row["compiled"]) == (name, bool(compiled))), None)
                row = speed(name, bool(compiled), arguments.layers, arguments.batch, arguments.steps, arguments.profile and seen is None)
                if seen is None:
                    result["rows"].append(row)
                else:
                    result["rows"][seen] = row = with_more_steps(result["rows"][seen], row)
                print(row, f"{time.time() - begin:.0f} s", flush=True)
        except Exception as error:
            print("FAILED", mode, type(error).__name__, str(error)[:500], flush=True)
            if not mode.startswith("torchao"):
                failed.append(mode)
        gc.collect()
        torch.cuda.empty_cache()
        with open(path, "w") as file:
            json.dump(result, file, indent=1)
    print("results:", path)
    if failed:
        sys.exit("failed: " + ", ".join(failed))


if __name__ == "__main__":
    main()
