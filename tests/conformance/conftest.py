import pytest
import torch

from compare import compared
from octet_c import Octet, build_info

torch.set_num_threads(2)

FP8 = [torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2]


def _name(dtype):
    return str(dtype).removeprefix("torch.")


@pytest.fixture(params=["reference", "cpu"])
def octet(request):
    return Octet(request.param)


@pytest.fixture(params=[torch.bfloat16, torch.float32], ids=_name)
def source(request):
    """The format that is quantized from."""
    return request.param


@pytest.fixture(params=FP8, ids=_name)
def fp8(request):
    return request.param


@pytest.fixture(params=["power_of_two", "exact"])
def rounding(request):
    return request.param


def pytest_report_header():
    import torchao

    return f"{build_info()}\ntorch {torch.__version__}, torchao {torchao.__version__}"


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(
        f"conformance: {compared['tensors']} tensors ({compared['elements']} elements) compared bit for bit")
