#!/usr/bin/env python3
"""Times Octet's CPU quantizers against torch and torchao, in one run, results checked before they are timed.

    bench/peers/cpu_quantizers.py [--threads 2] [--repeats 7] [--json FILE] [--quick]

rows     against torch's eager sequence: row maxima, scales, cast                   aim: 5 times
columns  against torchao's torch_to_float8_per_group_colwise                        aim: 10 times

torchao's function writes the layout that it is given; it is timed on the row-major tensor, where it does not transpose,
and on a column-major copy, the copy counted, where its result is what Octet's is. The ratio is to the faster.

Needs torch and torchao (the environment that scripts/conformance makes has them) and liboctet.so: OCTET_LIBRARY, or
build/release/src/liboctet.so. The contenders take turns, one call each a round; the table has medians of wall time.
"""

import argparse
import ctypes
import datetime
import json
import logging
import os
import pathlib
import platform
import statistics
import sys
import time
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[2]
I64 = ctypes.c_int64
AIMS = {"rows": 5.0, "columns": 10.0}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", default=str(ROOT / "build" / "cpu_quantizers.json"))
    parser.add_argument("--quick", action="store_true", help="a small shape, to see that everything runs")
    return parser.parse_args()


class Octet:
    """The C interface. Handles are made before timing and live as long as the program."""

    formats = {"float32": 0, "bfloat16": 1, "float8_e4m3fn": 2}

    def __init__(self, threads):
        path = os.environ.get("OCTET_LIBRARY", str(ROOT / "build" / "release" / "src" / "liboctet.so"))
        self.lib = ctypes.CDLL(path)
        self.lib.octet_last_error.restype = ctypes.c_char_p
        self.lib.octet_build_info.restype = ctypes.c_char_p
        self.execution = self.make("octet_execution_create")
        self.call("octet_execution_set_threads", self.execution, threads)

    def call(self, name, *args):
        if getattr(self.lib, name)(*args) != 0:
            raise RuntimeError(f"{name}: {self.lib.octet_last_error().decode()}")

    def make(self, name, *args):
        handle = ctypes.c_void_p()
        self.call(name, *args, ctypes.byref(handle))
        return handle

    def tensor(self, t):
        sizes = I64 * t.dim()
        return self.make("octet_tensor_create", ctypes.c_void_p(t.data_ptr()), self.formats[str(t.dtype).split(".")[1]],
                         t.dim(), sizes(*t.shape), sizes(*t.stride()), 0, 0)

    def quantized(self, data, scale):
        return self.make("octet_quantized_create", self.tensor(data), self.tensor(scale), None)

    def options(self, rounding):
        options = self.make("octet_quantize_options_create")
        self.call("octet_quantize_options_set", options, b"scale_rounding", rounding.encode())
        return options

    def padded_bound(self, tokens, groups, alignment):
        out = I64()
        self.call("octet_padded_bound", I64(tokens), I64(groups), I64(alignment), ctypes.byref(out))
        return out.value


def uneven_ends(tokens, groups):
    """Cumulative ends of groups between a half and one and a half times the mean."""
    weights = 0.5 + torch.rand(groups, generator=torch.Generator().manual_seed(groups))
    ends = (weights.cumsum(0) / weights.sum() * tokens).round().to(torch.int32)
    ends[-1] = tokens
    return ends


def eager_rows(x, power_of_two):
    amax = x.abs().amax(dim=-1, keepdim=True).to(torch.float64)
    scale = (448.0 / amax.clamp(min=1e-12)).to(torch.float32)
    if power_of_two:
        scale = torch.exp2(torch.floor(torch.log2(scale)))
    return (x.to(torch.float32) * scale).clamp(-448.0, 448.0).to(torch.float8_e4m3fn), scale


def require_equal(what, ours, theirs):
    same = torch.equal(ours.contiguous().view(torch.uint8), theirs.contiguous().view(torch.uint8))
    if not same:
        sys.exit(f"{what}: the results differ; nothing was timed")


def measure(contenders, repeats):
    """Medians and spreads of wall time in seconds; the contenders take turns."""
    for run in contenders.values():
        run()
    times = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return {name: (statistics.median(t), 100 * (max(t) - min(t)) / statistics.median(t)) for name, t in times.items()}


def row_of(op, rounding, m, k, experts, compulsory, times, copy_gbps, peers):
    seconds, spread = times["octet"]
    gbps = compulsory / seconds / 1e9
    return {"op": f"quantize_{op}", "recipe": f"fp8_rowwise:scales={rounding}", "M": m, "K": k, "E": experts,
            "split": "uneven", "us": seconds * 1e6, "spread_pct": spread, "gbps": gbps,
            "pct_copy": 100 * gbps / copy_gbps, "vs": {peer: times[peer][0] / seconds for peer in peers}}


def bench_rows(octet, x, rounding, copy_gbps, repeats):
    m, k = x.shape
    data, scale = torch.empty(m, k, dtype=torch.float8_e4m3fn), torch.empty(m, dtype=torch.float32)
    handles = octet.tensor(x), octet.options(rounding), octet.quantized(data, scale), octet.execution
    power_of_two = rounding == "power_of_two"
    octet.call("octet_quantize_rows", *handles)
    expected, expected_scale = eager_rows(x, power_of_two)
    require_equal("rows, scales", scale, expected_scale.squeeze(-1))
    require_equal("rows, data", data, expected)
    times = measure({"octet": lambda: octet.call("octet_quantize_rows", *handles),
                     "torch_eager": lambda: eager_rows(x, power_of_two)}, repeats)
    return row_of("rows", rounding, m, k, 1, 3 * m * k, times, copy_gbps, ["torch_eager"])


def bench_columns(octet, x, experts, rounding, copy_gbps, repeats, alignment=128):
    m, k = x.shape
    ends = uneven_ends(m, experts)
    padded = octet.padded_bound(m, experts, alignment)
    data = torch.empty(k, padded, dtype=torch.float8_e4m3fn)
    scale = torch.empty(experts, k, dtype=torch.float32)
    groups = octet.make("octet_groups_create", ctypes.c_void_p(ends.data_ptr()), I64(experts), 0, 0)
    handles = octet.tensor(x), groups, I64(alignment), octet.options(rounding), octet.quantized(data, scale), \
        octet.execution
    power_of_two = rounding == "power_of_two"

    def row_major():
        return torch_to_float8_per_group_colwise(x, ends, torch.float8_e4m3fn, power_of_two)

    def column_major():
        return torch_to_float8_per_group_colwise(x.t().contiguous().t(), ends, torch.float8_e4m3fn, power_of_two)

    octet.call("octet_quantize_columns", *handles)
    for theirs, expected_scale in (row_major(), column_major()):
        require_equal("columns, scales", scale.flatten(), expected_scale)
        begin = start = 0
        for end in ends.tolist():
            require_equal("columns, data", data[:, start:start + end - begin], theirs[begin:end].t())
            start += -(-(end - begin) // alignment) * alignment
            begin = end
    times = measure({"octet": lambda: octet.call("octet_quantize_columns", *handles), "torchao": row_major,
                     "torchao_transposed": column_major}, repeats)
    return row_of("columns", rounding, m, k, experts, 3 * m * k, times, copy_gbps, ["torchao", "torchao_transposed"])


def measure_copy(x, repeats):
    to = torch.empty_like(x)
    seconds, _ = measure({"copy": lambda: to.copy_(x)}, repeats)["copy"]
    return 2 * x.numel() * x.element_size() / seconds / 1e9


def main():
    options = arguments()
    torch.set_num_threads(options.threads)
    octet = Octet(options.threads)
    m, k = (1664, 512) if options.quick else (16640, 5120)
    x = torch.randn(m, k, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)
    copy_gbps = measure_copy(x, options.repeats)
    rows = []
    for rounding in ("power_of_two", "exact"):
        rows.append(bench_rows(octet, x, rounding, copy_gbps, options.repeats))
        rows.append(bench_columns(octet, x, 16, rounding, copy_gbps, options.repeats))

    print(f"{options.threads} threads, x[{m}, {k}] bf16, copy {copy_gbps:.1f} GB/s, load {os.getloadavg()[0]:.1f}")
    print(f"{'op':18} {'scales':13} {'ms':>8} {'spread':>7} {'GB/s':>6} {'of copy':>8}  times faster than (aim)")
    for row in rows:
        op = row["op"].removeprefix("quantize_")
        ratios = ", ".join(f"{peer} {ratio:.1f}" for peer, ratio in row["vs"].items())
        reached = min(row["vs"].values()) >= AIMS[op]
        print(f"{row['op']:18} {row['recipe'].split('=')[1]:13} {row['us'] / 1e3:8.2f} {row['spread_pct']:6.0f}% "
              f"{row['gbps']:6.1f} {row['pct_copy']:7.0f}%  {ratios} ({AIMS[op]:g}{'' if reached else ', NOT reached'})")

    stamp = {"cpu": cpu_name(), "threads": options.threads, "torch": torch.__version__, "torchao": torchao.__version__,
             "octet": octet.lib.octet_build_info().decode(), "date": datetime.date.today().isoformat(),
             "command": "bench/peers/cpu_quantizers.py", "copy_gbps": copy_gbps, "load": os.getloadavg()[0]}
    path = pathlib.Path(options.json)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"stamp": stamp, "rows": rows}, indent=1) + "\n")
    print(f"written to {path}")


def cpu_name():
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


if __name__ == "__main__":
    if "-h" in sys.argv or "--help" in sys.argv:
        arguments()
    try:
        import torch
        # They report GPU extensions that they cannot load, and what a later release will warn about.
        for name in ("torchao", "torch.utils._pytree"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        warnings.filterwarnings("ignore")
        import torchao
        from torchao.prototype.moe_training.utils import torch_to_float8_per_group_colwise
    except ImportError as error:
        sys.exit(f"{error}; run with the Python of an environment that has torch and torchao: scripts/conformance makes "
                 "one in build/conformance-venv")
    main()
