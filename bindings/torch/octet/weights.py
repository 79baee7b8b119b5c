"""The cache of cast weights. A parameter that is used several times between two optimizer steps (gradient accumulation,
activation checkpointing) is cast once. Nothing is guessed from an address: an entry belongs to one tensor object, ends with
it, and is dropped by every optimizer's step, by a change that torch's version counter has seen, by other memory (`.data = x`),
and by weights_changed()."""
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.weak import WeakIdKeyDictionary

_cast = torch.ops.octet.cast_weights
_casts = WeakIdKeyDictionary()  # the weight -> (its version, memory, shape and strides, recipe -> the four tensors)


def weights_changed():
    """To be called where weights were changed by other means than an optimizer's step: `.data.mul_`, another process's write."""
    _casts.clear()


def _after_step(optimizer, args, kwargs):
    weights_changed()


register_optimizer_step_post_hook(_after_step)


def cached_cast(b, recipe):
    """b [E, K, N] in 8 bits for the forward product and the input gradient: (data, scale, data, scale)."""
    owner = b if b._base is None else b._base  # a transposed parameter is a new object at every use, its base is not
    layout = (b._version, b.untyped_storage()._cdata, b.shape, b.stride(), b.storage_offset())
    entry = _casts.get(owner)
    if entry is None or entry[0] != layout:
        entry = _casts[owner] = (layout, {})
    if recipe not in entry[1]:
        with torch.no_grad():
            entry[1][recipe] = _cast(b.detach(), recipe)
    return entry[1][recipe]


def cached_bytes():
    return sum(tensor.untyped_storage().nbytes() for _, casts in _casts.values() for cast in casts.values() for tensor in cast)
