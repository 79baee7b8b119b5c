"""Octet's model and optimizer through the C interface, with torch tensors as memory."""

import ctypes
import tomllib

import torch

from octet_c import _call, _lib

_F32 = ctypes.POINTER(ctypes.c_float)


def _int32s(x):
    x = x.to(torch.int32).contiguous()
    return x, ctypes.c_void_p(x.data_ptr())


class Model:
    def __init__(self, config, recipe="bf16", dense="bf16", activations="f32", seed=1, threads=0):
        """config: a preset, a path, or TOML."""
        self._handle = ctypes.c_void_p()
        _call("octet_model_create", config.encode(), recipe.encode(), dense.encode(), activations.encode(),
              ctypes.c_uint64(seed), ctypes.c_int32(threads), ctypes.byref(self._handle))
        text = ctypes.c_char_p()
        _call("octet_model_config", self._handle, ctypes.byref(text))
        self.config = tomllib.loads(text.value.decode())
        self.values, self.gradients, self.decays = {}, {}, {}
        count = ctypes.c_int64()
        _call("octet_model_parameter_count", self._handle, ctypes.byref(count))
        for index in range(count.value):
            self._add_parameter(index)
        self._optimizer = None

    def _add_parameter(self, index):
        name, value, gradient = ctypes.c_char_p(), _F32(), _F32()
        rank, shape, decays = ctypes.c_int32(), (ctypes.c_int64 * 4)(), ctypes.c_int32()
        _call("octet_model_parameter", self._handle, ctypes.c_int64(index), ctypes.byref(name), ctypes.byref(value),
              ctypes.byref(gradient), ctypes.byref(rank), shape, ctypes.byref(decays))
        sizes = list(shape)[: rank.value]
        elements = 1
        for size in sizes:
            elements *= size
        array = ctypes.c_float * elements
        views = [torch.frombuffer(array.from_address(ctypes.addressof(p.contents)), dtype=torch.float32).view(sizes)
                 for p in (value, gradient)]
        key = name.value.decode()
        self.values[key], self.gradients[key] = views
        self.decays[key] = bool(decays.value)

    def close(self):
        if self._optimizer is not None:
            _lib.octet_adamw_destroy(self._optimizer)
        _lib.octet_model_destroy(self._handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.values, self.gradients = {}, {}
        self.close()

    def save(self, path):
        _call("octet_model_save", self._handle, str(path).encode())

    def weights_changed(self):
        _call("octet_model_weights_changed", self._handle)

    def zero_gradients(self):
        _call("octet_model_zero_gradients", self._handle)

    def forward_backward(self, tokens, targets, scale=1.0):
        loss, auxiliary = ctypes.c_double(), ctypes.c_double()
        kept = [_int32s(x) for x in (tokens, targets)]
        _call("octet_model_forward_backward", self._handle, kept[0][1], kept[1][1], *map(ctypes.c_int64, tokens.shape),
              ctypes.c_double(scale), ctypes.byref(loss), ctypes.byref(auxiliary))
        return loss.value, auxiliary.value

    def loss(self, tokens, targets):
        loss = ctypes.c_double()
        kept = [_int32s(x) for x in (tokens, targets)]
        _call("octet_model_loss", self._handle, kept[0][1], kept[1][1], *map(ctypes.c_int64, tokens.shape),
              ctypes.byref(loss))
        return loss.value

    def logits(self, tokens):
        out = torch.full((*tokens.shape, self.config["model"]["vocabulary"]), float("nan"))
        kept = _int32s(tokens)
        _call("octet_model_logits", self._handle, kept[1], *map(ctypes.c_int64, tokens.shape),
              ctypes.c_void_p(out.data_ptr()), ctypes.c_int64(out.numel()))
        return out

    def step(self, learning_rate):
        """One AdamW step; returns the norm of the gradients."""
        if self._optimizer is None:
            self._optimizer = ctypes.c_void_p()
            _call("octet_adamw_create", self._handle, ctypes.byref(self._optimizer))
        norm = ctypes.c_double()
        _call("octet_adamw_step", self._optimizer, ctypes.c_double(learning_rate), ctypes.byref(norm))
        return norm.value
