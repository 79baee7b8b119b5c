"""Whether a step of GroupedLinear, whose casts may run in halves beside its products, gives the bits of the same quantizers and
products called one after the other; again and again, in a CUDA graph that is replayed with other groups and weights, and under every
arrangement of the casts.

    OCTET_LIBRARY=liboctet.so python3 step_check.py"""
import sys

import torch

import arrangements
import compare
import octet_cuda

RECIPE = "fp8_rowwise:accumulation=fast,forward=%s,dgrad=%s"
SHAPES = [(16640, 2048, 1024, 4), (20000, 1408, 2048, 16), (12345, 2048, 512, 7), (98304, 1408, 2048, 64), (32768, 2048, 7168, 8),
          (9000, 5120, 1536, 1), (4096, 4096, 4096, 8), (16640, 1408, 2048, 64), (3000, 512, 1024, 16), (6000, 1424, 2064, 5),
          (9000, 2880, 2112, 8)]
POISON = 3.0


def same(ours, theirs):
    return all(torch.equal(a.view(torch.int16), b.view(torch.int16)) for a, b in zip(ours, theirs))


def check(shape, precision):
    """In bf16 the forward product and dgrad are not those of the calls; what wgrad makes of casts beside them is."""
    m, n, k, e = shape
    dev, bf16 = compare.dev, compare.bf16
    torch.manual_seed(m)
    a, w, dy = (torch.randn(*size, device=dev, dtype=bf16) for size in ((m, k), (e, n, k), (m, n)))
    ends = compare.even(m, e).clone()
    ours, theirs = ([torch.empty_like(t) for t in (dy, a, w)] for _ in range(2))  # y, da, dw
    linear = octet_cuda.GroupedLinear(RECIPE % (precision, precision), a, w, ends, ours[0], dy, *ours[1:])
    calls = octet_cuda.Calls(RECIPE % ("fp8", "fp8"), a, w, ends, theirs[0], dy, *theirs[1:])

    def step():
        linear.weights_changed()
        linear.forward()
        linear.backward()

    def fill(split, round_):
        for t in (a, w, dy):
            t.normal_()
        if round_ % 2:
            a[5, 7], dy[17, 3], w[e - 1, 2, 1] = torch.inf, torch.nan, -torch.inf
        ends.copy_(compare.SPLITS[split](m, e))
        if split == "skewed":
            ends[-1] -= m // 50  # rows that nobody owns
        for t in ours + theirs:
            t.fill_(POISON)

    failures = 0

    def expect(what):
        nonlocal failures
        calls.forward()
        calls.backward()
        torch.cuda.synchronize()
        first = 0 if precision == "fp8" else 2
        if not same(ours[first:], theirs[first:]):
            failures += 1
            print(f"FAILED {shape} {precision}: {what}", flush=True)

    rounds = [(split, i) for i in range(4) for split in compare.SPLITS]
    for split, i in rounds:
        fill(split, i)
        step()
        expect(f"{split}, round {i}")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            step()
    torch.cuda.synchronize()
    for split, i in rounds:
        fill(split, i)
        torch.cuda.synchronize()
        graph.replay()
        torch.cuda.synchronize()
        expect(f"graph, {split}, round {i}")
    for i, arrangement in enumerate(arrangements.ARRANGEMENTS):
        fill("uneven", i)
        linear.arrange_casts(arrangement)
        step()
        expect(f"casts beside products: {arrangement}")
    steps = 2 * len(rounds) + len(arrangements.ARRANGEMENTS)
    print(f"{shape} {precision}: {steps - failures} of {steps} the same", flush=True)
    return failures


if __name__ == "__main__":
    sys.exit(1 if sum(check(shape, precision) for shape in SHAPES for precision in ("fp8", "bf16")) else 0)
