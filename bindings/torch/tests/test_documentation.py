"""The page-long example of docs/pytorch.md runs as it stands, in a process of its own, and warns of nothing."""
import os
import subprocess
import sys

from conftest import HERE

ROOT = HERE.parents[2]


def _python(*arguments):
    environment = {**os.environ, "PYTHONPATH": f"{HERE.parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}", "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=300)


def test_the_example():
    text = (ROOT / "docs" / "pytorch.md").read_text()
    example = text.split("```python\n")[1].split("```")[0]
    run = _python("-c", example)
    assert run.returncode == 0, run.stderr
    assert "relative error of the product: 0.0" in run.stdout and "loss" in run.stdout
    assert not run.stderr, run.stderr


def test_import_is_quick_and_silent():
    run = _python("-c", "import time, torch; t = time.perf_counter(); import octet; print(time.perf_counter() - t)")
    assert run.returncode == 0 and not run.stderr, run.stderr
    assert float(run.stdout) < 1.0
