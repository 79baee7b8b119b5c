"""Every comparison of the conformance suite with torchao, bit for bit, through the operators."""
import importlib.util
import os

import pytest

if not os.environ.get("OCTET_LIBRARY"):
    pytest.skip("OCTET_LIBRARY does not name liboctet.so, which the suite decodes with", allow_module_level=True)
pytest.importorskip("torchao")

import test_blockwise  # noqa: E402
import test_groups  # noqa: E402
import test_mx  # noqa: E402
import test_rowwise  # noqa: E402
from conftest import HERE  # noqa: E402
from torch_octet import TorchOctet  # noqa: E402

_spec = importlib.util.spec_from_file_location("conformance_fixtures", HERE.parents[2] / "tests/conformance/conftest.py")
_fixtures = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_fixtures)
source, fp8, rounding = _fixtures.source, _fixtures.fp8, _fixtures.rounding
mx_format, mode, e4m3 = test_mx.mx_format, test_mx.mode, test_blockwise.e4m3


@pytest.fixture
def octet(device):
    return TorchOctet(device)


for _module in (test_rowwise, test_blockwise, test_mx, test_groups):
    for _name, _function in vars(_module).items():
        if _name.startswith("test_") and callable(_function):
            globals()[f"test_{_module.__name__.removeprefix('test_')}_{_name.removeprefix('test_')}"] = _function
