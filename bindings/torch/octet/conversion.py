"""octet.convert: routes the expert products of an existing model through Octet. Modules, parameters, their names and their
gradients stay what they are, so that state dicts, FSDP2, expert parallelism and optimizers go on as before."""
import functools
import inspect

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from .experts import expert_order, run_experts
from .product import check_recipe, grouped_mm

# ---- torch._grouped_mm, inside a converted module's forward -------------------------------------------------------

_torch_grouped_mm = torch._grouped_mm


def _routed(recipe, cache_weights, mat_a, mat_b, offs=None, bias=None, out_dtype=None):
    """Octet's product of tokens [M, K] with experts [E, K, N]; torch's of anything else."""
    if mat_a.dim() == 2 and mat_b.dim() == 3:
        return grouped_mm(mat_a, mat_b, offs, recipe, bias=bias, out_dtype=out_dtype, cache_weights=cache_weights)
    return _torch_grouped_mm(mat_a, mat_b, offs=offs, bias=bias, out_dtype=out_dtype)


class _Routed(TorchFunctionMode):
    """In eager mode, for the thread that runs the module."""

    def __init__(self, recipe, cache_weights):
        super().__init__()
        self.recipe, self.cache_weights = recipe, cache_weights

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is _torch_grouped_mm:
            return _routed(self.recipe, self.cache_weights, *args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


class _Traced:
    """torch.compile does not see a mode that is entered within what it traces. It sees this: the recipe in force while a
    converted module is traced, which the function that is traced in place of torch._grouped_mm looks at."""

    def __init__(self):
        self.recipe = None


_traced = _Traced()


def _grouped_mm_or_routed(*args, **kwargs):
    if _traced.recipe is not None:
        return _routed(_traced.recipe, False, *args, **kwargs)
    return _torch_grouped_mm(*args, **kwargs)


@functools.cache
def _let_the_compiler_see():
    """The function that is traced in place of torch._grouped_mm is put there. The compiler lists torch's own functions, by
    name, when it first needs them: it must have done so before, or it would take this one for torch's and not look inside."""
    from torch._dynamo import trace_rules

    trace_rules.get_torch_obj_rule_map()
    torch._grouped_mm = _grouped_mm_or_routed


def _forward_routed(self, *args, **kwargs):
    if torch.compiler.is_compiling():
        outer, _traced.recipe = _traced.recipe, self._octet_recipe
        try:
            return self._octet_forward(*args, **kwargs)
        finally:
            _traced.recipe = outer
    with _Routed(self._octet_recipe, self._octet_cache_weights):
        return self._octet_forward(*args, **kwargs)


# ---- Hugging Face -------------------------------------------------------------------------------------------------

LINEARS = (("w1", "w3", "w2"), ("gate_proj", "up_proj", "down_proj"))  # gate, up, down: Mixtral's names, and Qwen3-MoE's


def _run_experts(module, x, chosen, weights, gate_up, down):
    """x [T, D] through its chosen experts."""
    slot_of_row, row_of_slot, offs = expert_order(chosen, gate_up.shape[0])
    return run_experts(x, gate_up, down, offs, module._octet_recipe, weights, (slot_of_row, row_of_slot, chosen.shape[1]),
                       cache_weights=module._octet_cache_weights)


def _forward_stacked_experts(self, hidden_states, top_k_index, top_k_weights):
    """Experts as two 3D parameters: gate_up_proj [E, 2H, D] and down_proj [E, D, H]."""
    x = hidden_states.reshape(-1, hidden_states.shape[-1])
    chosen, weights = (t.reshape(x.shape[0], -1) for t in (top_k_index, top_k_weights))
    return _run_experts(self, x, chosen, weights, self.gate_up_proj, self.down_proj).view(hidden_states.shape)


def _forward_block(self, hidden_states):
    """A block with a list of experts, each of three Linear layers: their weights are stacked as they are used."""
    x = hidden_states.reshape(-1, hidden_states.shape[-1])
    logits = self.gate(x)
    weights, chosen = logits.float().softmax(-1).topk(self.top_k, dim=-1)
    if getattr(self, "norm_topk_prob", True):  # Mixtral has no such attribute and always normalizes
        weights = weights / weights.sum(-1, keepdim=True)
    gate, up, down = _linears(self)
    gate_up = torch.stack([getattr(expert, name).weight for expert in self.experts for name in (gate, up)])  # [2E, H, D]
    gate_up = gate_up.view(len(self.experts), -1, gate_up.shape[-1])
    y = _run_experts(self, x, chosen, weights, gate_up, torch.stack([getattr(expert, down).weight for expert in self.experts]))
    return y.view(hidden_states.shape), logits


def _linears(block):
    for names in LINEARS:
        if all(isinstance(getattr(expert, name, None), nn.Linear) for expert in block.experts for name in names):
            return names
    return None


# ---- finding them -------------------------------------------------------------------------------------------------


def _silu(module):
    """SwiGLU is what Octet's path computes; other activations are left alone."""
    act = getattr(module, "act_fn", None)
    return act is None or isinstance(act, nn.SiLU) or getattr(act, "__name__", type(act).__name__) in ("silu", "SiLU", "SiLUActivation")


def _is_block(module):
    experts = getattr(module, "experts", None)
    return (isinstance(experts, nn.ModuleList) and len(experts) > 0 and isinstance(getattr(module, "gate", None), nn.Linear)
            and hasattr(module, "top_k") and _linears(module) is not None and all(_silu(expert) for expert in experts))


def _is_stacked(module):
    own = dict(module.named_parameters(recurse=False))
    if not {"gate_up_proj", "down_proj"} <= own.keys() or any(own[name].dim() != 3 for name in ("gate_up_proj", "down_proj")):
        return False
    names = list(inspect.signature(module.forward).parameters)
    return names[:3] == ["hidden_states", "top_k_index", "top_k_weights"] and _silu(module)


def _has_experts(module):
    return any(parameter.dim() == 3 for parameter in module.parameters(recurse=False))


def convert(model, recipe="fp8_rowwise", filter=None, *, cache_weights=False):
    """Routes the expert products of `model` through Octet, in place, and returns it.

    filter(module, name), where given, says which of the modules found are converted. Found are:
      a block with a list of experts of three Linear layers each (Hugging Face's Mixtral, Qwen3-MoE: w1, w3, w2 or gate_proj,
      up_proj, down_proj), with `gate` and `top_k`;
      experts as 3D parameters gate_up_proj and down_proj, called with (hidden_states, top_k_index, top_k_weights);
      any other module with 3D parameters of its own: torch._grouped_mm inside its forward becomes octet.grouped_mm
      (torchtitan's GroupedExperts among them).
    """
    check_recipe(recipe)
    converted = []
    for name, module in model.named_modules():
        kind = next((new for found, new in ((_is_block, _forward_block), (_is_stacked, _forward_stacked_experts),
                                            (_has_experts, _forward_routed)) if found(module)), None)
        if kind is None or type(module).__module__.startswith(("octet.", "torch.nn.")) or (filter and not filter(module, name)):
            continue
        if not hasattr(module, "_octet_forward"):
            module._octet_forward = module.forward
        module._octet_recipe, module._octet_cache_weights = recipe, cache_weights
        module.forward = functools.partial(kind, module)  # unlike a method of another name, it can be pickled
        if kind is _forward_routed:
            _let_the_compiler_see()
            if hasattr(module, "use_grouped_mm"):
                module.use_grouped_mm = True
        converted.append(name)
    if not converted:
        raise ValueError("no experts were found to convert: expected a module with 3D parameters that calls torch._grouped_mm, "
                         "or a block with a list of experts of three Linear layers, `gate` and `top_k`"
                         + (", among those that `filter` lets through" if filter is not None else ""))
    return model
