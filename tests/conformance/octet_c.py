"""Octet's C interface through ctypes, with torch tensors as memory. Only what the conformance tests need."""

import ctypes
import os
from contextlib import ExitStack

import torch

FORMATS = {
    torch.float32: 0,
    torch.bfloat16: 1,
    torch.float8_e4m3fn: 2,
    torch.float8_e4m3fnuz: 3,
    torch.float8_e5m2: 4,
    torch.float8_e8m0fnu: 5,
}
FORMAT_NAMES = {torch.float8_e4m3fn: "e4m3", torch.float8_e4m3fnuz: "e4m3fnuz", torch.float8_e5m2: "e5m2"}
BACKENDS = {"automatic": 0, "reference": 1, "cpu": 2}
BLOCKS = {"blockwise": 128, "mx": 32}

_lib = ctypes.CDLL(os.environ["OCTET_LIBRARY"])
_lib.octet_last_error.restype = ctypes.c_char_p
_lib.octet_build_info.restype = ctypes.c_char_p
_I64 = ctypes.c_int64


class OctetError(RuntimeError):
    pass


def build_info():
    return _lib.octet_build_info().decode()


def _call(name, *args):
    status = getattr(_lib, name)(*args)
    if status != 0:
        raise OctetError(_lib.octet_last_error().decode())


def _int64s(values):
    return (_I64 * len(values))(*values)


def padded_bound(tokens, count, alignment):
    out = _I64()
    _call("octet_padded_bound", _I64(tokens), _I64(count), _I64(alignment), ctypes.byref(out))
    return out.value


def swizzled_bytes(rows, columns):
    out = _I64()
    _call("octet_swizzled_bytes", _I64(rows), _I64(columns), ctypes.byref(out))
    return out.value


def swizzled_group_bytes(rows, columns, count):
    out = _I64()
    _call("octet_swizzled_group_bytes", _I64(rows), _I64(columns), _I64(count), ctypes.byref(out))
    return out.value


def encode(values, dtype):
    """f32 values -> codes of dtype, by Octet's scalar definition."""
    values = values.contiguous()
    out = poisoned(values.shape, dtype)
    _call("octet_encode", FORMATS[dtype], ctypes.c_void_p(values.data_ptr()), _I64(values.numel()),
          ctypes.c_void_p(out.data_ptr()))
    return out


def decode(codes):
    codes = codes.contiguous()
    out = torch.empty(codes.shape, dtype=torch.float32)
    _call("octet_decode", FORMATS[codes.dtype], ctypes.c_void_p(codes.data_ptr()), _I64(codes.numel()),
          ctypes.c_void_p(out.data_ptr()))
    return out


def poisoned(shape, dtype):
    """Memory full of a pattern, so that a byte that was not written is seen."""
    out = torch.empty(shape, dtype=dtype)
    out.view(torch.uint8).fill_(0xA5) if out.numel() else None
    return out


class _Call:
    """Makes the handles of one call and frees them after it."""

    def __init__(self, stack):
        self.stack = stack

    def handle(self, kind, verb, *args):
        out = ctypes.c_void_p()
        _call(f"octet_{kind}_{verb}", *args, ctypes.byref(out))
        self.stack.callback(getattr(_lib, f"octet_{kind}_destroy"), out)
        return out

    def tensor(self, tensor):
        if tensor is None:
            return None
        return self.handle("tensor", "create", ctypes.c_void_p(tensor.data_ptr()), FORMATS[tensor.dtype], tensor.dim(),
                           _int64s(tensor.shape), _int64s(tensor.stride()), 0, 0)

    def groups(self, ends):
        assert ends.dtype == torch.int32 and ends.is_contiguous()
        return self.handle("groups", "create", ctypes.c_void_p(ends.data_ptr()), _I64(ends.numel()), 0, 0)

    def quantized(self, parts):
        if parts is None:
            return None
        data, scale, inverse = parts
        return self.handle("quantized", "create", self.tensor(data), self.tensor(scale), self.tensor(inverse))

    def operand(self, parts, scaling):
        return self.handle("operand", "create_quantized", self.quantized(parts), scaling.encode())

    def options(self, **options):
        handle = self.handle("quantize_options", "create")
        for name, value in options.items():
            _call("octet_quantize_options_set", handle, name.encode(), value.encode())
        return handle

    def execution(self, backend):
        handle = self.handle("execution", "create")
        _call("octet_execution_set_backend", handle, BACKENDS[backend])
        return handle


class Octet:
    """The operations on one backend. Quantizers return (data, scale, inverse); mx has no inverse."""

    def __init__(self, backend):
        self.backend = backend

    def _run(self, name, build):
        with ExitStack() as stack:
            call = _Call(stack)
            _call(name, *build(call), call.execution(self.backend))

    @staticmethod
    def _outputs(data_shape, scale_shape, scaling, dtype):
        data = poisoned(data_shape, dtype)
        if scaling == "mx":
            return data, poisoned(scale_shape, torch.float8_e8m0fnu), None
        return data, poisoned(scale_shape, torch.float32), poisoned(scale_shape, torch.float32)

    @staticmethod
    def _options(call, scaling, dtype, rounding, mode):
        return call.options(scaling=scaling, format=FORMAT_NAMES[dtype], scale_rounding=rounding, mx_mode=mode)

    def _rows_out(self, x, scaling, dtype):
        m, k = x.shape
        shape = (m,) if scaling == "rowwise" else (m, -(-k // BLOCKS[scaling]))
        return self._outputs((m, k), shape, scaling, dtype)

    def _tokens_out(self, features, tokens, ends, alignment, scaling, dtype):
        padded = padded_bound(tokens, ends.numel(), alignment)
        shape = (ends.numel(), features) if scaling == "rowwise" else (features, padded // BLOCKS[scaling])
        return self._outputs((features, padded), shape, scaling, dtype)

    def rows(self, x, dtype, scaling="rowwise", rounding="power_of_two", mode="rceil"):
        out = self._rows_out(x, scaling, dtype)
        self._run("octet_quantize_rows", lambda c: (
            c.tensor(x), self._options(c, scaling, dtype, rounding, mode), c.quantized(out)))
        return out

    def columns(self, x, ends, alignment, dtype, scaling="rowwise", rounding="power_of_two", mode="rceil"):
        out = self._tokens_out(x.shape[1], x.shape[0], ends, alignment, scaling, dtype)
        self._run("octet_quantize_columns", lambda c: (
            c.tensor(x), c.groups(ends), _I64(alignment), self._options(c, scaling, dtype, rounding, mode),
            c.quantized(out)))
        return out

    def columns_dual(self, x0, x1, ends, alignment, dtype, scaling="rowwise", rounding="power_of_two", mode="rceil"):
        out0, out1 = (self._tokens_out(x.shape[1], x.shape[0], ends, alignment, scaling, dtype) for x in (x0, x1))
        self._run("octet_quantize_columns_dual", lambda c: (
            c.tensor(x0), c.tensor(x1), c.groups(ends), _I64(alignment),
            self._options(c, scaling, dtype, rounding, mode), c.quantized(out0), c.quantized(out1)))
        return out0, out1

    def pair(self, x, ends, alignment, dtype, scaling="rowwise", rounding="power_of_two", mode="rceil"):
        rows = self._rows_out(x, scaling, dtype)
        columns = self._tokens_out(x.shape[1], x.shape[0], ends, alignment, scaling, dtype)
        self._run("octet_quantize_pair", lambda c: (
            c.tensor(x), c.groups(ends), _I64(alignment), self._options(c, scaling, dtype, rounding, mode),
            c.quantized(rows), c.quantized(columns)))
        return rows, columns

    def transposed(self, x, ends, alignment, dtype, scaling="rowwise", rounding="power_of_two", mode="rceil"):
        out = self._tokens_out(x.shape[0], x.shape[1], ends, alignment, scaling, dtype)
        self._run("octet_quantize_transposed", lambda c: (
            c.tensor(x), c.groups(ends), _I64(alignment), self._options(c, scaling, dtype, rounding, mode),
            c.quantized(out)))
        return out

    def weights(self, w, dtype, scaling="rowwise", rounding="power_of_two", mode="rceil"):
        """Both orientations: along K as [E, N, K], along N as [E, K, N]."""
        experts, n, k = w.shape

        def out(rows, columns):
            if scaling == "rowwise":
                shape = (experts, rows)
            elif scaling == "blockwise":
                shape = (experts, -(-rows // 128), -(-columns // 128))
            else:
                shape = (experts, rows, -(-columns // 32))
            return self._outputs((experts, rows, columns), shape, scaling, dtype)

        along_k, along_n = out(n, k), out(k, n)
        self._run("octet_quantize_weights", lambda c: (
            c.tensor(w), self._options(c, scaling, dtype, rounding, mode), c.quantized(along_k), c.quantized(along_n)))
        return along_k, along_n

    def dequantize_rows(self, q, scaling="rowwise", to=torch.float32):
        x = poisoned(q[0].shape, to)
        self._run("octet_dequantize_rows", lambda c: (
            c.quantized(q), self._options(c, scaling, q[0].dtype, "exact", "rceil"), c.tensor(x)))
        return x

    def dequantize_columns(self, q, ends, alignment, tokens, scaling="rowwise", to=torch.float32):
        x = poisoned((tokens, q[0].shape[0]), to)
        self._run("octet_dequantize_columns", lambda c: (
            c.quantized(q), c.groups(ends), _I64(alignment), self._options(c, scaling, q[0].dtype, "exact", "rceil"),
            c.tensor(x)))
        return x

    def dequantize_weights(self, q, orientation, scaling="rowwise", to=torch.float32):
        experts, rows, columns = q[0].shape
        shape = (experts, rows, columns) if orientation == "along_k" else (experts, columns, rows)
        w = poisoned(shape, to)
        self._run("octet_dequantize_weights", lambda c: (
            c.quantized(q), 0 if orientation == "along_k" else 1,
            self._options(c, scaling, q[0].dtype, "exact", "rceil"), c.tensor(w)))
        return w

    def pad_groups(self, x, ends, alignment):
        padded = poisoned((padded_bound(x.shape[0], ends.numel(), alignment), x.shape[1]), x.dtype)
        padded_ends = torch.full_like(ends, -1)
        self._run("octet_pad_groups", lambda c: (
            c.tensor(x), c.groups(ends), _I64(alignment), c.tensor(padded), ctypes.c_void_p(padded_ends.data_ptr())))
        return padded, padded_ends

    def unpad_groups(self, padded, ends, alignment, tokens):
        x = poisoned((tokens, padded.shape[1]), padded.dtype)
        self._run("octet_unpad_groups", lambda c: (
            c.tensor(padded), c.groups(ends), _I64(alignment), c.tensor(x)))
        return x

    def swizzle(self, scale):
        """[R, C] -> bytes, or [E, R, C] -> [E, bytes]."""
        size = swizzled_bytes(*scale.shape[-2:])
        blocked = poisoned((size,) if scale.dim() == 2 else (scale.shape[0], size), torch.float8_e8m0fnu)
        self._run("octet_swizzle_scales", lambda c: (c.tensor(scale), c.tensor(blocked)))
        return blocked

    def unswizzle(self, blocked, shape):
        scale = poisoned(shape, torch.float8_e8m0fnu)
        self._run("octet_unswizzle_scales", lambda c: (c.tensor(blocked), c.tensor(scale)))
        return scale

    def swizzle_groups(self, scale, ends):
        size = swizzled_group_bytes(*scale.shape, ends.numel())
        blocked = poisoned((size,), torch.float8_e8m0fnu)
        self._run("octet_swizzle_group_scales", lambda c: (c.tensor(scale), c.groups(ends), c.tensor(blocked)))
        return blocked

    def unswizzle_groups(self, blocked, ends, shape):
        scale = poisoned(shape, torch.float8_e8m0fnu)
        self._run("octet_unswizzle_group_scales", lambda c: (c.tensor(blocked), c.groups(ends), c.tensor(scale)))
        return scale

    def forward(self, a, w, ends, scaling, to=torch.float32):
        """a: rows of [M, K]; w: along K, [E, N, K]. -> [M, N]"""
        y = poisoned((a[0].shape[0], w[0].shape[1]), to)
        self._run("octet_grouped_forward", lambda c: (
            c.operand(a, scaling), c.operand(w, scaling), c.groups(ends), c.tensor(y), None))
        return y

    def dgrad(self, dy, w, ends, scaling, to=torch.float32):
        """dy: rows of [M, N]; w: along N, [E, K, N]. -> [M, K]"""
        da = poisoned((dy[0].shape[0], w[0].shape[1]), to)
        self._run("octet_grouped_dgrad", lambda c: (
            c.operand(dy, scaling), c.operand(w, scaling), c.groups(ends), c.tensor(da), None))
        return da

    def wgrad(self, dy, a, ends, alignment, scaling, to=torch.float32):
        """dy, a: columns, [N, P] and [K, P]. -> [E, N, K]"""
        dw = poisoned((ends.numel(), dy[0].shape[0], a[0].shape[0]), to)
        self._run("octet_grouped_wgrad", lambda c: (
            c.operand(dy, scaling), c.operand(a, scaling), c.groups(ends), _I64(alignment), c.tensor(dw), None))
        return dw
