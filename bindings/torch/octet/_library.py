"""Loads the operators, torch.ops.octet, and says what is wrong where they cannot be loaded."""
import os
import pathlib

import torch

NAME = "liboctet_torch.so"


def _path():
    """The library beside this file, or the one that OCTET_TORCH_LIBRARY names: a build that was not installed."""
    named = os.environ.get("OCTET_TORCH_LIBRARY")
    path = pathlib.Path(named) if named else pathlib.Path(__file__).parent / NAME
    if not path.exists():
        raise ImportError(f"octet: {path} is not there. Install the package (pip install ./bindings/torch), or build "
                          f"{NAME} and name it in OCTET_TORCH_LIBRARY")
    return path


def load():
    major, minor = (int(part) for part in torch.__version__.split(".")[:2])
    if (major, minor) < (2, 10):
        raise ImportError(f"octet: torch {torch.__version__} was found; 2.10 or newer is needed")
    torch.ops.load_library(str(_path()))


load()
