"""octet.grouped_mm: the expert product of a training step, differentiable, in 8 bits."""
import torch
from torch.autograd.function import once_differentiable

from ._registration import Saved, format_name, parse_recipe
from .weights import cached_cast

RECIPES = ("bf16", "fp8_rowwise", "fp8_blockwise", "mxfp8")


def _local(tensor):
    """A DTensor's own part: weights of an expert-parallel or sharded module are multiplied where they are."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def check_recipe(recipe):
    name = parse_recipe(recipe)[0] if isinstance(recipe, str) else recipe
    if name not in RECIPES:
        raise ValueError(f"recipe {name!r} was given, expected one of {', '.join(RECIPES)}, with options such as "
                         "'fp8_rowwise:gradient=e5m2,accumulation=fast'")
    return recipe


def _offsets(offs):
    if offs is None:
        raise ValueError("no offs were given; expected the cumulative end of every group, int32 on the tensors' device")
    return offs if offs.dtype == torch.int32 else offs.to(torch.int32)


# torch.library's gradients cost tens of microseconds a call in Python; outside of torch.compile the same gradients come
# through an autograd.Function, below which the operators need not look for them.
_below_autograd = torch._C._AutoDispatchBelowAutograd


class _GroupedMM(torch.autograd.Function):
    @staticmethod
    def forward(ctx, A, W, offs, recipe, out, casts):
        with _below_autograd():
            y, kept, kept_scale = torch.ops.octet.grouped_mm.default(A, W, offs, recipe, out, True, *casts)
        Saved.save(ctx, A, offs, recipe, kept, kept_scale, (W,), casts[2:])
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        with _below_autograd():
            return *Saved.gradients(ctx, dy), None, None, None, None


class _GroupedMMDual(torch.autograd.Function):
    @staticmethod
    def forward(ctx, A, W0, W1, offs, recipe, out):
        with _below_autograd():
            y0, y1, kept, kept_scale = torch.ops.octet.grouped_mm_dual.default(A, W0, W1, offs, recipe, out, True)
        Saved.save(ctx, A, offs, recipe, kept, kept_scale, (W0, W1), ())
        ctx.set_materialize_grads(False)
        return y0, y1

    @staticmethod
    @once_differentiable
    def backward(ctx, dy0, dy1):
        with _below_autograd():
            return *Saved.gradients(ctx, dy0, dy1), None, None, None


def grouped_mm(A, W, offs=None, recipe="fp8_rowwise", *, bias=None, out_dtype=None, cache_weights=False):
    """A [M, K] times W [E, K, N], group by group: row i of the output is A[i] @ W[g] for the group g that owns i.

    A drop-in for torch._grouped_mm and torchao's *_then_scaled_grouped_mm: W may lie either way (a transposed parameter
    [E, N, K], or [E, K, N] itself), `offs` [E] are the groups' cumulative ends, int32. Any K, N and group size will do. Rows
    past the last offset belong to no group: what the output holds there is not defined.

    bias           added to the output: [N], or anything that broadcasts
    recipe         bf16, fp8_rowwise, fp8_blockwise or mxfp8, with options as in 'fp8_rowwise:accumulation=fast'
    out_dtype      bfloat16 or float32; A's by default
    cache_weights  keep W's casts until the next optimizer step: for weights that are used more than once in a step
    """
    check_recipe(recipe)
    A, W = _local(A), _local(W)
    if A.dim() != 2 or W.dim() != 3:
        raise ValueError(f"A of shape {tuple(A.shape)} and W of shape {tuple(W.shape)} were given; expected [M, K] and [E, K, N]")
    offs = _offsets(offs)
    keep = torch.is_grad_enabled() and (A.requires_grad or W.requires_grad)
    out = format_name(A.dtype if out_dtype is None else out_dtype)
    compiling = torch.compiler.is_compiling()
    casts = cached_cast(W, recipe) if cache_weights and recipe != "bf16" and not compiling else ()
    if keep and not compiling:
        y = _GroupedMM.apply(A, W, offs, recipe, out, casts)
    else:
        y = torch.ops.octet.grouped_mm.default(A, W, offs, recipe, out, keep, *casts)[0]
    return y if bias is None else y + bias.to(y.dtype)


def grouped_mm_dual(A, W0, W1, offs, recipe="fp8_rowwise", *, out_dtype=None):
    """grouped_mm of A with two weights, casting and keeping A once: an expert's gate and up projections."""
    check_recipe(recipe)
    A, W0, W1 = _local(A), _local(W0), _local(W1)
    offs = _offsets(offs)
    keep = torch.is_grad_enabled() and (A.requires_grad or W0.requires_grad or W1.requires_grad)
    out = format_name(A.dtype if out_dtype is None else out_dtype)
    if keep and not torch.compiler.is_compiling():
        return _GroupedMMDual.apply(A, W0, W1, offs, recipe, out)
    return torch.ops.octet.grouped_mm_dual.default(A, W0, W1, offs, recipe, out, keep)[:2]
