"""A pytest plugin that runs torchao's own MoE training tests with Octet's products in place of torchao's. The tests are
torchao's and not part of this tree; fetch them from its repository (test/prototype/moe_training), and:

    PYTHONPATH=bindings/torch:bindings/torch/tests python3 -m pytest -p torchao_shim \\
        test/prototype/moe_training/test_{fp8_grouped_mm,fp8_blockwise_grouped_mm,mxfp8_grouped_mm,tensor,training}.py

They ask for a GPU. On a machine without one, OCTET_SHIM_DEVICE=cpu reads them with 'cuda' replaced and the sizes cut."""
import functools
import importlib
import os
import re
import sys
import types

import torch

import octet.torchao as ours

CPU = os.environ.get("OCTET_SHIM_DEVICE") == "cpu"
BLOCKWISE = ("_to_fp8_blockwise_then_scaled_grouped_mm", "_to_fp8_blockwise_then_emulated_scaled_grouped_mm")
PLACES = {  # module of torchao -> its functions that become Octet's
    "torchao.prototype.moe_training.fp8_grouped_mm": ("_to_fp8_rowwise_then_scaled_grouped_mm",),
    "torchao.prototype.moe_training.mxfp8_grouped_mm": ("_to_mxfp8_then_scaled_grouped_mm",),
    "torchao.prototype.moe_training.blockwise_fp8.grouped_mm": BLOCKWISE,
    "torchao.prototype.moe_training": ("_to_fp8_rowwise_then_scaled_grouped_mm", "_to_mxfp8_then_scaled_grouped_mm"),
}
calls = {"octet": 0}


def counted(function):
    def call(*args, **kwargs):
        calls["octet"] += 1
        return function(*args, **kwargs)

    return call


def pytest_configure(config):
    if CPU:
        import references  # noqa: F401  (imports torchao's blockwise modules without Triton)

        utils = importlib.import_module("torchao.prototype.moe_training.utils")
        utils.generate_jagged_offs.__defaults__ = tuple("cpu" if value == "cuda" else value
                                                        for value in utils.generate_jagged_offs.__defaults__)
    for place, names in PLACES.items():
        try:
            module = importlib.import_module(place)
        except ModuleNotFoundError as missing:
            if not (CPU and missing.name == "triton"):
                raise
            module = sys.modules[place] = types.ModuleType(place)  # nothing else of it is asked for
        for name in names:
            setattr(module, name, counted(getattr(ours, name.replace("_emulated", ""))))


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"torchao's tests: {calls['octet']} products were made by Octet on {'cpu' if CPU else 'cuda'}")


if CPU:

    _changes = [(r'"cuda"', '"cpu"'), (r"\.cuda\(\)", ".cpu()"), (r"torch\.cuda\.is_available\(\)", "True"),
                (r"is_sm_at_least_90\(\)", "True"), (r"torch\.cuda\.get_device_capability\(\)", "(9, 0)"),
                (r'pytest\.importorskip\("triton".*\)', ""),
                # Sizes for a GPU, made those of a CPU.
                (r"dim, hidden_dim = 5120, 8192", "dim, hidden_dim = 2560, 4096"), (r"batch, seq = 8, 2048", "batch, seq = 2, 256"),
                (r"\(32768, 5120, 8192\), \(16640, 7168, 2048\)", "(2048, 640, 768), (1664, 512, 256)")]

    def _read_for_the_cpu(path):
        text = open(path).read()
        for old, new in _changes:
            text = re.sub(old, new, text)
        return text.encode()

    import _pytest.assertion.rewrite as rewrite

    def _rewrite_test(fn, config):
        source = _read_for_the_cpu(fn)
        tree = __import__("ast").parse(source, filename=str(fn))
        rewrite.rewrite_asserts(tree, source, str(fn), config)
        return os.stat(fn), compile(tree, str(fn), "exec", dont_inherit=True)

    rewrite._rewrite_test = _rewrite_test
    _histc = torch.histc  # of integers, which a CPU's has not
    torch.histc = lambda x, *args, **kwargs: _histc(x.float(), *args, **kwargs).to(x.dtype)

    def pytest_collection_finish(session):  # the reference layer's own way without a Triton kernel
        for name, module in list(sys.modules.items()):
            if name.endswith("reference_moe"):
                module.generate_permute_indices = functools.partial(module.generate_permute_indices, use_cpu=True)

    torch.set_num_threads(2)
