"""The operators in the form of the conformance suite's Octet (tests/conformance/octet_c.py), so that every comparison with
torchao that is made through the C interface is made through torch.ops.octet as well."""
import torch

import octet

FORMATS = {dtype: name for name, dtype in octet.FORMATS.items()}


class TorchOctet:
    def __init__(self, device):
        self.device = device

    def _run(self, name, *args):
        moved = [arg.to(self.device) if isinstance(arg, torch.Tensor) else arg for arg in args]
        result = getattr(torch.ops.octet, name)(*moved)
        return result.cpu() if isinstance(result, torch.Tensor) else tuple(part.cpu() for part in result)

    @staticmethod
    def _parts(parts, scaling):
        data, scale, inverse = parts
        return (data, scale, None) if scaling == "mx" else (data, scale, inverse)

    def _quantize(self, name, inputs, dtype, scaling, rounding, mode):
        out = self._run(name, *inputs, scaling, FORMATS[dtype], rounding, mode)
        if len(out) == 3:
            return self._parts(out, scaling)
        return self._parts(out[:3], scaling), self._parts(out[3:], scaling)

    def rows(self, x, dtype, scaling="rowwise", rounding="power_of_two", mode="rceil"):
        return self._quantize("quantize_rows", (x,), dtype, scaling, rounding, mode)

    def columns(self, x, ends, alignment, dtype, scaling="rowwise", rounding="power_of_two", mode="rceil"):
        return self._quantize("quantize_columns", (x, ends, alignment), dtype, scaling, rounding, mode)

    def columns_dual(self, x0, x1, ends, alignment, dtype, scaling="rowwise", rounding="power_of_two", mode="rceil"):
        return self._quantize("quantize_columns_dual", (x0, x1, ends, alignment), dtype, scaling, rounding, mode)

    def pair(self, x, ends, alignment, dtype, scaling="rowwise", rounding="power_of_two", mode="rceil"):
        return self._quantize("quantize_pair", (x, ends, alignment), dtype, scaling, rounding, mode)

    def transposed(self, x, ends, alignment, dtype, scaling="rowwise", rounding="power_of_two", mode="rceil"):
        return self._quantize("quantize_transposed", (x, ends, alignment), dtype, scaling, rounding, mode)

    def weights(self, w, dtype, scaling="rowwise", rounding="power_of_two", mode="rceil"):
        both = self._quantize("quantize_weights", (w,), dtype, scaling, rounding, mode)
        for orientation, expected in zip(("along_k", "along_n"), both):
            one = self._quantize("quantize_weights_along", (w, orientation), dtype, scaling, rounding, mode)
            for ours, theirs in zip(one, expected):
                assert ours is theirs is None or torch.equal(_bits(ours), _bits(theirs))
        return both

    def dequantize_rows(self, q, scaling="rowwise", to=torch.float32):
        return self._run("dequantize_rows", q[0], q[1], scaling, FORMATS[to])

    def dequantize_columns(self, q, ends, alignment, tokens, scaling="rowwise", to=torch.float32):
        return self._run("dequantize_columns", q[0], q[1], ends, alignment, tokens, scaling, FORMATS[to])

    def dequantize_weights(self, q, orientation, scaling="rowwise", to=torch.float32):
        return self._run("dequantize_weights", q[0], q[1], orientation, scaling, FORMATS[to])

    def pad_groups(self, x, ends, alignment):
        return self._run("pad_groups", x, ends, alignment)

    def unpad_groups(self, padded, ends, alignment, tokens):
        return self._run("unpad_groups", padded, ends, alignment, tokens)

    def swizzle(self, scale):
        return self._run("swizzle_scales", scale)

    def unswizzle(self, blocked, shape):
        return self._run("unswizzle_scales", blocked, *shape[-2:])

    def swizzle_groups(self, scale, ends):
        return self._run("swizzle_group_scales", scale, ends)

    def unswizzle_groups(self, blocked, ends, shape):
        return self._run("unswizzle_group_scales", blocked, ends, *shape)

    def forward(self, a, w, ends, scaling, to=torch.float32):
        return self._product("grouped_forward", a, w, (ends,), scaling, to)

    def dgrad(self, dy, w, ends, scaling, to=torch.float32):
        return self._product("grouped_dgrad", dy, w, (ends,), scaling, to)

    def wgrad(self, dy, a, ends, alignment, scaling, to=torch.float32):
        return self._product("grouped_wgrad", dy, a, (ends, alignment), scaling, to)

    def _product(self, name, x, y, rest, scaling, to):
        which = 1 if scaling == "mx" else 2
        return self._run(name, x[0], x[which], y[0], y[which], *rest, scaling, "promoted", FORMATS[to])


def _bits(x):
    return x.contiguous().view(torch.uint8)
