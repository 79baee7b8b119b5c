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

    def arrange_casts(self, beside):
        call("octet_grouped_linear_arrange_casts", self.linear.pointer, beside.encode())

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


class Calls:
    """The C calls that the operators of PyTorch make for fp8_rowwise, on memory that is there already: forward casts a both ways
    and w along K, backward dy both ways and w along N."""

    def __init__(self, recipe, a, w, ends, y, dy, da, dw):
        (m, k), (experts, n, _) = a.shape, w.shape
        padded = (m + min(m, experts) * 127) // 128 * 128
        parsed = Handle("recipe", "parse", recipe.encode())
        self.kept_alive = [a, w, ends, y, dy, da, dw, parsed]
        self.options = Handle("quantize_options", "from_recipe", parsed.pointer, 0)
        self.product = Handle("product_options", "create")
        call("octet_product_options_set", self.product.pointer, b"accumulation", b"fast" if "fast" in recipe else b"promoted")
        self.a, self.w, self.y, self.dy, self.da, self.dw = (tensor(t) for t in (a, w, y, dy, da, dw))
        self.groups, self.on = groups(ends), Handle("execution", "create")
        self.a_rows, self.a_columns = self.quantized((m, k), (m,)), self.quantized((k, padded), (experts, k))
        self.dy_rows, self.dy_columns = self.quantized((m, n), (m,)), self.quantized((n, padded), (experts, n))
        self.along_k, self.along_n = self.quantized((experts, n, k), (experts, n)), self.quantized((experts, k, n), (experts, k))
        memory = torch.empty(64 << 20, dtype=torch.uint8, device=a.device)
        self.kept_alive.append(memory)
        call("octet_execution_set_workspace", self.on.pointer, ctypes.c_void_p(memory.data_ptr()), ctypes.c_size_t(memory.numel()))
        call("octet_execution_set_stream", self.on.pointer, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))

    def quantized(self, data, inverse):
        """(as a quantizer writes it, as a product reads it)"""
        data = torch.empty(data, dtype=torch.float8_e4m3fn, device="cuda")
        inverse = torch.empty(inverse, dtype=torch.float32, device="cuda")
        parts = tensor(data), tensor(inverse)
        values = Handle("quantized", "create", parts[0].pointer, None, parts[1].pointer)
        operand = Handle("operand", "create_quantized", values.pointer, b"rowwise")
        self.kept_alive += [data, inverse, parts, values, operand]
        return values.pointer, operand.pointer

    def pair(self, x, rows, columns):
        call("octet_quantize_pair", x.pointer, self.groups.pointer, ctypes.c_int64(128), self.options.pointer, rows[0], columns[0],
             self.on.pointer)

    def weights(self, along_k, along_n):
        call("octet_quantize_weights", self.w.pointer, self.options.pointer, along_k, along_n, self.on.pointer)

    def rows(self, name, x, w, out):
        call(f"octet_grouped_{name}", x[1], w[1], self.groups.pointer, out.pointer, self.product.pointer, self.on.pointer)

    def wgrad(self):
        call("octet_grouped_wgrad", self.dy_columns[1], self.a_columns[1], self.groups.pointer, ctypes.c_int64(128), self.dw.pointer,
             self.product.pointer, self.on.pointer)

    def forward(self):
        self.pair(self.a, self.a_rows, self.a_columns)
        self.weights(self.along_k[0], None)
        self.rows("forward", self.a_rows, self.along_k, self.y)

    def backward(self):
        self.pair(self.dy, self.dy_rows, self.dy_columns)
        self.weights(None, self.along_n[0])
        self.rows("dgrad", self.dy_rows, self.along_n, self.da)
        self.wgrad()
