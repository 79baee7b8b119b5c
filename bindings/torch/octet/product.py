"""octet.grouped_mm: the expert product of a training step, differentiable, in 8 bits."""
import contextlib
import functools
import weakref

import torch
from torch.autograd import forward_ad

from ._registration import FORMAT_NAMES, dual_gradients, format_name, refuse_tangents, wgrad_in_8_bits
from .weights import cached_cast

RECIPES = ("bf16", "fp8_rowwise", "fp8_blockwise", "mxfp8")

_grouped_mm = torch.ops.octet.grouped_mm.default
_grouped_mm_no_grad = torch.ops.octet.grouped_mm_no_grad.default
_grouped_mm_backward = torch.ops.octet.grouped_mm_backward.default
_grouped_mm_backward_onto = torch.ops.octet.grouped_mm_backward_onto.default
_grouped_mm_dual = torch.ops.octet.grouped_mm_dual.default
_grouped_mm_share = torch.ops.octet.grouped_mm_share.default
_cast_tokens_both = torch.ops.octet.cast_tokens_both.default


def local(tensor):
    """A DTensor's own part: weights of an expert-parallel or sharded module are multiplied where they are."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def check_recipe(recipe):
    name = recipe.partition(":")[0] if isinstance(recipe, str) else recipe
    if name not in RECIPES:
        raise ValueError(f"recipe {name!r} was given, expected one of {', '.join(RECIPES)}, with options such as "
                         "'fp8_rowwise:gradient=e5m2,accumulation=fast'")
    return recipe


def _offsets(offs):
    if not isinstance(offs, torch.Tensor) or offs.dtype not in (torch.int32, torch.int64):
        given = "no offs" if offs is None else f"offs of {getattr(offs, 'dtype', type(offs).__name__)}"
        raise ValueError(f"{given} were given; expected the cumulative end of every group, int32 on the tensors' device")
    return offs if offs.dtype == torch.int32 else offs.to(torch.int32)


# torch.library's gradients cost tens of microseconds a call in Python, and the check of tangents a few; outside of torch.compile
# the same gradients come through an autograd.Function, below which the operators need not look for them: grouped_mm_no_grad has
# none. Tangents are looked for where there can be any.
def below_autograd():
    if forward_ad._current_level >= 0:
        return contextlib.nullcontext()
    return torch._C._AutoDispatchBelowADInplaceOrView()


_keeps_8_bits = functools.cache(wgrad_in_8_bits)


def once_differentiable(backward):
    """torch's own, but for nothing where no gradient of the gradient is asked for; and where one is, it is refused even if dy is a
    constant: dA depends on W all the same, and torch would take it for one too."""

    def checked(ctx, *dys):
        if not torch.is_grad_enabled():
            return backward(ctx, *dys)
        with torch.no_grad():
            gradients = backward(ctx, *dys)
        refuse = torch._C._functions.DelayedError(b"octet's products are differentiable once; a gradient of their gradient was asked "
                                                  b"for", len(gradients) + len(dys))
        return refuse(*(g if g is None else g.detach().requires_grad_() for g in gradients), *dys)[: len(gradients)]

    return checked


class _GroupedMM(torch.autograd.Function):
    @staticmethod
    def forward(ctx, A, W, offs, recipe, out, casts):
        with below_autograd():
            y, kept, kept_scale, visit = _grouped_mm_no_grad(A, W, offs, recipe, out, True, *casts[:2])
        ctx.recipe, ctx.a_format = recipe, FORMAT_NAMES[A.dtype]
        if not _keeps_8_bits(recipe):
            kept, kept_scale = A, None
        ctx.save_for_backward(W, offs, kept, kept_scale, *(casts[2:] or (None, None, visit)))
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        return *_gradients(ctx, dy), None, None, None, None


def _gradients(ctx, dy):
    W, offs, kept, kept_scale, *casts = ctx.saved_tensors
    wants_A, wants_W = ctx.needs_input_grad[:2]
    with below_autograd():
        dA, dW = _grouped_mm_backward(dy, W, offs, ctx.recipe, kept, kept_scale, wants_A, wants_W, ctx.a_format, *casts)
    return dA if wants_A else None, dW if wants_W else None


class _SharedGroupedMM(torch.autograd.Function):
    """A product of an activation that others may share. Its second result stands for the activation in the next one of them:
    what that gives it as a gradient is one of the activation, to which this product's own is added as it is computed."""

    @staticmethod
    def forward(ctx, link, W, offs, recipe, out, casts, shared):
        A = shared.activation()  # in the graph, `link` stands for it
        if shared.kept is None:
            with below_autograd():
                y, *rows, kept, kept_scale, visit = _grouped_mm_share(A, W, offs, recipe, out, *casts[:2])
            shared.rows, shared.kept, shared.kept_scale = rows if rows[0].dim() == 2 else (), kept, kept_scale
        else:
            with below_autograd():
                y, *_, visit = _grouped_mm_no_grad(A, W, offs, recipe, out, False, *(casts[:2] or (None, None)), *shared.rows)
        ctx.recipe, ctx.a_format = recipe, FORMAT_NAMES[A.dtype]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(W, offs, shared.kept, shared.kept_scale, *(casts[2:] or (None, None, visit)))
        return y, A.new_empty_strided(A.shape, (0, 0))  # of one element: nobody reads it

    @staticmethod
    @once_differentiable
    def backward(ctx, dy, dA):
        if dy is None:
            return dA, *[None] * 6
        if dA is None or not ctx.needs_input_grad[0]:
            return *_gradients(ctx, dy), *[None] * 5
        W, offs, kept, kept_scale, *casts = ctx.saved_tensors
        wants_W = ctx.needs_input_grad[1]
        with below_autograd():
            rest, dW = _grouped_mm_backward_onto(dy, W, offs, ctx.recipe, kept, kept_scale, dA, wants_W, *casts)
        if rest.dim() == 2:
            dA += rest
        return dA, dW if wants_W else None, *[None] * 5


class _GroupedMMDual(torch.autograd.Function):
    @staticmethod
    def forward(ctx, A, W0, W1, offs, recipe, out):
        with below_autograd():
            y0, y1, kept, kept_scale = _grouped_mm_dual(A, W0, W1, offs, recipe, out, True)
        ctx.recipe, ctx.a_format = recipe, FORMAT_NAMES[A.dtype]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(W0, W1, offs, *((kept, kept_scale) if _keeps_8_bits(recipe) else (A, None)))
        return y0, y1

    @staticmethod
    @once_differentiable
    def backward(ctx, dy0, dy1):
        W0, W1, offs, kept, kept_scale = ctx.saved_tensors
        wants_A, *wants_W = ctx.needs_input_grad[:3]
        with below_autograd():
            gradients = dual_gradients((W0, W1), (dy0, dy1), offs, ctx.recipe, kept, kept_scale, wants_A, wants_W, ctx.a_format)
        return *gradients, None, None, None


class _Shared:
    """The casts of the last activation, for a second product of it: the gate and up projections of an expert that was written
    for torch._grouped_mm. It must be the same tensor, made by the same node of the graph, unchanged, with the same groups, recipe
    and stream; all of this ends with the tensor."""

    def __init__(self, A, same, offs):
        self.activation = weakref.ref(A, _forget)
        self.same, self.offs = same, offs
        self.rows = self.kept = self.kept_scale = None  # the first product makes them: rows and their scale, or nothing
        self.link = None  # what stands for A in the next product


_last = None


def _forget(reference):
    global _last
    if _last is not None and _last.activation is reference:
        _last = None


def _shared(A, offs, recipe):
    """What is known of A, or None where it is not shared: no node of the graph made it."""
    global _last
    node = A.grad_fn
    if node is None or not _keeps_8_bits(recipe):
        return None
    stream = None
    if A.is_cuda:
        if torch.cuda.is_current_stream_capturing():
            return None  # a graph's replay must cast anew
        stream = torch._C._cuda_getCurrentRawStream(A.device.index)
    same = A._version, node._sequence_nr(), offs._version, recipe, stream
    last = _last  # once: another thread may put its own there
    if last is not None and last.activation() is A and last.same == same and last.offs is offs:
        return last
    _last = last = _Shared(A, same, offs)
    return last


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
    A, W = local(A), local(W)
    if A.dim() != 2 or W.dim() != 3:
        raise ValueError(f"A of shape {tuple(A.shape)} and W of shape {tuple(W.shape)} were given; expected [M, K] and [E, K, N]")
    offs = _offsets(offs)
    refuse_tangents(A, W)
    keep = torch.is_grad_enabled() and (A.requires_grad or W.requires_grad)
    out = format_name(A.dtype if out_dtype is None else out_dtype)
    compiling = torch.compiler.is_compiling()
    casts = cached_cast(W, recipe) if cache_weights and recipe != "bf16" and not compiling else ()
    if compiling and keep and wgrad_in_8_bits(recipe):
        # The casts stand alone in the graph, where those of a second product of A are found to be the same.
        y = _grouped_mm(A, W, offs, recipe, out, False, None, None, None, None, *_cast_tokens_both(A.detach(), offs, recipe))[0]
    elif compiling:
        y = _grouped_mm(A, W, offs, recipe, out, keep)[0]
    elif keep:
        shared = _shared(A, offs, recipe)
        if shared is None:
            y = _GroupedMM.apply(A, W, offs, recipe, out, casts)
        else:
            link = A if shared.link is None else shared.link
            y, shared.link = _SharedGroupedMM.apply(link, W, offs, recipe, out, casts, shared)
    else:
        with below_autograd():
            y = _grouped_mm_no_grad(A, W, offs, recipe, out, False, *casts[:2])[0]
    return y if bias is None else y + bias.to(y.dtype)


def grouped_mm_dual(A, W0, W1, offs, recipe="fp8_rowwise", *, out_dtype=None):
    """grouped_mm of A with two weights, casting and keeping A once: an expert's gate and up projections."""
    check_recipe(recipe)
    A, W0, W1 = local(A), local(W0), local(W1)
    offs = _offsets(offs)
    refuse_tangents(A, W0, W1)
    keep = torch.is_grad_enabled() and (A.requires_grad or W0.requires_grad or W1.requires_grad)
    out = format_name(A.dtype if out_dtype is None else out_dtype)
    if keep and not torch.compiler.is_compiling():
        return _GroupedMMDual.apply(A, W0, W1, offs, recipe, out)
    return _grouped_mm_dual(A, W0, W1, offs, recipe, out, keep)[:2]
