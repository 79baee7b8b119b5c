"""The tables of the documents are those that the results on file make, line by line, none more and none less.

    tables.py ROOT"""
import difflib
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(sys.argv[1])
H200 = "bench/results/h200"
TABLES = (("README.md", "bench/plot_step.py", f"{H200}/step.json", "--table"),
          ("docs/kernels-quantizers.md", "bench/kernels_table", f"{H200}/kernels.json", f"{H200}/kernels-peers.json"),
          ("docs/pytorch.md", "bench/peers/torch_tables.py", H200))


def tables_of(text):
    """Every run of lines that are a table's."""
    tables = [[]]
    for line in text.splitlines():
        if line.startswith("|"):
            tables[-1].append(line)
        elif tables[-1]:
            tables.append([])
    return [table for table in tables if table]


wrong = 0
for document, program, *arguments in TABLES:
    run = subprocess.run([sys.executable, program, *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    made, there = tables_of(run.stdout), tables_of((ROOT / document).read_text())
    assert sum(map(len, made)) > 5, f"{program} makes {made}"
    for table in made:
        if table in there:
            continue
        wrong += 1
        like = [other for other in there if other[0] == table[0]]
        print(f"{document} does not have this table as {program} {' '.join(arguments)} makes it:")
        print("\n".join("  " + line for line in difflib.unified_diff(like[0] if like else [], table, document, program, lineterm="")))
sys.exit(wrong > 0)
