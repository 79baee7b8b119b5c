"""Octet: Mixture-of-Experts training in 8 bits. See docs/pytorch.md."""
from . import _registration  # noqa: F401  (loads and describes torch.ops.octet)
from .conversion import convert
from .modules import GroupedExperts, MoE
from .product import grouped_mm, grouped_mm_dual
from .quantizers import *  # noqa: F403
from ._version import __version__  # noqa: F401
from .weights import weights_changed


