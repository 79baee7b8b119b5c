"""The tables of the documents are those that the results on file make: every line of them stands there.

    tables.py ROOT"""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(sys.argv[1])
H200 = "bench/results/h200"
TABLES = (("README.md", "bench/plot_step.py", f"{H200}/step.json", "--table"),
          ("docs/kernels-quantizers.md", "bench/kernels_table", f"{H200}/kernels.json"),
          ("docs/pytorch.md", "bench/peers/torch_tables.py", H200))

missing = 0
for document, program, *arguments in TABLES:
    run = subprocess.run([sys.executable, program, *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    lines = [line for line in run.stdout.splitlines() if line]
    text = (ROOT / document).read_text().splitlines()
    assert len(lines) > 5, f"{program} makes {len(lines)} lines"
    for line in lines:
        if line not in text:
            missing += 1
            print(f"{document} does not have this line, which {program} {' '.join(arguments)} makes:\n  {line}")
sys.exit(missing > 0)
