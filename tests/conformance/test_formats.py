"""Element formats against torch's own casts."""

import pytest
import torch

import octet_c
from compare import assert_same
from references import to_fp8_saturated

EVERY_BF16 = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)


def _many_f32():
    g = torch.Generator().manual_seed(1)
    bits = torch.randint(-(2**31), 2**31, (4_000_000,), generator=g, dtype=torch.int64).to(torch.int32)
    # The numbers around every binade's edge, where rounding and subnormals change their step.
    edges = (torch.arange(256, dtype=torch.int64).view(-1, 1) * 2**23 + torch.arange(-64, 64)).flatten()
    edges = edges[(edges >= 0) & (edges < 2**31)].to(torch.int32)
    # Around every midpoint of two e4m3 or e5m2 values: the top mantissa bits and one, give or take a unit.
    halves = (torch.arange(2**13, dtype=torch.int64).view(-1, 1) * 2**18 + torch.arange(-1, 2)).flatten()
    halves = halves[(halves >= 0) & (halves < 2**31)].to(torch.int32)
    positive = torch.cat([edges, halves])
    return torch.cat([bits, positive, positive | torch.tensor(-(2**31), dtype=torch.int32)]).view(torch.float32)


def test_every_bf16_to_fp8(fp8):
    assert_same(octet_c.encode(EVERY_BF16.float(), fp8), to_fp8_saturated(EVERY_BF16, fp8), f"bf16 to {fp8}")


def test_many_f32_to_fp8(fp8):
    values = _many_f32()
    assert_same(octet_c.encode(values, fp8), to_fp8_saturated(values, fp8), f"f32 to {fp8}")


def test_torch_cast_without_saturation_agrees_in_range(fp8):
    values = _many_f32()
    values = values[values.abs() <= torch.finfo(fp8).max]
    assert_same(octet_c.encode(values, fp8), values.to(fp8), f"f32 to {fp8}")


@pytest.mark.parametrize("dtype", [d for d in octet_c.FORMATS if d.itemsize == 1], ids=str)
def test_every_code_to_f32(dtype):
    codes = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(dtype)
    assert_same(octet_c.decode(codes), codes.to(torch.float32), str(dtype))


def test_f32_to_bf16_and_back():
    values = _many_f32()
    assert_same(octet_c.encode(values, torch.bfloat16), values.to(torch.bfloat16), "f32 to bf16")
    assert_same(octet_c.decode(EVERY_BF16), EVERY_BF16.float(), "bf16 to f32")
