"""Runs `octet train` on a toy model in a folder of its own. Plain Python: each test is a program that fails by exception."""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

OCTET = sys.argv[1] if len(sys.argv) > 1 else "octet"

TOY = """[model]
vocabulary = 256
layers = 2
hidden = 32
heads = 2
kv_heads = 1
head_dim = 16
sequence_length = 16
tied_head = true

[experts]
count = 4
per_token = 2
shared = 1
intermediate = 32

[router]
balance = "bias"

[training]
steps = 40
batch = 4
warmup_steps = 4
learning_rate = 3e-3
final_learning_rate = 3e-4
"""


class Folder:
    """A temporary folder with the toy model and some text in it."""

    def __init__(self):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="octet-e2e-"))
        (self.path / "toy.toml").write_text(TOY)
        text = "".join(f"The {n}th line of a text that repeats itself, as texts for tests do.\n" for n in range(400))
        (self.path / "text.txt").write_text(text)

    def __enter__(self):
        return self

    def __exit__(self, *ignored):
        shutil.rmtree(self.path, ignore_errors=True)

    def command(self, out, *arguments, model="toy.toml", data="text.txt"):
        return [OCTET, "train", model, "--data", data, "--out", out, "--threads", "1", *map(str, arguments)]

    def train(self, out, *arguments, **options):
        popen = {k: options.pop(k) for k in ("preexec_fn", "env") if k in options}
        return subprocess.run(self.command(out, *arguments, **options), cwd=self.path, text=True, errors="replace", timeout=300,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **popen)

    def start(self, out, *arguments, **options):
        return subprocess.Popen(self.command(out, *arguments, **options), cwd=self.path, text=True, errors="replace",
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def octet(self, *arguments):
        return subprocess.run([OCTET, *map(str, arguments)], cwd=self.path, text=True, errors="replace", timeout=300,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def metrics(self, out, kind="step"):
        lines = (self.path / out / "metrics.jsonl").read_text().splitlines()
        return [entry for entry in map(json.loads, lines) if entry["kind"] == kind]

    def losses(self, out):
        """What must be the same bits: JSON numbers are written so that they read back exactly."""
        return [(m["step"], m["loss"], m["gradient_norm"], m["learning_rate"]) for m in self.metrics(out)]

    def checkpoints(self, out):
        return sorted(p.name for p in (self.path / out / "checkpoints").glob("step-*"))


def check(condition, *what):
    if not condition:
        raise AssertionError("\n".join(map(str, what)))


def says(result, *sentences, code=None):
    for sentence in sentences:
        check(sentence in result.stdout, f"expected: {sentence}", f"exit code {result.returncode}, output:", result.stdout)
    if code is not None:
        check(result.returncode == code, f"exit code {result.returncode}, expected {code}", result.stdout)
