"""The wheel: built from the tree with the library that is tested, its metadata, and that it works where it is unpacked."""
import importlib.metadata
import os
import shutil
import subprocess
import sys
import zipfile

import pytest

from conftest import HERE


@pytest.mark.skipif(not os.environ.get("OCTET_LIBRARY") or not shutil.which("cmake"), reason="needs OCTET_LIBRARY and CMake")
@pytest.mark.skipif(int(importlib.metadata.version("setuptools").split(".")[0]) < 77, reason="needs setuptools 77")
def test_wheel(tmp_path):
    source = tmp_path / "source" / "bindings" / "torch"  # pip leaves its build folder in the tree it is given
    shutil.copytree(HERE.parent, source, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__", "tests"))
    (tmp_path / "source" / "include").symlink_to(HERE.parents[2] / "include")
    build = subprocess.run([sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index",
                            "--wheel-dir", tmp_path, source], capture_output=True, text=True)
    assert build.returncode == 0, build.stdout + build.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.startswith("octet-0.1.0-py3-none-linux_"), wheel.name
    unpacked = tmp_path / "unpacked"
    zipfile.ZipFile(wheel).extractall(unpacked)
    metadata = (unpacked / "octet-0.1.0.dist-info" / "METADATA").read_text()
    for line in ("Name: octet", "Version: 0.1.0", "License-Expression: Apache-2.0", "Requires-Python: >=3.10", "Requires-Dist: torch>=2.10"):
        assert f"\n{line}\n" in f"\n{metadata}", f"{line} is not in\n{metadata}"
    environment = {name: value for name, value in os.environ.items() if name not in ("OCTET_TORCH_LIBRARY", "OCTET_LIBRARY")}
    run = subprocess.run([sys.executable, "-c", "import octet, torch; print(octet.__file__); "
                          "print(octet.quantize_rows(torch.ones(2, 4)).data.float().sum().item())"],
                         env={**environment, "PYTHONPATH": str(unpacked)}, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0 and str(unpacked) in run.stdout and "2048.0" in run.stdout, run.stdout + run.stderr
