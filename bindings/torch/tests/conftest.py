"""The tests of the Python package. They need the library (OCTET_TORCH_LIBRARY, or an installed package); those that compare
with torchao need torchao too. Everything runs on the CPU, and on a GPU where there is one that the build serves."""
import os
import pathlib
import sys

# Some virtual machines show AMX and do not let a process use it; torch's bf16 products then die of an illegal instruction.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")

import pytest  # noqa: E402
import torch  # noqa: E402

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent))  # the package itself, where it is not installed
sys.path.insert(0, str(HERE.parents[2] / "tests" / "conformance"))  # torchao's references and the bit comparison

import octet  # noqa: E402,F401

torch.set_num_threads(1)  # the tensors are small, and threads that wait for each other are slow on a busy machine


def _devices():
    return ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


@pytest.fixture(params=_devices())
def device(request):
    return torch.device(request.param)


@pytest.fixture(params=["fp8_rowwise", "fp8_blockwise", "mxfp8", "bf16"])
def recipe(request):
    return request.param


@pytest.fixture(autouse=True)
def _same_numbers():
    torch.manual_seed(0)
    torch._dynamo.reset()
