"""GroupedLinear and the MoE layer through the C interface, with torch tensors as memory."""

import ctypes
from contextlib import ExitStack

import torch

from octet_c import _Call, _call, _lib, poisoned


class GroupedLinear:
    def __init__(self, w, recipe):
        """w [E, N, K]: kept, not copied."""
        self._stack = ExitStack()
        call = _Call(self._stack)
        text = ctypes.c_void_p()
        _call("octet_recipe_parse", recipe.encode(), ctypes.byref(text))
        self._stack.callback(_lib.octet_recipe_destroy, text)
        self.w = w
        self._handle = call.handle("grouped_linear", "create", *(ctypes.c_int64(size) for size in w.shape), text)
        _call("octet_grouped_linear_bind_weights", self._handle, call.tensor(w))

    def forward(self, a, ends, to=torch.float32):
        y = poisoned((a.shape[0], self.w.shape[1]), to)
        with ExitStack() as stack:
            call = _Call(stack)
            _call("octet_grouped_linear_forward", self._handle, call.tensor(a), call.groups(ends), call.tensor(y), None)
        return y

    def backward(self, dy, ends, to=torch.float32):
        da = poisoned((dy.shape[0], self.w.shape[2]), to)
        dw = poisoned(self.w.shape, to)
        with ExitStack() as stack:
            call = _Call(stack)
            _call("octet_grouped_linear_backward", self._handle, call.tensor(dy), call.groups(ends), call.tensor(da),
                  call.tensor(dw), 0, None)
        return da, dw


class MoeLayer:
    def __init__(self, **options):
        self._stack = ExitStack()
        call = _Call(self._stack)
        settings = call.handle("moe_options", "create")
        for name, value in options.items():
            _call("octet_moe_options_set", settings, name.encode(), str(value).encode())
        self._handle = call.handle("moe_layer", "create", settings)
        self.options = options

    def _parameter(self, name):
        value, gradient, elements = ctypes.POINTER(ctypes.c_float)(), ctypes.POINTER(ctypes.c_float)(), ctypes.c_int64()
        _call("octet_moe_layer_parameter", self._handle, name.encode(), ctypes.byref(value), ctypes.byref(gradient),
              ctypes.byref(elements))
        array = ctypes.c_float * elements.value
        return [torch.frombuffer(array.from_address(ctypes.addressof(p.contents)), dtype=torch.float32)
                for p in (value, gradient)]

    def load(self, parameters):
        for name, value in parameters.items():
            self._parameter(name)[0].copy_(value.detach().float().reshape(-1))
        _call("octet_moe_layer_weights_changed", self._handle)

    def gradient(self, name, shape):
        return self._parameter(name)[1].reshape(shape).clone()

    def set_bias(self, bias):
        pointer = ctypes.POINTER(ctypes.c_float)()
        _call("octet_moe_layer_balance_bias", self._handle, ctypes.byref(pointer))
        for e, value in enumerate(bias.tolist()):
            pointer[e] = value

    def forward(self, x):
        y = poisoned(x.shape, x.dtype)
        with ExitStack() as stack:
            call = _Call(stack)
            _call("octet_moe_layer_forward", self._handle, call.tensor(x), call.tensor(y), None)
        return y

    def backward(self, dy):
        dx = poisoned(dy.shape, dy.dtype)
        _call("octet_moe_layer_zero_gradients", self._handle)
        with ExitStack() as stack:
            call = _Call(stack)
            _call("octet_moe_layer_backward", self._handle, call.tensor(dy), call.tensor(dx), ctypes.c_float(1.0), None)
        return dx

    def auxiliary_loss(self):
        loss = ctypes.c_float()
        _call("octet_moe_layer_auxiliary_loss", self._handle, ctypes.byref(loss))
        return loss.value

    def chosen(self, tokens):
        out = torch.full((tokens, int(self.options["top_k"])), -1, dtype=torch.int32)
        _call("octet_moe_layer_chosen", self._handle, ctypes.c_void_p(out.data_ptr()), ctypes.c_int64(out.numel()))
        return out
