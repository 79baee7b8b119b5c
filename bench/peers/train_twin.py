#!/usr/bin/env python3
"""Training steps of Octet's model and of its PyTorch twin, in one run, on the same threads and tokens.

    OCTET_LIBRARY=build/release/src/liboctet.so bench/peers/train_twin.py [--model tiny] [--threads 2] [--steps 30]

A step is forward, backward, clipping and AdamW on the preset's batch. Rounds of every contender alternate, so that a
busy machine is busy for all; the median of the rounds counts. Before anything is timed the losses of the first step
must agree. The twin is eager PyTorch at its best here: fused attention, fused AdamW, tokens sorted by expert, f32. Its
bf16 is timed too (--bf16), by autocast; where that dies of an illegal instruction, oneDNN believes in instructions that a
virtual machine lacks: ONEDNN_MAX_CPU_ISA=AVX512_CORE_VNNI tells it.
Prints a table; --json also writes the rows that belong in bench/results/cpu.
"""

import argparse
import json
import os
import pathlib
import platform
import statistics
import sys
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "conformance"))

from model_c import Model  # noqa: E402
from model_twin import Twin  # noqa: E402
from octet_c import build_info  # noqa: E402


def text(vocabulary, count):
    g = torch.Generator().manual_seed(1)
    return torch.randint(vocabulary, (count,), generator=g)


class OctetContender:
    def __init__(self, model, recipe, threads):
        self.name = f"octet {recipe}"
        self.model = Model(model, recipe=recipe, activations="bf16", threads=threads)

    def step(self, tokens, targets):
        loss, _ = self.model.forward_backward(tokens, targets)
        self.model.step(1e-4)
        return loss


class TorchContender:
    def __init__(self, model, bf16):
        self.name = "torch bf16 autocast" if bf16 else "torch f32"
        self.bf16 = bf16
        with Model(model) as source:
            self.twin = Twin(source.config, {n: v.clone() for n, v in source.values.items()}, fused_attention=True)
        training = self.twin.config["training"]
        self.clip = training["clip_norm"]
        self.optimizer = torch.optim.AdamW(self.twin.parameters.values(), lr=1e-4, fused=True,
                                           betas=(training["beta1"], training["beta2"]))

    def step(self, tokens, targets):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
            loss, auxiliary = self.twin.loss(tokens, targets)
        (loss + auxiliary).backward()
        torch.nn.utils.clip_grad_norm_(self.twin.parameters.values(), self.clip)
        self.optimizer.step()
        return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=30, help="rounds of one step each")
    parser.add_argument("--recipes", default="bf16,fp8_rowwise,fp8_blockwise,mxfp8")
    parser.add_argument("--bf16", action="store_true", help="time torch's bf16 autocast too")
    parser.add_argument("--json", help="also write the results to this file")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    contenders = [OctetContender(args.model, recipe, args.threads) for recipe in args.recipes.split(",")]
    contenders += [TorchContender(args.model, bf16) for bf16 in ([False, True] if args.bf16 else [False])]
    config = contenders[0].model.config
    shape = (config["training"]["batch"], config["model"]["sequence_length"])
    stream = text(config["model"]["vocabulary"], shape[0] * shape[1] + 1)
    tokens, targets = stream[:-1].view(shape), stream[1:].view(shape)

    losses = {c.name: c.step(tokens, targets) for c in contenders}
    reference = losses["torch f32"]
    for name, loss in losses.items():
        if not abs(loss - reference) <= 0.01 * reference:
            sys.exit(f"{name}: the loss of the first step is {loss}, torch's is {reference}: nothing is timed")
    wall, cpu = {c.name: [] for c in contenders}, {c.name: [] for c in contenders}
    for _ in range(args.steps):
        for c in contenders:
            begin, used = time.perf_counter(), time.process_time()
            c.step(tokens, targets)
            wall[c.name].append(time.perf_counter() - begin)
            cpu[c.name].append(time.process_time() - used)

    count = shape[0] * shape[1]
    base = statistics.median(wall["torch f32"])
    rows = []
    for c in contenders:
        median = statistics.median(wall[c.name])
        low, high = sorted(wall[c.name])[len(wall[c.name]) // 4], sorted(wall[c.name])[3 * len(wall[c.name]) // 4]
        rows.append({"op": "train_step", "contender": c.name, "model": args.model, "threads": args.threads,
                     "tokens": count, "us": median * 1e6, "spread_pct": 100 * (high - low) / median,
                     "tokens_per_s": count / median, "cpu_ms": 1e3 * statistics.median(cpu[c.name]),
                     "vs": {"torch_f32": base / median}})
    if args.json:
        stamp = {"cpu": platform.processor() or platform.machine(), "cores": os.cpu_count(), "torch": torch.__version__, "octet": build_info(),
                 "command": " ".join(sys.argv)}
        pathlib.Path(args.json).write_text(json.dumps({"stamp": stamp, "rows": rows}, indent=2) + "\n")
    print(f"{args.model}: {count} tokens a step, {args.threads} threads, torch {torch.__version__}")
    print(f"{'':22} {'ms/step':>9} {'tokens/s':>9} {'CPU ms':>8} {'spread':>7} {'vs torch f32':>13}")
    for row in rows:
        print(f"{row['contender']:22} {row['us'] / 1e3:9.1f} {row['tokens_per_s']:9.0f} {row['cpu_ms']:8.1f} "
              f"{row['spread_pct']:6.0f}% {row['vs']['torch_f32']:12.2f}x")


if __name__ == "__main__":
    main()
