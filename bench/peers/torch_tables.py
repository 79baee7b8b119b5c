"""The tables of docs/pytorch.md, in Markdown, of what bench/measure_torch measured.

    python3 bench/peers/torch_tables.py bench/results/h200"""
import json
import math
import os
import sys

MODES = {"bf16": "experts by `torch._grouped_mm`, bf16", "torchao": "the three products by torchao, fp8_rowwise",
         "octet": "the three products by `octet.grouped_mm`, fp8_rowwise", "octet_blockwise": "the three products by `octet.grouped_mm`, fp8_blockwise",
         "octet_moe": "`octet.MoE`, fp8_rowwise", "octet_moe_blockwise": "`octet.MoE`, fp8_blockwise"}
SHORT = {"bf16": "bf16", "torchao": "torchao", "octet": "products swapped", "octet_blockwise": "products swapped, blockwise",
         "octet_moe": "`octet.MoE`", "octet_moe_blockwise": "`octet.MoE`, blockwise"}
PARTS = {"expert products": "expert products", "casts": "casts", "moves and SwiGLU": "moving rows, SwiGLU, sums over experts",
         "dense products": "dense products: head, attention's projections, shared experts", "optimizer": "AdamW",
         "attention": "attention", "loss": "loss", "other": "other", "idle": "idle"}
HOST = {"c_forward": "forward: the C calls", "operator_forward": "forward: the operator, as `octet.grouped_mm` calls it",
        "operator_forward_by_torch_library": "forward: the operator through `torch.ops`, where torch.library looks for gradients in Python",
        "c_backward": "backward: the C calls", "operator_backward": "backward: the operator", "c_both": "both: the C calls",
        "grouped_mm_both": "both: `octet.grouped_mm` and autograd", "autograd_alone": "both: an `autograd.Function` in Python that does nothing",
        "torch_bf16_both": "both: `torch._grouped_mm` in bf16"}
PEERS = ("torch_bf16", "torchao", "torchao_compiled")


def table(head, lines):
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *lines]) + "\n"


def stack(rows):
    speed = {(row["mode"], row["compiled"]): row["tokens_per_s"] for row in rows}
    lines = []
    for row in rows:
        times = lambda mode: f"{row['tokens_per_s'] / speed[mode, row['compiled']]:.2f}x" if (mode, row["compiled"]) in speed else ""  # noqa: B023, E731
        lines.append([MODES[row["mode"]], "compiled" if row["compiled"] else "eager", f"{row['tokens_per_s']:,}", times("bf16"),
                      times("torchao"), f"{row['peak_gb']:.1f} GB"])
    return table(["", "", "tokens/s", "of bf16", "of torchao", "peak memory"], lines)


def parts(rows, compiled):
    rows = [row for row in rows if "parts_ms" in row and row["compiled"] == compiled]
    lines = [[name] + [f"{row['parts_ms'][part]:.1f}" if part in row["parts_ms"] else "" for row in rows] for part, name in PARTS.items()]
    lines.append(["the timed step"] + [f"{row['ms']:.1f}" for row in rows])
    return table(["ms, compiled" if compiled else "ms, eager"] + [SHORT[row["mode"]] for row in rows], lines)


def products(rows):
    """Octet's time, and what it is to each peer's; compiled against compiled where there is such a peer."""
    lines, ratios = [], []
    for row in rows:
        us, compiled = row["us"], row.get("us_compiled", math.nan)
        peers = {name: row["vs"].get(name, math.nan) * us for name in PEERS}
        ratios.append([peers["torch_bf16"] / us, peers["torchao"] / us, peers["torch_bf16"] / compiled, peers["torchao_compiled"] / compiled])
        shape = ", ".join(str(row[name]) for name in "MNKE")
        lines.append([shape, f"{us:.0f}", *(f"{x:.2f}" for x in ratios[-1][:2]), f"{compiled:.0f}", *(f"{x:.2f}" for x in ratios[-1][2:])])
    means = [math.exp(sum(map(math.log, column)) / len(column)) for column in zip(*ratios)]
    lines.append(["geometric mean", "", *(f"{x:.2f}" for x in means[:2]), "", *(f"{x:.2f}" for x in means[2:])])
    return table(["M, N, K, E", "us, eager", "of torch bf16", "of torchao", "us, compiled", "of torch bf16", "of torchao"], lines)


def main():
    def read(name):
        with open(os.path.join(sys.argv[1], name)) as file:
            return json.load(file)

    rows, few = read("torch_stack.json")["rows"], read("torch_stack_4.json")["rows"]
    product = read("torch_grouped_mm.json")
    runs = [read("torch_host.json"), product] if os.path.exists(os.path.join(sys.argv[1], "torch_host.json")) else [product]  # --host, alone in its process
    times = [run[kind] for run in runs for kind in ("host_us", "host_us_one_core")]
    host = [[text, *(f"{time[name]:.0f}" for time in times)] for name, text in HOST.items()]
    print(stack(rows), parts(rows, False), parts(rows, True), stack(few), products(product["rows"]), table(["", *["threads free", "on one core"] * len(runs)], host), sep="\n")


if __name__ == "__main__":
    main()
