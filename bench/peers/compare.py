"""A training step of one expert product on an NVIDIA GPU: Octet beside torch's bf16 and torchao's fp8 rowwise, in one run.

    OCTET_LIBRARY=liboctet.so [PEERS_TORCHAO=folder that holds torchao] python3 compare.py [--shapes 3,4] [--parts] [--commit HASH]

Octet is called through its C interface on torch's tensors and stream. Every shape is checked against torch's bf16 step
before it is timed. Times are medians over interleaved repetitions with the L2 flushed before each. torchao needs groups of
multiples of 16 rows and is timed on the uneven split, which has them. What each product runs in is Octet's own choice, and is recorded; fwd_bwd_cached is a layer that was told that its weights change rarely.
Writes step.json into $OUT, or the current folder, in the format of bench/results, and prints a table;
bench/plot_step.py draws it."""
import argparse
import json
import math
import os
import re
import statistics
import sys

import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import octet_cuda
import stamps
import torchao_peer

bf16, dev = torch.bfloat16, torch.device("cuda:0")
SHAPES = [(16640, 8192, 5120, 1), (16640, 8192, 5120, 4), (16640, 8192, 5120, 16), (16640, 8192, 5120, 64),
          (16640, 1408, 2048, 64), (98304, 1408, 2048, 64), (98304, 2816, 2048, 8), (32768, 2048, 7168, 8),
          (32768, 4096, 7168, 8)]
FLOORS_DB = {"y": 27.0, "da": 25.0, "dw": 24.0}
flush = torch.empty(256 << 20, dtype=torch.uint8, device=dev)
head_start = 600_000  # clocks, a third of a millisecond


def uneven(tokens, experts, align=16):
    generator = torch.Generator().manual_seed(experts)
    weights = torch.rand(experts, generator=generator) + 0.5
    sizes = (weights / weights.sum() * tokens / align).floor().long() * align
    sizes[-1] += tokens - sizes.sum()
    return sizes.cumsum(0).to(torch.int32).to(dev)


def skewed(tokens, experts):
    """Half of the tokens in one expert, a quarter of the experts empty."""
    if experts < 4:
        return uneven(tokens, experts)
    empty = experts // 4
    others = experts - 1 - empty
    sizes = [tokens // 2] + [0] * empty + [(tokens - tokens // 2) // others] * others
    sizes[-1] += tokens - sum(sizes)
    return torch.tensor(sizes).cumsum(0).to(torch.int32).to(dev)


def even(tokens, experts):
    return torch.tensor([tokens * (e + 1) // experts for e in range(experts)], dtype=torch.int32, device=dev)


def by_weights(weights, tokens):
    sizes = (weights / weights.sum() * tokens).floor().long()
    sizes[-1] += tokens - sizes.sum()
    return sizes.cumsum(0).to(torch.int32).to(dev)


def routed(tokens, experts):
    """As by a router that prefers some experts: a factor of 2 either way is a standard deviation."""
    return by_weights(torch.exp(0.7 * torch.randn(experts, generator=torch.Generator().manual_seed(2))), tokens)


def zipf(tokens, experts):
    """The n-th expert, in an order of its own, has an n-th of the first one's tokens."""
    order = torch.randperm(experts, generator=torch.Generator().manual_seed(1))
    return by_weights(1.0 / (1.0 + order), tokens)


SPLITS = {"even": even, "uneven": uneven, "skewed": skewed, "routed": routed, "zipf": zipf}


def sqnr_db(given, expected):
    power, error = 0.0, 0.0
    for a, b in zip(given.flatten(0, -2).split(4096), expected.flatten(0, -2).split(4096)):
        b = b.double()
        power += b.square().sum().item()
        error += (a.double() - b).square().sum().item()
    return 10 * math.log10(power / error) if error > 0 else 999.0  # the same bits


def interleaved(steps, repetitions):
    """Median microseconds and spread of each step: one of each in turn, another one first each time, so that all see the same
    clocks. Each begins once the host has a head start, as in training: after a step that keeps the host busier than the
    device, the next one would otherwise be timed waiting for its launches."""
    for step in steps.values():
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    times = {name: [] for name in steps}
    order = list(steps.items())
    for _ in range(repetitions):
        events = {}
        for name, step in order:
            flush.zero_()
            torch.cuda._sleep(head_start)
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            step()
            end.record()
            events[name] = (begin, end)
        order.append(order.pop(0))
        torch.cuda.synchronize()
        for name, (begin, end) in events.items():
            times[name].append(begin.elapsed_time(end) * 1e3)
    result = {}
    for name, values in times.items():
        values.sort()
        median = statistics.median(values)
        spread = 100 * (values[3 * len(values) // 4] - values[len(values) // 4]) / median
        result[name] = (median, spread)
    return result


def parts_us(step):
    """Microseconds of a step's products and of its casts, by the profiler; {} where there is none. Octet runs forward,
    then dgrad and wgrad in either order, one kernel each; everything else is casts. Casts that run beside a product are in the
    product's time: "casts" is when no product runs, "beside" what lies within products."""
    try:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            for _ in range(3):
                flush.zero_()
                step()
            torch.cuda.synchronize()
        kernels = sorted((event.time_range.start, event.time_range.end, event.name) for event in profile.events()
                         if event.device_type == torch.autograd.DeviceType.CUDA and "octet" in event.name)
        products = [(begin, end) for begin, end, name in kernels if "grouped_product" in name]
        along_tokens = [(begin, end) for begin, end, name in kernels if re.search(r"grouped_product.*Reduction\)[12]", name)]
        along_k = [product for product in products if product not in along_tokens]
        if len(along_k) != 6 or len(along_tokens) != 3:
            raise RuntimeError(f"{len(along_k)} forward and dgrad products and {len(along_tokens)} wgrad in three steps")
        parts = {name: statistics.median(end - begin for begin, end in those)
                 for name, those in (("forward", along_k[::2]), ("dgrad", along_k[1::2]), ("wgrad", along_tokens))}
        casts = [(begin, end) for begin, end, name in kernels if "grouped_product" not in name]
        beside = sum(max(0, min(end, last) - max(begin, first)) for begin, end in casts for first, last in products)
        parts["casts"] = (sum(end - begin for begin, end in casts) - beside) / 3
        parts["beside"] = beside / 3
        return {name: round(us, 1) for name, us in parts.items()}
    except Exception as error:  # said, and left out of the results
        print(f"no parts: {type(error).__name__}: {error}")
        return {}


def ceilings():
    source = torch.empty(1 << 31, dtype=torch.uint8, device=dev)
    target = torch.empty_like(source)
    a = torch.randn(8192, 8192, device=dev, dtype=bf16)
    times = interleaved({"copy": lambda: target.copy_(source), "bf16": lambda: a @ a.t()}, 15)
    return 2 * source.numel() / times["copy"][0] / 1e3, 2 * 8192**3 / times["bf16"][0] / 1e6


def floor_us(m, n, k, e, copy_gbps, cached):
    """Three products at 1413 TFLOP/s or at copy bandwidth, plus the casts' compulsory traffic; a part that shares a scale
    and does not fit in L2 (45 MB) is read twice."""
    us = 0.0
    for bytes_moved in (m * k + e * n * k + 2 * m * n, m * n + e * n * k + 2 * m * k, m * n + m * k + 2 * e * n * k):
        us += max(2 * m * n * k / 1413e6, bytes_moved / copy_gbps / 1e3)
    def cast(elements, part):
        return elements * (6 if 2 * part > 45e6 else 4)
    traffic = cast(m * k, m * k / e) + cast(m * n, m * n / e) + (0 if cached else cast(e * n * k, n * k))
    return us + traffic / copy_gbps / 1e3


def measure(shape, split, recipe, arguments, copy_gbps, torchao_mm):
    m, n, k, e = shape
    torch.manual_seed(0)
    a = torch.randn(m, k, device=dev, dtype=bf16, requires_grad=True)
    w = torch.randn(e, n, k, device=dev, dtype=bf16) * k**-0.5
    w_t = w.transpose(-2, -1).requires_grad_(True)
    dy = torch.randn(m, n, device=dev, dtype=bf16)
    ends = SPLITS[split](m, e)
    y, da, dw = torch.empty_like(dy), torch.empty_like(a, requires_grad=False), torch.empty_like(w)
    linear = octet_cuda.GroupedLinear(recipe, a.detach(), w, ends, y, dy, da, dw)
    reused = recipe + (":" if ":" not in recipe else ",") + "weight_uses=1000" if recipe != "bf16" else recipe
    cached_linear = octet_cuda.GroupedLinear(reused, a.detach(), w, ends, y, dy, da, dw)

    def octet_step():
        linear.weights_changed()
        linear.forward()
        linear.backward()

    def octet_cached():
        cached_linear.forward()
        cached_linear.backward()

    def peer(product):
        a.grad = w_t.grad = None
        out = product(a, w_t)
        out.backward(dy)
        return out

    steps = {"octet": octet_step, "octet_cached": octet_cached,
             "torch_bf16": lambda: peer(lambda x, b: torch._grouped_mm(x, b, ends))}
    if torchao_mm is not None and split == "uneven":
        steps["torchao"] = lambda: peer(lambda x, b: torchao_mm(x, b, ends))

    expected = peer(lambda x, b: torch._grouped_mm(x, b, ends)).detach()
    quality = {}
    for key in ("octet", "octet_cached"):
        for out in (y, da, dw):
            out.fill_(math.nan)
        steps[key]()
        quality[key] = {"y": sqnr_db(y, expected), "da": sqnr_db(da, a.grad), "dw": sqnr_db(dw, w_t.grad.transpose(-2, -1))}
        for name, value in quality[key].items():
            if not value >= FLOORS_DB[name]:
                raise SystemExit(f"{shape} {split} {recipe} {key}: {name} has an SQNR of {value:.1f} dB, below {FLOORS_DB[name]}; not timed")
    times = interleaved(steps, arguments.repetitions)
    rows = []
    for op, key, cached, layer in (("fwd_bwd", "octet", False, linear), ("fwd_bwd_cached", "octet_cached", True, cached_linear)):
        us, spread = times[key]
        versus = {peer_name: round(times[peer_name][0] / us, 3) for peer_name in ("torch_bf16", "torchao") if peer_name in times}
        versus["floor"] = round(floor_us(m, n, k, e, copy_gbps, cached) / us, 3)
        rows.append({"op": op, "recipe": recipe, "M": m, "N": n, "K": k, "E": e, "split": split, "us": round(us, 1),
                     "spread_pct": round(spread, 1), "tflops": round(6 * m * n * k / us / 1e6), "vs": versus,
                     "peer_us": {name: round(times[name][0], 1) for name in ("torch_bf16", "torchao") if name in times},
                     "floor_us": round(floor_us(m, n, k, e, copy_gbps, cached), 1),
                     "choice": layer.choice(), "parts_us": parts_us(steps[key]) if arguments.parts else {},
                     "sqnr_db": {name: round(value, 1) for name, value in quality[key].items()},
                     "kept_vs_bf16": round(layer.kept_bytes() / (2 * m * k), 3)})
    bf16_us = times["torch_bf16"][0]
    ao = f"{bf16_us / times['torchao'][0]:5.2f}x" if "torchao" in times else "     -"
    print(f"{str(shape):28} {split:7} {recipe:14} bf16 {bf16_us:7.0f} us   torchao {ao}   octet {times['octet'][0]:7.0f} us "
          f"{bf16_us / times['octet'][0]:5.2f}x   cached {bf16_us / times['octet_cached'][0]:5.2f}x   "
          + " ".join(f"{product}={precision}" for product, precision in linear.choice().items())
          + "".join(f"  {name} {us:.0f}" for name, us in rows[0]["parts_us"].items()), flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=21)
    parser.add_argument("--recipes", default="fp8_rowwise:accumulation=fast")
    parser.add_argument("--commit", default="unknown", help="of the library, for the stamp")
    parser.add_argument("--splits", default="uneven,even,skewed", help=f"of the tokens over the experts: {', '.join(SPLITS)}")
    parser.add_argument("--parts", action="store_true", help="time casts and products apart as well, by the profiler")
    parser.add_argument("--shapes", default="", help="of the nine, by number from 0, or others: 3,4,98304:2832:2064:8; all nine where it is left out")
    parser.add_argument("--alone", action="store_true", help="without torchao, whose steps let the chip cool")
    parser.add_argument("--file", help="in $OUT; step.json, or step-alone.json, where it is left out")
    arguments = parser.parse_args()
    torchao_mm = None if arguments.alone else torchao_peer.product()
    copy_gbps, bf16_tflops = ceilings()
    print(f"copy {copy_gbps:.0f} GB/s, bf16 8192^3 {bf16_tflops:.0f} TFLOP/s; {octet_cuda.build_info()}")
    stamp = stamps.stamp("compare.py", arguments.commit, copy_gbps=round(copy_gbps), bf16_tflops=round(bf16_tflops))
    path = os.path.join(os.environ.get("OUT", "."), arguments.file or ("step-alone.json" if arguments.alone else "step.json"))
    rows, failures = [], 0
    shapes = [tuple(map(int, s.split(":"))) if ":" in s else SHAPES[int(s)] for s in arguments.shapes.split(",")] if arguments.shapes else SHAPES
    for recipe in arguments.recipes.split("+"):
        for split in arguments.splits.split(","):
            for shape in shapes:
                try:
                    rows += measure(shape, split, recipe, arguments, copy_gbps, torchao_mm)
                except RuntimeError as error:
                    failures += 1
                    print(f"FAILED {shape} {split} {recipe}: {error}", flush=True)
                torch.cuda.empty_cache()
                with open(path, "w") as file:  # after every shape: a run that is cut off loses one
                    json.dump({"stamp": stamp, "rows": rows}, file, indent=1)
    for op in ("fwd_bwd", "fwd_bwd_cached"):
        ratios = [row["vs"]["torch_bf16"] for row in rows if row["op"] == op and row["split"] == "uneven"]
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            print(f"{op}: geometric mean {mean:.3f}x torch bf16 over {len(ratios)} cases, least {min(ratios):.2f}x")
    print("results:", path)
    if failures:
        raise SystemExit(f"{failures} cases failed and are not among the results")


if __name__ == "__main__":
    main()
