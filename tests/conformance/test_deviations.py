"""Every place where Octet and its peers disagree, with both sides pinned. docs/numerics.md has a row for each.

When a peer changes its mind, a test here fails and the row goes.
"""

import pytest
import torch

import octet_c
import references as ref

E4M3, FNUZ, E5M2 = torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2
NOT_RCEIL = ["floor", "ceil", "even"]


def block(values, dtype=torch.float32):
    """One MX block: the values, then zeros."""
    x = torch.zeros(1, 32, dtype=dtype)
    x[0, : len(values)] = torch.tensor(values, dtype=torch.float64).to(dtype)
    return x


def mx(octet, x, mode, fp8=E4M3):
    data, scale, _ = octet.rows(x, fp8, scaling="mx", mode=mode)
    return scale.view(torch.uint8).item(), data[0].float()


def torchao_mx(x, mode, fp8=E4M3):
    scale, data = ref.to_mx(x, fp8, 32, ref.MX_MODES[mode])
    return scale.view(torch.uint8).item(), data[0].float()


@pytest.mark.parametrize("k", [10, 20, 35])
def test_rounding_down_to_a_power_of_two(octet, k):
    """Just below 2^k torchao's f32 log2 rounds up to k, and the scale comes out above its exact value."""
    amax = torch.nextafter(torch.tensor(448.0 * 2.0**-k), torch.tensor(torch.inf))
    x = torch.stack([amax, amax / 2]).view(1, 2)
    exact = ref.amax_to_scale(amax, E4M3)
    assert exact < 2.0**k
    assert ref.amax_to_scale(amax, E4M3, True) == 2.0**k
    assert octet.rows(x, E4M3)[1].item() == 2.0 ** (k - 1)


def test_rounding_down_to_a_power_of_two_cannot_differ_for_bf16():
    every = torch.arange(0x7F80, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    for fp8 in (E4M3, FNUZ, E5M2):
        assert (ref.amax_to_scale(every, fp8, True) <= ref.amax_to_scale(every, fp8, False)).all()


@pytest.mark.parametrize("k", [-10, -30, 20])
def test_mx_rceil_just_above_a_power_of_two(octet, k):
    """The same log2: torchao's scale is half of what the largest element needs, and that element saturates."""
    amax = torch.nextafter(torch.tensor(448.0 * 2.0**k), torch.tensor(torch.inf)).item()
    assert amax / 448.0 > 2.0**k
    x = block([amax])
    assert torchao_mx(x, "rceil")[0] == 127 + k
    assert mx(octet, x, "rceil")[0] == 127 + k + 1


@pytest.mark.parametrize("infinity", [float("inf"), float("-inf")])
@pytest.mark.parametrize("source", [torch.bfloat16, torch.float32], ids=str)
def test_mx_infinity(octet, infinity, source):
    """torchao keeps a number for the scale and saturates the infinity to a large finite value; Octet says NaN."""
    x = block([infinity, 1.0], source)
    for mode, code in (("rceil", 254), ("floor", 247), ("ceil", 247), ("even", 247)):
        theirs, data = torchao_mx(x, mode)
        assert theirs == code and data[0].abs() == 448.0
        ours, data = mx(octet, x, mode)
        assert ours == 255 and data.isnan().all()


@pytest.mark.parametrize("mode", NOT_RCEIL)
def test_mx_nan_data(octet, mode):
    """Both give the scale 255. Beside it torchao divides by infinity, which leaves zeros; Octet leaves NaNs."""
    x = block([float("nan"), 1.0])
    theirs, data = torchao_mx(x, mode)
    assert theirs == 255 and data[1] == 0.0
    ours, data = mx(octet, x, mode)
    assert ours == 255 and data.isnan().all()


def test_mx_nan_data_of_rceil(octet):
    x = block([float("nan"), 1.0])
    for code, data in (torchao_mx(x, "rceil"), mx(octet, x, "rceil")):
        assert code == 255 and data.isnan().all()


@pytest.mark.parametrize("mode,their_multiplier", [("rceil", 1.0), ("floor", 2.0**126), ("ceil", 2.0**126), ("even", 2.0**126)])
def test_mx_smallest_scale(octet, mode, their_multiplier):
    """Scale byte 0 is 2^-127, so Octet multiplies by 2^127. torchao's f32 on the GPU flushes 2^-127 to zero, and it
    multiplies by something else, with which its own decoder gives another value back."""
    tiny = 2.0**-127
    x = block([tiny, -tiny / 2])
    theirs, data = torchao_mx(x, mode)
    assert theirs == 0 and data[0] == (tiny * their_multiplier if their_multiplier > 1.0 else 0.0)
    ours, data = mx(octet, x, mode)
    assert ours == 0 and data[0] == 1.0 and data[1] == -0.5


@pytest.mark.parametrize("fp8,overflow", [(FNUZ, float("nan")), (E5M2, float("inf"))], ids=["e4m3fnuz", "e5m2"])
def test_torch_cast_does_not_saturate(fp8, overflow):
    """torch's plain cast saturates e4m3 and not the others; torchao clamps before it, and so agrees with Octet."""
    x = torch.tensor([1e6])
    assert torch.equal(x.to(fp8).float(), torch.tensor([overflow])) or (overflow != overflow and x.to(fp8).float().isnan().all())
    assert octet_c.encode(x, fp8).float().item() == torch.finfo(fp8).max
    assert ref.to_fp8_saturated(x, fp8).float().item() == torch.finfo(fp8).max
    assert x.to(E4M3).float().item() == 448.0


@pytest.mark.parametrize("source", [torch.bfloat16, torch.float32], ids=str)
def test_blockwise_column_floor_of_amax(octet, source):
    """torchao's 128x1 reference clamps amax in the input's format, its 1x128 one in f64 as Octet does: their scales of
    zeros differ from each other in bf16."""
    x = torch.zeros(128, 128, dtype=source)
    rounded = torch.tensor(1e-12, dtype=source).double()
    theirs = ref.torch_blockwise_scale_act_quant_rhs(x)[1]
    assert torch.equal(theirs, torch.full_like(theirs, 1.0 / (448.0 / rounded).float()))
    across = ref.torch_blockwise_scale_act_quant_lhs(x)[1]
    ours = octet.columns(x, torch.tensor([128], dtype=torch.int32), 128, E4M3, scaling="blockwise", rounding="exact")[2]
    assert torch.equal(ours, torch.full_like(ours, across[0, 0].item()))
    assert (ours[0, 0] != theirs[0, 0]) or source == torch.float32


def test_empty_group(octet):
    """torchao's per-group reference cannot take the maximum of an empty group; Octet writes the scale of amax = 0."""
    x = torch.ones(4, 3)
    ends = torch.tensor([0, 4], dtype=torch.int32)
    with pytest.raises(Exception):
        ref.torch_to_float8_per_group_colwise(x, ends)
    assert (octet.columns(x, ends, 16, E4M3)[1][0] == 2.0**48).all()


def test_short_tails(octet):
    """torchao takes whole blocks only; Octet any length."""
    x = torch.ones(1, 33)
    with pytest.raises(Exception):
        ref.to_mx(x, E4M3, 32)
    assert octet.rows(x, E4M3, scaling="mx")[1].shape == (1, 2)
    with pytest.raises(Exception):
        ref.torch_blockwise_scale_act_quant_lhs(torch.ones(1, 129))
    assert octet.rows(torch.ones(1, 129), E4M3, scaling="blockwise")[1].shape == (1, 2)


def test_buffers_of_padded_groups(octet):
    """The same contents; torchao allocates a spare alignment a group, Octet the most that can be needed."""
    x, ends = torch.ones(40, 4), torch.tensor([10, 40], dtype=torch.int32)
    assert ref.torch_pad_token_groups(x, ends, 16)[0].shape[0] == 80
    assert octet.pad_groups(x, ends, 16)[0].shape[0] == 64
    scale = torch.full((40, 4), 127, dtype=torch.uint8)
    assert ref.torch_to_blocked_2d_M_groups(scale, ends)[0].shape[0] == 40 + 2 * 128
    assert octet.swizzle_groups(scale.view(torch.float8_e8m0fnu), ends).numel() == 256 * 4
