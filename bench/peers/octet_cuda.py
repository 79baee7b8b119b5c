"""Octet's GroupedLinear on torch's CUDA tensors and stream, through the C interface. For measurements: no more than they need."""
import ctypes
import os

import torch

FORMATS = {torch.float32: 0, torch.bfloat16: 1, torch.float8_e4m3fn: 2}
CUDA = 1
_lib = ctypes.CDLL(os.environ["OCTET_LIBRARY"])
_lib.octet_last_error.restype = ctypes.c_char_p
_lib.octet_build_info.restype = ctypes.c_char_p


def build_info():
    return _lib.octet_build_info().decode()


def call(name, *args):
    if getattr(_lib, name)(*args) != 0:
        raise RuntimeError(f"{name}: {_lib.octet_last_error().decode()}")


class Handle:
    """A handle of the C interface, destroyed with this object."""

    def __init__(self, kind, verb, *args):
        self.kind, self.pointer = kind, ctypes.c_void_p()
        call(f"octet_{kind}_{verb}", *args, ctypes.byref(self.pointer))

    def __del__(self):
        getattr(_lib, f"octet_{self.kind}_destroy")(self.pointer)


def int64s(values):
    return (ctypes.c_int64 * len(values))(*values)


def tensor(t):
    return Handle("tensor", "create", ctypes.c_void_p(t.data_ptr()), FORMATS[t.dtype], t.dim(), int64s(t.shape),
                  int64s(t.stride()), CUDA, t.device.index)


def groups(ends):
    return Handle("groups", "create", ctypes.c_void_p(ends.data_ptr()), ctypes.c_int64(ends.numel()), CUDA, ends.device.index)


class GroupedLinear:
    """Y = A W^T per group and its gradients. The tensors are bound once, so that a step is two calls."""

    def __init__(self, recipe, a, w, ends, y, dy, da, dw):
        self.kept_alive = (a, w, ends, y, dy, da, dw)
        self.recipe = Handle("recipe", "parse", recipe.encode())
        experts, n, k = w.shape
        self.linear = Handle("grouped_linear", "create", ctypes.c_int64(experts), ctypes.c_int64(n), ctypes.c_int64(k),
                             self.recipe.pointer)
        self.a, self.w, self.y, self.dy, self.da, self.dw = (tensor(t) for t in (a, w, y, dy, da, dw))
        self.groups = groups(ends)
        self.on = Handle("execution", "create")
        self.stream = None
        call("octet_grouped_linear_bind_weights", self.linear.pointer, self.w.pointer)

    def use_stream(self):
        stream = torch.cuda.current_stream().cuda_stream
        if stream != self.stream:
            call("octet_execution_set_stream", self.on.pointer, ctypes.c_void_p(stream))
            self.stream = stream

    def weights_changed(self):
        call("octet_grouped_linear_weights_changed", self.linear.pointer)

    def forward(self):
        self.use_stream()
        call("octet_grouped_linear_forward", self.linear.pointer, self.a.pointer, self.groups.pointer, self.y.pointer,
             self.on.pointer)

    def backward(self):
        self.use_stream()
        call("octet_grouped_linear_backward", self.linear.pointer, self.dy.pointer, self.groups.pointer, self.da.pointer,
             self.dw.pointer, 0, self.on.pointer)

    def kept_bytes(self):
        kept = ctypes.c_int64()
        call("octet_grouped_linear_report", self.linear.pointer, ctypes.byref(kept), None, None, None)
        return kept.value

    def choice(self):
        """What each product of this step runs in: {"forward": "fp8", ...}."""
        buffer = ctypes.create_string_buffer(256)
        call("octet_grouped_linear_choice", self.linear.pointer, ctypes.c_int64(self.kept_alive[0].shape[0]), buffer,
             ctypes.c_size_t(len(buffer)), None)
        return dict(part.split(" ") for part in buffer.value.decode().split(", "))
