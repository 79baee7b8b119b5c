"""Times other people's quantizers on this GPU, for the peers' column of `octet bench kernels --device cuda --peers FILE`.

    bench/peers/kernels.py [--out peers.json] [--repetitions 7] [--seconds 60] [--quick]

torch: the three plain passes (maximum, multiply, cast) that operation-at-a-time code makes. torchao: its own kernels, where
it is installed or PEERS_TORCHAO names a folder that holds it. Events, L2 flushed, medians; the shapes of bench/cases/shapes.hpp.

torchao tunes each kernel anew on every shape (torchao_peer.py makes that shorter): torch is timed first, on every shape, then torchao,
until the seconds are spent. What was left out is said. Groups are even.
"""
import argparse
import json
import os
import statistics
import sys
import time

import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import stamps
import torchao_peer

SHAPES = [(16640, 8192, 5120, 1), (16640, 8192, 5120, 4), (16640, 8192, 5120, 16), (16640, 8192, 5120, 64),
          (16640, 1408, 2048, 64), (98304, 1408, 2048, 64), (98304, 2816, 2048, 8), (32768, 2048, 7168, 8),
          (32768, 4096, 7168, 8)]
E4M3 = torch.float8_e4m3fn


def scales(amax):
    return torch.exp2(torch.floor(torch.log2(448.0 / amax.double().clamp(min=1e-12)))).float()


def torch_rows(x):
    scale = scales(x.abs().amax(dim=-1, keepdim=True))
    return (x.float() * scale).clamp(-448.0, 448.0).to(E4M3), scale


def torch_swiglu(gate_up, weights):
    gate, up = gate_up.chunk(2, dim=-1)
    return torch.nn.functional.silu(gate) * up * weights


def torch_cases(m, n, k, e):
    """(op, recipe, peer, call) of one shape."""
    a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    gate_up = torch.randn(m, n, device="cuda", dtype=torch.bfloat16)
    weights = torch.full((m, 1), 0.75, device="cuda", dtype=torch.bfloat16)
    order = torch.randperm(m, device="cuda")
    tokens = a[: m // 8]
    yield "rows", "fp8_rowwise", "torch", lambda: torch_rows(a)
    yield "swiglu", "bf16", "torch", lambda: torch_swiglu(gate_up, weights)
    yield "swiglu_quantize", "fp8_rowwise", "torch", lambda: torch_rows(torch_swiglu(gate_up, weights))
    yield "permute", "bf16", "torch", lambda: tokens[order // 8]
    yield "combine", "bf16", "torch", lambda: (a[order] * weights).view(m // 8, 8, k).sum(dim=1)


def torchao_cases(m, n, k, e):
    from torchao.prototype.moe_training import kernels

    a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    dy = torch.randn(m, n, device="cuda", dtype=torch.bfloat16)
    ends = torch.linspace(m // e, m, e, device="cuda").int() // 16 * 16
    ends[-1] = m
    w = torch.randn(e, n, k, device="cuda", dtype=torch.bfloat16)
    how = {"output_dtype": E4M3, "round_scales_to_power_of_2": True}
    for op, kernel, inputs in (("rows", "triton_fp8_rowwise_2d_scale_and_cast", (a,)),
                               ("columns", "triton_fp8_per_group_colwise_scales", (a, ends)),
                               ("columns_dual", "triton_fp8_per_group_colwise_scales_dual", (dy, a, ends)),
                               ("transposed", "triton_fp8_per_group_rowwise_scales", (dy.t(), ends)),
                               ("weights_along_k", "triton_fp8_colwise_3d_scale_and_cast", (w.transpose(-2, -1),)),
                               ("weights_along_n", "triton_fp8_rowwise_3d_transpose_rhs", (w.transpose(-2, -1),))):
        yield op, "fp8_rowwise", "torchao", lambda kernel=kernel, inputs=inputs: getattr(kernels, kernel)(*inputs, **how)


def time_us(call, flush, repetitions):
    call(), call()
    times = []
    for _ in range(repetitions):
        flush.sum()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000)
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="peers.json")
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=60, help="after which no other kernel is begun")
    parser.add_argument("--quick", action="store_true", help="two shapes")
    arguments = parser.parse_args()
    last = time.monotonic() + arguments.seconds
    flush = torch.ones(1 << 26, device="cuda")
    rows, left_out = [], []
    kinds = [torch_cases] + ([torchao_cases] if torchao_peer.product() is not None else [])
    for kind in kinds:
        for m, n, k, e in (SHAPES[2:6:3] if arguments.quick else SHAPES):
            for op, recipe, peer, call in kind(m, n, k, e):
                what = f"{peer} {op} {m} {n} {k} {e}"
                if time.monotonic() > last:
                    left_out.append(what)
                    continue
                try:
                    us = time_us(call, flush, arguments.repetitions)
                except Exception as error:  # said, and left out
                    print(f"{what}: {type(error).__name__}: {str(error).splitlines()[0]}", flush=True)
                    continue
                rows.append({"op": op, "recipe": recipe, "M": m, "N": n, "K": k, "E": e, "peer": peer, "us": round(us, 2)})
            torch.cuda.empty_cache()
    with open(arguments.out, "w") as file:
        json.dump({"stamp": stamps.stamp("kernels.py", "none: peers alone"), "rows": rows}, file, indent=1)
    print(f"{len(rows)} times: {arguments.out}")
    if left_out:
        print(f"out of time, not timed: {', '.join(left_out)}")


if __name__ == "__main__":
    main()
