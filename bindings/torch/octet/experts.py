"""SwiGLU experts as one differentiable call: the products, what lies between them, and the way of tokens there and back."""
import torch

from ._registration import experts_gradients, refuse_tangents, save_experts
from .product import below_autograd, grouped_mm, local, once_differentiable

_experts = torch.ops.octet.experts.default


class _Experts(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gate_up, down, weights, addend, offs, recipe, order):
        with below_autograd():
            output = _experts(x, gate_up, down, offs, weights, recipe, True, *order, addend)
        ctx.addend_dtype = None if addend is None else addend.dtype
        save_experts(ctx, x, gate_up, down, offs, weights, recipe, order, output)
        return output[0]

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        gradients = experts_gradients(ctx, dy)
        return *gradients, None if ctx.addend_dtype is None else dy.to(ctx.addend_dtype), None, None, None


def expert_order(chosen, experts):
    """The chosen experts [T, k] of tokens -> slot_of_row and row_of_slot, as torch.ops.octet.permute_tokens takes them, and the
    cumulative ends of the experts' rows; int32. Nothing is read back to the host."""
    flat = chosen.reshape(-1)
    order = flat.argsort(stable=True)
    counts = torch.zeros(experts, dtype=torch.int32, device=flat.device)
    counts.scatter_add_(0, flat, torch.ones_like(flat, dtype=torch.int32))
    numbers = torch.arange(order.numel(), dtype=torch.int32, device=flat.device)
    row_of_slot = torch.empty_like(numbers).scatter_(0, order, numbers)
    return order.to(torch.int32), row_of_slot, counts.cumsum(0, dtype=torch.int32)


def run_experts(x, gate_up, down, offs, recipe, weights=None, order=None, addend=None, cache_weights=False):
    """x through SwiGLU experts: gate_up [E, 2H, D] and down [E, D, H].

    Without an order, x [M, D] lies in the order of the experts and `weights` [M] are the rows'. With (slot_of_row, row_of_slot,
    top_k), x [T, D] is taken there and back, `weights` [T k] are the slots', and the addend [T, D] is added to each token's sum.
    Weights multiply the activation, before the down projection, so that its result need not be kept."""
    gate_up, down = local(gate_up), local(down)
    weights = None if weights is None else weights.reshape(-1).float()
    if cache_weights and not torch.compiler.is_compiling():
        return _by_products(x, gate_up, down, offs, recipe, weights, order, addend)
    order = (None, None, 1) if order is None else order
    inputs = [t for t in (x, gate_up, down, weights, addend) if t is not None]
    refuse_tangents(*inputs)
    keep = torch.is_grad_enabled() and any(t.requires_grad for t in inputs)
    if keep and not torch.compiler.is_compiling():
        return _Experts.apply(x, gate_up, down, weights, addend, offs, recipe, order)
    return _experts(x, gate_up, down, offs, weights, recipe, keep, *order, addend)[0]


def _by_products(x, gate_up, down, offs, recipe, weights, order, addend):
    """The same through octet.grouped_mm, whose weights' casts are cached."""
    if order is not None:
        slot_of_row, row_of_slot, top_k = order
        x = torch.ops.octet.permute_tokens(x, slot_of_row, row_of_slot, top_k)
        weights = None if weights is None else weights[slot_of_row]
    hidden = grouped_mm(x, gate_up.transpose(-2, -1), offs, recipe, cache_weights=True)
    y = grouped_mm(torch.ops.octet.swiglu(hidden, weights), down.transpose(-2, -1), offs, recipe, cache_weights=True)
    return y if order is None else torch.ops.octet.combine_tokens(y, None, slot_of_row, row_of_slot, top_k, addend)
