"""What an expert layer does between its products: rows moved to their experts and back, and SwiGLU. Each is one function with
a gradient that keeps no more than it must and adds in a fixed order. Fused kernels (Triton) on a GPU; torch elsewhere, and
under torch.compile, which fuses for itself."""
import functools

import torch


@functools.cache
def _kernels():
    try:
        from . import _triton
    except ImportError:  # a torch without Triton
        return None
    return _triton


def _fused(x):
    return _kernels() if x.is_cuda and not torch.compiler.is_compiling() else None


def _gather_sum(rows, places):
    """rows [M, D], places [T, k] -> [T, D]: the sum of each token's rows, in f32, in order."""
    if (kernels := _fused(rows)) is not None:
        return kernels.gather_sum(rows, places)
    tokens, k = places.shape
    return rows[places.reshape(-1)].view(tokens, k, -1).float().sum(1).to(rows.dtype)


class Scatter(torch.autograd.Function):
    """x [T, D] -> its rows in the order of the experts, [T k, D]. `tokens` says whose row each is, `places` where they went."""

    @staticmethod
    def forward(ctx, x, tokens, places):
        ctx.save_for_backward(places)
        return x.index_select(0, tokens)

    @staticmethod
    def backward(ctx, dy):
        (places,) = ctx.saved_tensors
        return _gather_sum(dy, places), None, None


class Gather(torch.autograd.Function):
    """The way back: y [T k, D] -> [T, D], each token the sum of its rows."""

    @staticmethod
    def forward(ctx, y, tokens, places):
        ctx.save_for_backward(tokens)
        return _gather_sum(y, places)

    @staticmethod
    def backward(ctx, dx):
        (tokens,) = ctx.saved_tensors
        return dx.index_select(0, tokens), None, None


def _silu_parts(gate):
    gate = gate.float()
    sigmoid = torch.sigmoid(gate)
    return gate * sigmoid, sigmoid * (1 + gate * (1 - sigmoid))  # silu and its derivative


class SwiGLU(torch.autograd.Function):
    """silu(gate) * up * weight, in f32 and rounded once. gate, up [M, H]; weight [M], or None. Only its arguments are kept."""

    @staticmethod
    def forward(ctx, gate, up, weight):
        ctx.save_for_backward(gate, up, weight)
        if (kernels := _fused(gate)) is not None:
            return kernels.swiglu(gate, up, weight)
        silu, _ = _silu_parts(gate)
        h = silu * up.float()
        return (h if weight is None else h * weight[:, None].float()).to(gate.dtype)

    @staticmethod
    def backward(ctx, dh):
        gate, up, weight = ctx.saved_tensors
        if (kernels := _fused(gate)) is not None:
            return kernels.swiglu_backward(dh, gate, up, weight)
        silu, slope = _silu_parts(gate)
        dh, up = dh.float(), up.float()
        dweight = None
        if weight is not None:
            dweight = (dh * silu * up).sum(1).to(weight.dtype)
            dh = dh * weight[:, None].float()
        return (dh * up * slope).to(gate.dtype), (dh * silu).to(gate.dtype), dweight


def swiglu(gate, up, weight=None):
    return SwiGLU.apply(gate, up, weight)
