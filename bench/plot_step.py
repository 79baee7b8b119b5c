#!/usr/bin/env python3
"""Draws bench/results/<machine>/step.json as an SVG: forward + backward per shape, Octet's casts and products stacked, beside
torch's bf16, torchao and the floor. Times are shares of torch's bf16 on that shape; shorter is faster.

    bench/plot_step.py step.json step.svg [--op fwd_bwd|fwd_bwd_cached] [--split uneven]
    bench/plot_step.py step.json --table

--table prints the README's table instead."""
import argparse
import json
import math

PARTS = (("casts", "#e0a030"), ("forward", "#2f6fb0"), ("dgrad", "#5b9bd5"), ("wgrad", "#9cc3e6"), ("rest", "#d0d0d0"))
PEERS = (("torch_bf16", "torch bf16", "#777777"), ("torchao", "torchao fp8", "#b5493a"))
BAR, GAP, LEFT, TOP, HEIGHT = 22, 34, 60, 64, 320


def bars(row):
    """(label, [(colour, share of bf16)]) of one shape."""
    whole = row["peer_us"]["torch_bf16"]
    parts = dict(row.get("parts_us") or {})
    parts.pop("beside", None)  # casts within the products' time
    # The whole was timed. The profiler's parts leave out the gaps between kernels, or, where kernels overlap, add up to more.
    seen = sum(parts.values())
    if seen > row["us"]:
        parts = {name: us * row["us"] / seen for name, us in parts.items()}
    parts["rest"] = max(row["us"] - seen, 0.0)
    result = [("Octet", [(colour, parts[name] / whole) for name, colour in PARTS if parts.get(name)])]
    result += [(label, [(colour, row["peer_us"][name] / whole)]) for name, label, colour in PEERS if name in row["peer_us"]]
    return result + [("floor", [("none", row["floor_us"] / whole)])]


def draw(rows, title):
    groups = [(row, bars(row)) for row in rows]
    top_share = max(sum(share for _, share in stack) for _, group in groups for _, stack in group)
    top = math.ceil(top_share * 4 + 0.2) / 4
    y_of = lambda share: TOP + HEIGHT * (1 - share / top)
    out, x = [], LEFT
    for i in range(int(top * 4) + 1):
        y = y_of(i / 4)
        out.append(f'<line x1="{LEFT - 6}" y1="{y:.1f}" x2="WIDTH" y2="{y:.1f}" stroke="#{"888888" if i == 4 else "e4e4e4"}"/>'
                   f'<text x="{LEFT - 10}" y="{y + 4:.1f}" text-anchor="end">{i / 4:.2f}</text>')
    for row, group in groups:
        x += GAP
        first = x
        for label, stack in group:
            share = 0.0
            for colour, part in stack:
                y = y_of(share + part)
                edge = ' stroke="#333333" stroke-dasharray="3 2"' if colour == "none" else ""
                out.append(f'<rect x="{x}" y="{y:.1f}" width="{BAR - 3}" height="{y_of(share) - y:.1f}" fill="{colour}"{edge}>'
                           f'<title>{label}: {part:.3f} of bf16</title></rect>')
                share += part
            if label == "Octet":
                out.append(f'<text x="{x + BAR - 3}" y="{y_of(share) - 5:.1f}" text-anchor="end" font-weight="bold">'
                           f'{1 / share:.2f}x</text>')
            x += BAR
        middle, base = (first + x - 3) / 2, TOP + HEIGHT
        in_bf16 = [name for name, precision in (row.get("choice") or {}).items() if precision == "bf16"]
        lines = [f"M {row['M']}, E {row['E']}", f"N {row['N']}, K {row['K']}"]
        lines += [f"{', '.join(in_bf16)}", "in bf16"] if in_bf16 else []
        out += [f'<text x="{middle:.1f}" y="{base + 18 + 14 * i}" text-anchor="middle">{line}</text>' for i, line in enumerate(lines)]
    width = x + 30
    legend, at = [], LEFT
    names = [(name, colour) for name, colour in PARTS if any((row.get("parts_us") or {}).get(name) or name == "rest" for row in rows)]
    names = [("launches, gaps" if name == "rest" and len(names) > 1 else "Octet" if name == "rest" else name, colour) for name, colour in names]
    names += [(label, colour) for key, label, colour in PEERS if any(key in row["peer_us"] for row in rows)] + [("floor", "none")]
    for name, colour in names:
        edge = ' stroke="#333333" stroke-dasharray="3 2"' if colour == "none" else ""
        legend.append(f'<rect x="{at}" y="36" width="12" height="12" fill="{colour}"{edge}/><text x="{at + 17}" y="46">{name}</text>')
        at += 34 + 7 * len(name)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{TOP + HEIGHT + 74}" font-family="sans-serif" font-size="11">\n'
            f'<rect width="100%" height="100%" fill="white"/>\n<text x="{LEFT}" y="22" font-size="14">{title}</text>\n'
            + "\n".join(legend + out).replace("WIDTH", str(width - 20)) + "\n</svg>\n")


def table(rows):
    """The uneven split in Markdown: Octet's time, and what it and torchao are to torch's bf16."""
    shape_of = lambda row: ", ".join(str(row[name]) for name in "MNKE")
    versus_of = lambda row: row["peer_us"]["torch_bf16"] / row["us"]
    cached = {shape_of(row): versus_of(row) for row in rows if row["op"] == "fwd_bwd_cached" and row["split"] == "uneven"}
    lines, ratios = [], []
    for row in rows:
        if row["op"] == "fwd_bwd" and row["split"] == "uneven":
            versus, torchao = versus_of(row), row["vs"].get("torchao", math.nan)
            ratios.append((versus, cached[shape_of(row)], versus / torchao, torchao))
            lines.append((shape_of(row), f"{row['us']:.0f}", ratios[-1]))
    lines.append(("geometric mean", "", [math.exp(sum(map(math.log, column)) / len(column)) for column in zip(*ratios)]))
    head = "| M, N, K, E | Octet us | vs torch bf16 | weights' casts cached | torchao fp8 vs torch bf16 | Octet vs torchao |\n|---|---|---|---|---|---|\n"
    return head + "\n".join(f"| {shape} | {us} | " + " | ".join("" if math.isnan(x) else f"{x:.2f}x" for x in values) + " |"
                            for shape, us, values in lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results")
    parser.add_argument("picture", nargs="?")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--op", default="fwd_bwd")
    parser.add_argument("--split", default="uneven")
    arguments = parser.parse_args()
    with open(arguments.results) as file:
        results = json.load(file)
    if arguments.table:
        return print(table(results["rows"]))
    if not arguments.picture:
        parser.error("no picture was named, expected the file to draw")
    rows = [row for row in results["rows"] if row["op"] == arguments.op and row["split"] == arguments.split and "peer_us" in row]
    if not rows:
        raise SystemExit(f"{arguments.results} has no row with op {arguments.op} and split {arguments.split} that plot_step.py can draw; "
                         "run bench/peers/compare.py again")
    stamp = results["stamp"]
    weights = "weights cached" if arguments.op.endswith("cached") else "weights quantized every step"
    title = f"A step of one expert product, {weights}: time over torch bf16's ({stamp['gpu']}, {stamp['date'][:10]})"
    with open(arguments.picture, "w") as file:
        file.write(draw(rows, title))


if __name__ == "__main__":
    main()
