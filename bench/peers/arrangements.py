"""Times a step of GroupedLinear under every arrangement of its casts (which are made in halves, the second beside a product; see
CastsBeside in include/octet/linear.hpp), in turns, beside what the cost model takes. All give the same bits, or it says so.

    OCTET_LIBRARY=liboctet.so python3 arrangements.py [shapes, by number or as M:N:K:E: 0,5,65536:2880:2880:32] [repetitions]"""
import sys

import torch

import compare
import octet_cuda

RECIPE = "fp8_rowwise:accumulation=fast"
TOKENS = ["", "A and forward", "dY and dgrad", "A and forward, dY and dgrad"]
ARRANGEMENTS = [", ".join(filter(None, (tokens, weights))) or "none" for tokens in TOKENS for weights in ("", "W and forward")]


def measure(shape, repetitions):
    m, n, k, e = shape
    torch.manual_seed(0)
    dev, bf16 = compare.dev, compare.bf16
    a, w, dy = (torch.randn(*size, device=dev, dtype=bf16) for size in ((m, k), (e, n, k), (m, n)))
    outputs = [torch.empty_like(t) for t in (dy, a, w)]  # y, da, dw
    ends = compare.uneven(m, e)

    chosen, arranged = (octet_cuda.GroupedLinear(RECIPE, a, w, ends, outputs[0], dy, *outputs[1:]) for _ in range(2))

    def step_of(linear, arrangement=None):
        def step():
            if arrangement is not None:
                linear.arrange_casts(arrangement)
            linear.weights_changed()
            linear.forward()
            linear.backward()
        return step

    steps = {"the cost model's": step_of(chosen), **{name: step_of(arranged, name) for name in ARRANGEMENTS}}
    expected, different = None, []
    for name, step in steps.items():
        for t in outputs:
            t.fill_(torch.nan)
        step()
        torch.cuda.synchronize()
        bits = [t.view(torch.int16).clone() for t in outputs]
        expected = expected or bits
        if not all(torch.equal(x, y) for x, y in zip(expected, bits)):
            different.append(name)
    print(shape, "other bits under: " + "; ".join(different) if different else "the same bits", flush=True)
    times = compare.interleaved(steps, repetitions)
    for name in sorted(times, key=lambda name: times[name][0]):
        print(f"  {times[name][0]:7.0f} us  {name}", flush=True)
    return not different


if __name__ == "__main__":
    shapes = compare.SHAPES
    if len(sys.argv) > 1:
        shapes = [tuple(map(int, s.split(":"))) if ":" in s else compare.SHAPES[int(s)] for s in sys.argv[1].split(",")]
    right = [measure(shape, int(sys.argv[2]) if len(sys.argv) > 2 else 15) for shape in shapes]
    sys.exit(0 if all(right) else 1)
