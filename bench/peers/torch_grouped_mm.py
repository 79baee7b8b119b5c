"""octet.grouped_mm on an NVIDIA GPU, forward and backward: eager and compiled, beside torch's bf16 and torchao's fp8 rowwise, in
one run; and what the operators cost over the C calls that they make.

    OCTET_LIBRARY=liboctet.so OCTET_TORCH_LIBRARY=liboctet_torch.so [PEERS_TORCHAO=folder that holds torchao] \\
        PYTHONPATH=bindings/torch python3 bench/peers/torch_grouped_mm.py [--shapes 5,6] [--no-compile] [--commit HASH]

Every shape is checked against torch's bf16 step before it is timed. Writes torch_grouped_mm.json into $OUT, or the current
folder, anew after every shape, in the format of bench/results."""
import argparse
import json
import os
import statistics
import sys
import time

import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import compare
import octet
import octet_cuda
import stamps
import torchao_peer
from octet.product import below_autograd

bf16, dev = torch.bfloat16, torch.device("cuda:0")


def overhead(recipe):
    """Microseconds of host time a call takes, the device idle before it: the operators against the C calls that they make, on
    shapes so small that the launches are all there is. The C calls go through ctypes; empty_c is such a call that does nothing.
    They take turns, so that what slows the machine down for a while slows all of them; of each the median of its quietest turn."""
    recipe += ("," if ":" in recipe else ":") + "forward=fp8,dgrad=fp8"  # the same calls on both sides
    m, n, k, e = 256, 256, 256, 4
    a = torch.randn(m, k, device=dev, dtype=bf16, requires_grad=True)
    w = torch.randn(e, n, k, device=dev, dtype=bf16)
    b = w.transpose(-2, -1).detach().requires_grad_()
    dy = torch.randn(m, n, device=dev, dtype=bf16)
    ends = compare.uneven(m, e)
    y, da, dw = torch.empty_like(dy), torch.empty_like(a, requires_grad=False), torch.empty_like(w)
    c = octet_cuda.Calls(recipe, a.detach(), w, ends, y, dy, da, dw)
    plain_a, plain_b = a.detach(), b.detach()
    forward = torch.ops.octet.grouped_mm.default
    no_grad, backward = torch.ops.octet.grouped_mm_no_grad.default, torch.ops.octet.grouped_mm_backward.default
    kept = forward(plain_a, plain_b, ends, recipe, "bf16", True)[1:]
    pointer = c.on.pointer

    def as_octet(operator, *arguments):  # calls it
        with below_autograd():
            return operator(*arguments)

    def both():
        octet.grouped_mm(a, b, ends, recipe).backward(dy)

    def c_both():
        c.forward()
        c.backward()

    calls = {"empty_c": lambda: octet_cuda._lib.octet_abi_version(*[pointer] * 7),
             "c_pair": lambda: c.pair(c.a, c.a_rows, c.a_columns), "c_weights": lambda: c.weights(c.along_k[0], None),
             "c_product": lambda: c.rows("forward", c.a_rows, c.along_k, c.y), "c_wgrad": c.wgrad,
             "c_forward": c.forward, "c_backward": c.backward,
             "operator_forward": lambda: as_octet(no_grad, plain_a, plain_b, ends, recipe, "bf16", True),
             "operator_forward_by_torch_library": lambda: forward(plain_a, plain_b, ends, recipe, "bf16", True),
             "operator_backward": lambda: as_octet(backward, dy, plain_b, ends, recipe, *kept, True, True, "bf16"),
             "grouped_mm_forward": lambda: octet.grouped_mm(a, b, ends, recipe),
             "c_both": c_both, "grouped_mm_both": both, "autograd_alone": lambda: NoProduct.apply(a, b, ends, recipe, "bf16", (), None).backward(dy),
             "torch_bf16_both": lambda: torch._grouped_mm(a, b, ends).backward(dy)}
    measured = {name: [] for name in calls}
    for turn in range(6):
        for name, call in calls.items():
            us = []
            for _ in range(50):
                a.grad = b.grad = None
                torch.cuda.synchronize()
                begin = time.perf_counter()
                call()
                us.append((time.perf_counter() - begin) * 1e6)
            if turn > 0:
                measured[name].append(statistics.median(us[10:]))
    times = {name: round(min(medians), 1) for name, medians in measured.items()}
    print("host microseconds a call:", times, flush=True)
    return times


def host_times(recipe):
    """overhead() as threads run by default, and with all of the process on one core: what a call costs where no thread has to be
    woken on another core, whose caches know nothing of it."""
    free = overhead(recipe)
    cores = os.sched_getaffinity(0)
    pin = lambda to: [os.sched_setaffinity(int(thread), to) for thread in os.listdir("/proc/self/task")]  # noqa: E731
    pin({max(cores)})
    one_core = overhead(recipe)
    pin(cores)
    return {"host_us": free, "host_us_one_core": one_core}


class NoProduct(torch.autograd.Function):
    """What an autograd.Function in Python costs: the tensors of octet.grouped_mm, and no work."""

    @staticmethod
    def forward(ctx, a, b, ends, *options):
        ctx.save_for_backward(a, b, ends)
        return torch.empty(a.shape[0], b.shape[2], device=a.device, dtype=a.dtype)

    @staticmethod
    def backward(ctx, dy):
        a, b, _ = ctx.saved_tensors
        return torch.empty_like(a), torch.empty_like(b), *[None] * 5


def measure(shape, recipe, repetitions, torchao_mm, compiled, torchao_compiled):
    m, n, k, e = shape
    torch.manual_seed(0)
    a = torch.randn(m, k, device=dev, dtype=bf16, requires_grad=True)
    b = (torch.randn(e, n, k, device=dev, dtype=bf16) * k**-0.5).transpose(-2, -1).requires_grad_(True)
    dy = torch.randn(m, n, device=dev, dtype=bf16)
    ends = compare.uneven(m, e)

    def step(product):
        def run():
            a.grad = b.grad = None
            y = product(a, b, ends)
            y.backward(dy)
            return y
        return run

    steps = {"octet": step(lambda x, w, o: octet.grouped_mm(x, w, o, recipe)), "torch_bf16": step(torch._grouped_mm)}
    if compiled is not None:
        steps["octet_compiled"] = step(compiled)
    if torchao_mm is not None:
        steps["torchao"] = step(torchao_mm)
    if torchao_compiled is not None:
        steps["torchao_compiled"] = step(torchao_compiled)
    results = {}
    for name in ("octet", "torch_bf16", *(["octet_compiled"] if compiled is not None else [])):
        results[name] = [t.detach() for t in (steps[name](), a.grad, b.grad.transpose(-2, -1))]
    quality = {}
    for name in results.keys() - {"torch_bf16"}:
        for what, ours, theirs in zip(("y", "da", "dw"), results[name], results["torch_bf16"]):
            quality[what] = min(quality.get(what, 99.0), compare.sqnr_db(ours, theirs))
            if not quality[what] >= compare.FLOORS_DB[what]:
                raise RuntimeError(f"{name}: {what} has an SQNR of {quality[what]:.1f} dB; not timed")
    del results
    times = compare.interleaved(steps, repetitions)
    us, spread = times["octet"]
    versus = {name: round(times[name][0] / us, 3) for name in times if name not in ("octet", "octet_compiled")}
    row = {"op": "torch_fwd_bwd", "recipe": recipe, "M": m, "N": n, "K": k, "E": e, "split": "uneven", "us": round(us, 1),
           "spread_pct": round(spread, 1), "tflops": round(6 * m * n * k / us / 1e6), "vs": versus,
           "sqnr_db": {name: round(value, 1) for name, value in quality.items()}}
    if compiled is not None:
        row["us_compiled"] = round(times["octet_compiled"][0], 1)
    print(shape, recipe, {name: round(value[0]) for name, value in times.items()}, versus, flush=True)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipe", default="fp8_rowwise:accumulation=fast")
    parser.add_argument("--repetitions", type=int, default=11)
    parser.add_argument("--shapes", default="", help="of the nine, by number from 0, as 3,4; all where it is left out")
    parser.add_argument("--compile-shapes", type=int, default=9, help="compile for so many of them, the first ones")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--host", action="store_true", help="write what the operators cost over the C calls to torch_host.json, and do nothing else")
    parser.add_argument("--commit", default="unknown")
    arguments = parser.parse_args()
    if arguments.host:
        with open(os.path.join(os.environ.get("OUT", "."), "torch_host.json"), "w") as file:
            json.dump({"stamp": stamps.stamp("torch_grouped_mm.py", arguments.commit), **host_times(arguments.recipe)}, file, indent=1)
        return
    torchao_mm = torchao_peer.product()
    stamp = stamps.stamp("torch_grouped_mm.py", arguments.commit)
    path = os.path.join(os.environ.get("OUT", "."), "torch_grouped_mm.json")
    result = {"stamp": stamp, **host_times(arguments.recipe), "rows": []}
    compiled = torchao_compiled = None
    if not arguments.no_compile:
        compiled = torch.compile(lambda x, w, o: octet.grouped_mm(x, w, o, arguments.recipe), fullgraph=True, dynamic=True)
        torchao_compiled = None if torchao_mm is None else torch.compile(torchao_mm)
    shapes = [compare.SHAPES[int(i)] for i in arguments.shapes.split(",")] if arguments.shapes else compare.SHAPES
    failed = []
    for i, shape in enumerate(shapes):
        try:
            result["rows"].append(measure(shape, arguments.recipe, arguments.repetitions, torchao_mm,
                                          *((compiled, torchao_compiled) if i < arguments.compile_shapes else (None, None))))
        except Exception as error:
            print(f"FAILED {shape}: {type(error).__name__}: {str(error)[:400]}", flush=True)
            failed.append(shape)
        torch.cuda.empty_cache()
        with open(path, "w") as file:
            json.dump(result, file, indent=1)
    print("results:", path)
    if failed:
        sys.exit(f"failed: {failed}")


if __name__ == "__main__":
    main()
