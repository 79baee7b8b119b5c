"""Options that make no sense: a sentence that says which and why, exit code 2, at once and with nothing written."""
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import time

TABLE = '''{"architecture": "gfx942", "entries": [{"operation": "pair:rowwise", "tokens": 32768, "features": 8192,
  "groups": 32, "configuration": {"tile_blocks": 2}}]}'''

with tempfile.TemporaryDirectory(prefix="octet-options-") as folder:
    folder = pathlib.Path(folder)

    def octet(*arguments, **options):
        return subprocess.run([sys.argv[1], *arguments], cwd=folder, text=True, errors="replace", timeout=60,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)

    def refused(*arguments, says):
        result = octet(*arguments)
        if result.returncode != 2 or says not in result.stdout:
            sys.exit(f"octet {' '.join(arguments)}: exit code {result.returncode}, expected 2 and '{says}':\n{result.stdout}")

    refused(says="A subcommand is required")
    refused("frobnicate", says="there is no command 'frobnicate'")
    refused("sample", says="checkpoint is required")
    refused("verify", "--cases", "-1", says="--cases: Value -1 not in range")
    refused("verify", "--seed", "-1", says="--seed: -1 was given, expected a whole number of at least 0")
    refused("verify", "--seed", "99999999999999999999999", says="which is too large")
    refused("train", "--steps", "99999999999999999999", says="which is too large")
    refused("train", "--steps", "1.5", says="--steps: 1.5 was given, expected a whole number")
    refused("train", "--learning-rate", "inf", says="--learning-rate: inf was given, expected a number")
    refused("train", "--eval-share", "nan", says="--eval-share: nan was given")
    refused("sample", "x", "--temperature", "nan", says="--temperature: nan was given")
    refused("tune", "--margin", "nan", says="--margin: nan was given")
    refused("tune", "--device", "cpu", "--out", "t.json", says="the CPU's kernels have no configurations to choose from")
    refused("tune", says="there is no folder 'tuned'; name another file with --out")
    refused("tune", "--out", "no/folder/here.json", says="there is no folder 'no/folder'")
    refused("tune", "--out", "t.json", "--shape", "round", says="unknown shape 'round'; known: llama4-e1")
    refused("tune", "--out", "t.json", "--op", "frobnicate", says="unknown operation 'frobnicate'; known: rows")
    refused("bench", "kernels", "--json", ".", says="'.' is a folder, expected a file")
    refused("bench", "products", "--json", "no/r.json", says="there is no folder 'no'")
    refused("bench", "layer", "--json", "no/r.json", says="there is no folder 'no'")
    refused("bench", "kernels", "--op", "rows", says="--op, --peers or --sweeps was given")
    refused("info", "--model", "tiny", "--layers", "-4", says="--layers: -4 was given, expected a number above 0")
    refused("train", "--steps", "0", says="--steps: 0 was given, expected a number above 0")
    refused("train", "--warmup", "-1", says="--warmup: -1 was given, expected a number from 0")
    refused("train", "--keep", "9223372036854775807", says="--keep: Value 9223372036854775807 not in range 1 to 1000000")
    refused("train", "--data", "", says="--data: nothing was given")
    refused("bench", "kernels", "--json", "", says="--json: nothing was given")
    refused("info", "--step", "1,2,3,9223372036854775807", says="expected M,N,K,E from 1 to")

    def table(text):
        (folder / "table.json").write_text(text)
        return "info", "--table", "table.json"

    source = pathlib.Path(__file__).resolve().parents[2]
    lines = (source / "docs/tuning.md").read_text().splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith('    { "architecture"'))
    example = "\n".join(lines[begin:lines.index("", begin)])
    for good in [example, *(path.read_text() for path in (source / "tuned").glob("*.json")), TABLE]:
        result = octet(*table(good))
        if result.returncode != 0 or "classes for" not in result.stdout:
            sys.exit(f"a good table was refused:\n{good}\n{result.stdout}")
    refused("tune", "--out", "t.json", "--table", "table.json", says="is a table for gfx942, expected one for sm90")
    for end in range(0, len(TABLE) - 1, 13):
        refused(*table(TABLE[:end]), says="no JSON object")
    refused(*table("[" * 100000), says="no JSON object")
    refused(*table(TABLE.replace("pair:", "pear:")), says="unknown operation of a tuning table 'pear:rowwise'")
    refused(*table(TABLE.replace("tile_blocks", "tile_bricks")), says="'tile_bricks' is unknown")
    refused(*table(TABLE.replace(": 2}", ": 2, \"tile_blocks\": 3}")), says="has 'tile_blocks' twice in one object")
    refused(*table(TABLE.replace(": 2}", ": 99}")), says="tile_blocks is 99, expected 1 to 32")
    refused(*table(TABLE.replace(": 2}", ": 2.5}")), says="'tile_blocks' is no integer")
    refused(*table(TABLE.replace("32768", "99999999999999999999")), says="'tokens'")
    refused(*table(TABLE.replace("32768", "-256")), says="powers of two from 256")
    # Results: under any name, and the old ones stay where the new ones cannot be written.
    small = ["bench", "products", "-M", "4", "-N", "4", "-K", "4", "-E", "1", "--quick", "--json"]
    result = octet(*small, b"caf\xe9.json")
    if result.returncode != 0 or json.loads((folder / os.fsdecode(b"caf\xe9.json")).read_text())["stamp"]["command"] == "":
        sys.exit(f"a name that is not UTF-8: exit code {result.returncode}:\n{result.stdout}")
    (folder / os.fsdecode(b"caf\xe9.json")).unlink()
    (folder / "old.json").write_text("old")
    result = octet(*small, "old.json", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)))
    if result.returncode != 2 or "File too large" not in result.stdout or (folder / "old.json").read_text() != "old":
        sys.exit(f"results without room: exit code {result.returncode}, {(folder / 'old.json').read_text()}:\n{result.stdout}")
    (folder / "old.json").unlink()
    with open("/dev/full", "w") as full:
        result = subprocess.run([sys.argv[1], "info"], stdout=full, stderr=subprocess.PIPE, text=True)
    if result.returncode != 2 or "could not all be written" not in result.stderr:
        sys.exit(f"octet info > /dev/full: exit code {result.returncode}:\n{result.stderr}")

    # Ctrl-C, in the middle of what writes a file at its end.
    for command in (["verify", "--cases", "1000000"], ["bench", "kernels", "--json", "results.json"]):
        running = subprocess.Popen([sys.argv[1], *command], cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        time.sleep(2)
        running.send_signal(signal.SIGINT)
        output = running.communicate(timeout=60)[0]
        if running.returncode != 130 or "octet: interrupted, no file was written" not in output:
            sys.exit(f"octet {' '.join(command)}, interrupted: exit code {running.returncode}:\n{output}")

    left = sorted(path.name for path in folder.iterdir())
    if left != ["table.json"]:
        sys.exit(f"something was written: {left}")
print("options: refused with a sentence")
