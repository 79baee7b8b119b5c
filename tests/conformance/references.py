"""torchao's own references, imported so that they run on a machine with neither a GPU nor Triton."""

import importlib.machinery
import logging
import sys
import types
import warnings

import torch

# torchao reports the GPU extensions that it cannot load, torch what a later release of it will warn about.
for name in ("torchao", "torch.utils._pytree"):
    logging.getLogger(name).setLevel(logging.CRITICAL)
warnings.filterwarnings("ignore")


def _stub_triton():
    """A module whose every attribute is a decorator that returns what it decorates.

    The blockwise references are plain torch functions in a file that also defines Triton kernels; this lets that file
    be imported. Nothing of it is run.
    """

    class Anything(types.ModuleType):
        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            return lambda *args, **kwargs: args[0] if args and callable(args[0]) else (lambda function: function)

    for name in ("triton", "triton.language"):
        module = Anything(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        module.__path__ = []
        sys.modules[name] = module
    sys.modules["triton"].language = sys.modules["triton.language"]
    sys.modules["triton.language"].constexpr = int


def _name_operator(name, **_):
    torch.library.define(name, "() -> ()")
    return lambda function: function


def _import_blockwise():
    try:
        import triton  # noqa: F401

        stubbed = False
    except ModuleNotFoundError:
        _stub_triton()
        stubbed = True
    saved = torch.library.triton_op, torch.distributed.tensor.experimental.register_sharding
    if stubbed:
        # The kernels' operators get their names and nothing else; their sharding rules are not needed.
        torch.library.triton_op = _name_operator
        torch.distributed.tensor.experimental.register_sharding = lambda *args: lambda function: function
    try:
        from torchao.prototype.blockwise_fp8_training import kernels
    finally:
        torch.library.triton_op, torch.distributed.tensor.experimental.register_sharding = saved
        if stubbed:
            del sys.modules["triton"], sys.modules["triton.language"]
    return kernels


import torch.distributed.tensor.experimental  # noqa: E402
from torchao.float8.config import ScalingGranularity  # noqa: E402
from torchao.float8.float8_utils import amax_to_scale, tensor_to_scale, to_fp8_saturated  # noqa: E402,F401
from torchao.prototype.moe_training.kernels.mxfp8.quant import (  # noqa: E402,F401
    torch_pad_token_groups,
    torch_to_blocked_2d_M_groups,
    torch_to_blocked_per_group_3d,
    torch_unpad_token_groups,
)
from torchao.prototype.moe_training.utils import (  # noqa: E402,F401
    _to_mxfp8_per_group_colwise,
    _to_mxfp8_per_group_rowwise,
    torch_to_3d_rowwise_float8_transpose_rhs,
    torch_to_float8_per_group_colwise,
    torch_to_float8_per_group_rowwise,
)
from torchao.prototype.mx_formats.config import ScaleCalculationMode  # noqa: E402
from torchao.prototype.mx_formats.mx_tensor import to_dtype, to_mx  # noqa: E402,F401
from torchao.prototype.mx_formats.utils import from_blocked, to_blocked  # noqa: E402,F401

MX_MODES = {
    "rceil": ScaleCalculationMode.RCEIL,
    "floor": ScaleCalculationMode.FLOOR,
    "ceil": ScaleCalculationMode.CEIL,
    "even": ScaleCalculationMode.EVEN,
}

_blockwise = _import_blockwise()
torch_blockwise_scale_act_quant_lhs = _blockwise.torch_blockwise_scale_act_quant_lhs
torch_blockwise_scale_act_quant_rhs = _blockwise.torch_blockwise_scale_act_quant_rhs
torch_blockwise_scale_weight_quant = _blockwise.torch_blockwise_scale_weight_quant


def rowwise(x, dtype, power_of_two):
    """A row a scale: what torchao's rowwise training does to an activation. -> data, scale[M]"""
    scale = tensor_to_scale(x, dtype, scaling_granularity=ScalingGranularity.AXISWISE, axiswise_dim=-1,
                            round_scales_to_power_of_2=power_of_two)
    return to_fp8_saturated(x.to(torch.float32) * scale, dtype), scale.squeeze(-1)
